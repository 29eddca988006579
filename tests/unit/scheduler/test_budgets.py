"""Disruption budgets of which the watch told something else: a plan is carried out whole or not at all."""

from __future__ import annotations

from typing import Any

import msgspec

from kbatch.api.objects import LabelSelector, PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from kbatch.engine import Eviction, Transaction
from kbatch.kube.errors import ApiError, Cause, NoAnswerError
from operators.scheduler.cache import Cache
from tests.unit.scheduler.fakes import FakeApi, cache_with, group, node, pod, queue, until
from tests.unit.scheduler.test_dispatch import dispatching, plan


def budget(allowed: int, name: str = "b", **labels: str) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=pod(name).metadata,
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=labels)),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed, expected_pods=3, observed_generation=1),
    )


def guarded(name: str) -> Any:
    one = pod(name, node="n")
    one.metadata.labels = {"app": "db"}
    return one


def says(*budgets: PodDisruptionBudget) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "9"}, "items": [msgspec.to_builtins(one) for one in budgets]}


def world() -> Cache:
    return cache_with(queue(), group(), node("n"), budget(2, app="db"), guarded("v"), guarded("w"), pod("u", node="n"))


async def test_a_budget_that_lets_fewer_go_than_was_known_keeps_all_of_them() -> None:
    """Tried one by one, each of them may go."""
    api, cache = FakeApi(), world()
    api.on("GET", "/poddisruptionbudgets", says(budget(1, app="db")))
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(plan("v", "w", "u"))
        await until(lambda: dispatcher.in_flight == 0)
        evictions = api.made("POST", "/eviction")
        assert [call.body["deleteOptions"].get("dryRun") for call in evictions] == [["All"]] * 3
        assert [call.params["fieldSelector"] for call in api.made("GET")] == ["metadata.name=b"]
        assert set(cache.model.refusals.evictions) == {"ns/w"}, "the next plan is made with the other one"
        assert "lets 1 pods go, and 2 are to" in cache.model.refusals.evictions["ns/w"].why
        assert not any(task.terminating for task in cache.model.tasks.values())
        assert dispatcher.paused_until() is None


async def test_a_budget_that_lets_them_go_holds_up_nobody_and_one_victim_is_not_asked_for_twice() -> None:
    api, cache = FakeApi(), world()
    api.on("GET", "/poddisruptionbudgets", says(budget(2, app="db")))
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(plan("v", "w"))
        await until(lambda: dispatcher.in_flight == 0)
        assert len(api.made("POST", "/eviction")) == 4
    api, cache = FakeApi(), world()
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(plan("v", "u"))
        await until(lambda: dispatcher.in_flight == 0)
        assert (len(api.made("POST", "/eviction")), api.made("GET")) == (4, [])


async def test_no_budget_is_asked_about_pods_that_have_not_started() -> None:
    api = FakeApi()
    waiting = [guarded("v"), guarded("w")]
    for one in waiting:
        one.status.phase = "Pending"
    cache = cache_with(queue(), group(), node("n"), budget(0, app="db"), *waiting)
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(plan("v", "w"))
        await until(lambda: dispatcher.in_flight == 0)
        assert (len(api.made("POST", "/eviction")), api.made("GET")) == (4, [])


async def test_a_budget_that_cannot_be_asked_lets_nobody_go_for_now() -> None:
    api, cache = FakeApi(), world()
    api.on("GET", "/poddisruptionbudgets", NoAnswerError("GET", "/x", sent=True, why="cut"))
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(plan("v", "w"))
        await until(lambda: dispatcher.in_flight == 0)
        assert len(api.made("POST", "/eviction")) == 2
        assert dispatcher.paused_until() is not None
    api, cache = FakeApi(), world()
    api.on("GET", "/poddisruptionbudgets", says())
    async with dispatching(api, cache) as dispatcher:
        assert dispatcher.submit(plan("v", "w"))
        await until(lambda: dispatcher.in_flight == 0)
        assert len(api.made("POST", "/eviction")) == 4, "a budget that is gone keeps nobody"


async def test_the_group_is_told_who_keeps_the_pods_that_were_to_go_for_it() -> None:
    api, cache = FakeApi(), world()
    which = "The disruption budget b needs 2 healthy pods and has 2 currently"
    refusal = ApiError(429, "TooManyRequests", "Cannot evict pod", (Cause("DisruptionBudget", which),))
    api.on("POST", "/pods/v/eviction", refusal)
    async with dispatching(api, cache) as dispatcher:
        dispatcher.submit(plan("v"))
        dispatcher.submit(
            Transaction("ns/x", evictions=(Eviction("ns/v", "uid-v", "n", "preempt", "ns/x"),), job="ns/x")
        )
        await until(lambda: dispatcher.in_flight == 0)
        async with dispatcher._plans._recorder:
            await until(lambda: bool(api.made("POST", "/events")))
    (event,) = api.made("POST", "/events")
    assert (event.body["reason"], event.body["regarding"]["name"], event.body["type"]) == (
        "EvictionRefused", "g", "Warning",
    )  # fmt: skip
    assert "ns/v cannot be evicted by preempt" in event.body["note"]
    assert which in event.body["note"]
