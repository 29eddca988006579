"""More named cases, and small ones written out here: sentences of the design, each with what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# kube-batch's own file.
SHIPPED = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""

evicting = pytest.mark.parametrize("conf", [None, SHIPPED], ids=["default", "shipped"])


@evicting
def test_the_youngest_goes_first(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("the-youngest-goes-first", conf)
    assert [(each["pod"], each["time"]) for each in outcome.evictions] == [
        ("default/b", 10.0),
        ("default/a", 20.0),
        ("default/c", 30.0),
    ]


@evicting
def test_who_loses_least_work_goes_first(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("least-work-is-lost", conf)
    assert [(each["pod"], each["time"]) for each in outcome.evictions] == [
        ("default/saved", 600.0),
        ("default/large", 601.0),
        ("default/member", 610.0),
        ("default/silent", 620.0),
    ]


@evicting
def test_each_goes_to_the_node_it_was_promised(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("each-goes-to-the-node-it-was-promised", conf)
    promised = {each["pod"]: each["node"] for cycle in outcome.cycles for each in cycle["nominations"]}
    bound = {each["pod"]: each["node"] for cycle in outcome.cycles for each in cycle["binds"]}
    assert promised == bound
    assert sorted(bound) == ["default/urgent-0", "default/urgent-1"]


NODE = "{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: '4'}}}"
PREFIX = "simulate.kbatch.dev"


def group(name: str, spec: str) -> str:
    return (
        f"{{apiVersion: scheduling.incubator.k8s.io/v1alpha1, kind: PodGroup, metadata: {{name: {name}}}, "
        f"spec: {{{spec}}}}}"
    )


def pod(name: str, cpu: str = "1", group: str = "", annotations: str = "", spec: str = "") -> str:
    notes = ", ".join(part for part in (f"scheduling.k8s.io/group-name: {group}" if group else "", annotations) if part)
    return (
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, annotations: {{{notes}}}}}, spec: {{{spec}"
        f"{', ' if spec else ''}schedulerName: kube-batch, "
        f"containers: [{{name: main, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}"
    )


def manifests(*documents: str) -> str:
    return "\n---\n".join(documents) + "\n"


@pytest.mark.parametrize(("minimum", "reason"), [(2, "Gated"), (3, "NotEnoughTasks")])
def test_gates_are_the_reason_where_enough_pods_exist(simulate: Callable[..., Any], minimum: int, reason: str) -> None:
    gated = pod("b", group="g", spec="schedulingGates: [{name: example.com/wait}]")
    outcome = simulate(manifests(NODE, group("g", f"minMember: {minimum}"), pod("a", group="g"), gated))
    assert outcome.reason("g") == reason
    assert outcome.condition("g", "Enqueued")["reason"] == reason
    assert ("example.com/wait" in outcome.message("g")) == (reason == "Gated")


def test_room_that_others_are_nominated_to_is_reserved(simulate: Callable[..., Any]) -> None:
    leaves = pod("leaves", "2", annotations=f"{PREFIX}/termination: '50'", spec="nodeName: n1")
    leaves = leaves.replace("{name: leaves", "{deletionTimestamp: '2000-01-01T00:00:00Z', name: leaves")
    waits = manifests(
        NODE,
        leaves,
        group("g", "minMember: 4"),
        *(pod(f"g-{number}", group="g") for number in range(4)),
        pod("x", annotations=f"{PREFIX}/arrival: '2'"),
        pod("y", "4", annotations=f"{PREFIX}/arrival: '2'"),
    )
    outcome = simulate(waits, until=5)
    assert outcome.reason("g") == "VictimsTerminating"
    assert outcome.reason("x") == "Reserved"
    assert outcome.message("x").startswith("4 cpu of the room is reserved for PodGroup default/g")
    assert outcome.reason("y") == "NotEnoughResources"  # not even then
    after = simulate(waits)
    assert after.running("g") == ["g-0", "g-1", "g-2", "g-3"]
    assert after.reason("x") == "NotEnoughResources"


def test_nothing_is_reserved_where_nobody_lets_groups_in(simulate: Callable[..., Any]) -> None:
    waits = group("g", "minMember: 4, minResources: {cpu: '4'}, scheduleTimeoutSeconds: 60")
    documents = manifests(NODE, waits, pod("g-0", group="g"), *(pod(f"a-{number}") for number in range(4)))
    shipped = simulate(documents, SHIPPED)
    assert {bind["time"] for bind in shipped.binds} == {0.0}
    assert shipped.running() == ["a-0", "a-1", "a-2", "a-3"]
    assert shipped.reason("g") == "NotEnoughTasks"
    default = simulate(documents)
    assert {bind["time"] for bind in default.binds} == {60.0}
    assert default.running() == ["a-0", "a-1", "a-2", "a-3"]


@evicting
def test_the_last_unit_is_not_taken_to_and_fro(simulate: Callable[..., Any], conf: str | None) -> None:
    """Three devices, two equal queues: the one that holds one gets the odd one, though the other has waited longer."""
    label = "labels: {kbatch.dev/queue: %s}, name: "
    held = pod("b-0", spec="nodeName: n1").replace("name: ", label % "b", 1)
    queues = [
        f"{{apiVersion: scheduling.incubator.k8s.io/v1alpha1, kind: Queue, metadata: {{name: {name}}}}}"
        for name in "ab"
    ]
    pods = [pod(f"{name}-{number}").replace("name: ", label % name, 1) for name in "ab" for number in range(1, 5)]
    documents = manifests(NODE, *queues, held, *pods).replace("cpu: '4'", "example.com/device: '3'")
    devices = "{example.com/device: '1'}"
    outcome = simulate(documents.replace("{cpu: '1'}", f"{devices}, limits: {devices}"), conf, extra_cycles=10)
    assert (len(outcome.running("a")), len(outcome.running("b"))) == (1, 2)
    assert outcome.evictions == []


def of_queue(queue: str, text: str) -> str:
    """The pod, in a queue."""
    return text.replace("{name: ", f"{{labels: {{kbatch.dev/queue: {queue}}}, name: ", 1)


def queue(name: str, weight: int = 1) -> str:
    return (
        f"{{apiVersion: scheduling.incubator.k8s.io/v1alpha1, kind: Queue, metadata: {{name: {name}}}, "
        f"spec: {{weight: {weight}}}}}"
    )


def replicas(name: str, count: int, annotations: str, cpu: str = "1", arrival: int = 0) -> str:
    return (
        f"{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: {name}, annotations: "
        f"{{{PREFIX}/arrival: '{arrival}'}}}}, spec: {{replicas: {count}, template: "
        f"{{metadata: {{annotations: {{{annotations}}}}}, spec: {{schedulerName: kube-batch, "
        f"containers: [{{name: main, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}}}}}}}"
    )


@evicting
def test_a_lifetime_and_equal_shares_do_not_undo_each_other(simulate: Callable[..., Any], conf: str | None) -> None:
    """Of one priority: a group that stays has one pod above its minimum, one with a lifetime could have more."""
    documents = manifests(
        NODE,
        replicas("stays", 4, "scheduling.k8s.io/group-min-member: '3'"),
        group("ends", "minMember: 1, lifetimeSeconds: 30"),
        replicas("e", 4, "scheduling.k8s.io/group-name: ends", cpu="500m", arrival=5),
    )
    outcome = simulate(documents, conf, until=10_000)
    assert len(outcome.running("stays")) == 4
    assert outcome.evictions == []


def test_who_takes_a_nominated_place_keeps_to_the_queues_share(simulate: Callable[..., Any]) -> None:
    """Room was taken from b for a's gang of two: not for a's larger pod, which is more than a deserves."""
    high = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 9}"
    owner = "apiVersion: apps/v1, kind: ReplicaSet, name: held, uid: held, controller: true"
    held = of_queue("b", pod("held", "3", spec="nodeName: n1", annotations=f"{PREFIX}/termination: '20'"))
    documents = manifests(
        NODE,
        high,
        queue("a", 3),
        queue("b"),
        held.replace("{labels", f"{{ownerReferences: [{{{owner}}}], labels", 1),
        group("gang", "minMember: 2, queue: a"),
        pod("gang-0", group="gang"),
        pod("gang-1", group="gang"),
        of_queue("a", pod("large", "4", spec="priorityClassName: high")),
    )
    outcome = simulate(documents, SHIPPED)
    assert {each["for"] for each in outcome.evictions} == {"default/gang"}
    assert outcome.running() == ["gang-0", "gang-1"]


@evicting
def test_pods_that_never_preempt_take_no_place_that_was_made_for_others(
    simulate: Callable[..., Any], conf: str | None
) -> None:
    polite = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: polite}, value: 9, "
    polite += "preemptionPolicy: Never}"
    documents = manifests(
        NODE,
        polite,
        queue("b"),
        *(of_queue("b", pod(f"b-{number}", spec="nodeName: n1")) for number in range(4)),
        pod("asks"),
        pod("asks-too"),
        pod("waits", spec="priorityClassName: polite"),
    )
    outcome = simulate(documents, conf)
    assert {each["for"] for each in outcome.evictions} == {"default/asks", "default/asks-too"}
    assert set(outcome.running()) >= {"asks", "asks-too"}
    assert outcome.pods["default/waits"]["phase"] == "Pending"


def test_a_member_made_again_leaves_the_evicted_one_its_name(simulate: Callable[..., Any]) -> None:
    role = "{name: w, minMember: 1, template: {spec: {containers: "
    role += "[{name: main, resources: {requests: {cpu: '4'}}}]}}}"
    documents = manifests(
        NODE,
        "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 9}",
        group("g", f"disruption: Whole, scheduleTimeoutSeconds: 10, subGroups: [{role}]"),
        pod("h", "4", annotations=f"{PREFIX}/arrival: '5', {PREFIX}/duration: '100'", spec="priorityClassName: high"),
    )
    outcome = simulate(documents)
    assert {name: made["phase"] for name, made in outcome.pods.items()} == {
        "default/g-w-0": "Evicted",
        "default/g-w-0-r2": "Running",
        "default/h": "Succeeded",
    }
    assert outcome.pods["default/g-w-0"]["finished"] == 6.0
    assert outcome.summary["binds"] == 3


@evicting
def test_tainted_nodes_do_not_stop_reclaim(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("tainted-nodes-do-not-stop-reclaim", conf)
    assert [each["time"] for each in outcome.evictions] == [0.0] * 4
    bound = [(each["pod"], cycle["time"]) for cycle in outcome.cycles for each in cycle["binds"]]
    assert sorted(bound) == [(f"default/w{index}", 1.0) for index in range(4)]
    for name in ("q1", "q2"):
        assert outcome.queues[name] == {"deserved": {"cpu": "4"}, "allocated": {"cpu": "4"}, "share": 1.0}


@evicting
def test_work_that_tolerates_a_taint_leaves_the_rest_to_others(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("work-that-tolerates-a-taint-leaves-the-rest-to-others", conf)
    assert sorted(each["pod"] for each in outcome.evictions) == [f"default/a{index}" for index in range(4)]
    bound = [(each["pod"], each["node"]) for cycle in outcome.cycles for each in cycle["binds"]]
    assert sorted(bound) == [(f"default/b{index}", "n1") for index in range(4)]
    for name in ("q1", "q2"):
        assert outcome.queues[name] == {"deserved": {"cpu": "4"}, "allocated": {"cpu": "4"}, "share": 1.0}


@evicting
def test_queue_open_to_some_namespaces(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("queue-open-to-some-namespaces", conf)
    assert sorted(bind["pod"] for bind in outcome.binds) == ["lab/a-0", "lab/a-1", "lab/a-2"]
    (scheduled,) = [each for each in outcome.json["podgroups"]["shop/b"]["conditions"] if each["type"] == "Scheduled"]
    assert (scheduled["status"], scheduled["reason"]) == ("False", "QueueNotAllowed")
    assert outcome.queues["research"]["deserved"] == {"cpu": "3"}
