"""Where sums say that no victims could make room, none are sought; where they do not, they are."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.objects import AnyObject
from kbatch.engine.carryover.holdings import Holdings
from kbatch.engine.preemption.candidate_pool import CandidatePool
from kbatch.engine.preemption.given import _largest
from kbatch.engine.preemption.reuse import Searches
from kbatch.model.events import Upsert
from tests.unit.engine.worlds import Decisions, group, members, node, pod, policy, priority_class, queue, run, world

PREEMPT = """
actions: "allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: drf}, {name: predicates}, {name: proportion}]
"""
RECLAIM = PREEMPT.replace("allocate, preempt", "reclaim, allocate")
ROLES = {"master": 1, "worker": 1}


def tried(text: str, *objects: AnyObject) -> tuple[int, Decisions]:
    """How often victims were sought in a cycle, and what it decided."""
    model = world(priority_class("low", 1), priority_class("high", 9), *objects)
    with mock.patch.object(Searches, "search", autospec=True, side_effect=Searches.search) as search:
        found = run(model, policy(text))
    assert found.outcome is not None
    assert not found.outcome.errors
    return search.call_count, found


def full(*groups: tuple[str, dict[str, Any]]) -> list[AnyObject]:
    """Two nodes of two CPUs, and on each of them a pod of a CPU of each of two groups."""
    found: list[AnyObject] = [node("n0", "2"), node("n1", "2"), queue()]
    for name, more in groups:
        found.append(group(name, **more))
        found += [pod(f"{name}-{at}", of=name, on=f"n{at}") for at in range(2)]
    return found


HIGH = group("h", 1, priority_class_name="high")
LOW: dict[str, Any] = {"priority_class_name": "low"}
EQUAL: dict[str, Any] = {"priority_class_name": "high", "min_member": 2}


@pytest.mark.parametrize(
    ("others", "evicted"),
    [
        ((("a", LOW), ("b", LOW)), 2),
        ((("a", LOW), ("b", EQUAL)), 0),
        ((("a", LOW), ("b", {**LOW, "min_member": 2})), 0),
        ((("a", LOW), ("b", {**LOW, "disruption": "Never"})), 0),
        ((("a", LOW), ("b", {**LOW, "min_member": 2, "disruption": "Whole"})), 3),
    ],
    ids=["both may go", "an equal that is no more than its minimum", "a gang", "never", "a gang that goes whole"],
)
def test_a_pod_that_takes_both_of_a_node(others: tuple[tuple[str, dict[str, Any]], ...], evicted: int) -> None:
    searches, found = tried(PREEMPT, *full(*others), HIGH, *members("h", 1, "2"))
    assert (searches > 0) == (evicted > 0)
    assert len(found.evicted) == evicted


def test_what_several_kinds_of_pods_ask_for_together() -> None:
    """Of each kind the cluster would hold enough, but not of both."""
    roles = group("h", 0, roles=ROLES, priority_class_name="high")
    master, worker = pod("m", "2", of="h", role="master"), pod("w", "1", of="h", role="worker")
    nodes: list[AnyObject] = [node("n0", "2"), node("n1", "2"), queue()]
    nodes += [group("a", **LOW), *(pod(f"a-{at}", of="a", on="n0") for at in range(2))]
    nodes += [group("b", **EQUAL), *(pod(f"b-{at}", of="b", on="n1") for at in range(2))]
    searches, found = tried(PREEMPT, *nodes, roles, master, worker)
    assert (searches, found.evicted) == (0, [])
    searches, found = tried(PREEMPT, *full(("a", LOW), ("b", LOW)), roles, master, worker)
    assert searches > 0
    assert len(found.evicted) == 3


@pytest.mark.parametrize(("cpu", "evicted"), [("1", 1), ("2", 0)])
def test_what_other_queues_could_give(cpu: str, evicted: int) -> None:
    """The one that is above its share has a pod on each node; the other on them is not to be asked."""
    kept = queue("kept", reclaimable=False)
    taken = [pod(f"k-{at}", of="k", on=f"n{at}") for at in range(2)]
    above = [pod(f"a-{at}", of="a", on=f"n{at}") for at in range(2)]
    searches, found = tried(
        RECLAIM, node("n0", "2"), node("n1", "2"), queue(), queue("b", 3), kept, group("k", queue="kept"), *taken,
        group("a"), *above, group("h", queue="b"), *members("h", 1, cpu),
    )  # fmt: skip
    assert (searches > 0) == (evicted > 0)
    assert len(found.evicted) == evicted


@pytest.mark.parametrize(("above", "evicted"), [(1, 0), (2, 2)])
def test_what_a_queue_gives_before_it_is_down_to_its_share(above: int, evicted: int) -> None:
    """Pods of its groups stand on as many nodes as two more would need, and one or two of them are above its share."""
    kept = [pod(f"k-{at}", of="k", on=f"n{at}") for at in range(4 - above)]
    there = [pod(f"a-{at}", of="a", on=f"n{2 - at % 3}") for at in range(2 + above)]
    searches, found = tried(
        RECLAIM, *(node(f"n{at}", "2") for at in range(3)), queue(), queue("b"), queue("kept", reclaimable=False),
        group("k", queue="kept"), *kept, group("a"), *there, group("h", 2, queue="b"), *members("h", 2, "1"),
    )  # fmt: skip
    assert (searches > 0) == (evicted > 0)
    assert len(found.evicted) == evicted


@pytest.mark.parametrize(("beside", "evicted"), [("kept", 0), ("given", 1)])
def test_only_rows_that_could_be_cleared_count(beside: str, evicted: int) -> None:
    """A queue gives one pod. Beside it a CPU is free on n0, where it helps, or where who stands there may not go."""
    owners = [beside, "given", "given", "kept", "kept", "given", "kept" if beside == "given" else "given"]
    rooms = ["n0", "n1", "n1", *(f"n{at}" for at in range(2, 6))]
    searches, found = tried(
        RECLAIM, node("n0", "2"), node("n1", "2"), *(node(f"n{at}", "1") for at in range(2, 6)),
        *(queue(name) for name in ("default", "given")), queue("kept", reclaimable=False),
        *(group(name, queue=name) for name in ("kept", "given")),
        *(pod(f"p{at}", of=of, on=on) for at, (of, on) in enumerate(zip(owners, rooms, strict=True))),
        group("h"), *members("h", 1, "2"),
    )  # fmt: skip
    assert (searches > 0) == (evicted > 0)
    assert len(found.evicted) == evicted


@pytest.mark.parametrize(("few", "evicted"), [(5, 0), (6, 4)])
def test_a_queue_that_gives_much_does_not_make_up_for_one_that_gives_little(few: int, evicted: int) -> None:
    """On the two nodes that could take its pods one pod each is of a queue that is above its share by one, or two."""
    rest = [f"r{at}" for at in range(8)]
    there = [("few", "n0"), ("few", "n1"), ("many", "n0"), ("many", "n1")]
    there += [("few" if at < few - 2 else "many", name) for at, name in enumerate(rest)]
    searches, found = tried(
        RECLAIM, node("n0", "2"), node("n1", "2"), *(node(name, "1") for name in rest),
        *(queue(name) for name in ("default", "few", "many")), *(group(name, queue=name) for name in ("few", "many")),
        *(pod(f"p{at}", of=of, on=on) for at, (of, on) in enumerate(there)), group("h", 2), *members("h", 2, "2"),
    )  # fmt: skip
    assert (searches > 0) == (evicted > 0)
    assert len(found.evicted) == evicted


def test_pods_that_have_room_take_it_from_the_others() -> None:
    """Master and worker could each stand on n0, were nobody there, and the sums are enough for both. The worker has
    room beside a: once it stands there no victims are sought for the master, only with the master first.
    """
    there: list[AnyObject] = [node("n0", "2", labels={"kind": "a"}), node("n1", "1"), queue()]
    there += [group("a", **LOW), pod("a-0", of="a", on="n0")]
    roles = group("h", 0, roles=ROLES, priority_class_name="high")
    master = pod("m", "2", of="h", role="master")
    worker = pod("w", "1", of="h", role="worker", node_selector={"kind": "a"})
    searches, found = tried(PREEMPT, *there, roles, master, worker)
    assert (searches, found.evicted) == (1, [])


def test_candidates_are_looked_for_where_room_could_be_made() -> None:
    """Of eight nodes one holds the pod, were all gone that may go."""
    kept, taken = group("k", 7, priority_class_name="high"), [group(f"a{at}", **LOW) for at in range(9)]
    there = [pod(f"a{at}", of=f"a{at}", on=f"n{at}") for at in range(8)]
    there += [pod(f"k{at}", of="k", on=f"n{at}") for at in range(1, 8)]
    with mock.patch.object(CandidatePool, "_add", autospec=True, side_effect=CandidatePool._add) as added:
        _, found = tried(
            PREEMPT, *(node(f"n{at}", "2") for at in range(8)), queue(), kept, *taken, *there,
            pod("a8", of="a8", on="n0"), HIGH, *members("h", 1, "2"),
        )  # fmt: skip
    assert sorted(found.evicted) == ["a0", "a8"]
    assert sorted(call.args[3].key for call in added.call_args_list) == ["ns/a0", "ns/a8"]


def test_what_a_queue_holds_is_found_out_group_by_group_and_once() -> None:
    groups = [[group(f"g{at}"), *members(f"g{at}", 2 + at, on="n0")] for at in range(3)]
    model = world(queue(), node("n0", "20"), *groups)
    holdings, record = Holdings(), model.queues["default"]
    assert list(holdings.following(record, model.table)) == [2, 3, 4]
    assert list(holdings.following(record, model.table)) == []
    assert sum(held.count for held in holdings.of(record, model.table).held.values()) == 1


def test_what_a_queue_holds_is_not_followed_where_nobody_there_may_go() -> None:
    """Its groups are the claimer's equals, and hold one pod each. One that matters less is found when it is there."""
    equals = [group(name, priority_class_name="high") for name in ("a", "b")]
    model = world(
        priority_class("low", 1), priority_class("high", 9), node("n0", "2"), node("n1", "2"), queue(), equals,
        pod("a-0", of="a", on="n0"), pod("b-0", of="b", on="n1"), HIGH, pod("h-0", "2", of="h"),
    )  # fmt: skip
    with mock.patch.object(Holdings, "following", autospec=True, side_effect=Holdings.following) as following:
        assert run(model, policy(PREEMPT)).evicted == []
        assert not following.called
        for obj in (node("n2", "2"), group("c", **LOW), pod("c-0", of="c", on="n2")):
            model.apply(Upsert(obj))
        assert len(run(model, policy(PREEMPT)).evicted) == 1
        assert following.called


@given(amounts=st.lists(st.integers(0, 9), max_size=12), count=st.integers(0, 14))
def test_the_largest_of_some_amounts(amounts: list[int], count: int) -> None:
    assert _largest(np.array(amounts, np.int64), count) == sum(sorted(amounts, reverse=True)[:count])
