"""Room that was promised to a group in queue, whose pods do not exist yet, and others who could take it."""

from __future__ import annotations

import pytest

from kbatch.api.objects import Pod, PodGroup
from kbatch.api.reasons import QueueCapabilityExceeded
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    ALLOCATE,
    EPOCH,
    EVERYTHING,
    Simulation,
    group,
    in_queue,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    world,
)


def start(disruption: str, *, priority: str = "hi") -> Simulation:
    """`whole` holds all that the queue research deserves, the rest is promised to `late` of the queue prod; then `pr`
    of research comes.
    """
    nodes = [node(f"n{at}", "8") for at in range(4)]
    queues = [queue("research", 1), queue("prod", 3), priority_class("hi", 100)]
    whole = group("whole", 6, queue="research", disruption=disruption)
    held = [pod(f"whole-{at}", "4", of="whole", on=f"n{at // 2}") for at in range(6)]
    sim = Simulation(world(queues, nodes, whole, held))
    sim.cycle()
    sim.model.apply(Upsert(group("late", 2, at=1, queue="prod", min_resources={"cpu": "8"})))
    sim.now = 1
    assert sim.cycle().verdicts["ns/late"].enqueued
    come(sim, group("pr", 2, at=2, queue="research", priority_class_name=priority), *members("pr", 2, "4", at=2))
    sim.now = 2
    return sim


def come(sim: Simulation, *objects: PodGroup | Pod) -> None:
    for one in objects:
        sim.model.apply(Upsert(one))


def test_who_comes_in_by_preemption_evicts_and_takes_no_promised_room() -> None:
    sim = start("Whole")
    sim.settle()
    come(sim, *members("late", 2, "4", at=3))
    sim.run(3)
    assert len(sim.running("late")) == 2
    assert len(sim.running("pr")) == 2
    assert len(sim.evictions) == 6, "whole has given way, as it was counted on when pr came in"


def test_a_queue_that_has_had_its_share_leaves_what_others_were_promised_before() -> None:
    sim = start("Surplus")
    sim.settle()
    assert sim.running("pr") == []
    come(sim, *members("late", 2, "4", at=3))
    sim.run(3)
    assert len(sim.running("late")) == 2
    assert sim.running("pr") == []
    assert len(sim.running("whole")) == 6
    assert sim.evictions == []


def test_idle_room_that_is_promised_to_nobody_is_given_out_beyond_the_share() -> None:
    sim = start("Whole")
    sim.model.apply(Upsert(node("n4", "8")))
    sim.settle()
    come(sim, *members("late", 2, "4", at=3))
    sim.run(3)
    assert (len(sim.running("late")), len(sim.running("pr"))) == (2, 2)
    assert sim.evictions == []


def beside_high(cpu: str, *, now: int = 3) -> Simulation:
    """`low` waits in queue with its pod, and n2 has come free; the pods of `high` (of the same queue) are being made,
    and nobody is evicted for its word alone.
    """
    low = in_queue(group("low", at=1, disruption="Surplus"), at=1)
    high = in_queue(group("high", at=2, priority_class_name="hi", min_resources={"cpu": cpu}), at=2)
    there = pod("there", "5", on="n1")
    sim = Simulation(world(queue("default"), node("n1", "8"), node("n2", "8"), priority_class("hi", 100), there))
    come(sim, low, pod("low-0", "6", of="low", at=1), high)
    sim.now = now
    sim.cycle()
    return sim


def test_room_for_which_more_important_pods_are_being_made_goes_to_nobody_of_their_queue() -> None:
    sim = beside_high("8")
    assert sim.running("low") == []
    come(sim, pod("high-0", "8", of="high", at=3, priority=100))
    sim.settle()
    assert (sim.running("high"), sim.running("low"), sim.evictions) == (["high-0"], [], [])


def test_room_that_would_not_do_for_them_goes_to_who_can_use_it() -> None:
    assert beside_high("12").running("low") == ["low-0"]


def test_room_is_not_left_for_long_to_pods_that_nobody_makes() -> None:
    found = beside_high("8", now=31)
    assert found.running("low") == []
    assert found.last.outcome is not None
    assert found.last.outcome.next_wake == EPOCH + 32 * SECOND
    assert beside_high("8", now=32).running("low") == ["low-0"]


def test_the_room_of_a_pod_that_a_gang_has_lost_is_left_to_it_for_longer() -> None:
    """Its other pods have shown what it is: its priority is no mere word."""
    low = in_queue(group("low", disruption="Never")), pod("low-0", "4", of="low")
    high = group("high", 2, priority_class_name="hi", min_resources={"cpu": "8"})
    pods = [pod(f"high-{at}", "4", of="high", priority=100) for at in range(2)]
    there = queue("default"), node("n1", "8"), priority_class("hi", 100)
    sim = Simulation(world(there, low, high, pods), recreate=False)
    sim.settle()
    assert (sim.running("high"), sim.running("low")) == (["high-0", "high-1"], [])
    sim.now = 100
    sim.model.apply(Delete(Pod, "ns", "high-1"))
    sim.settle()
    sim.now = 150
    sim.settle()
    assert sim.running("low") == []
    come(sim, pod("high-1b", "4", of="high", at=150, priority=100))
    sim.settle()
    assert (sim.running("high"), sim.evictions) == (["high-0", "high-1b"], [])


@pytest.mark.parametrize(
    ("priority", "named", "by", "starts"),
    [
        (100, "default", EVERYTHING, True),
        (0, "default", EVERYTHING, False),
        (100, "other", EVERYTHING, False),
        (100, "default", ALLOCATE.replace("allocate", "enqueue, allocate"), False),
    ],
    ids=["more important", "as important", "of another queue", "without preempt"],
)
def test_a_pod_that_matters_more_is_not_kept_out_by_what_its_own_queue_has_promised(
    priority: int, named: str, by: str, *, starts: bool
) -> None:
    """The group's pods do not exist yet: as they would be evicted for it, their promise counts for nothing, either."""
    low = in_queue(group("low", min_resources={"cpu": "4"}))
    alone = pod("alone", "4", at=10, priority=priority, labels={"kbatch.dev/queue": named})
    sim = Simulation(world(queue("default"), queue("other"), node("n1", "4"), low, alone), by=policy(by))
    sim.now = 10
    found = sim.cycle()
    assert ("alone" in found.binds) is starts


@pytest.mark.parametrize(("cpu", "starts"), [("2", True), ("3", False)])
def test_a_pod_that_overtakes_one_promise_fits_exactly_beside_another(cpu: str, *, starts: bool) -> None:
    less = in_queue(group("less", min_resources={"cpu": "2"}))
    other = in_queue(group("other", queue="other", min_resources={"cpu": "2"}))
    sim = Simulation(world(queue("default"), queue("other"), node("n1", "4"), less, other))
    come(sim, pod("alone", cpu, at=2, priority=5))
    sim.now = 3
    assert ("alone" in sim.cycle().binds) is starts


def beside_a_promise(*others: PodGroup | Pod, cap: str = "4", held: str = "") -> Simulation:
    """Of 16 CPU the queue may hold `cap`, and `held` is what a less important pod has; 4 CPU were promised to `high`,
    whose pods do not exist yet.
    """
    high = in_queue(group("high", at=2, priority_class_name="hi", min_resources={"cpu": "4"}), at=2)
    there = [pod("there", held, on="n1", priority=-1)] if held else []
    nodes = queue("default", capability={"cpu": cap}), node("n1", "16")
    sim = Simulation(world(nodes, priority_class("hi", 100), there, high))
    come(sim, *others)
    sim.now = 3
    sim.cycle()
    return sim


@pytest.mark.parametrize("alone", [True, False])
def test_capability_for_which_more_important_pods_are_being_made_goes_to_nobody_of_their_queue(*, alone: bool) -> None:
    others = [] if alone else [in_queue(group("low", at=1), at=1)]
    sim = beside_a_promise(*others, pod("low-0", "3", of="" if alone else "low", at=1))
    assert sim.running("low") == []
    found = sim.last.verdicts["ns/low-0" if alone else "ns/low"]
    assert found.reason == QueueCapabilityExceeded("default", "cpu", 3000, 4000, 0, 4000)
    come(sim, pod("high-0", "4", of="high", at=3, priority=100))
    sim.settle()
    assert (sim.running("high"), sim.running("low"), sim.evictions) == (["high-0"], [], [])


@pytest.mark.parametrize("alone", [True, False])
def test_capability_beside_what_was_promised_goes_to_whoever_comes(*, alone: bool) -> None:
    others = [] if alone else [in_queue(group("low", at=1), at=1)]
    sim = beside_a_promise(*others, pod("low-0", "3", of="" if alone else "low", at=1), cap="7")
    assert sim.running("low") == ["low-0"]


def test_capability_that_would_not_do_for_them_goes_to_who_can_use_it() -> None:
    low = in_queue(group("low", at=1), at=1)
    assert beside_a_promise(low, pod("low-0", of="low", at=1), held="3").running("low") == ["low-0"]


def test_the_capability_of_a_queue_is_not_kept_for_groups_of_others() -> None:
    there = queue("default", capability={"cpu": "4"}), queue("other")
    other = in_queue(group("far", queue="other", min_resources={"cpu": "4"}))
    sim = Simulation(world(there, node("n1", "16"), other, pod("alone", "3", at=1)))
    sim.now = 3
    assert "alone" in sim.cycle().binds


def test_pods_above_a_minimum_leave_the_capability_that_was_promised() -> None:
    low = in_queue(group("low", at=1), at=1)
    assert len(beside_a_promise(low, *members("low", 2, at=1), cap="5").running("low")) == 1


def test_nobody_is_evicted_for_a_pod_that_takes_promised_capability() -> None:
    """Beside what `there` has, 4 CPU are left, and were promised; with it gone `alone` would have what is left."""
    sim = beside_a_promise(pod("alone", "5", at=2), cap="6", held="2")
    sim.settle()
    assert (sim.evictions, sim.running("alone")) == ([], [])


@pytest.mark.parametrize(("cap", "evicted"), [("6", 0), ("7", 3)])
def test_nothing_is_reclaimed_for_a_pod_that_takes_promised_capability(cap: str, evicted: int) -> None:
    """The other queue has 13 CPU of 16, and deserves no more than 10."""
    high = in_queue(group("high", at=2, priority_class_name="hi", min_resources={"cpu": "4"}), at=2)
    queues = queue("default", capability={"cpu": cap}), queue("other"), priority_class("hi", 100)
    held = [pod(f"far-{at}", on="n1", queue="other") for at in range(13)]
    sim = Simulation(world(queues, node("n1", "16"), held, high, pod("alone", "3", at=2)), recreate=False)
    sim.now = 3
    sim.settle()
    assert len(sim.evictions) == evicted


def test_who_is_kept_out_again_ends_its_promise_once() -> None:
    """`late` was promised 1 CPU of 4; `four` leaves it that, and `three` would be evicted for `four`. Each time that
    `four` had been tried, both were tried again, and the cycle did not end.
    """
    late = in_queue(group("late", at=1, priority_class_name="hi", min_resources={"cpu": "1"}), at=1)
    four = in_queue(group("four", at=2, min_resources={"cpu": "4"}), at=2), pod("four-0", "4", of="four", priority=1)
    three = pod("three", "3", priority=0)
    actions = "[enqueue, allocate, {name: backfill, arguments: {mode: easy}}, preempt]"
    by = policy(EVERYTHING.replace('"enqueue, reclaim, allocate, backfill, preempt"', actions))
    sim = Simulation(world(queue(), node("n1", "4"), priority_class("hi", 100), late, four, three), by)
    sim.now = 3
    sim.settle()
    assert sim.running() == ["three"]


def test_pods_above_a_minimum_overtake_what_a_less_important_group_was_promised_of_a_capability() -> None:
    """`more` runs with one of its two pods; the pods of `less`, which was promised the rest of the capability, would be
    evicted for the other one.
    """
    more = in_queue(group("more", priority_class_name="hi")), pod("more-0", of="more", on="n1", priority=100)
    less = in_queue(group("less", min_resources={"cpu": "3"}), at=1)
    there = queue("default", capability={"cpu": "4"}), node("n1", "16"), priority_class("hi", 100)
    sim = Simulation(world(there, more, less, pod("more-1", "2", of="more", at=2, priority=100)))
    sim.now = 3
    sim.cycle()
    assert sorted(sim.running("more")) == ["more-0", "more-1"]
