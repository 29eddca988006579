"""A gang whose pods are within its queue's flow limit kind by kind, but not together, keeps no room for its start."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.objects import Pod
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.worlds import Simulation, group, members, node, pod, policy, queue, world

FLOW = """
actions: [enqueue, allocate, {name: backfill, arguments: {mode: MODE}}]
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: flow, arguments: {halfTime: 60, infiniteFactor: 1.5}}, {name: nodeorder}]
"""


@pytest.mark.parametrize("mode", ["easy", "conservative", "none"])
@pytest.mark.parametrize("memory", ["", "1Gi"])  # "": all pods alike, which is right already
def test_who_can_never_start_for_its_share_keeps_no_room(mode: str, memory: str) -> None:
    """The pods ask for 5 CPU, and 1.5 times the queue's fair share of 3 is 4.5: it can never start."""
    big = [*members("big", 3), pod("big-3", of="big", memory=memory), pod("big-4", of="big", memory=memory)]
    sim = Simulation(
        world(
            queue("a"), queue("b"), node("n1", "6"),
            group("first", queue="b"), members("first", 1, "2", on="n1"),
            group("big", 5, queue="a"), big,
        ),
        policy(FLOW.replace("enqueue, ", "").replace("MODE", mode)),
    )  # fmt: skip
    sim.run(1)
    sim.now += 700  # it has aged, which matters to the mode none
    sim.run(1)
    small: list[Any] = [group("small", 1, at=701, queue="b"), *members("small", 1, "2", at=701)]
    for each in small:
        sim.model.apply(Upsert(each))
    sim.run(1)
    assert sim.last.reason("big") in {"InfiniteShareExceeded", "NotEnoughResources"}
    beside = sim.running("small")
    sim.model.apply(Delete(Pod, "ns", "first-0"))  # and when nothing runs at all:
    for _ in range(20):
        sim.run(1)
        sim.now += 60
    assert beside, f"small waited for a group that can never start, and runs now: {sim.running('small')}"


@pytest.mark.parametrize("memory", ["", "1Gi"])
def test_nor_does_it_in_an_idle_cluster_for_ever(memory: str) -> None:
    """Mode conservative: it lacked room only because somebody was promised some, who was sent back since."""
    big = [*members("big", 3), pod("big-3", of="big", memory=memory), pod("big-4", of="big", memory=memory)]
    sim = Simulation(
        world(
            queue("a"), queue("b"), node("n1", "5"),
            group("first", 1, queue="b", min_resources={"cpu": "3"}, schedule_timeout_seconds=20),
            group("big", 5, queue="a", min_resources={"cpu": "1"}), big,
        ),
        policy(FLOW.replace("MODE", "conservative")),
    )  # fmt: skip
    sim.run(1)
    small: list[Any] = [group("small", 1, at=5, queue="b"), *members("small", 1, at=5)]
    for each in small:
        sim.model.apply(Upsert(each))
    for _ in range(30):  # half an hour, in which not one pod runs
        sim.run(1)
        sim.now += 60
    assert sim.running("small"), sim.last.verdicts["ns/small"].reason
