"""Cases of gangs: which pods are tried, in which order, and what one that cannot be placed means for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.simulator.invariants import (
    MOST_CYCLES,
    assert_settled,
    assert_whole,
    changed,
    most_held,
    times,
    without,
)


def test_a_gang_is_placed_hardest_first(simulate: Callable[..., Any]) -> None:
    outcome = simulate("gang-is-placed-hardest-first", max_cycles=MOST_CYCLES)
    assert times(outcome) == dict.fromkeys(("m0", "w0", "w1", "w2", "w3"), 0.0)
    nodes = {pod.removeprefix("default/"): found["node"] for pod, found in outcome.pods.items()}
    assert nodes.pop("m0") not in nodes.values()
    assert_whole(outcome, ("m0", "w0", "w1", "w2", "w3"), 5)
    assert_settled(outcome)


@pytest.mark.parametrize("alone", [False, True], ids=["both", "alone"])
def test_a_full_role_of_one_gang_says_nothing_of_another(simulate: Callable[..., Any], *, alone: bool) -> None:
    case = "full-role-of-one-gang-says-nothing-of-another"
    first = ("g1", "g1-a0", "g1-a1", "g1-a2", "g1-b0", "g1-late0", "g1-late1")
    outcome = simulate(without(case, *first) if alone else case, max_cycles=MOST_CYCLES, until=30_000)
    assert times(outcome) == {"g2-late0": 10.0, "g2-late1": 10.0}
    assert outcome.evictions == []
    assert outcome.phase("g2") == "Running"
    assert_settled(outcome)


@pytest.mark.parametrize("present", [True, False], ids=["behind", "alone"])
@pytest.mark.parametrize("case", ["surplus-behind-a-pod-that-fits-no-node", "minimum-behind-a-pod-that-fits-no-node"])
def test_a_pod_that_fits_no_node_holds_up_none_behind_it(
    simulate: Callable[..., Any], case: str, *, present: bool
) -> None:
    outcome = simulate(case if present else without(case, "g-b-huge"), max_cycles=MOST_CYCLES)
    assert [each["time"] for each in outcome.evictions] == [0.0] * 3
    assert {(each["action"], each["for"]) for each in outcome.evictions} == {("reclaim", "default/g")}
    assert times(outcome) == {"g-c0": 1.0, "g-c1": 1.0, "g-c2": 1.0}
    assert_settled(outcome)


def test_a_pod_beyond_the_capability_holds_up_no_smaller_one(simulate: Callable[..., Any]) -> None:
    outcome = simulate("pod-beyond-the-capability-holds-up-no-smaller-one", max_cycles=MOST_CYCLES)
    assert times(outcome) == {"g-b-small": 0.0}
    assert most_held(outcome, {"g-a-big": 2000, "g-b-small": 500}) == 500
    assert outcome.phase("g") == "Running"
    assert_settled(outcome)


def test_a_gang_comes_in_queue_for_its_smaller_pods(simulate: Callable[..., Any]) -> None:
    outcome = simulate("gang-of-its-smaller-pods-comes-in-queue", max_cycles=MOST_CYCLES)
    assert times(outcome) == {"g-b": 0.0, "g-c": 0.0, "g-d": 0.0}
    assert outcome.phase("g") == "Running"
    assert_settled(outcome)


def test_a_full_role_holds_up_no_other_role(simulate: Callable[..., Any]) -> None:
    outcome = simulate("surplus-behind-a-full-role", max_cycles=MOST_CYCLES)
    assert [each["time"] for each in outcome.evictions] == [0.0, 0.0]
    assert all(each["pod"].startswith("default/low") for each in outcome.evictions)
    assert times(outcome) == {"h-x1": 1.0, "h-x2": 1.0}
    assert "h-w1" not in outcome.running()
    assert_settled(outcome)


def test_a_gang_that_its_roles_cannot_fill_does_not_start(simulate: Callable[..., Any]) -> None:
    outcome = simulate("gang-that-its-roles-cannot-fill-does-not-start", max_cycles=MOST_CYCLES)
    assert outcome.running() == ["low"]
    assert outcome.evictions == []
    assert all(cycle["nominations"] == [] for cycle in outcome.cycles)
    assert_settled(outcome)


def test_what_is_reserved_for_a_gang_counts_no_pods_beyond_max_member(simulate: Callable[..., Any]) -> None:
    outcome = simulate("max-member-counts-in-what-is-reserved", max_cycles=MOST_CYCLES)
    assert len(outcome.running()) == 4
    assert not any(name.startswith("x") for name in outcome.running())
    assert outcome.phase("g") == "Running"
    assert_settled(outcome)


def test_a_gang_that_its_roles_keep_from_its_minimum_is_told_so(simulate: Callable[..., Any]) -> None:
    case = changed("max-member-counts-in-what-is-reserved", "maxMember: 5", "maxMember: 2")
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert not outcome.running("g")
    assert outcome.message("g").endswith("; its roles may have 3 pods in all: raise maxMember, or lower minMember")


def test_a_gang_that_fits_exactly_starts(simulate: Callable[..., Any]) -> None:
    outcome = simulate("gang-that-fits-exactly-starts", max_cycles=MOST_CYCLES)
    assert times(outcome) == {f"g{number}": 0.0 for number in range(6)}
    assert_whole(outcome, [f"g{number}" for number in range(6)], 6)
    assert_settled(outcome)


def test_room_of_a_foreign_pod_that_ends_is_waited_for(simulate: Callable[..., Any]) -> None:
    case = "room-of-a-foreign-pod-that-ends-is-waited-for"
    before = simulate(case, max_cycles=MOST_CYCLES, until=50)
    nominations = [(cycle["time"], *cycle["nominations"]) for cycle in before.cycles if cycle["nominations"]]
    assert nominations == [(0.0, {"pod": "default/p", "node": "n1"})]
    assert before.reason("p") == "VictimsTerminating"
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert times(outcome) == {"p": 100.0}
    assert_settled(outcome)


def test_the_pod_that_is_placed_is_held_to_the_capability(simulate: Callable[..., Any]) -> None:
    outcome = simulate("pod-that-is-placed-is-held-to-the-capability", max_cycles=MOST_CYCLES)
    assert most_held(outcome, {"g-a-small": 500, "g-b-big": 4000}) == 0
    assert outcome.running() == []
    assert outcome.reason("g") == "QueueCapabilityExceeded"
    assert_settled(outcome)
