"""Cases that the exploration of states has found, each as small as it can be (docs/exploration.md)."""

from __future__ import annotations

import copy

from kbatch.api.objects import Condition, Pod
from kbatch.engine import CycleState
from kbatch.engine.state.cycle_state import GatheredRoom
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    Simulation,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    stamp,
    world,
)

CLASSES = [priority_class("low", 1), priority_class("high", 100)]


def test_a_group_is_not_bound_in_the_cycle_that_evicts_others_for_its_capability() -> None:
    """If the eviction were refused, the queue would hold more than its capability."""
    preempt_first = EVERYTHING.replace("reclaim, allocate, backfill, preempt", "preempt, allocate, reclaim")
    model = world(
        [*CLASSES, queue("q0", capability={"cpu": "2"}), node("n0", "2"), node("n1", "2")],
        group("old", queue="q0", priority_class_name="low"),
        pod("old-0", "2", of="old", on="n0"),
        group("new", queue="q0", priority_class_name="high", at=1),
        pod("new-0", "1", of="new", at=1),
    )
    found = run(model, policy(preempt_first), now=2)
    assert found.evicted == ["old-0"]
    assert set(found.nominated) == {"new-0"}
    assert found.binds == {}


def test_nobody_moves_from_its_nomination_to_room_that_gathers_for_an_aged_group() -> None:
    """Its victim would have been evicted in vain, and the aged group would wait on."""
    ending = pod("g-0", of="g", on="n0")
    ending.metadata.deletion_timestamp = stamp(604)
    model = world(
        [queue("q0", 3), queue("q1"), queue("q2", 3), node("n0", "2"), node("n1", "1"), node("n2", "1")],
        group("g", queue="q2"),
        [ending, pod("g-1", of="g", at=603)],
        group("donor", queue="q1", disruption="Whole", at=2),
        [pod("donor-0", of="donor", on="n1", at=2), pod("donor-1", of="donor", on="n2", at=3)],
        group("aged", queue="q0", at=3),
        pod("aged-0", "2", of="aged", at=3),
    )
    gathered = CycleState(gathered=GatheredRoom("ns/aged", (("ns/aged-0", "n0"),)))
    found = run(model, policy(EVERYTHING.replace("enqueue, ", "")), now=603, state=gathered)
    assert found.evicted == ["donor-1"]
    assert found.nominated["g-1"] == "n2"
    assert found.binds == {}


def test_time_wakes_for_the_age_of_a_group_alike_whether_or_not_it_is_remembered() -> None:
    """Who waited for room, and is over the queue's capability once another has come in, comes in by no age."""
    sim = Simulation(
        world(
            [queue("q0", capability={"cpu": "3"}), queue("q1"), node("n1", "1"), node("n2", "1")],
            [group("old", queue="q0"), pod("old-0", of="old", on="n1")],
            [group("ending", queue="q1"), pod("ending-0", of="ending", on="n2")],
            [group("two", 2, queue="q0", at=1), *members("two", 2, at=1)],
            [group("one", queue="q0", at=2), *members("one", 1, at=2)],
        ),
    )
    sim.now = 3
    sim.settle()
    sim.now = 400
    sim.model.apply(Delete(Pod, "ns", "ending-0"))
    forgotten = run(sim.model, sim.policy, now=sim.now, state=sim.state).outcome
    found = sim.cycle()
    assert set(found.binds) == {"one-0"}
    assert found.reason("two") == "QueueCapabilityExceeded"
    assert found.outcome is not None
    assert forgotten is not None
    assert forgotten.next_wake == found.outcome.next_wake
    assert forgotten.next_wake != EPOCH + 601 * SECOND


def test_nobody_is_bound_beyond_the_capability_while_an_eviction_could_still_be_refused() -> None:
    """The rest of a broken gang is evicted; if that is refused, the queue must not hold more than its capability."""
    sim = Simulation(
        world(
            [queue("q0", capability={"cpu": "2"}), node("n0"), node("n1")],
            [group("broken", 2, queue="q0", minimum_lost_seconds=0), *members("broken", 2, on="n0")],
        )
    )
    sim.settle()
    sim.model.apply(Delete(Pod, "ns", "broken-1"))
    sim.model.apply(Upsert(group("next", queue="q0", at=1)))
    for number in range(2):
        sim.model.apply(Upsert(pod(f"next-{number}", of="next", at=1)))
    found = run(sim.model, sim.policy, now=sim.now, state=sim.state)
    assert found.evicted == ["broken-0"]
    assert found.binds.keys() | found.nominated.keys() >= {"next-0"}
    assert len(found.binds) + 1 <= 2
    sim.run(3)
    assert sim.running("next") == ["next-0", "next-1"]


def test_a_gang_that_does_not_count_as_being_bound_any_more_is_looked_at_again() -> None:
    """It lost all its pods with their node while it was bound: the next cycle sends it back, remembered or not."""
    gang = group("g", 2, min_resources={"cpu": "4"})
    gang.status.conditions = (
        Condition(type="Enqueued", status="True", reason="Admitted", last_transition_time=stamp(0)),
        Condition(type="Scheduled", status="False", reason="NotEnoughTasks", last_transition_time=stamp(1)),
    )
    model = world(queue(), node("n1", "4"), pod("x", "1", on="n1"), gang)
    first = run(model, policy(EVERYTHING), now=1, state=CycleState(binding=("ns/g",))).outcome
    assert first is not None
    assert first.state.binding == ()
    alone = run(model, policy(EVERYTHING), now=1, state=first.state)
    kept = run(model, policy(EVERYTHING), now=1, state=first.state, memo=first.memo)
    assert alone.verdicts["ns/g"].enqueued is False
    assert kept.verdicts["ns/g"] == alone.verdicts["ns/g"]


def test_who_has_come_in_queue_keeps_an_aged_group_out_whether_or_not_it_is_remembered() -> None:
    """Of a queue below its share a group comes in again: what comes free is for it, and not for one that has aged."""
    lost, aged = group("lost", queue="q1", at=2, min_resources={"cpu": "1"}), group("aged", 2, queue="q0", at=3)
    lost.status.conditions = (
        Condition(type="Enqueued", status="True", reason="Admitted", last_transition_time=stamp(2)),
        Condition(type="Scheduled", status="False", reason="NotEnoughResources", last_transition_time=stamp(647)),
    )
    aged.status.conditions = (
        Condition(type="Enqueued", status="False", reason="WaitingInQueue", last_transition_time=stamp(3)),
        Condition(type="Scheduled", status="False", reason="WaitingInQueue", last_transition_time=stamp(3)),
    )
    model = world(
        [queue("q0"), queue("q1", 2), node("n0", "2"), node("n1", "1"), node("n2", "2")],
        [
            group("old", queue="q0", disruption="Never"),
            *(pod(f"old-{at}", "2", of="old", on=f"n{at}") for at in (0, 2)),
        ],
        [lost, pod("lost-0", of="lost", at=603)],
        [aged, *members("aged", 2, "2", at=3)],
    )
    model.refuse_bind("ns/lost-0", "u-lost-0", "n1", EPOCH + 658 * SECOND)
    first = run(model, policy(EVERYTHING), now=648).outcome
    assert first is not None
    model.apply(Upsert(node("n9", "0")))
    kept = run(model, policy(EVERYTHING), now=648, state=first.state, memo=first.memo)
    alone = run(model, policy(EVERYTHING), now=648, state=first.state)
    assert alone.verdicts["ns/aged"].enqueued is False
    assert {**alone.verdicts, **kept.verdicts}["ns/aged"].enqueued is False


def test_nobody_goes_for_what_the_end_of_a_nomination_frees_of_the_capability() -> None:
    """The eviction of `high-0` was refused: of the gang that was nominated to its room one pod is within the cap."""
    model = world(
        [*CLASSES, queue("q", capability={"cpu": "3"}), node("n0", "4"), node("n1", "2")],
        group("high", 2, queue="q", priority_class_name="high", minimum_lost_seconds=0),
        [pod("high-0", of="high", on="n0"), pod("high-1", of="high", at=3)],
        group("low", 2, queue="q", priority_class_name="low", at=2),
        members("low", 2, at=2),
        group("one", queue="q", at=3),
        pod("one-0", of="one", on="n0", at=3),
    )
    for name, where in (("low-0", "n1"), ("low-1", "n0")):
        nominated = copy.deepcopy(model.tasks[f"ns/{name}"].pod)
        nominated.status.nominated_node_name = where
        model.apply(Upsert(nominated))
    model.refuse_eviction("ns/high-0", "u-high-0", EPOCH + 13 * SECOND)
    by = policy(EVERYTHING.replace("enqueue, ", ""))
    found = run(model, by, now=4, state=CycleState(broken={"ns/high": EPOCH + 3 * SECOND}))
    assert found.evicted == []
