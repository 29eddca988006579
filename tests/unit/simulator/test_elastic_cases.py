"""Cases of elastic groups: how far they grow, in whose favour, and who gives back first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.unit.simulator.invariants import MOST_CYCLES, assert_settled

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
