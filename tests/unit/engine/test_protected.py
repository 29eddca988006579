"""Groups that wait because pods are protected from eviction are told what protects them."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.objects import LabelSelector, Metadata, PodDisruptionBudget, PodDisruptionBudgetSpec
from kbatch.api.reasons import GangExceedsReclaimableShare, NotEnoughResources, Protection, Protector
from kbatch.engine import CycleState
from kbatch.engine.session.protections import Protections
from kbatch.model.cluster import ClusterModel
from kbatch.times import HOUR, SECOND
from tests.unit.engine.worlds import EPOCH, EVERYTHING, Decisions, group, members, node, pod, policy, queue, run, world


def told(found: Decisions, name: str) -> tuple[Protection, ...]:
    """What protects the pods that could make room for the group."""
    reason = found.verdicts[name].reason
    assert isinstance(reason, NotEnoughResources), reason
    assert ("protected by" in reason.message) == bool(reason.protected)
    return reason.protected


def two_queues(**spec: int) -> ClusterModel:
    """q1 holds both nodes with a gang each; q2 deserves one of them for its gang."""
    return world(
        [queue("q1", **spec), queue("q2")],
        [node("n0", "2"), node("n1", "2")],
        [group(name, 2, queue="q1", disruption="Whole") for name in ("a0", "a1")],
        [pod(f"a{at}-{row}", of=f"a{at}", on=f"n{at}") for at in range(2) for row in range(2)],
        [group("b", 2, queue="q2")],
        members("b", 2),
    )


def one_queue(*low: dict[str, Any], high: int = 1, budgets: tuple[PodDisruptionBudget, ...] = ()) -> ClusterModel:
    """Groups of one pod hold the node; as many of a higher priority as are wanted come to it."""
    return world(
        [queue(), *budgets],
        [node("n0", str(len(low)))],
        [group(f"a{at}", 1, disruption="Whole", **spec) for at, spec in enumerate(low)],
        [pod(f"a{at}-0", of=f"a{at}", on="n0", labels={"app": "a"}) for at in range(len(low))],
        [group(f"b{at}", 1) for at in range(high)],
        [each for at in range(high) for each in members(f"b{at}", 1, priority=10)],
    )


def budget(name: str, most: int = 0) -> PodDisruptionBudget:
    selector = LabelSelector(match_labels={"app": "a"})
    return PodDisruptionBudget(
        metadata=Metadata(name=name, namespace="ns"),
        spec=PodDisruptionBudgetSpec(selector=selector, max_unavailable=most),
    )


def test_evictions_of_the_hour() -> None:
    state = CycleState(evictions={"q1": (EPOCH + 60 * SECOND - HOUR + 1,)})
    found = run(two_queues(evictions_per_hour=1), policy(EVERYTHING), now=60, state=state)
    assert found.evicted == []
    assert told(found, "ns/b") == (Protection(Protector.HOURLY, "q1"),)
    reason = found.verdicts["ns/b"].reason
    assert reason is not None
    assert reason.message == (
        "0 of 2 pods can be placed; short of 2 cpu; 0/2 nodes fit: 2 insufficient cpu; "
        "pods that could make room are protected by evictionsPerHour of Queue q1; free 2 cpu or add nodes"
    )
    allowed = run(two_queues(evictions_per_hour=1), policy(EVERYTHING), now=60)
    assert allowed.evicted


def test_who_has_no_claim_to_the_room_is_not_told_what_protects_it() -> None:
    """q2 has its share already: nobody of q1 would go for another gang of it, limit or not."""
    model = world(
        [queue("q1", evictions_per_hour=0), queue("q2")],
        [node("n0", "2"), node("n1", "2")],
        [group("a", 2, queue="q1", disruption="Whole"), group("c", 2, queue="q2"), group("b", 2, queue="q2")],
        [pod(f"a-{at}", of="a", on="n0") for at in range(2)],
        [pod(f"c-{at}", of="c", on="n1") for at in range(2)],
        members("b", 2),
    )
    found = run(model, policy(EVERYTHING))
    reason = found.verdicts["ns/b"].reason
    assert reason is not None
    assert "protected" not in reason.message


def test_nor_of_those_who_would_not_go_for_it_anyway() -> None:
    """Of two pods the one of lower priority is in a budget; the other one stays whatever its age."""
    model = world(
        [queue(), budget("x"), node("n0", "2")],
        [group("a", 1, disruption="Whole", min_runtime_seconds=100)],
        [pod("a-0", of="a", on="n0", priority=10), pod("v", on="n0", labels={"app": "a"})],
        [pod("b", priority=5)],
    )
    found = run(model, policy(EVERYTHING), now=60)
    (waiting,) = [name for name, verdict in found.verdicts.items() if not verdict.scheduled]
    assert told(found, waiting) == (Protection(Protector.BUDGET, "ns/x"),)


@pytest.mark.parametrize(("names", "most"), [(("x",), 0), (("x", "y"), 1)])
def test_disruption_budgets(names: tuple[str, ...], most: int) -> None:
    """A budget that allows none; or two over one pod, of which the API server evicts none whatever they allow."""
    found = run(one_queue({}, budgets=tuple([budget(name, most) for name in names])), policy(EVERYTHING))
    assert found.evicted == []
    assert told(found, "ns/b0") == (Protection(Protector.BUDGET, "ns/x", others=len(names) > 1),)


def test_minimum_of_run_time() -> None:
    young = {"min_runtime_seconds": 100}
    found = run(one_queue(young, young), policy(EVERYTHING), now=60)
    assert told(found, "ns/b0") == (Protection(Protector.RUNTIME, "ns/a0", others=True),)
    assert run(one_queue({}, young), policy(EVERYTHING), now=60).evicted == ["a0-0"]


def test_evictions_that_were_refused() -> None:
    model = one_queue({}, budgets=(budget("x", 1),))
    model.refuse_eviction("ns/a0-0", "u-a0-0", EPOCH + 10 * SECOND)
    found = run(model, policy(EVERYTHING))
    assert told(found, "ns/b0") == (Protection(Protector.REFUSED, "ns/a0-0"),)


@pytest.mark.parametrize("grouped", [False, True])
def test_those_that_are_alike_are_told_the_same(grouped: bool) -> None:
    names = [f"b{at}" for at in range(3)]
    model = world(
        [queue(), node("n0", "1"), group("a", 1, disruption="Whole", min_runtime_seconds=100)],
        [pod("a-0", of="a", on="n0")],
        [group(name, 1, at=5) for name in names if grouped],
        [pod(name, priority=10, at=5, of=name if grouped else "") for name in names],
    )
    found = run(model, policy(EVERYTHING.replace("enqueue, ", "")), now=60)
    waiting = [name for name, verdict in found.verdicts.items() if not verdict.scheduled]
    assert len(waiting) == 3
    for name in waiting:
        assert told(found, name) == (Protection(Protector.RUNTIME, "ns/a"),)


def test_who_asks_for_more_than_its_queue_may_reclaim_is_told_what_protects_those_of_its_own_queue() -> None:
    model = world(
        [queue("q1"), queue("q2")],
        [node(f"n{at}", "2") for at in range(3)],
        [group("a", 2, queue="q1", disruption="Whole", min_runtime_seconds=100)],
        [pod(f"a-{at}", of="a", on="n0") for at in range(2)],
        [group("c", 4, queue="q2"), *[pod(f"c-{at}", of="c", on=f"n{1 + at // 2}") for at in range(4)]],
        [group("b", 2, queue="q1"), *members("b", 2, priority=10)],
    )
    reason = run(model, policy(EVERYTHING), now=60).verdicts["ns/b"].reason
    assert isinstance(reason, GangExceedsReclaimableShare)
    assert reason.protected == (Protection(Protector.RUNTIME, "ns/a"),)
    assert "3 cpu, and 0 cpu is idle; pods that could make room are protected by minRun" in reason.message


def test_pods_that_could_make_no_room_are_not_named() -> None:
    """What waits needs a node with a label: the pod on a node without it is in a budget, and so is the other one."""
    other = PodDisruptionBudget(
        metadata=Metadata(name="a-first", namespace="ns"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "b"}), max_unavailable=0),
    )
    model = world(
        [queue(), other, budget("x")],
        [node("n0", "1"), node("n1", "1", labels={"gpu": "yes"})],
        [pod("u", on="n0", labels={"app": "b"}), pod("v", on="n1", labels={"app": "a"})],
        [pod("b", priority=10, node_selector={"gpu": "yes"})],
    )
    found = run(model, policy(EVERYTHING))
    (waiting,) = [name for name, verdict in found.verdicts.items() if not verdict.scheduled]
    assert told(found, waiting) == (Protection(Protector.BUDGET, "ns/x"),)


def test_of_a_kind_another_than_the_first_may_be_the_one_that_could_make_room() -> None:
    """The pods of one controller are of one kind; the first stands on a node that is too small."""
    model = world(
        [queue(), budget("x")],
        [node("n0", "1"), node("n1", "2")],
        [pod(f"v-{at}", on="n0" if at == 0 else "n1", labels={"app": "a"}, owner="v") for at in range(3)],
        [pod("b", "2", priority=10)],
    )
    found = run(model, policy(EVERYTHING))
    (waiting,) = [name for name, verdict in found.verdicts.items() if not verdict.scheduled]
    assert told(found, waiting) == (Protection(Protector.BUDGET, "ns/x"),)


def test_of_each_kind_the_first_by_name_is_told_as_long_as_there_is_time() -> None:
    found = Protections(looks=4)
    assert not found.wants(Protector.BUDGET, "c"), "nobody asks"
    found.begin(lambda _: True)
    for name in ("c", "b"):
        assert found.wants(Protector.BUDGET, name)
        found.add(Protector.BUDGET, name)
    assert not found.wants(Protector.BUDGET, "e")
    assert found.wants(Protector.BUDGET, "a")
    assert found.wants(Protector.HOURLY, "q")
    found.add(Protector.HOURLY, "q")
    assert not found.wants(Protector.HOURLY, "p"), "four looks are over"
    assert found.found == (Protection(Protector.HOURLY, "q"), Protection(Protector.BUDGET, "b", others=True))
    other = Protections()
    other.merge(found.found)
    other.merge(found.found)
    assert other.found == found.found
    found.begin(lambda _: True)
    assert found.found == ()
