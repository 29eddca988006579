"""What was promised to groups in queue that hold nothing yet keeps nobody of their queue out who matters more."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kbatch.api.objects import Condition, Pod, PodGroup, PodGroupStatus
from kbatch.api.reasons import QueueCapabilityExceeded, WaitingInQueue
from kbatch.engine import Policy
from kbatch.engine.placement.ranking import NodeRankings
from kbatch.engine.reservation.ledger import Ledger
from kbatch.engine.session.statement import Statement
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.worlds import (
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
    session_of,
    stamp,
    world,
)

ALL = policy(EVERYTHING)
WITHOUT_PREEMPT = policy(EVERYTHING.replace(", preempt", ""))
HIGH = priority_class("high", 1000)


def in_queue(name: str, cpu: int, **spec: Any) -> PodGroup:
    """A group in queue whose pods are not made yet."""
    since = (Condition(type="Enqueued", status="True", last_transition_time=stamp(0)),)
    found = group(name, min_resources={"cpu": str(cpu)}, **spec)
    return replace(found, status=PodGroupStatus(conditions=since))


def urgent(name: str, cpu: int, at: int = 9, **spec: Any) -> list[Any]:
    """A group of one pod that matters more."""
    found = group(name, 1, at=at, priority_class_name="high", **spec)
    return [found, pod(f"{name}-0", str(cpu), of=name, at=at, priority=1000)]


def test_who_matters_more_overtakes_a_group_in_queue() -> None:
    found = run(world(queue(), HIGH, node("n1", "4"), in_queue("weak", 4), urgent("strong", 3)), ALL)
    assert found.binds == {"strong-0": "n1"}
    assert found.verdicts["ns/weak"].enqueued


def test_so_does_one_that_waits_already_when_room_comes_free() -> None:
    """It stands in a row of the backlog then."""
    busy = pod("busy", "4", on="n1", at=1, priority=1000)
    model = world(queue(), HIGH, node("n1", "4"), busy, in_queue("weak", 4), urgent("strong", 3))
    before = run(model, ALL)
    assert before.outcome is not None
    assert not before.verdicts["ns/strong"].enqueued
    model.apply(Delete(Pod, "ns", "busy"))
    found = run(model, ALL, now=1, memo=before.outcome.memo, state=before.outcome.state)
    assert found.binds == {"strong-0": "n1"}


def test_what_one_has_overtaken_is_taken() -> None:
    """Also of the one let in a moment before, whose pod is not there yet."""
    coming = group("first", at=8, min_resources={"cpu": "3"}, priority_class_name="high")
    found = run(world(queue(), HIGH, node("n1", "4"), in_queue("weak", 4), coming, urgent("second", 2)), ALL)
    assert found.verdicts["ns/first"].enqueued
    assert not found.verdicts["ns/second"].enqueued
    assert not found.binds


@pytest.mark.parametrize("priority", ["", "high"])
def test_equals_do_not(priority: str) -> None:
    equal = in_queue("equal", 4, priority_class_name=priority)
    late = group("late", 1, at=9, priority_class_name=priority)
    found = run(world(queue(), HIGH, node("n1", "4"), equal, late, pod("late-0", "1", of="late", at=9)), ALL)
    assert found.verdicts["ns/late"].reason == WaitingInQueue("default", "cpu", 1000, 0, 4000, 0)


@pytest.mark.parametrize(("by", "where"), [(WITHOUT_PREEMPT, "default"), (ALL, "other")])
def test_nor_who_would_not_evict_them(by: Policy, where: str) -> None:
    """Where preempt is not configured, or the other is of another queue, which has a share of its own."""
    queues = [queue(), queue("other")]
    found = run(world(*queues, HIGH, node("n1", "4"), in_queue("weak", 4), urgent("strong", 3, queue=where)), by)
    assert not found.verdicts["ns/strong"].enqueued
    assert not found.binds


def test_a_group_that_holds_pods_is_not_overtaken() -> None:
    """The rest of its gang is promised to it: nobody takes that room but by evicting it."""
    broken = in_queue("broken", 4, disruption="Never")
    broken = replace(broken, spec=replace(broken.spec, min_member=2))
    held = pod("broken-0", "1", of="broken", on="n1")
    found = run(world(queue(), HIGH, node("n1", "4"), broken, held, urgent("strong", 2)), ALL)
    assert not found.verdicts["ns/strong"].enqueued


def test_nor_is_a_capability_kept_by_them() -> None:
    objects = (queue(capability={"cpu": "4"}), HIGH, node("n1", "8"), in_queue("weak", 4))
    assert run(world(*objects, urgent("strong", 3)), ALL).binds == {"strong-0": "n1"}
    told = run(world(*objects, urgent("large", 5)), ALL).verdicts["ns/large"].reason
    assert told == QueueCapabilityExceeded("default", "cpu", 5000, 0, 0, 4000)


def test_nor_a_share() -> None:
    """Another queue holds all nodes, half of which is to be taken back: by who matters more, for it comes first."""
    running = [pod(f"x-{at}", queue="q1", on="n1") for at in range(8)]
    weak = in_queue("weak", 4, queue="q2")
    found = run(
        world(queue("q1"), queue("q2"), HIGH, node("n1", "8"), running, weak, urgent("strong", 3, queue="q2")), ALL
    )
    assert found.verdicts["ns/strong"].enqueued
    assert len(found.evicted) == 3


def test_a_capability_is_not_blamed_for_a_cycle_because_a_weaker_group_has_just_come_in_queue() -> None:
    """No node is large enough for high; low comes in queue, and holds nothing yet: high would overtake it."""
    sim = Simulation(
        world(
            priority_class("low", 1), priority_class("high", 100), queue(capability={"cpu": "18"}),
            [node(f"n{at}", "8") for at in range(3)],
            group("high", 1, priority_class_name="high"), members("high", 1, "9", priority=100),
        ),
        ALL,
    )  # fmt: skip
    sim.settle()
    sim.model.apply(Upsert(group("low", 2, priority_class_name="low", min_resources={"cpu": "10"})))
    reasons = [sim.cycle().reason("high") for _ in range(2)]
    assert sim.last.verdicts["ns/low"].enqueued
    assert reasons[0] == reasons[1], reasons


def test_who_has_lost_its_last_pod_is_overtaken_from_then_on() -> None:
    """`weak` holds one pod of three, and was promised 2 of 4 CPU. With that pod evicted it holds nothing any more, and
    its promise keeps a pod out no longer that matters more; it does again if the pod stays after all.
    """
    weak = in_queue("weak", 3, min_member=3), pod("weak-0", of="weak", on="n1")
    model = world(queue(), HIGH, node("n1", "4"), weak, pod("high", "3", priority=1000, at=5))
    session = session_of(model, ALL)
    rankings = NodeRankings(session.room, session.plugins.predicates, session.plugins.scores, ALL.fingerprint)
    ledger = Ledger(session, rankings)
    jobs = {job.name: job for job in session.live()}
    high = jobs["ns/high"]
    assert ledger.refuses(high, high.waiting, surplus=False) is not None
    statement = Statement(session, high)
    statement.evict(jobs["ns/weak"], model.tasks["ns/weak-0"], "preempt")
    assert ledger.refuses(high, high.waiting, surplus=False) is None
    statement.rollback()
    assert ledger.refuses(high, high.waiting, surplus=False) is not None
