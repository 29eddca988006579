"""Room for pods that are yet to be made: which surplus goes for them, and when none does."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.objects import Job, JobSpec, Metadata, PodGroup, PodTemplate, SubGroup
from kbatch.model.events import Upsert
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
    world,
)

ALL = policy(EVERYTHING)
CLASSES = [
    priority_class("low", 1),
    priority_class("high", 100),
    priority_class("meek", 100, preemption_policy="Never"),
]


def held_job(of: str, count: int, cpu: str = "1", *, mark: str | None = "true", **spec: Any) -> Job:
    """A Job that kbatch has suspended until its group is in queue."""
    template = PodTemplate(
        metadata=Metadata(annotations={"scheduling.k8s.io/group-name": of}), spec=pod("t", cpu, **spec).spec
    )
    annotations = {"kbatch.dev/suspended": mark} if mark is not None else None
    return Job(
        metadata=Metadata(name=of, namespace="ns", annotations=annotations),
        spec=JobSpec(suspend=True, parallelism=count, template=template),
    )


def elastic(name: str = "a", cpus: int = 2, **more: Any) -> PodGroup:
    """A group that asked for 2 CPU and may have more."""
    return group(name, 2, min_resources={"cpu": str(cpus)}, **more)


def wanting(name: str = "b", count: int = 2, **more: Any) -> PodGroup:
    return group(name, count, at=9, min_resources={"cpu": str(count)}, **more)


def test_surplus_of_the_same_queue_goes_for_pods_to_come_whatever_drf_says() -> None:
    """The preemptor will hold more than what is left of the other; but that asked for no more than 2."""
    model = world(*CLASSES, queue(), node("n1", "6"), elastic(), members("a", 6, on="n1"), wanting(count=4))
    model.apply(Upsert(held_job("b", 4)))
    found = run(model, ALL)
    assert found.verdicts["ns/b"].enqueued
    assert len(found.evicted) == 4
    (transaction,) = found.transactions
    assert {gone.action for gone in transaction.evictions} == {"preempt"}
    assert {gone.beneficiary for gone in transaction.evictions} == {"ns/b"}
    assert transaction.nominations == ()


def test_members_made_of_roles_are_foreseen_too() -> None:
    roles = wanting()
    template = {"spec": {"containers": [{"name": "m", "resources": {"requests": {"cpu": "1"}}}]}}
    roles.spec.sub_groups = (SubGroup(name="w", min_member=2, template=template),)
    found = run(world(queue(), node("n1", "4"), elastic(), members("a", 4, on="n1"), roles), ALL)
    assert len(found.evicted) == 2


def test_the_youngest_surplus_goes_first_and_no_more_than_is_short() -> None:
    running = [pod(f"a-{at}", of="a", on="n1", at=at) for at in range(4)]
    found = run(world(queue(), node("n1", "5"), elastic(), running, wanting(), held_job("b", 2)), ALL)
    assert found.evicted == ["a-3"]


@pytest.mark.parametrize(
    ("victim", "preemptor", "job"),
    [
        (elastic(cpus=4), wanting(), held_job("b", 2)),
        (group("a", 4, min_resources={"cpu": "1"}), wanting(), held_job("b", 2)),
        (group("a", 2), wanting(), held_job("b", 2)),
        (elastic(priority_class_name="high"), wanting(), held_job("b", 2)),
        (elastic(disruption="Never"), wanting(), held_job("b", 2)),
        (elastic(), wanting(priority_class_name="meek"), held_job("b", 2, priority_class_name="meek")),
        (elastic(), wanting(), held_job("b", 2, mark=None)),
        (elastic(), wanting(), held_job("b", 1)),
        (elastic(), wanting(), None),
        (elastic(), wanting(queue="other"), held_job("b", 2)),
    ],
    ids=[
        "its minResources", "its minimum", "it never said what it needs", "it matters more", "never disrupted",
        "preemptor never preempts", "suspended by its user", "too few pods to come", "nobody makes pods",
        "another queue",
    ],
)  # fmt: skip
def test_nobody_goes(victim: PodGroup, preemptor: PodGroup, job: Job | None) -> None:
    model = world(*CLASSES, queue(), queue("other"), node("n1", "4"), victim, members("a", 4, on="n1"), preemptor)
    if job is not None:
        model.apply(Upsert(job))
    assert run(model, ALL).evicted == []


def test_a_group_that_matters_less_gives_when_the_pods_are_there_and_say_so() -> None:
    """Before, only their group says that they matter more; and this one never said what it needs."""
    low = group("a", 2, priority_class_name="low")
    model = world(*CLASSES, queue(), node("n1", "4"), low, members("a", 4, on="n1"),
                  wanting(priority_class_name="high"), held_job("b", 2))  # fmt: skip
    simulation = Simulation(model)
    first = simulation.cycle()
    assert first.verdicts["ns/b"].enqueued
    assert first.evicted == []
    for each in members("b", 2, priority=100):
        model.apply(Upsert(each))
    assert len(simulation.cycle().evicted) == 2


def test_nobody_goes_where_the_pods_to_come_would_not_fit_any_node() -> None:
    """3 CPU are surplus, but nowhere 2 of them together."""
    nodes = [node(f"n{at}", "2") for at in range(3)]
    running = [pod(f"a-{at}", of="a", on=f"n{at % 3}", at=at) for at in range(6)]
    model = world(queue(), nodes, group("a", 3, min_resources={"cpu": "3"}), running)
    model.apply(Upsert(group("b", 1, at=9, min_resources={"cpu": "3"})))
    model.apply(Upsert(held_job("b", 1, "3")))
    found = run(model, ALL)
    assert found.evicted == []


def test_room_that_others_were_promised_is_not_counted_on() -> None:
    """b has idle room; c came with it and must not rest on the same."""
    model = world(queue(), node("n1", "6"), elastic(), members("a", 4, on="n1"), wanting("b"), held_job("b", 2))
    model.apply(Upsert(group("c", 2, at=10, min_resources={"cpu": "2"})))
    model.apply(Upsert(held_job("c", 2)))
    found = run(model, ALL)
    assert found.verdicts["ns/b"].enqueued
    assert found.verdicts["ns/c"].enqueued
    assert len(found.evicted) == 2
    assert {transaction.group for transaction in found.transactions} == {"ns/c"}


def test_pods_that_never_come_cost_their_victims_once() -> None:
    sim = Simulation(world(queue(), node("n1", "4"), elastic(), members("a", 4, on="n1"), wanting(), held_job("b", 2)))
    sim.run(20)
    assert len(sim.evictions) == 2
    assert len(sim.running("a")) == 2  # what was promised is kept
    sim.now = 400  # past its time in queue
    sim.run(400)
    assert len(sim.evictions) == 2
    assert len(sim.running("a")) == 4


def test_pods_that_come_take_the_room_and_their_victims_stay_out() -> None:
    sim = Simulation(world(queue(), node("n1", "4"), elastic(), members("a", 4, on="n1"), wanting(), held_job("b", 2)))
    sim.cycle()
    for one in members("b", 2, at=10):
        sim.model.apply(Upsert(one))
    sim.run(20)
    assert len(sim.evictions) == 2
    assert len(sim.running("b")) == 2
    assert len(sim.running("a")) == 2


def test_what_another_queue_owes_is_left_to_reclaim() -> None:
    model = world(
        queue("q1"), queue("q2"), node("n1", "8"), group("x", queue="q2"), members("x", 6, on="n1"),
        elastic(cpus=1, queue="q1"), members("a", 2, on="n1"), group("b", 2, at=9, queue="q1",
        min_resources={"cpu": "2"}), held_job("b", 2),
    )  # fmt: skip
    model.apply(Upsert(group("a", 1, queue="q1", min_resources={"cpu": "1"})))
    found = run(model, ALL)
    assert found.verdicts["ns/b"].enqueued
    assert found.evicted == []
