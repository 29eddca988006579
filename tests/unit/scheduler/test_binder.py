"""Binds that wait: in which order they go, and what is looked at once more before they do."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Node, Pod, PodCondition, Taint
from kbatch.engine import Bind, Transaction
from kbatch.kube.errors import ApiError
from kbatch.kube.events import EventRecorder
from kbatch.model.events import Delete, Unreadable
from operators.scheduler.cache import Cache
from tests.unit.scheduler.fakes import FakeApi, cache_with, conflict, group, node, pod, queue, told, until
from tests.unit.scheduler.test_dispatch import binding, dispatching, lost, result


def with_priority(name: str, value: int) -> Pod:
    one = pod(name, group=f"g-{name}")
    one.spec.priority = value
    return one


def bound(api: FakeApi) -> list[str]:
    return [call.path.split("/")[-2] for call in api.made("POST", "/binding")]


async def test_an_urgent_pod_does_not_wait_behind_all_that_were_decided_before() -> None:
    api = FakeApi(gate=asyncio.Event())
    names = [f"p{number}" for number in range(6)]
    cache = cache_with(
        queue(), node("n", cpu="100"),
        *(with_priority(name, 0) for name in names), *(group(f"g-{name}") for name in (*names, "urgent", "more")),
        with_priority("urgent", 1000), with_priority("more", 1000),
    )  # fmt: skip
    assert cache.model.jobs["ns/g-urgent"].priority == 1000
    async with dispatching(api, cache, parallelism=1) as dispatcher:
        dispatcher.submit(Transaction("ns/g", binds=tuple(Bind(f"ns/{name}", f"uid-{name}", "n") for name in names)))
        await until(lambda: api.open_ == 1)
        dispatcher.submit(binding("urgent"))
        dispatcher.submit(binding("more"))
        assert api.gate is not None
        api.gate.set()
        await until(lambda: dispatcher.in_flight == 0)
    assert bound(api) == ["p0", "urgent", "more", "p1", "p2", "p3", "p4", "p5"], "equals in the order of decision"


async def test_whoever_decides_is_told_when_few_binds_wait() -> None:
    api = FakeApi(gate=asyncio.Event())
    names = [f"p{number}" for number in range(8)]
    cache = cache_with(node("n", cpu="100"), *(pod(name) for name in names))
    async with dispatching(api, cache, parallelism=2) as dispatcher:
        await dispatcher.relieved()
        dispatcher.submit(Transaction("ns/g", binds=tuple(Bind(f"ns/{name}", f"uid-{name}", "n") for name in names)))
        await until(lambda: api.open_ == 2)
        assert dispatcher.crowded()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await dispatcher.relieved()
        waiting = asyncio.create_task(dispatcher.relieved())
        assert api.gate is not None
        api.gate.set()
        async with asyncio.timeout(5):
            await waiting
        assert not dispatcher.crowded()
        await until(lambda: dispatcher.in_flight == 0)
        assert len(bound(api)) == 8


def cordoned(name: str) -> Node:
    one = node(name)
    one.spec.unschedulable = True
    return one


def not_ready(name: str) -> Node:
    one = node(name)
    one.status.conditions = (PodCondition(type="Ready", status="False"),)
    return one


def tainted(name: str) -> Node:
    one = node(name)
    one.spec.taints = (Taint(key="node.kubernetes.io/out-of-service", effect="NoExecute"),)
    return one


@pytest.mark.parametrize("change", [cordoned, not_ready, tainted])
async def test_a_node_that_takes_no_pods_any_more_gets_none_of_the_binds_that_wait(change: Any) -> None:
    api = FakeApi(gate=asyncio.Event())
    cache = cache_with(node("n"), node("m"), pod("a"), pod("b"))
    async with dispatching(api, cache, parallelism=1) as dispatcher:
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b", "m"))
        await until(lambda: api.open_ == 1)
        cache.receive(told(change("m")))
        cache.changed.clear()
        assert api.gate is not None
        api.gate.set()
        await until(lambda: dispatcher.in_flight == 0)
        assert bound(api) == ["a"]
        assert cache.model.tasks["ns/b"].node == "", "to be placed elsewhere at once"
        assert cache.changed.is_set()


async def test_a_node_that_is_cordoned_while_a_cycle_goes_on_gets_none_of_its_binds() -> None:
    api, cache = FakeApi(), cache_with(node("n"), node("m"), pod("a"), pod("b"))
    async with dispatching(api, cache) as dispatcher:
        with cache.held():
            cache.receive(told(cordoned("m")))
            dispatcher.submit(binding("a"))
            dispatcher.submit(binding("b", "m"))
            await until(lambda: dispatcher.in_flight == 0)
        assert bound(api) == ["a"]
        assert cache.model.tasks["ns/b"].node == ""


def foreign(name: str, on: str) -> Pod:
    """A pod that another scheduler has bound."""
    one = pod(name, node=on, version="2")
    one.spec.scheduler_name = "default-scheduler"
    return one


@pytest.mark.parametrize("when", ["while the cycle goes on", "while binds wait"])
async def test_others_that_take_the_room_of_decided_binds_first(when: str) -> None:
    """Nobody would refuse the bind: the node would have more pods than room. The pod is decided anew."""
    api = FakeApi(gate=asyncio.Event())
    cache = cache_with(node("n"), node("m", cpu="2"), pod("a"), pod("b"), pod("c"))
    assert api.gate is not None
    async with dispatching(api, cache, parallelism=1) as dispatcher:
        with cache.held():
            for name, where in (("a", "n"), ("b", "m"), ("c", "m")):
                dispatcher.submit(binding(name, where))
            await until(lambda: api.open_ == 1)
            if when == "while the cycle goes on":
                cache.receive(told(foreign("f", "m")))
                api.gate.set()
                await until(lambda: dispatcher.in_flight == 0)
        if when == "while binds wait":
            cache.receive(told(foreign("f", "m")))
            cache.changed.clear()
            api.gate.set()
            await until(lambda: dispatcher.in_flight == 0)
        assert bound(api) == ["a", "c"], "there is room for one: what is given up first makes it"
        assert cache.model.tasks["ns/b"].node == "", "to be placed elsewhere at once"
        assert cache.changed.is_set()
        assert result(dispatcher, "failed") == 1
        cache.model.validate()


async def test_a_node_that_was_cordoned_before_was_decided_upon_as_it_is() -> None:
    """Some pods tolerate it; and whatever else of a node changes, its heartbeat above all, makes no difference."""
    api = FakeApi(gate=asyncio.Event())
    cache = cache_with(node("n"), cordoned("m"), pod("a"), pod("b"))
    async with dispatching(api, cache, parallelism=1) as dispatcher:
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b", "m"))
        await until(lambda: api.open_ == 1)
        beat = cordoned("m")
        beat.metadata.resource_version = "9"
        cache.receive(told(beat))
        assert api.gate is not None
        api.gate.set()
        await until(lambda: dispatcher.in_flight == 0)
        assert bound(api) == ["a", "b"]


def leaving(name: str) -> Pod:
    one = pod(name, version="2")
    one.metadata.deletion_timestamp = "2026-01-01T00:00:10Z"
    return one


@pytest.mark.parametrize("news", [leaving("b"), Delete(Pod, "ns", "b"), pod("b", uid="another", version="3")])
async def test_a_pod_that_goes_while_its_bind_waits_costs_no_request(news: Any) -> None:
    api = FakeApi(gate=asyncio.Event())
    cache = cache_with(node("n"), pod("a"), pod("b"))
    async with dispatching(api, cache, parallelism=1) as dispatcher:
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b"))
        await until(lambda: api.open_ == 1)
        cache.receive(told(news))
        assert api.gate is not None
        api.gate.set()
        await until(lambda: dispatcher.in_flight == 0)
        assert bound(api) == ["a"]
        task = cache.model.tasks.get("ns/b")
        assert task is None or not task.node


async def test_an_answer_that_nobody_can_read_is_no_answer() -> None:
    """Otherwise the pod would count as being bound for ever."""
    api, cache = FakeApi(), cache_with(node("n"), pod("a"))
    api.on("POST", "/binding", lost())
    api.on("GET", "/pods/a", b"<html>a proxy speaks</html>", msgspec.json.encode(pod("a")))
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binding("a"))
        await until(lambda: result(dispatcher, "failed") == 1)
        await until(lambda: cache.model.tasks["ns/a"].node == "")
        assert len(api.made("GET", "/pods/a")) == 2


async def test_of_a_pod_that_cannot_be_read_any_more_the_watch_tells() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("a"))
    api.on("POST", "/binding", conflict())
    api.on("GET", "/pods/a", b'{"metadata": []}')
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(binding("a"))
        await until(lambda: bool(api.made("GET", "/pods/a")))
        assert dispatcher.in_flight == 1
        cache.receive(told(Unreadable(Pod, "ns", "a", "uid-a", "n", "metadata: no object")))
        await until(lambda: dispatcher.in_flight == 0)
        assert _unknown(cache, "ns/a")


def _unknown(cache: Cache, key: str) -> bool:
    return key not in cache.model.tasks


async def test_that_a_pod_is_scheduled_is_counted_where_there_is_no_room_to_tell_it() -> None:
    api, cache = FakeApi(), cache_with(node("n"), pod("a"), pod("b"))
    async with dispatching(api, cache) as dispatcher:
        dispatcher._binder._recorder = EventRecorder(api, controller="test", instance="test", remarks=1)
        dispatcher.submit(binding("a"))
        dispatcher.submit(binding("b"))
        await until(lambda: result(dispatcher, "ok") == 2)
        assert dispatcher._metrics.events_dropped._value.get() == 1


async def test_retries_of_a_bind_that_a_webhook_denies_make_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    api = FakeApi()
    api.on("POST", "/binding", ApiError(403, "Forbidden", "admission webhook denied the request"))
    pods = [pod(f"p{number}") for number in range(5)]
    for one in pods:
        api.on("GET", f"/pods/{one.metadata.name}", msgspec.json.encode(one))
    async with dispatching(api, cache_with(queue(), group(), node("n", cpu="100"), *pods)) as dispatcher:
        for one in pods:
            dispatcher.submit(binding(one.metadata.name))
        await until(lambda: dispatcher.in_flight == 0)
        assert sum(record.getMessage().startswith("bind of") for record in caplog.records) == 1
    (summed,) = [record for record in caplog.records if record.getMessage() == "binds failed again"]
    assert vars(summed)["count"] == 4
