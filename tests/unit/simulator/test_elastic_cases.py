"""Cases of elastic groups: how far they grow, in whose favour, and who gives back first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.unit.simulator.invariants import MOST_CYCLES, assert_settled, changed, times

EQUAL = """
actions: "enqueue, reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: predicates}, {name: proportion}, {name: nodeorder}]
"""
"""Without drf groups of one priority are of equal order."""


def roles(names: list[str]) -> Counter[str]:
    return Counter(name.split("-")[1] for name in names)


def test_a_group_of_templates_grows_gives_back_and_grows_again(simulate: Callable[..., Any]) -> None:
    case = "elastic-templates-grow-give-back-and-grow-again"
    assert roles(simulate(case, until=99).running("g-")) == {"server": 2, "worker": 8}
    between = simulate(case, until=150)
    assert roles(between.running("g-")) == {"server": 2, "worker": 5}
    assert len(between.running("work-")) == 5
    assert between.phase("g") == "Running"
    outcome = simulate(case, max_cycles=MOST_CYCLES, until=600)
    assert roles(outcome.running("g-")) == {"server": 2, "worker": 8}
    assert roles([each["pod"] for each in outcome.evictions]) == {"worker": 3}
    assert {each["time"] for each in outcome.evictions} == {100.0}
    assert not outcome.limited


def test_a_role_that_gave_pods_rests_for_a_minute_before_it_grows_again(simulate: Callable[..., Any]) -> None:
    """As the podgroup operator has it. Until then nobody waits, and what came free after 20 s stays free."""
    case = changed("elastic-templates-grow-give-back-and-grow-again", "duration: '60'", "duration: '20'")
    between = simulate(case, max_cycles=MOST_CYCLES, until=159)
    assert roles(between.running("g-")) == {"server": 2, "worker": 5}
    assert {found["phase"] for found in between.pods.values()} == {"Running", "Evicted", "Succeeded"}
    outcome = simulate(case, max_cycles=MOST_CYCLES, until=600)
    assert roles(outcome.running("g-")) == {"server": 2, "worker": 8}
    later = {time for pod, time in times(outcome).items() if pod.startswith("g-") and time > 100.0}
    assert later == {160.0}


_NEEDED = """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: n0, annotations: {simulate.kbatch.dev/departure: '100'}}
  status: {allocatable: {cpu: '1'}}
- {apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: '1'}}}
- {apiVersion: v1, kind: Node, metadata: {name: n2}, status: {allocatable: {cpu: '1'}}}
- apiVersion: scheduling.incubator.k8s.io/v1alpha1
  kind: PodGroup
  metadata: {name: g}
  spec:
    subGroups:
    - {name: w, minMember: 2, template: {spec: {containers: [{name: main, resources: {requests: {cpu: '1'}}}]}}}
"""


def test_a_member_that_the_group_needs_is_made_again_at_once(simulate: Callable[..., Any]) -> None:
    outcome = simulate(_NEEDED, max_cycles=MOST_CYCLES)
    assert [(each["time"], each["node"]) for each in outcome.binds] == [(0.0, "n0"), (0.0, "n1"), (100.0, "n2")]
    assert_settled(outcome)


def test_groups_of_templates_grow_by_the_same_part(simulate: Callable[..., Any]) -> None:
    outcome = simulate("elastic-templates-grow-alike", EQUAL, max_cycles=MOST_CYCLES, until=60)
    assert (len(outcome.running("a-")), len(outcome.running("b-"))) == (1 + 4, 1 + 8)
    assert outcome.evictions == []


def test_jobs_above_their_minimum_grow_by_the_same_part(simulate: Callable[..., Any]) -> None:
    outcome = simulate("elastic-jobs-grow-alike", EQUAL, max_cycles=MOST_CYCLES, until=60)
    assert (len(outcome.running("a-")), len(outcome.running("b-"))) == (2 + 1, 2 + 4)


def test_where_shares_order_groups_these_go_before_growth(simulate: Callable[..., Any]) -> None:
    outcome = simulate("elastic-jobs-grow-alike", max_cycles=MOST_CYCLES, until=60)
    assert (len(outcome.running("a-")), len(outcome.running("b-"))) == (4, 5)


def test_plain_pods_start_up_to_their_roles_maximum(simulate: Callable[..., Any]) -> None:
    outcome = simulate("elastic-plain-pods-up-to-their-maximum", max_cycles=MOST_CYCLES, until=60)
    assert outcome.running() == ["x0", "x1", "x2", "y0", "y1"]
    assert outcome.phase("g") == "Running"


def test_no_role_grows_before_every_role_has_its_minimum(simulate: Callable[..., Any]) -> None:
    outcome = simulate("elastic-roles-wait-for-every-minimum", max_cycles=MOST_CYCLES, until=60)
    assert outcome.running() == ["other"]


def test_elastic_roles_are_shrunk_first(simulate: Callable[..., Any]) -> None:
    case = "elastic-roles-are-shrunk-first"
    first = Counter(each["pod"].removeprefix("default/")[0] for each in simulate(case, until=15).evictions)
    assert first == {"y": 2}
    outcome = simulate(case, max_cycles=MOST_CYCLES, until=60)
    gone = Counter(each["pod"].removeprefix("default/")[0] for each in outcome.evictions)
    assert gone == {"x": 1, "y": 3}
    assert "alone" in outcome.running()
    assert_settled(outcome)
