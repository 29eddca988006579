"""The label of namespaces that have a ResourceQuota: when it is written, and when nothing is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.names import QUOTA_LABEL
from kbatch.api.objects import Metadata, Namespace, ResourceQuota, ResourceQuotaSpec
from kbatch.kube.errors import ApiError
from kbatch.kube.informer import Batch
from kbatch.kube.pauses import Pauses
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from operators.queue.marks import QuotaMarks


def namespace(name: str, mark: str | None = None) -> Upsert:
    labels = {"team": "lab"} | ({} if mark is None else {QUOTA_LABEL: mark})
    return Upsert(Namespace(metadata=Metadata(name=name, labels=labels)))


def quota(where: str, name: str = "q", hard: dict[str, str | int | float] | None = None) -> Upsert:
    limits = ResourceQuotaSpec(hard=hard or {"pods": 10})
    return Upsert(ResourceQuota(metadata=Metadata(name=name, namespace=where), spec=limits))


def no_quota(where: str, name: str = "q") -> Delete:
    return Delete(ResourceQuota, where, name)


class FakeApi:
    """Keeps what is written, and tells the marks of it as a watch would."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, str | None]] = []
        self.refusals: list[ApiError] = []
        self.attempts = 0
        self.marks: QuotaMarks | None = None
        self.wrote = asyncio.Event()

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        assert method == "PATCH"
        self.attempts += 1
        if self.refusals:
            raise self.refusals.pop(0)
        name = path.removeprefix("/api/v1/namespaces/")
        mark = body["metadata"]["labels"][QUOTA_LABEL]
        assert body == {"metadata": {"labels": {QUOTA_LABEL: mark}}}
        self.writes.append((name, mark))
        assert self.marks is not None
        self.marks.receive(Batch((namespace(name, mark),), complete=True))
        self.wrote.set()
        return b"{}"

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError


class Rig:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.marks = self.api.marks = QuotaMarks(self.api, ReconcileMetrics(CollectorRegistry()), gap=0.0, retry=0.01)

    def see(self, *events: Event) -> None:
        self.marks.receive(Batch(events, complete=True))

    async def writes(self, count: int) -> list[tuple[str, str | None]]:
        """What was written, once it is so much."""
        async with asyncio.timeout(5):
            while len(self.api.writes) < count:
                self.api.wrote.clear()
                await self.api.wrote.wait()
        return self.api.writes


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """It is at work."""
    rig = Rig()
    work = asyncio.create_task(rig.marks.run())
    yield rig
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_a_namespace_has_the_label_as_long_as_it_has_a_quota(rig: Rig) -> None:
    rig.see(quota("a"), quota("a", "second"), namespace("a"), namespace("b"))  # in any order
    assert await rig.writes(1) == [("a", "true")]
    rig.see(quota("a"), no_quota("a"))
    assert await rig.marks.look_at("a")
    rig.see(no_quota("a", "second"))
    assert await rig.writes(2) == [("a", "true"), ("a", None)]


async def test_what_is_right_already_is_not_written(rig: Rig) -> None:
    rig.see(namespace("a", "true"), quota("a"), namespace("b"))
    for name in ("a", "b", "unknown"):
        assert await rig.marks.look_at(name)
    assert rig.api.writes == []


async def test_what_somebody_else_wrote_is_mended(rig: Rig) -> None:
    rig.see(namespace("a", "no"), quota("a"), namespace("b", "true"))
    assert sorted(await rig.writes(2)) == [("a", "true"), ("b", None)]


async def test_a_quota_that_cannot_be_read_is_one(rig: Rig) -> None:
    rig.see(namespace("a"), Unreadable(ResourceQuota, "a", "q", "u", "", "bad"))
    assert await rig.writes(1) == [("a", "true")]


async def test_a_write_that_failed_is_tried_again_and_not_where_the_namespace_is_gone(rig: Rig) -> None:
    rig.api.refusals = [ApiError(500, "InternalError", "no"), ApiError(429, "TooManyRequests", "later")]
    rig.see(namespace("a"), quota("a"))
    assert await rig.writes(1) == [("a", "true")]
    rig.see(namespace("b"))
    rig.api.refusals = [ApiError(404, "NotFound", "gone")]
    rig.see(quota("b"), quota("c"), namespace("c"))
    assert await rig.writes(2) == [("a", "true"), ("c", "true")]


async def test_a_namespace_that_refuses_is_tried_ever_more_seldom_whatever_its_quota_tells(rig: Rig) -> None:
    """A quota changes with each pod of its namespace."""
    rig.api.refusals = [ApiError(403, "Forbidden", "labels of namespaces are fixed")] * 1000
    rig.see(namespace("a"), quota("a"))
    for _ in range(100):
        await asyncio.sleep(0.005)
        rig.see(quota("a"))
    assert 3 <= rig.api.attempts <= 12  # pauses of 5 to 10 ms, 10 to 20, 20 to 40 ...


async def test_of_failures_in_a_row_few_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.see(namespace("a"), quota("a"), namespace("b"), quota("b"))
    rig.api.refusals = [ApiError(403, "Forbidden", "fixed")] * 11
    for _ in range(10):
        assert not await rig.marks.look_at("a")
    assert not await rig.marks.look_at("b")
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == ["a"] * 4 + ["b"]
    assert await rig.marks.look_at("a")
    rig.see(namespace("a"))
    rig.api.refusals = [ApiError(403, "Forbidden", "fixed")]
    caplog.clear()
    assert not await rig.marks.look_at("a")
    assert len(caplog.records) == 1, "it had succeeded meanwhile"


async def test_a_namespace_made_again_is_tried_at_once(rig: Rig) -> None:
    rig.marks._pauses = Pauses(first=60.0, longest=60.0)
    rig.api.refusals = [ApiError(403, "Forbidden", "fixed")]
    rig.see(namespace("a"), quota("a"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert rig.api.attempts == 1
    rig.see(Delete(Namespace, "", "a"))
    rig.see(namespace("a"))
    assert await rig.writes(1) == [("a", "true")]


async def test_a_namespace_that_is_gone_is_forgotten(rig: Rig) -> None:
    rig.see(namespace("a"), Delete(Namespace, "", "a"), quota("a"))
    assert await rig.marks.look_at("a")
    assert rig.api.writes == []


async def test_a_quota_that_only_counts_other_objects_marks_nothing(rig: Rig) -> None:
    """One that limits the number of PodGroups stands in many namespaces: pods there must not be reviewed for it."""
    groups: dict[str, str | int | float] = {
        "count/podgroups.scheduling.incubator.k8s.io": "5000",
        "requests.storage": "1Ti",
    }
    rig.see(namespace("a"), namespace("b"), namespace("c"))
    rig.see(quota("a", hard=groups), quota("b", hard={"count/pods": 5}), quota("c", hard={"limits.memory": "1Gi"}))
    assert sorted(await rig.writes(2)) == [("b", "true"), ("c", "true")]
    # It may come to limit pods, and cease to.
    rig.see(quota("a", hard=groups | {"requests.nvidia.com/gpu": 8}))
    assert (await rig.writes(3))[2:] == [("a", "true")]
    rig.see(quota("a", hard=groups))
    assert (await rig.writes(4))[3:] == [("a", None)]


async def test_namespaces_that_are_not_looked_after_keep_the_label_that_they_have() -> None:
    """There is no right to change them, where an installation for all namespaces became one for some."""
    marks = QuotaMarks(FakeApi(), ReconcileMetrics(CollectorRegistry()), within=lambda name: name == "ours")
    marks.receive(Batch((namespace("theirs", "true"), namespace("ours", "true")), complete=True))
    assert len(marks._queue) == 1
    assert await marks._queue.get() == "ours"
