"""Groups that are over are deleted so long after as their user said, and nothing else is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from kbatch.api.objects import Job, Pod, PodGroup, timestamp_us
from kbatch.kube.errors import ApiError
from operators.podgroup.ended import Ended
from operators.podgroup.reconcile import observe
from tests.unit.podgroup.build import condition, group, index, job, pod

END = (timestamp_us("2026-01-01T00:00:00Z") or 0) / 1_000_000


class Rig:
    """The group ns/pg, which ended at `END`, and two clocks: for how long the process runs, and the time of day."""

    def __init__(self, after: int | None, *, wall: float = 0.0, ended: str = "Completed") -> None:
        self.deleted: list[Any] = []
        self.answer: ApiError | None = None
        self.now, self.wall = 1000.0, END + wall
        self.group = group(phase="Completed", conditions=(condition(ended),), version="7")
        self.group.spec.ttl_seconds_after_finished = after
        self.ended = Ended(self, clock=lambda: self.now, wall=lambda: self.wall)

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        assert (method, path.rpartition("/")[2]) == ("DELETE", "pg")
        self.deleted.append(body)
        if self.answer is not None:
            raise self.answer
        return b"{}"

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError

    async def look(self, *objects: Pod | Job, of: PodGroup | None = None) -> float | None:
        """Whether it was deleted (0), else in how many seconds to look again; None: never."""
        waits: list[float] = []
        of = of or self.group
        if await self.ended.remove("ns/pg", of, observe(index(*objects, of), of), waits):
            return 0
        return waits[0] if waits else None

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds


async def test_a_group_is_kept_unless_its_user_says_otherwise() -> None:
    rig = Rig(None, wall=10**9)
    assert await rig.look() is None
    assert (rig.deleted, len(rig.ended)) == ([], 0)


@pytest.mark.parametrize("ended", ["Completed", "Failed"])
async def test_it_is_deleted_when_its_time_has_come_as_it_was_seen(ended: str) -> None:
    rig = Rig(300, ended=ended)
    assert await rig.look(pod("a", "Succeeded")) == 300
    rig.passes(299)
    assert await rig.look() == 1
    rig.passes(1)
    assert await rig.look() == 0
    (options,) = rig.deleted
    assert options["preconditions"] == {"uid": "g", "resourceVersion": "7"}
    assert options["propagationPolicy"] == "Background"
    assert len(rig.ended) == 0


async def test_what_is_not_finished_is_not_deleted() -> None:
    rig = Rig(0, wall=10**6)
    assert await rig.look(pod("a", "Running", node="n")) is None
    assert await rig.look(pod("a")) is None
    assert await rig.look(job()) is None, "a Job of it goes on"
    again = group(phase="Running", conditions=(condition("Completed", "False"),))
    again.spec.ttl_seconds_after_finished = 0
    assert await rig.look(of=again) is None
    assert rig.deleted == []
    rig.answer = ApiError(409, "Conflict")
    with pytest.raises(ApiError):
        await rig.look()
    rig.answer = ApiError(404, "NotFound")
    assert await rig.look(job(ended="Complete")) == 0


async def test_clocks_that_are_wrong_by_hours_delete_nothing_at_once_and_keep_nothing_for_ever() -> None:
    ahead = Rig(3600, wall=7200)
    assert await ahead.look() == 60
    ahead.passes(60)
    assert await ahead.look() == 0
    short = Rig(5, wall=7200)
    assert await short.look() == 5
    behind = Rig(100, wall=-7200)
    assert await behind.look() == 100
    behind.passes(100)
    assert await behind.look() == 0


async def test_an_end_that_was_taken_back_counts_from_the_next_one() -> None:
    rig = Rig(50)
    assert await rig.look() == 50
    rig.passes(49)
    assert await rig.look(pod("a")) is None
    rig.wall = END
    assert await rig.look() == 50
