"""Cases of victims: who goes for whom, and that nobody goes for nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.simulator.invariants import CASES, MOST_CYCLES, assert_settled, assert_whole, most_held, times, without


def victims(outcome: Any) -> dict[str, tuple[float, str, str]]:
    """Of each evicted pod of `default`: when (in seconds), by which action, for which group."""
    assert len({each["pod"] for each in outcome.evictions}) == len(outcome.evictions)
    return {
        each["pod"].removeprefix("default/"): (each["time"], each["action"], each["for"].removeprefix("default/"))
        for each in outcome.evictions
    }


def test_reclaim_keeps_within_the_share_with_the_pods_it_places(simulate: Callable[..., Any]) -> None:
    outcome = simulate("reclaim-keeps-within-the-share-with-the-pods-it-places", max_cycles=MOST_CYCLES)
    assert most_held(outcome, {"g-a-small": 1000, "g-b-small": 1000, "g-c-big": 4000}) <= 4000
    assert victims(outcome) == {}
    assert outcome.running() == ["foreign", "v0", "v1"]
    assert_settled(outcome)


def test_a_spread_gang_reclaims(simulate: Callable[..., Any]) -> None:
    outcome = simulate("spread-gang-reclaims", max_cycles=MOST_CYCLES)
    found = victims(outcome)
    assert set(found.values()) == {(0.0, "reclaim", "h")}
    # The even ones run in the first zone, the odd ones in the second.
    assert sorted(int(pod.removeprefix("v")) % 2 for pod in found) == [0, 0, 1, 1]
    assert times(outcome) == {f"h{number}": 1.0 for number in range(4)}
    assert sorted(each["node"] for each in outcome.binds) == ["n1", "n1", "n2", "n2"]
    assert_settled(outcome)


def test_a_spread_gang_preempts(simulate: Callable[..., Any]) -> None:
    outcome = simulate("spread-gang-preempts", max_cycles=MOST_CYCLES)
    assert victims(outcome) == {f"low{number}": (0.0, "preempt", "h") for number in range(4)}
    assert times(outcome) == {f"h{number}": 1.0 for number in range(4)}
    assert sorted(each["node"] for each in outcome.binds) == ["n1", "n1", "n2", "n2"]
    assert_settled(outcome)


def test_an_affinity_gang_takes_the_zone_that_holds_it(simulate: Callable[..., Any]) -> None:
    outcome = simulate("affinity-gang-takes-the-zone-that-holds-it", max_cycles=MOST_CYCLES)
    assert victims(outcome) == {"low0": (0.0, "preempt", "h"), "low1": (0.0, "preempt", "h")}
    assert times(outcome) == {"h0": 1.0, "h1": 1.0}
    assert {each["node"] for each in outcome.binds} == {"n2"}
    assert outcome.running() == ["h0", "h1", "lowest0"]
    assert_settled(outcome)


@pytest.mark.parametrize(("limit", "second"), [("1", 3700.0), ("2", 100.0), ("0", None)])
def test_no_more_gangs_of_a_queue_are_evicted_in_an_hour_than_it_allows(
    simulate: Callable[..., Any], limit: str, second: float | None
) -> None:
    case = (CASES / "one-gang-an-hour-is-evicted.yaml").read_text("utf-8")
    outcome = simulate(case.replace("evictionsPerHour: 1", f"evictionsPerHour: {limit}"), max_cycles=1_000)
    assert [each["time"] for each in outcome.evictions] == ([100.0, 100.0, second, second] if second else [])
    assert {each["action"] for each in outcome.evictions} <= {"reclaim"}
    assert_settled(outcome)


def test_preemption_leaves_promised_room(simulate: Callable[..., Any]) -> None:
    outcome = simulate("preemption-leaves-promised-room", max_cycles=MOST_CYCLES)
    bound = times(outcome)
    assert (bound.pop("r0", None), bound.pop("r1", None)) == (20.0, 20.0)
    # The surplus pod waits, or takes the place of the one of low priority: no other room is left to it.
    assert (set(victims(outcome)), set(bound)) in [(set(), set()), ({"low0"}, {"h1"})]
    assert outcome.phase("res") == "Running"
    assert_whole(outcome, ("r0", "r1"), 2)
    assert_settled(outcome)


def test_no_pod_is_evicted_for_a_role_that_is_full(simulate: Callable[..., Any]) -> None:
    outcome = simulate("no-victim-for-a-role-that-is-full", max_cycles=MOST_CYCLES)
    found = victims(outcome)
    assert len(found) == 2
    assert set(found.values()) == {(0.0, "preempt", "h")}
    bound = times(outcome)
    assert bound.pop("h-b0") == 1.0
    assert list(bound.values()) == [1.0]
    assert set(bound) < {"h-a0", "h-a1"}
    assert_settled(outcome)


@pytest.mark.parametrize("present", [True, False], ids=["behind", "alone"])
def test_a_preemptor_too_large_silences_no_smaller_one(simulate: Callable[..., Any], *, present: bool) -> None:
    case = "preemptor-too-large-silences-no-smaller-one"
    outcome = simulate(case if present else without(case, "a-five"), max_cycles=MOST_CYCLES)
    assert victims(outcome) == {"v2": (0.0, "preempt", "b-two"), "v3": (0.0, "preempt", "b-two")}
    assert times(outcome) == {"b-two-0": 1.0, "b-two-1": 1.0}
    assert_settled(outcome)


@pytest.mark.parametrize("present", [True, False], ids=["behind", "alone"])
def test_a_preemptor_too_small_silences_no_larger_one(simulate: Callable[..., Any], *, present: bool) -> None:
    case = "preemptor-too-small-silences-no-larger-one"
    outcome = simulate(case if present else without(case, "a-one"), max_cycles=MOST_CYCLES)
    found = victims(outcome)
    assert list(found.values()) == [(0.0, "reclaim", "b-three")]
    assert set(found) < {"v0", "v1"}
    assert times(outcome) == {f"b-three-{number}": 1.0 for number in range(3)}
    assert_settled(outcome)


def test_preemption_goes_on_at_the_capability(simulate: Callable[..., Any]) -> None:
    outcome = simulate("preemption-at-the-capability", max_cycles=MOST_CYCLES)
    found = victims(outcome)
    assert {pod.rstrip("0123456789") for pod in found} == {"low"}
    assert sorted(found.values()) == [(0.0, "preempt", "h"), (0.0, "preempt", "h"), (0.0, "preempt", "k")]
    assert times(outcome) == {"h0": 1.0, "h1": 1.0, "k": 1.0}
    low = [f"low{number}" for number in range(4)]
    assert most_held(outcome, dict.fromkeys((*low, "h0", "h1", "k"), 1000), low) == 4000
    assert_settled(outcome)


def test_preemption_at_the_capability_frees_the_sum_for_a_node_that_has_room(simulate: Callable[..., Any]) -> None:
    outcome = simulate("preemption-at-the-capability-on-another-node", max_cycles=MOST_CYCLES)
    assert victims(outcome) == {"lo0-0": (10.0, "preempt", "hi")}
    assert [(each["pod"], each["node"]) for each in outcome.binds] == [("default/hi-0", "n2")]


def test_who_awaits_the_capability_is_told_of_the_pods_that_leave_other_nodes(simulate: Callable[..., Any]) -> None:
    outcome = simulate("nominated-group-that-awaits-the-capability", max_cycles=MOST_CYCLES, until=16)
    waits = "waits for 1 pod on 1 node to terminate"
    assert {outcome.message("hi1"), outcome.message("hi2")} == {waits}


def test_a_pod_under_two_budgets_is_no_victim(simulate: Callable[..., Any]) -> None:
    outcome = simulate("pod-under-two-budgets-is-no-victim", max_cycles=MOST_CYCLES)
    assert victims(outcome) == {"v0": (0.0, "preempt", "h")}
    assert times(outcome) == {"h": 1.0}
    assert_settled(outcome)


def test_reclaim_asks_for_the_pod_in_the_way(simulate: Callable[..., Any]) -> None:
    outcome = simulate("reclaim-asks-for-the-pod-in-the-way", max_cycles=MOST_CYCLES)
    assert victims(outcome) == {"v0": (0.0, "reclaim", "g")}
    assert times(outcome) == {"g": 1.0}
    assert_settled(outcome)


def test_a_budget_is_kept_for_the_pod_that_helps(simulate: Callable[..., Any]) -> None:
    outcome = simulate("budget-is-kept-for-the-pod-that-helps", max_cycles=MOST_CYCLES)
    assert victims(outcome) == {"v-big": (0.0, "preempt", "h")}
    assert times(outcome) == {"h": 1.0}
    assert_settled(outcome)


def test_a_victim_that_the_server_keeps_is_passed_over(simulate: Callable[..., Any]) -> None:
    outcome = simulate("victim-that-the-server-keeps-is-passed-over")
    assert [each["pod"] for each in outcome.evictions] == ["default/old-0"]
    assert outcome.running() == ["new-0", "old-1"]
    assert outcome.pods["default/old-1"]["phase"] == "Running"


def test_reclaim_takes_the_pod_that_is_within_the_share(simulate: Callable[..., Any]) -> None:
    outcome = simulate("reclaim-takes-the-pod-that-is-within-the-share", max_cycles=MOST_CYCLES)
    assert victims(outcome) == {"v2": (0.0, "reclaim", "g"), "v3": (0.0, "reclaim", "g")}
    assert times(outcome) == {"g1": 1.0}
    assert outcome.running() == ["g1", "v0", "v1"]
    assert_settled(outcome)


def test_preemption_for_the_pod_that_finds_victims(simulate: Callable[..., Any]) -> None:
    outcome = simulate("preemption-for-the-pod-that-finds-victims", max_cycles=MOST_CYCLES)
    assert victims(outcome) == {"low0": (0.0, "preempt", "mid"), "low1": (0.0, "preempt", "mid")}
    assert times(outcome) == {"mid1": 1.0}
    assert outcome.running() == ["high", "mid1"]
    assert_settled(outcome)
