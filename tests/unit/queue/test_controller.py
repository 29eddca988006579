"""The operator's work: what it writes, and when it writes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.objects import Metadata, PodGroup, PodGroupSpec, Queue
from kbatch.kube.errors import ApiError
from kbatch.kube.informer import Batch
from kbatch.metrics import QueueMetrics, ReconcileMetrics
from kbatch.model import division_again
from kbatch.model.cluster import ClusterModel
from kbatch.model.division import dividing
from kbatch.model.events import Delete, Event, Upsert
from operators.queue import FIELD_MANAGER
from operators.queue import controller as controlling
from operators.queue.controller import Controller
from operators.queue.status import MOST_RESOURCES, reports
from tests.unit.engine import worlds
from tests.unit.queue.test_status import group, node, queue


class FakeApi:
    """Answers writes as an API server would, and keeps them."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.writes: list[tuple[str, dict[str, Any]]] = []
        self.refusals: list[ApiError] = []
        self.refused: dict[str, int] = {}
        """By Queue whose status is refused: how often it was."""
        self.wrote = asyncio.Event()

    async def request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Any = None, **_: Any
    ) -> bytes:
        assert params is not None
        assert params["fieldManager"] == FIELD_MANAGER
        if self.refusals:
            raise self.refusals.pop(0)
        name = body["metadata"]["name"]
        if name in self.refused:
            self.refused[name] += 1
            raise ApiError(403, "Forbidden", "by a policy")
        if method == "POST":
            self.created.append(name)
            return json.dumps(body).encode()
        assert path.endswith(f"/queues/{name}/status")
        self.writes.append((name, body["status"]))
        self.wrote.set()
        return json.dumps({"metadata": {"name": name}, "status": body["status"]}).encode()

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError


class Rig:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.registry = CollectorRegistry()
        self.controller = Controller(
            self.api, ClusterModel(), QueueMetrics(self.registry), ReconcileMetrics(self.registry), retry=0.01
        )

    def see(self, *events: Event) -> None:
        self.controller.receive(Batch(events, complete=True))

    def gauge(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_a_round_writes_what_differs_and_the_next_writes_nothing(rig: Rig) -> None:
    rig.see(Upsert(node("n", "4")), Upsert(queue("a")), Upsert(queue("b")), Upsert(group("g", "a", cpu="9")))
    assert await rig.controller.round() == 0
    assert {name for name, _ in rig.api.writes} == {"a", "b"}
    assert dict(rig.api.writes)["a"]["deserved"] == {"cpu": "4"}
    assert await rig.controller.round() == 0
    assert len(rig.api.writes) == 2


async def test_only_the_queue_that_changed_is_written(rig: Rig) -> None:
    rig.see(Upsert(node("n", "4")), Upsert(queue("a")), Upsert(queue("b")))
    await rig.controller.round()
    rig.api.writes.clear()
    rig.see(Upsert(group("g", "a", cpu="1")))
    await rig.controller.round()
    assert [name for name, _ in rig.api.writes] == ["a"]


async def test_the_room_of_a_pod_that_terminates_for_too_long_is_divided_no_more(rig: Rig) -> None:
    """Nothing happens meanwhile: the operator looks again when that time is over."""
    since = datetime.now(UTC) - timedelta(seconds=29.5)
    stuck = worlds.pod("stuck", "3", on="n")
    stuck.metadata.deletion_timestamp = since.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    rig.see(Upsert(node("n", "4")), Upsert(queue("a")), Upsert(stuck), Upsert(group("g", "a", cpu="9")))
    task = asyncio.create_task(rig.controller.run())
    async with asyncio.timeout(20):
        while not rig.api.writes or rig.api.writes[-1][1]["deserved"] != {"cpu": "1"}:
            rig.api.wrote.clear()
            await rig.api.wrote.wait()
    assert rig.api.writes[0][1]["deserved"] == {"cpu": "4"}
    task.cancel()


async def test_a_write_that_fails_is_counted_and_made_again(rig: Rig) -> None:
    rig.see(Upsert(queue("a")))
    rig.api.refusals = [ApiError(500, "InternalError")]
    task = asyncio.create_task(rig.controller.run())
    await asyncio.wait_for(rig.api.wrote.wait(), 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert rig.gauge("kbatch_status_writes_total", kind="Queue", result="failed") == 1


def broken(model: ClusterModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model cannot bear a group by the name `bad`."""
    apply = model.apply

    def refusing(event: Event) -> None:
        if isinstance(event, Upsert) and event.obj.metadata.name == "bad":
            raise ValueError("Exceeds the limit")
        apply(event)

    monkeypatch.setattr(model, "apply", refusing)


async def test_an_object_that_breaks_the_model_is_left_out_and_named(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = rig.controller.model
    rig.see(Upsert(node("n", "4")), Upsert(group("bad", "a", cpu="1")))
    broken(model, monkeypatch)
    rig.see(Upsert(group("bad", "a", cpu="3")), Upsert(queue("a")), Upsert(group("g", "a", cpu="2")))
    assert await rig.controller.round() == 0
    assert rig.api.writes[0][1]["requested"] == {"cpu": "2"}
    assert "PodGroup ns/bad" in caplog.text
    assert model.unreadable == {(PodGroup, "ns/bad"): "ValueError: Exceeds the limit"}


async def test_an_object_that_breaks_the_model_while_shares_are_divided_ends_no_round(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controlling, "TURN_SECONDS", 0.0)
    rig.see(*(Upsert(group(f"g{number}", "a", cpu="1")) for number in range(1000)))
    broken(rig.controller.model, monkeypatch)
    rounds = asyncio.create_task(rig.controller.round())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not rounds.done()
    rig.see(Upsert(group("bad", "a", cpu="1")), Upsert(queue("a")))
    assert await rounds == 0
    assert "PodGroup ns/bad" in caplog.text
    assert "a" in rig.controller.model.queues


async def test_a_round_that_raises_is_said_and_tried_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controlling, "GAP_SECONDS", 0.01)
    failures = [ValueError("Exceeds the limit")] * 3

    def failing(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return reports(*given)

    monkeypatch.setattr(controlling, "reports", failing)
    rig.see(Upsert(queue("a")))
    task = asyncio.create_task(rig.controller.run())
    await asyncio.wait_for(rig.api.wrote.wait(), 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    said = [record for record in caplog.records if record.exc_info]
    assert [record.args for record in said] == [(1,), (2,), (3,)]
    assert rig.gauge("kbatch_reconciles_total", result="failed") == 3


async def test_an_answer_that_cannot_be_read_is_a_failure_of_its_queue_alone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig.api, "request", nonsense)
    rig.see(Upsert(queue("a")), Upsert(queue("b")))
    assert await rig.controller.round() == 2


async def nonsense(*_: Any, **__: Any) -> bytes:
    return b"<html>"


async def test_a_queue_whose_status_is_refused_is_tried_ever_more_seldom_and_keeps_no_other_waiting(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controlling, "GAP_SECONDS", 0.002)
    rig.api.refused = {"a": 0}
    rig.see(Upsert(queue("a")), Upsert(queue("b")), Upsert(node("n", "400")))
    task = asyncio.create_task(rig.controller.run())
    for number in range(100):
        await asyncio.sleep(0.005)
        rig.see(Upsert(group(f"g{number}", "b", cpu="1")))
    tried = rig.api.refused["a"]
    assert 3 <= tried <= 12  # pauses of 5 to 10 ms, 10 to 20, 20 to 40 ...
    assert len(rig.api.writes) > 20
    assert len(caplog.records) == tried.bit_length(), "the 1st, 2nd, 4th"
    rig.api.refused = {}
    rig.api.writes.clear()
    async with asyncio.timeout(5):  # by itself: nothing changes any more
        while "a" not in dict(rig.api.writes):
            rig.api.wrote.clear()
            await rig.api.wrote.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(rig.controller._pauses) == 0


async def test_queues_that_are_gone_are_not_waited_for(rig: Rig) -> None:
    rig.api.refused = {"a": 0, "b": 0, "c": 0}
    rig.see(*(Upsert(queue(name)) for name in "abc"))
    assert await rig.controller.round() == 3
    going = queue("b")
    going.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    rig.see(Delete(Queue, "", "a"), Upsert(going))
    await rig.controller.round()
    assert len(rig.controller._pauses) == 1


async def test_a_queue_that_vanished_meanwhile_is_no_failure(rig: Rig) -> None:
    rig.see(Upsert(queue("a")))
    rig.api.refusals = [ApiError(404, "NotFound")]
    assert await rig.controller.round() == 0


async def test_the_default_queue_is_created_only_if_absent(rig: Rig) -> None:
    await rig.controller.ensure_queue("default")
    assert rig.api.created == ["default"]
    rig.api.refusals = [ApiError(409, "AlreadyExists")]
    await rig.controller.ensure_queue("default")
    assert rig.api.created == ["default"]
    rig.api.refusals = [ApiError(403, "Forbidden")]
    with pytest.raises(ApiError):
        await rig.controller.ensure_queue("default")


async def test_metrics_are_in_cores_and_end_with_their_queue(rig: Rig) -> None:
    rig.see(Upsert(node("n", "4")), Upsert(queue("a")), Upsert(group("g", "a", "InQueue", cpu="1500m")))
    await rig.controller.round()
    assert rig.gauge("kbatch_queue_deserved", queue="a", resource="cpu") == 1.5
    assert rig.gauge("kbatch_queue_groups", queue="a", phase="inqueue") == 1
    rig.see(Delete(Queue, "", "a"))
    await rig.controller.round()
    assert rig.gauge("kbatch_queue_deserved", queue="a", resource="cpu") is None


async def test_the_event_loop_has_turns_while_shares_are_divided_and_events_wait(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two parts of the nodes that overlap: a division of several pieces."""
    monkeypatch.setattr(controlling, "TURN_SECONDS", 0.0)
    for at in range(3):
        rig.see(
            Upsert(worlds.node(f"n{at}", "4", labels={f"l{at}": "x", f"l{at - 1}": "x"})),
            Upsert(queue(f"q{at}")),
            Upsert(worlds.pod(f"p{at}", queue=f"q{at}", cpu="9", node_selector={f"l{at}": "x"})),
        )
    model = rig.controller.model
    generation = model.generation
    rounds = asyncio.create_task(rig.controller.round())
    await asyncio.sleep(0)
    rig.see(Upsert(node("late", "100")))
    await asyncio.sleep(0)
    assert not rounds.done()
    assert model.generation == generation, "what is divided does not change meanwhile"
    assert await rounds == 0
    assert sum(int(status["deserved"]["cpu"]) for _, status in rig.api.writes) == 12
    assert "late" in model.table.names


async def test_shares_are_divided_once_until_something_changes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    divided: list[int] = []

    def counting(*given: Any) -> Iterator[Any]:
        divided.append(1)
        return dividing(*given)

    monkeypatch.setattr(division_again, "dividing", counting)
    rig.see(Upsert(node("n", "4")), Upsert(queue("a")), Upsert(queue("b")), Upsert(group("g", "a", cpu="9")))
    await rig.controller.round()
    assert len(rig.api.writes) == 2
    for name, status in rig.api.writes:  # the watch brings what was written
        written = msgspec.convert({"metadata": {"name": name}, "spec": {"weight": 1}, "status": status}, Queue)
        rig.see(Upsert(written))
    await rig.controller.round()
    await rig.controller.round()
    assert divided == [1]
    rig.see(Upsert(node("m", "4")))
    await rig.controller.round()
    assert divided == [1, 1]


async def test_a_queue_that_goes_while_shares_are_divided_is_passed_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controlling, "TURN_SECONDS", 0.0)
    rig.see(*(Upsert(queue(name)) for name in ("busy", "empty")))
    rig.see(*(Upsert(group(f"g{number}", "busy", cpu="1")) for number in range(1000)))
    rounds = asyncio.create_task(rig.controller.round())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not rounds.done()
    rig.see(Delete(Queue, "", "empty"))
    assert await rounds == 0
    assert [name for name, _ in rig.api.writes] == ["busy"]


async def test_resources_that_groups_make_up_are_told_within_bounds_and_forgotten(rig: Rig) -> None:
    rig.see(Upsert(node("n", "4")), Upsert(queue("a")))
    for number in range(20):
        rig.see(Upsert(asking(f"g{number}", {"cpu": "1", **{f"example.com/r{number}-{at}": "1" for at in range(31)}})))
    assert await rig.controller.round() == 0
    ((_, status),) = rig.api.writes
    assert len(status["requested"]) == MOST_RESOURCES
    assert status["requested"]["cpu"] == "20", "what nodes have comes first"
    for number in range(20):
        rig.see(Delete(PodGroup, "ns", f"g{number}"))
    await rig.controller.round()
    left = {
        sample.labels["resource"]
        for metric in rig.registry.collect()
        for sample in metric.samples
        if "resource" in sample.labels
    }
    assert left == {"cpu"}
    assert rig.gauge("kbatch_queue_requested", queue="a", resource="cpu") == 0


def asking(name: str, resources: dict[str, str]) -> PodGroup:
    """A group in queue `a` that asks for these."""
    spec = PodGroupSpec(min_member=1, queue="a", min_resources={**resources})
    return PodGroup(metadata=Metadata(namespace="ns", name=name, uid=name), spec=spec)
