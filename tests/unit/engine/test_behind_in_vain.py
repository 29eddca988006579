"""Who stands behind a group in queue that waits in vain: all that ask for the same, whatever is known of their pods."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from kbatch.api.objects import (
    Job,
    Metadata,
    Pod,
    PodGroup,
    ResourceQuota,
    ResourceQuotaStatus,
    SchedulingGate,
    SubGroup,
    Toleration,
)
from kbatch.engine import Memo
from kbatch.engine.admission.in_vain import InVain
from kbatch.engine.state.jobs import JobState
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.test_enqueue import held_job
from tests.unit.engine.test_in_vain import NO_VICTIMS, come, one
from tests.unit.engine.worlds import (
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

ADMITTED: dict[str, Any] = {
    "preemption_policy": "PreemptLowerPriority",
    "tolerations": (Toleration(key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute"),),
}


def pieces(count: int, *, used: str, **spec: Any) -> list[Any]:
    """Nodes of 8 CPUs on which so much is taken."""
    return [[node(f"n{at}", "8"), *one(f"r{at}", used, on=f"n{at}", **spec)] for at in range(count)]


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(("name", "priority"), [("", 0), ("high", 10)])
def test_pods_to_come_are_the_same_as_those_that_came(name: str, priority: int, together: bool) -> None:
    """Ten suspended Jobs for whose pods no node has room: that of one is let go, or of two that come in at once."""
    sim = Simulation(
        world(queue(), priority_class("high", 10), *pieces(4, used="4.5", disruption="Never")), policy(EVERYTHING)
    )
    sim.settle()
    made: list[str] = []

    def step() -> None:
        sim.tick()
        sim.settle()
        for job in [key.removeprefix("ns/") for key, found in sim.last.verdicts.items() if found.enqueued]:
            if job.startswith("job") and job not in made:
                made.append(job)
                sim.model.apply(Delete(Job, "ns", job))
                admitted = pod(f"{job}-0", "7", of=job, at=sim.now, priority=priority, **ADMITTED)
                admitted.spec.priority_class_name = name
                sim.model.apply(Upsert(admitted))

    for at in range(10):
        held = held_job(f"job{at}", 1, "7", f"job{at}")
        held.spec.template.spec.priority_class_name = name
        sim.model.apply(Upsert(group(f"job{at}", at=sim.now, priority_class_name=name)))
        sim.model.apply(Upsert(held))
        for _ in range(0 if together else 2):
            step()
    for _ in range(10):
        step()
    assert len(made) == (2 if together else 1)


@pytest.mark.parametrize("remembers", [True, False])
def test_who_asks_for_less_than_one_of_its_kind_does_not_stand_behind_it(remembers: bool) -> None:
    """`c` could evict and start; `b` is to have a node to itself, and waits behind `a` that is to have one, too."""

    def high(name: str, cpu: str, at: int, **spec: Any) -> list[Any]:
        made = group(name, at=at, priority_class_name="high", schedule_timeout_seconds=100_000, **spec)
        return [made, pod(f"{name}-0", cpu, of=name, at=at, priority=10)]

    nodes = [
        [node(f"n{at}", "8"), *one(f"top{at}", "1", on=f"n{at}", disruption="Never"),
         *one(f"low{at}", "4", on=f"n{at}")]
        for at in range(4)
    ]  # fmt: skip
    sim = Simulation(world(queue(), priority_class("high", 10), *nodes, *high("aged", "7.5", 0)), policy(EVERYTHING))
    sim.settle()
    sim.now = 700
    sim.settle()
    come(sim, *high("a", "7", 700, exclusive=True))
    filler: dict[str, Any] = {"priority_class_name": "high", "min_resources": {"cpu": "16"}}
    come(sim, group("filler", at=701, schedule_timeout_seconds=100_000, **filler))
    come(sim, *high("b", "7", 702, exclusive=True), *high("c", "7", 703))
    assert not sim.last.verdicts["ns/c"].enqueued
    sim.model.apply(Delete(PodGroup, "ns", "filler"))
    for _ in range(5):
        sim.tick()
        for _ in range(5):
            sim.memo = sim.memo if remembers else Memo()
            sim.cycle()
    assert "c-0" in sim.running()


@pytest.mark.parametrize("remembers", [True, False])
def test_nor_does_who_has_another_lifetime(remembers: bool) -> None:
    """`b` waits behind `a`, which is bound to as long a time; `c` does not."""
    sim = Simulation(
        world(queue(), *pieces(8, used="4"), *one("aged", "7.5", schedule_timeout_seconds=100_000)), NO_VICTIMS
    )
    sim.settle()
    sim.now = 700
    sim.settle()
    come(sim, *one("a", "7", at=700, lifetime_seconds=100))
    come(sim, group("filler", at=701, min_resources={"cpu": "20"}))
    come(sim, *one("b", "7", at=702, lifetime_seconds=100), *one("c", "7", at=703, lifetime_seconds=200))
    assert not sim.last.verdicts["ns/c"].enqueued
    sim.model.apply(Delete(PodGroup, "ns", "filler"))
    for _ in range(3):
        sim.tick()
        sim.memo = sim.memo if remembers else Memo()
        sim.cycle()
    assert [sim.last.verdicts[f"ns/{name}"].enqueued for name in "bc"] == [False, True]


@pytest.mark.parametrize("remembers", [True, False])
def test_who_stands_behind_another_comes_in_by_its_age(remembers: bool) -> None:
    sim = Simulation(world(queue(), *pieces(4, used="4")), NO_VICTIMS)
    sim.settle()
    sim.now = 50
    come(sim, *one("first", "7", at=50, schedule_timeout_seconds=5000))
    come(sim, *one("second", "7", at=40, schedule_timeout_seconds=5000))
    for now in (300, 639, 640):
        sim.now = now
        sim.memo = sim.memo if remembers else Memo()
        found = sim.cycle()
        assert found.outcome is not None
        if now < 640:
            assert found.outcome.next_wake == EPOCH + 640 * SECOND
    assert sim.last.verdicts["ns/second"].enqueued


@pytest.mark.parametrize("quota", [False, True])
def test_those_behind_are_not_asked_one_by_one(quota: bool) -> None:
    """Nobody is old enough yet to come in by age; a quota that is far from used up tells nobody from another."""
    hard: dict[str, str | int | float] = {"requests.cpu": "10000"}
    status = ResourceQuotaStatus(hard=hard, used={"requests.cpu": "0"})
    limits = [ResourceQuota(metadata=Metadata(name="quota", namespace="ns"), status=status)]
    waiting = [obj for at in range(300) for obj in one(f"large{at}", "7", at=at // 100)]
    sim = Simulation(world(queue(), *pieces(4, used="4"), *waiting, *(limits if quota else [])), NO_VICTIMS)
    sim.settle()
    asked: list[str] = []
    first = InVain.first

    def noting(self: InVain, job: JobState) -> bool:
        asked.append(job.key)
        return first(self, job)

    with patch.object(InVain, "first", noting):
        for at in range(3):
            come(sim, *one(f"small{at}", "1", at=sim.now))
    assert len(sim.running("small")) == 3
    assert 0 < len(asked) < 60  # in some ten cycles


def test_who_room_gathers_for_keeps_it_though_an_older_one_is_ready() -> None:
    """Else others come in queue for room that `allocate` keeps from them."""
    gated = pod("old-0", "5", of="old", scheduling_gates=(SchedulingGate(name="example.com/licence"),))
    old = in_queue(group("old", schedule_timeout_seconds=10_000))
    gang = group("gang", 10, at=1, schedule_timeout_seconds=10_000)
    sim = Simulation(
        world(queue(), *pieces(10, used="4"), old, gated, gang, *members("gang", 10, "7", at=1)), NO_VICTIMS
    )
    sim.settle()
    sim.now = 700
    sim.settle()
    sim.tick()
    sim.settle()
    assert sim.state.gathered is not None
    assert sim.state.gathered.job == "ns/gang"
    come(sim, pod("old-0", "5", of="old"))
    for at in range(8):
        come(sim, group(f"job{at}", at=702 + at), held_job(f"job{at}", 1, "4", f"job{at}"))
    assert sim.state.gathered.job == "ns/gang"
    assert not any(sim.last.verdicts[f"ns/job{at}"].enqueued for at in range(8))


@pytest.mark.parametrize("confined", [False, True])
def test_a_gang_that_has_lost_a_pod_keeps_its_room_from_the_more_important(confined: bool) -> None:
    """On the nodes to which both are confined, too."""
    labels = {"gpu": "yes"}
    where: dict[str, Any] = {"node_selector": labels} if confined else {}
    nodes = [node("g", "8", labels=labels), *[node(f"n{at}", "8") for at in range(3 if confined else 0)]]
    gang = in_queue(group("gang", 2, disruption="Never"))
    template = {
        "spec": {"schedulerName": "kube-batch", "containers": [{"resources": {"requests": {"cpu": "4"}}}]}
        | ({"nodeSelector": labels} if confined else {})
    }
    gang.spec.sub_groups = (SubGroup(name="w", min_member=2, max_member=2, template=template),)
    pods = [pod(f"gang-{at}", "4", of="gang", on="g", role="w", **where) for at in range(2)]
    sim = Simulation(world(queue(), priority_class("high", 10), nodes, gang, *pods), policy(EVERYTHING), recreate=False)
    sim.settle()
    sim.model.apply(Delete(Pod, "ns", "gang-0"))
    sim.settle()
    held = held_job("high", 1, "4", "high")
    held.spec.template.spec.node_selector = where.get("node_selector")
    come(sim, group("high", at=1, priority_class_name="high"), held)
    assert not sim.last.verdicts["ns/high"].enqueued
