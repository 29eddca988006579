"""Cases about what the model counts: sums, groups and queues that are gone, starts, claims, budgets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.simulator.test_more_cases import SHIPPED, group, manifests, pod

evicting = pytest.mark.parametrize("conf", [None, SHIPPED], ids=["default", "shipped"])

HUGE = "8Pi"
"""2^53 bytes: the largest amount that can be read."""


def huge(name: str, containers: int, spec: str = "schedulerName: kube-batch") -> str:
    """A pod of so many containers that each ask for the largest amount."""
    each = ", ".join(
        f"{{name: c{number}, resources: {{requests: {{memory: {HUGE}}}}}}}" for number in range(containers)
    )
    return f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{{spec}, containers: [{each}]}}}}"


NODES = [
    f"{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}, status: {{allocatable: {{cpu: '4', memory: 64Gi}}}}}}"
    for name in ("n1", "n2")
]


@evicting
@pytest.mark.parametrize("containers", [2, 1025])
def test_a_pod_that_asks_for_more_than_can_be_counted_stops_nobody(
    simulate: Callable[..., Any], conf: str | None, containers: int
) -> None:
    outcome = simulate(manifests(*NODES, huge("hostile", containers), pod("innocent")), conf)
    assert [(each["pod"], each["time"]) for each in outcome.binds] == [("default/innocent", 0.0)]
    assert outcome.pods["default/hostile"]["phase"] == "Pending"


@evicting
@pytest.mark.parametrize("containers", [2, 1025])
def test_a_bound_pod_that_cannot_be_counted_closes_its_node(
    simulate: Callable[..., Any], conf: str | None, containers: int
) -> None:
    foreign = huge("foreign", containers, "schedulerName: other, nodeName: n1")
    outcome = simulate(manifests(*NODES, foreign, *(pod(f"p-{number}") for number in range(5))), conf)
    assert {each["node"] for each in outcome.binds} == {"n2"}
    assert len(outcome.binds) == 4


@evicting
def test_pods_that_together_cannot_be_counted_close_their_node(simulate: Callable[..., Any], conf: str | None) -> None:
    standing = [huge(f"f-{number}", 1, "schedulerName: other, nodeName: n1") for number in range(1030)]
    outcome = simulate(manifests(*NODES, *standing, *(pod(f"p-{number}") for number in range(5))), conf)
    assert {each["node"] for each in outcome.binds} == {"n2"}
    assert len(outcome.binds) == 4


@evicting
def test_what_a_cluster_holds_in_all_may_be_more_than_one_node_counts(
    simulate: Callable[..., Any], conf: str | None
) -> None:
    """1,030 nodes of the largest memory come to more than 63 bits, and so do the pods that fill them."""
    nodes = [
        f"{{apiVersion: v1, kind: Node, metadata: {{name: n{number}}}, "
        f"status: {{allocatable: {{cpu: '4', memory: {HUGE}}}}}}}"
        for number in range(1030)
    ]
    job = (
        "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 1031, template: "
        "{metadata: {annotations: {scheduling.k8s.io/group-name: g}}, spec: {schedulerName: kube-batch, "
        f"containers: [{{name: main, resources: {{requests: {{memory: {HUGE}}}}}}}]}}}}}}}}"
    )
    outcome = simulate(manifests(*nodes, group("g", "minMember: 1030, minResources: {memory: 8Pi}"), job), conf)
    assert len(outcome.binds) == 1030
    assert outcome.queues["default"]["allocated"] == {"memory": "8240Pi"}


@evicting
def test_a_deleted_group_still_counts_in_its_queue(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("a-deleted-group-still-counts", conf)
    assert len(outcome.running("g")) == 4
    assert outcome.reason("h") == "QueueCapabilityExceeded"
    assert [each["time"] for each in outcome.binds if each["pod"].startswith("default/x")] == [300.0] * 4
    assert outcome.queues["a"]["allocated"] == {"cpu": "4"}
    assert outcome.evictions == []


@evicting
def test_a_deleted_group_may_be_reclaimed(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("a-deleted-group-may-be-reclaimed", conf)
    assert [(each["action"], each["time"]) for each in outcome.evictions] == [("reclaim", 200.0)] * 2
    assert len(outcome.running("x")) == 2
    assert len(outcome.running("g")) == 2


@evicting
def test_a_deleted_queue_may_be_reclaimed(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("a-deleted-queue-may-be-reclaimed", conf)
    assert outcome.running() == ["b0", "b1", "b2", "b3"]
    assert {each["time"] for each in outcome.binds if each["pod"].startswith("default/b")} == {101.0}


@evicting
def test_minimum_runtime_counts_from_the_start(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("minimum-runtime-counts-from-the-start", conf, until=100_000)
    assert [(each["action"], each["time"]) for each in outcome.evictions] == [("reclaim", 60.0)] * 2
    assert outcome.pods["default/b"]["bound"] == 61.0


@evicting
def test_lifetime_counts_from_the_start(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("lifetime-counts-from-the-start", conf, until=100_000)
    assert {(each["action"], each["time"]) for each in outcome.evictions} == {("preempt", 60.0)}
    assert outcome.pods["default/b"]["bound"] == 61.0


@evicting
def test_resource_claims_are_never_bound(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("resource-claims-are-never-bound", conf)
    assert outcome.running() == ["plain", "spares-1"]
    assert outcome.reason("alone") == "ResourceClaimsUnsupported"
    assert outcome.reason("needs") == "ResourceClaimsUnsupported"
    assert outcome.condition("needs", "Unschedulable")["status"] == "False"
    assert outcome.json["podgroups"]["default/spares"]["phase"] == "Running"


@evicting
def test_a_budget_over_pods_without_a_controller_lets_none_go(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("budget-over-pods-without-a-controller", conf)
    assert outcome.evictions == []
    assert outcome.running() == ["a0", "a1", "a2", "a3"]
