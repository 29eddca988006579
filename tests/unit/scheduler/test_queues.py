"""What queues have used is written down: seldom, only what has changed, and at the end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.objects import Queue, QueueFlow, QueueStatus
from kbatch.engine import QueueStanding
from kbatch.kube.errors import ApiError, NoAnswerError
from kbatch.metrics import FlowMetrics
from kbatch.model.events import Upsert
from kbatch.model.usage import Anchor
from kbatch.resources import MILLION
from kbatch.times import HOUR, SECOND
from operators.scheduler.cache import Cache
from operators.scheduler.queues import QueueWriter
from tests.unit.scheduler.fakes import FakeApi, cache_with, queue, until

START = 1_767_225_600 * SECOND


def named(name: str, status: QueueStatus | None = None) -> Queue:
    found = queue(name)
    found.status = status or QueueStatus()
    return found


def standing(value: int = 4, *, usage: int = 2, charged: int = 0, fair_share: int = 5) -> QueueStanding:
    flow = Anchor(value * MILLION, value * MILLION, usage * MILLION, 0, START)
    return QueueStanding(flow, fair_share * MILLION, charged * MILLION // 2, HOUR)


def writer(api: FakeApi, cache: Cache, *, apart: float = 0.0) -> tuple[QueueWriter, CollectorRegistry]:
    registry = CollectorRegistry()
    return QueueWriter(api, cache, FlowMetrics(registry), apart=apart, wall=lambda: START / SECOND + 3600), registry


async def drained(told: QueueWriter, seconds: float = 1.0) -> bool:
    """Have it write what it has to, and end it."""
    task = asyncio.create_task(told.run())
    try:
        return await told.drain(seconds)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


SAID = {
    "flow": {
        "value": 4,
        "unlimitedValue": 4,
        "usage": 2,
        "unlimitedUsage": 0,
        "time": "2026-01-01T00:00:00.000000Z",
    },
    "fairShare": 5,
    "excessCharged": "1.5",
}


async def test_all_that_it_owns_is_applied_in_its_own_name() -> None:
    api = FakeApi()
    told, _ = writer(api, cache_with(named("a"), named("b")))
    told.take({"a": standing(charged=3), "b": QueueStanding(None, MILLION, 0, HOUR)})
    assert await drained(told)
    found = {call.path.split("/")[-2]: call for call in api.calls}
    assert sorted(found) == ["a", "b"]
    assert found["a"].body["status"] == SAID
    assert found["b"].body["status"] == {"fairShare": 1}
    assert {call.params["fieldManager"] for call in api.calls} == {"kbatch-scheduler"}
    assert all(call.path.endswith("/status") for call in api.calls)


async def test_what_stands_there_is_not_written_again() -> None:
    api = FakeApi()
    flow = QueueFlow(value=4, unlimited_value=4, usage=2, time="2026-01-01T00:00:00.000000Z")
    stands = QueueStatus(flow=flow, fair_share=5, excess_charged="1.5")
    told, _ = writer(api, cache_with(named("a", stands)))
    told.take({"a": standing(charged=3)})
    await drained(told)
    assert api.calls == []
    told.take({"a": standing(charged=4)})
    await drained(told)
    await drained(told)
    assert len(api.calls) == 1


async def test_it_writes_when_something_changes_and_at_the_end() -> None:
    api = FakeApi()
    told, _ = writer(api, cache_with(named("a")), apart=3600)
    task = asyncio.create_task(told.run())
    try:
        told.take({"a": standing()})
        await until(lambda: len(api.calls) == 1)
        told.take({"a": standing(9)})
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(api.calls) == 1, "not so soon after the last one"
        assert await told.drain(1.0)
        assert len(api.calls) == 2
        assert api.calls[-1].body["status"]["flow"]["value"] == 9
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    ("error", "writes"),
    [(NoAnswerError("PATCH", "/a/status", sent=True, why="down"), 2), (ApiError(404, "NotFound", "gone"), 1)],
    ids=["down", "gone"],
)
async def test_a_write_that_failed_is_tried_again(error: Exception, writes: int) -> None:
    api = FakeApi()
    api.on("PATCH", "/a/status", error, {})
    told, registry = writer(api, cache_with(named("a")))
    told.take({"a": standing()})
    assert await drained(told)
    assert await drained(told)
    result = "failed" if writes > 1 else "gone"
    assert registry.get_sample_value("kbatch_scheduler_queue_writes_total", {"result": result}) == 1
    assert len(api.calls) == writes


async def test_a_writer_that_cannot_write_ends_all_the_same() -> None:
    api = FakeApi()
    api.on("PATCH", "/a/status", NoAnswerError("PATCH", "/a/status", sent=True, why="down"))
    told, _ = writer(api, cache_with(named("a")))
    told.take({"a": standing()})
    assert not await drained(told, 0.1)


async def test_what_stands_of_a_queue_is_taken_away_when_nothing_is_said_of_it_any_more() -> None:
    api = FakeApi()
    stands = QueueStatus(flow=QueueFlow(value=4, time="2026-01-01T00:00:00.000000Z"), fair_share=5)
    told, registry = writer(api, cache_with(named("a", stands), named("b")))
    told.take({})
    assert await drained(told)
    assert [(call.path.split("/")[-2], call.body["status"]) for call in api.calls] == [("a", {})]
    told.take({})
    assert await drained(told)
    assert len(api.calls) == 1
    told.take({"a": standing(), "b": standing()})
    assert registry.get_sample_value("kbatch_scheduler_queue_flow", {"queue": "b"}) is not None
    told.take({"a": standing()})
    assert await drained(told)
    assert {call.path.split("/")[-2] for call in api.calls[1:]} == {"a"}, "nothing stands of b"
    assert registry.get_sample_value("kbatch_scheduler_queue_flow", {"queue": "b"}) is None


async def test_a_queue_that_was_made_anew_is_compared_with_what_it_says() -> None:
    api, cache = FakeApi(), cache_with(named("a"))
    told, _ = writer(api, cache)
    told.take({"a": standing()})
    await drained(told)
    again = named("a")
    again.metadata.uid = "another"
    cache.model.apply(Upsert(again))
    told.take({"a": standing()})
    await drained(told)
    assert len(api.calls) == 2


async def test_it_is_shown_as_metrics_and_fades_there() -> None:
    cache: Any = cache_with(named("a"))
    told, registry = writer(FakeApi(), cache)
    told.take({"a": standing(charged=3)})

    def sample(name: str) -> float | None:
        return registry.get_sample_value(f"kbatch_scheduler_queue_{name}", {"queue": "a"})

    assert [sample(name) for name in ("flow", "usage", "fair_share", "excess_charged_seconds")] == [3.0, 2.0, 5.0, 90]
    told.take({})
    assert [sample(name) for name in ("flow", "usage")] == [None, None]
