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
    outcome = simulate(waits, until=5000)
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
    outcome = simulate(documents.replace("cpu: '1'", "example.com/device: '1'"), conf, extra_cycles=10)
    assert (len(outcome.running("a")), len(outcome.running("b"))) == (1, 2)
    assert outcome.evictions == []
