"""Nodes on which a group's pods failed as often as its badNodeLimit says: it avoids them."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.objects import Node, NodeFailures, Pod, PodCondition
from kbatch.engine import CycleState
from kbatch.engine.state.cycle_state import GatheredRoom
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.model.image import build_model, take_image
from tests.unit.engine.worlds import EVERYTHING, group, node, pod, policy, priority_class, queue, run, world

ALL = policy(EVERYTHING)


def failed(name: str, where: str, **more: Any) -> Pod:
    found = pod(name, on=where, **more)
    found.status.phase = "Failed"
    return found


def after_failures(*where: str, **spec: Any) -> ClusterModel:
    """A group `g` of which a pod has failed on each of these nodes and another waits; n1 is the emptiest node."""
    gone = [failed(f"g-{at}", name, of="g") for at, name in enumerate(where)]
    nodes = [node("n1", "8"), node("n2", "4")]
    return world(queue(), nodes, group("g", 1, **spec), gone, pod("g-w", of="g"))


def test_a_node_on_which_two_have_failed_is_avoided() -> None:
    assert run(after_failures("n1"), ALL).binds == {"g-w": "n1"}
    assert run(after_failures("n1", "n1"), ALL).binds == {"g-w": "n2"}
    assert run(after_failures("n1", "n2"), ALL).binds == {"g-w": "n1"}


@pytest.mark.parametrize("reason", ["OutOfcpu", "OutOfpods", "NodePorts", "NodeAffinity"])
def test_a_pod_that_the_kubelet_refuses_is_replaced_where_there_is_room(reason: str) -> None:
    """Two schedulers bound to one node in the same moment: the kubelet fails the pod that came last.

    It holds no room any more, the group is below its minimum, and what is made in its place goes before all others.
    """
    foreign = pod("f", "3", on="n1", scheduler="default-scheduler")
    refused = failed("g-1", "n1", of="g", cpu="2")
    refused.status.reason = reason
    ours = [pod("g-0", "1", on="n2", of="g"), refused]
    model = world(queue(), node("n1"), node("n2"), group("g", 2), ours, foreign, group("h", 1), pod("h-0", "3", of="h"))
    assert model.nodes["n1"].used == {"cpu": 3000, "pods": 1}
    model.apply(Upsert(pod("g-2", "2", of="g", at=5)))
    assert run(model, ALL).binds == {"g-2": "n2"}, "not to n1, which is full, nor after h-0, which is older"
    assert model.bad_nodes == {}
    model.apply(Delete(Pod, "ns", "f"))
    model.apply(Upsert(failed("g-3", "n1", of="g")))
    assert model.bad_nodes == {"ns/g": {"n1"}}, "a node whose kubelet refuses again and again is avoided"


def test_the_limit_is_the_groups_own() -> None:
    assert run(after_failures("n1", bad_node_limit=1), ALL).binds == {"g-w": "n2"}
    assert run(after_failures("n1", "n1", bad_node_limit=3), ALL).binds == {"g-w": "n1"}


def test_other_groups_go_there() -> None:
    model = after_failures("n1", "n1")
    model.apply(Upsert(group("h", 1)))
    model.apply(Upsert(pod("h-0", of="h")))
    assert run(model, ALL).binds == {"g-w": "n2", "h-0": "n1"}


def test_what_the_group_remembers_counts_with_what_is_there_each_once() -> None:
    model = after_failures("n1")
    known = group("g", 1)
    known.status.node_failures = (NodeFailures(node="n1", pods=("u-g-0",)),)
    model.apply(Upsert(known))
    assert model.bad_nodes == {}, "the pod that is there is the one that is remembered"
    known = group("g", 1)
    known.status.node_failures = (NodeFailures(node="n1", pods=("u-before",)),)
    model.apply(Upsert(known))
    assert run(model, ALL).binds == {"g-w": "n2"}
    model.apply(Delete(Pod, "ns", "g-0"))
    assert model.bad_nodes == {}
    known = group("g", 1)
    known.status.node_failures = (NodeFailures(node="n1", pods=("u-before", "u-g-0")),)
    model.apply(Upsert(known))
    assert run(model, ALL).binds == {"g-w": "n2"}


def test_who_fails_after_others_wait_moves_them() -> None:
    """The class of pods that wait already changes with it, and back when the group is made anew."""
    model = after_failures("n1")
    run(model, ALL)
    model.apply(Upsert(failed("g-9", "n1", of="g")))
    assert model.bad_nodes == {"ns/g": {"n1"}}
    assert run(model, ALL).binds == {"g-w": "n2"}
    built = build_model(take_image(model))
    assert built.bad_nodes == model.bad_nodes
    assert run(built, ALL).binds == {"g-w": "n2"}
    model.apply(Upsert(group("g", 1, bad_node_limit=5)))
    assert run(model, ALL).binds == {"g-w": "n1"}


@pytest.mark.parametrize("why", ["disrupted", "deleted", "succeeded", "of another group"])
def test_what_is_no_fault_of_the_node_does_not_count(why: str) -> None:
    model = after_failures("n1")
    other = failed("g-9", "n1", of="g" if why != "of another group" else "h")
    if why == "disrupted":
        other.status.conditions = (PodCondition(type="DisruptionTarget", status="True"),)
    elif why == "deleted":
        other.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    elif why == "succeeded":
        other.status.phase = "Succeeded"
    model.apply(Upsert(other))
    assert model.bad_nodes == {}
    assert run(model, ALL).binds == {"g-w": "n1"}


def test_it_is_said() -> None:
    model = after_failures("n1", "n1")
    model.apply(Upsert(pod("x", "4", on="n2")))
    reason = run(model, policy(EVERYTHING.replace("enqueue, ", ""))).verdicts["ns/g"].reason
    assert reason is not None
    assert "0/2 nodes fit: 1 failed its pods, 1 insufficient cpu" in reason.message
    reason = run(model, ALL).verdicts["ns/g"].reason
    assert reason is not None
    assert "0 cpu is available on the 1 node that its pods may use" in reason.message


def test_a_group_that_could_only_stand_there_waits_for_nodes() -> None:
    model = after_failures("n1", "n1")
    model.apply(Delete(Node, "", "n2"))
    found = run(model, ALL)
    assert found.binds == {}
    verdict = found.verdicts["ns/g"]
    assert verdict.reason is not None
    assert type(verdict.reason).__name__ == "ClusterTooSmall"
    assert "1 failed its pods" in verdict.reason.message
    assert verdict.pods_unschedulable, "a new node would help"


def test_nobody_is_evicted_from_a_node_that_the_group_avoids() -> None:
    model = after_failures("n1", "n1", priority_class_name="high")
    model.apply(Upsert(priority_class("high", 1000)))
    model.apply(Upsert(group("x", 1)))
    model.apply(Upsert(pod("x-0", "8", on="n1", of="x")))
    model.apply(Upsert(pod("y", "4", on="n2", priority=2000)))
    found = run(model, ALL)
    assert found.evicted == []
    assert found.nominated == {}


def test_a_nomination_ends_when_its_node_turns_bad() -> None:
    model = after_failures("n1")
    waits = pod("g-w", of="g")
    waits.status.nominated_node_name = "n1"
    model.apply(Upsert(waits))
    leaving = pod("x", "8", on="n1")
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:30Z"
    model.apply(Upsert(leaving))
    model.apply(Upsert(pod("y", "4", on="n2")))
    assert run(model, ALL).nominated == {}, "it stands"
    model.apply(Upsert(failed("g-9", "n1", of="g")))
    assert run(model, ALL).nominated == {"g-w": None}


def test_no_room_gathers_on_a_node_that_the_group_avoids() -> None:
    model = after_failures("n1", "n1")
    for obj in (pod("x", "8", on="n1"), pod("y", "4", on="n2")):
        model.apply(Upsert(obj))
    before = CycleState(gathered=GatheredRoom("ns/g", (("ns/g-w", "n1"),)))
    outcome = run(model, ALL, now=700, state=before).outcome
    assert outcome is not None
    assert outcome.state.gathered is not None
    assert outcome.state.gathered.places == (("ns/g-w", "n2"),)
