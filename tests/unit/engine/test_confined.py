"""Groups whose pods may use some of the nodes only come in queue for the room there, and keep no other from anybody."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.objects import Pod, SchedulingGate, Taint, Toleration
from kbatch.api.reasons import WaitingInQueue
from kbatch.model.events import Delete
from tests.unit.engine.worlds import (
    EVERYTHING,
    group,
    in_queue,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    world,
)

ALL = policy(EVERYTHING)
TAINT = Taint(key="gpu", value="x", effect="NoSchedule")
TOLERATES = (Toleration(key="gpu", operator="Exists"),)


def cpu_groups(count: int) -> list[Any]:
    """Groups of one pod that stay away from the tainted node."""
    groups = [group(f"c{at}", 1, at=at) for at in range(count)]
    return [*groups, *(pod(f"c{at}-0", "2", of=f"c{at}", at=at) for at in range(count))]


def gpu_group(at: int = 50) -> list[Any]:
    return [group("gpu", 1, at=at), pod("gpu-0", "4", of="gpu", at=at, tolerations=TOLERATES)]


def full_and_empty(full: str = "4") -> list[Any]:
    """A node that is full, and one that is tainted and empty."""
    return [queue(), node("n1", "4"), node("n2", "8", taints=(TAINT,)), pod("old", full, on="n1")]


@pytest.mark.parametrize("count", [1, 6, 60, 1200])
def test_room_that_they_cannot_use_keeps_nobody_out(count: int) -> None:
    found = run(world(full_and_empty(), cpu_groups(count), gpu_group()), ALL)
    assert found.binds == {"gpu-0": "n2"}
    told = [found.verdicts[f"ns/c{at}"].reason for at in range(count)]
    assert told[0] == WaitingInQueue("default", "cpu", 2000, 0, 0, 0, 1)
    assert all(isinstance(reason, WaitingInQueue) for reason in told)
    assert "0 cpu is available on the 1 node that its pods may use; it continues" in told[0].message


def test_nor_do_those_who_wait_already_when_it_comes_free() -> None:
    busy = pod("busy", "8", on="n2", at=1)
    model = world(full_and_empty(), busy, cpu_groups(5), gpu_group())
    before = run(model, ALL)
    assert before.outcome is not None
    assert not before.binds
    model.apply(Delete(Pod, "ns", "busy"))
    found = run(model, ALL, now=1, memo=before.outcome.memo, state=before.outcome.state)
    assert found.binds == {"gpu-0": "n2"}
    assert found.binds == run(model, ALL, now=1).binds
    assert [key for key, verdict in found.verdicts.items() if verdict.enqueued] == ["ns/gpu"]


def test_as_many_come_in_as_the_room_on_their_nodes_holds() -> None:
    found = run(world(full_and_empty("2"), cpu_groups(3), gpu_group()), ALL)
    assert found.binds == {"c0-0": "n1", "gpu-0": "n2"}
    assert [found.verdicts[f"ns/c{at}"].enqueued for at in range(3)] == [True, False, False]


def test_who_may_use_all_nodes_is_let_in_for_the_room_of_all() -> None:
    roams = [group("roams", 1), pod("roams-0", "6", of="roams", tolerations=TOLERATES)]
    assert run(world(full_and_empty(), cpu_groups(3), roams), ALL).binds == {"roams-0": "n2"}


def test_pods_that_are_not_there_may_go_anywhere() -> None:
    coming = group("coming", 2, min_resources={"cpu": "4"})
    found = run(world(full_and_empty(), coming, pod("coming-0", "2", of="coming")), ALL)
    assert found.verdicts["ns/coming"].enqueued


def test_a_group_of_pods_for_different_nodes_may_use_the_nodes_of_each() -> None:
    pods: list[Pod] = [pod("both-0", "2", of="both"), pod("both-1", "6", of="both", tolerations=TOLERATES)]
    found = run(world(full_and_empty("2"), group("both", 2), pods), ALL)
    assert found.binds == {"both-0": "n1", "both-1": "n2"}


def test_what_is_promised_to_those_who_matter_less_keeps_out_nobody_who_could_evict_them() -> None:
    """The first is in queue, and one of its pods behind a gate; there is room for one of the two groups."""
    whole = in_queue(group("first", 2, min_resources={"cpu": "4"}))
    behind = pod("first-1", "2", of="first", scheduling_gates=(SchedulingGate(name="x"),))
    first = [whole, pod("first-0", "2", of="first"), behind]
    high = [priority_class("high", 1000), group("high", 1, at=9, priority_class_name="high")]
    objects = (full_and_empty("0"), first, high, pod("high-0", "2", of="high", at=9, priority=1000))
    assert run(world(*objects), ALL).binds == {"high-0": "n1"}


@pytest.mark.parametrize("waits", [False, True])
def test_what_is_promised_to_another_queue_keeps_no_share_of_the_nodes(waits: bool) -> None:
    """A gang of the other queue waits in queue for a gate. With the room elsewhere there would be enough for both."""
    gang = in_queue(group("gang", 2, queue="q1", min_resources={"cpu": "4"}))
    there: dict[str, Any] = {"node_selector": {"pool": "a"}}
    pods = [pod("gang-0", "2", of="gang", **there)]
    pods.append(pod("gang-1", "2", of="gang", scheduling_gates=(SchedulingGate(name="x"),), **there))
    one = [group("one", 1, at=9, queue="q2"), pod("one-0", "2", of="one", at=9, **there)]
    nodes = [node("n1", "5", labels={"pool": "a"}), node("n2", "8")]
    busy = [pod("busy", "5", on="n1", at=1, scheduler="another")] if waits else []
    model = world(queue("q1"), queue("q2"), nodes, gang, pods, one, busy)
    found = run(model, ALL)
    if waits:
        assert found.outcome is not None
        assert not found.verdicts["ns/one"].enqueued
        model.apply(Delete(Pod, "ns", "busy"))
        found = run(model, ALL, now=1, memo=found.outcome.memo, state=found.outcome.state)
    assert found.binds == {"one-0": "n1"}


def test_of_many_nodes_it_takes_a_part_to_be_confined() -> None:
    """Pods that keep away from one node of thirty each would be as many sets of nodes as there are nodes."""
    nodes = [node(f"n{at:02}", "1") for at in range(29)]
    full = [pod(f"p{at}", "1", on=f"n{at:02}") for at in range(29)]
    some = [group("c", 1), pod("c-0", "1", of="c")]
    found = run(world(queue(), nodes, node("z", "8", taints=(TAINT,)), full, some), ALL)
    assert found.verdicts["ns/c"].enqueued
