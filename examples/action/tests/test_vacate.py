"""The action in a real cycle: a small cluster in, decisions out."""
# ruff: noqa: S101 -- assert is how pytest tests

from __future__ import annotations

import pytest
from kbatch_vacate import Surplus, Vacate

from kbatch.api.configuration import ConfigurationError, parse
from kbatch.api.objects import (
    Container,
    LabelSelector,
    Metadata,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    PodStatus,
    Queue,
    ResourceRequirements,
)
from kbatch.engine import Eviction, Memo, NullObserver, Policy, Transaction, build_policy, cycle, take_snapshot
from kbatch.engine.loader import known_actions, known_plugins
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert

CONFIGURATION = """
actions: "allocate, vacate"
tiers:
- plugins: [{name: gang}, {name: predicates}, {name: surplus}]
"""


def policy(text: str = CONFIGURATION) -> Policy:
    plugins = {**known_plugins(), Surplus.name: Surplus}
    return build_policy(parse(text, "test.yaml"), plugins, {**known_actions(), Vacate.name: Vacate})


def node(name: str, cpu: str = "4", *, cordoned: bool = False) -> Node:
    status = NodeStatus(allocatable={"cpu": cpu, "pods": "9"})
    return Node(metadata=Metadata(name=name), spec=NodeSpec(unschedulable=cordoned), status=status)


def group(minimum: int, **spec: str) -> PodGroup:
    return PodGroup(metadata=Metadata(name="g", namespace="ns"), spec=PodGroupSpec(min_member=minimum, **spec))


def pod(name: str, on: str = "", *, leaving: bool = False) -> Pod:
    one_cpu = Container(resources=ResourceRequirements(requests={"cpu": "1"}))
    meta = Metadata(name=name, namespace="ns", uid=name, annotations={"scheduling.k8s.io/group-name": "g"})
    if leaving:
        meta.deletion_timestamp = "2026-01-01T00:00:30Z"
    spec = PodSpec(scheduler_name="kube-batch", node_name=on, containers=(one_cpu,))
    return Pod(metadata=meta, spec=spec, status=PodStatus(phase="Running" if on else "Pending"))


def evicted(*objects: object) -> list[Eviction]:
    model = ClusterModel()
    for obj in (Queue(metadata=Metadata(name="default")), *objects):
        model.apply(Upsert(obj))
    steps = cycle(take_snapshot(model, 0), policy(), Memo(), NullObserver())
    return [eviction for step in steps if isinstance(step, Transaction) for eviction in step.evictions]


OLD, NEW = node("old", cordoned=True), node("new")


def test_one_surplus_pod_goes_at_a_time() -> None:
    (gone,) = evicted(OLD, NEW, group(2), *(pod(f"p{at}", "old") for at in range(4)))
    assert (gone.pod, gone.node, gone.action, gone.beneficiary) == ("ns/p0", "old", "vacate", "ns/g")


def test_the_next_waits_until_the_first_is_back() -> None:
    staying = [pod(f"p{at}", "old") for at in range(3)]
    assert evicted(OLD, NEW, group(1), *staying, pod("p4", "old", leaving=True)) == []
    assert evicted(OLD, node("new", "0"), group(1), *staying, pod("p4")) == []
    assert len(evicted(OLD, NEW, group(1), *staying, pod("p4", "new"))) == 1


def test_a_minimum_is_never_broken() -> None:
    assert evicted(OLD, NEW, group(2), pod("p0", "old"), pod("p1", "old")) == []


def test_nobody_goes_where_no_other_node_has_room() -> None:
    assert evicted(OLD, node("new", "0"), group(1), pod("p0", "old"), pod("p1", "old")) == []


def test_a_node_that_is_not_cordoned_keeps_its_pods() -> None:
    assert evicted(node("old"), NEW, group(1), pod("p0", "old"), pod("p1", "old")) == []


def test_a_group_that_nobody_may_disrupt_stays() -> None:
    assert evicted(OLD, NEW, group(1, disruption="Never"), pod("p0", "old"), pod("p1", "old")) == []


def test_a_disruption_budget_is_kept() -> None:
    budget = PodDisruptionBudget(
        metadata=Metadata(name="all", namespace="ns"),
        spec=PodDisruptionBudgetSpec(max_unavailable=0, selector=LabelSelector()),
        status=PodDisruptionBudgetStatus(disruptions_allowed=0),
    )
    assert evicted(OLD, NEW, group(1), pod("p0", "old"), pod("p1", "old"), budget) == []


def test_a_configuration_in_which_nobody_says_yes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"action vacate can never find a victim.*; add surplus"):
        policy(CONFIGURATION.replace(", {name: surplus}", ""))
