"""Informers read side by side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.objects import Metadata, Node, Pod
from kbatch.kube.errors import ApiError
from kbatch.kube.informer import Batch, RestoredError
from kbatch.kube.kinds import NODES, PODS, AnyKind
from kbatch.metrics import WatchMetrics
from kbatch.model.events import Unreadable, Upsert
from kbatch.process.feed import Feed
from kbatch.process.health import Health
from kbatch.process.run import ProcessError


class FakeInformer:
    """Hands out what a test puts in."""

    def __init__(self, kind: AnyKind) -> None:
        self.kind = kind
        self.relists = 0
        self.last_activity: float | None = None
        self.batches: asyncio.Queue[Batch | RestoredError] = asyncio.Queue()
        self.silent = False
        self.watching = True
        self.reached = 0
        self.lists = 0

    def list_anew(self) -> None:
        self.lists += 1

    def stale(self) -> bool:
        return self.silent

    async def __aiter__(self) -> AsyncIterator[Batch]:
        while True:
            item = await self.batches.get()
            if isinstance(item, RestoredError):
                raise item
            yield item


class Feeding:
    def __init__(self) -> None:
        self.pods, self.nodes = FakeInformer(PODS), FakeInformer(NODES)
        self.registry = CollectorRegistry()
        self.seen: list[Batch] = []
        self.arrived = asyncio.Event()
        informers: Any = [self.pods, self.nodes]
        self.feed = Feed(informers, self.receive, WatchMetrics(self.registry))

    def receive(self, batch: Batch) -> None:
        self.seen.append(batch)
        self.arrived.set()

    async def next(self, informer: FakeInformer, batch: Batch) -> None:
        self.arrived.clear()
        informer.batches.put_nowait(batch)
        await asyncio.wait_for(self.arrived.wait(), 5)
        await asyncio.sleep(0)

    def counted(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
async def feeding() -> AsyncIterator[Feeding]:
    feeding = Feeding()
    task = asyncio.create_task(feeding.feed.run())
    yield feeding
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


POD = Upsert(Pod(metadata=Metadata(namespace="a", name="p")))
NODE = Upsert(Node(metadata=Metadata(name="n")))


async def test_it_is_synced_when_every_first_list_is_whole(feeding: Feeding) -> None:
    assert feeding.feed.unsynced() == "waiting for the first list of pods, nodes"
    await feeding.next(feeding.pods, Batch((POD,), complete=False))
    assert feeding.feed.unsynced() == "waiting for the first list of pods, nodes"
    await feeding.next(feeding.pods, Batch((), complete=True))
    assert feeding.feed.unsynced() == "waiting for the first list of nodes"
    assert not feeding.feed.synced.is_set()
    await feeding.next(feeding.nodes, Batch((NODE,), complete=True))
    assert feeding.feed.unsynced() is None
    assert feeding.feed.synced.is_set()


async def test_events_relists_and_unreadable_objects_are_counted(feeding: Feeding) -> None:
    bad = Unreadable(Pod, "a", "q", "1", "", "spec.containers: no list")
    await feeding.next(feeding.pods, Batch((POD, bad), complete=True))
    feeding.pods.relists = 2
    await feeding.next(feeding.pods, Batch((POD,), complete=True))
    assert feeding.counted("kbatch_watch_events_total", kind="pods") == 3
    assert feeding.counted("kbatch_watch_unreadable_total", kind="pods") == 1
    assert feeding.counted("kbatch_watch_relists_total", kind="pods") == 2
    assert [len(batch.events) for batch in feeding.seen] == [2, 1]


async def test_a_silent_server_makes_a_process_unready_and_ends_none(feeding: Feeding) -> None:
    """All replicas would start anew at once, and have everything listed by a server that is just coming back."""
    health = Health()
    feeding.feed.tell(health)
    await feeding.next(feeding.pods, Batch((), complete=True))
    feeding.pods.silent = True
    assert health.failing_ready() == {"watches": "nothing was heard of pods for too long"}
    assert health.failing_live() == {}


async def test_a_cluster_that_was_restored_ends_the_process() -> None:
    feeding = Feeding()
    feeding.nodes.batches.put_nowait(RestoredError("nodes", "version 8 after 75"))
    with pytest.RaisesGroup(
        pytest.RaisesExc(ProcessError, match=r"restored from a backup: .*; all is to be read anew")
    ):
        await feeding.feed.run()
    assert feeding.seen == []


async def test_silence_counts_only_after_the_first_list(feeding: Feeding) -> None:
    feeding.pods.silent = feeding.nodes.silent = True
    assert feeding.feed.stale() is None
    await feeding.next(feeding.pods, Batch((), complete=True))
    assert feeding.feed.stale() == "nothing was heard of pods for too long"


class Versions:
    """An API server that says at which version a kind stands, the answers in turn."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        assert (method, options["params"]) == ("GET", {"limit": "1"}), "the version of the moment"
        answer = self.answers[path.rpartition("/")[2]].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return json.dumps({"metadata": {"resourceVersion": str(answer)}, "items": []}).encode()

    def stream(self, path: str, **_: Any) -> Any:
        raise NotImplementedError


async def test_a_new_leader_waits_until_it_knows_what_the_server_knew_when_it_began_to_lead(feeding: Feeding) -> None:
    server = Versions(pods=[70], nodes=[ApiError(503), 71])
    feeding.pods.reached, feeding.nodes.reached = 50, 71
    async with asyncio.timeout(5):
        waiting = asyncio.create_task(feeding.feed.caught_up(server, (PODS, NODES)))
        while not feeding.pods.lists:  # noqa: ASYNC110  (the fake has no event to wait for)
            await asyncio.sleep(0.01)
        assert not waiting.done(), "what a watch has not told by then, a list will"
        feeding.pods.reached = 69
        await asyncio.sleep(0.1)
        assert not waiting.done()
        feeding.pods.reached = 70
        await waiting
    assert (feeding.pods.lists, feeding.nodes.lists) == (1, 0)


async def test_only_the_kinds_that_are_asked_for_are_waited_for(feeding: Feeding) -> None:
    feeding.nodes.reached = 5
    async with asyncio.timeout(5):
        await feeding.feed.caught_up(Versions(nodes=[5]), (NODES,))
    assert feeding.pods.lists == 0


async def test_a_new_leader_waits_for_a_watch_that_is_cut_but_not_for_ever(feeding: Feeding) -> None:
    async with asyncio.timeout(5):
        assert await feeding.feed.watching(0.0), "nothing to wait for"
        feeding.nodes.watching = False
        assert not await feeding.feed.watching(0.05)
        feeding.pods.watching = False
        waiting = asyncio.create_task(feeding.feed.watching(5.0))
        feeding.pods.watching = True
        await asyncio.sleep(0.1)
        assert not waiting.done()
        feeding.pods.watching, feeding.nodes.watching = False, True
        assert await waiting, "they need not all be open at the same moment"
