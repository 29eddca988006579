"""Who comes in queue whose pods preempt nobody (`preemptionPolicy: Never`): no room is made for them."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.conditions import ENQUEUED
from kbatch.model.cluster import ClusterModel
from tests.unit.engine.test_enqueue import held_job
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

BY = policy(EVERYTHING)
CLASSES = [priority_class("low", 1), priority_class("high", 10), priority_class("meek", 10, preemption_policy="Never")]


def full(holder: str, *more: Any) -> ClusterModel:
    """Four nodes of 4 CPUs that are full of less important pods in the queue `holder`, and these."""
    nodes = [
        [node(f"n{at}", "4"), group(f"r{at}", queue=holder, priority_class_name="low"),
         pod(f"r{at}-0", "4", of=f"r{at}", on=f"n{at}", priority=1)]
        for at in range(4)
    ]  # fmt: skip
    return world(queue(), queue("other"), *CLASSES, *nodes, *more)


def of_template(name: str) -> list[Any]:
    """A gang whose pods a Job makes once it is in queue."""
    return [group("gang", 2, at=1, priority_class_name=name), held_job("job", 2, "2", "gang")]


def of_pods(name: str) -> list[Any]:
    """A gang whose pods are there."""
    meek: dict[str, Any] = {"preemption_policy": "Never"} if name == "meek" else {}
    return [
        group("gang", 2, at=1, priority_class_name=name),
        *members("gang", 2, "2", at=1, priority=10, priority_class_name=name, **meek),
    ]


def of_sum(name: str) -> list[Any]:
    """A gang of which nothing is known but what it asks for."""
    return [group("gang", 2, at=1, priority_class_name=name, min_resources={"cpu": "4"})]


@pytest.mark.parametrize("holder", ["default", "other"], ids=["preempt", "reclaim"])
@pytest.mark.parametrize("made", [of_pods, of_template, of_sum])
def test_nobody_is_let_in_for_what_others_could_give_up(holder: str, made: Any) -> None:
    assert run(full(holder, *made("high")), BY, now=10).verdicts["ns/gang"].enqueued
    sim = Simulation(full(holder, *made("meek")), BY)
    for _ in range(3):  # with what was remembered of it, too
        sim.cycle()
        assert not sim.model.jobs["ns/gang"].is_true(ENQUEUED)
        sim.tick()
    assert not sim.evictions


@pytest.mark.parametrize("made", [of_pods, of_template, of_sum])
def test_room_that_is_there_lets_them_in(made: Any) -> None:
    assert run(full("other", node("idle", "4"), *made("meek")), BY, now=10).verdicts["ns/gang"].enqueued


def test_who_has_enough_pods_that_may_preempt_is_let_in() -> None:
    three = [
        group("gang", 2, at=1, priority_class_name="high"),
        *members("gang", 2, "2", at=1, priority=10, priority_class_name="high"),
        pod("meek", "2", of="gang", at=1, priority=10, preemption_policy="Never"),
    ]
    assert run(full("default", *three), BY, now=10).verdicts["ns/gang"].enqueued


def test_nobody_is_told_that_a_larger_share_would_help() -> None:
    """The queue deserves 8 CPUs of 16; reclaim would fetch no more for it than for others."""
    gang = [
        group("gang", 3, at=1, priority_class_name="meek"),
        *members("gang", 3, "4", at=1, priority=10, priority_class_name="meek", preemption_policy="Never"),
    ]
    sim = Simulation(full("other", *gang), BY)
    for _ in range(3):
        sim.cycle()
        assert sim.last.reason("gang") == "WaitingInQueue"
        sim.tick()
