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
