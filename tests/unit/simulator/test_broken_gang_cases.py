"""Cases of gangs that have run and lost members: what becomes of the rest, and of what replaces them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.simulator.invariants import MOST_CYCLES, assert_settled, assert_whole, changed

_RACKS = """
actions: "enqueue, reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: drf}
  - {name: predicates}
  - {name: topology, arguments: {levels: "rack"}}
  - {name: proportion}
  - {name: nodeorder}
"""


def _gone(outcome: Any) -> dict[str, float]:
    found = {each["pod"].removeprefix("default/"): each["time"] for each in outcome.evictions}
    assert {(each["action"], each["for"]) for each in outcome.evictions} <= {("minimumLost", None)}
    return found


def _after(outcome: Any, instant: float) -> list[tuple[float, str]]:
    """When and where pods were bound later than that."""
    return sorted((each["time"], each["node"]) for each in outcome.binds if each["time"] > instant)


def test_with_0_the_rest_goes_at_once_and_starts_again_elsewhere(simulate: Callable[..., Any]) -> None:
    outcome = simulate("broken-gang-goes-at-once", max_cycles=MOST_CYCLES)
    assert list(_gone(outcome).values()) == [100.0] * 3
    assert _after(outcome, 0.0) == [(110.0, node) for node in ("n1", "n2", "n3", "n4")]
    assert outcome.phase("g") == "Running"
    assert_whole(outcome, outcome.running(), 4)
    assert_settled(outcome)


def test_meanwhile_it_waits_its_back_off(simulate: Callable[..., Any]) -> None:
    outcome = simulate("broken-gang-goes-at-once", max_cycles=MOST_CYCLES, until=105)
    assert outcome.phase("g") == "Pending"
    assert outcome.reason("g") == "WaitingInQueue"
    assert "or was lost; it may come in queue again 10 s after" in outcome.message("g")


def test_without_a_time_there_is_one_replacement_and_the_others_stay(simulate: Callable[..., Any]) -> None:
    case = changed("broken-gang-goes-at-once", ", minimumLostSeconds: 0", "")
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert outcome.evictions == []
    assert _after(outcome, 0.0) == [(100.0, "n4")]
    assert outcome.phase("g") == "Running"
    assert_settled(outcome)


def test_what_is_left_goes_when_its_time_is_over(simulate: Callable[..., Any]) -> None:
    case = "broken-gang-goes-in-time"
    assert simulate(case, max_cycles=MOST_CYCLES, until=159).evictions == []
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert list(_gone(outcome).values()) == [160.0] * 3
    assert _after(outcome, 0.0) == [(300.0, "n1"), (300.0, "n1"), (300.0, "n1"), (300.0, "n2")]
    assert_settled(outcome)


def test_who_is_whole_again_in_time_stays(simulate: Callable[..., Any]) -> None:
    case = changed("broken-gang-goes-in-time", "arrival: '300'", "arrival: '159'")
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert outcome.evictions == []
    assert _after(outcome, 0.0) == [(159.0, "n2")]
    assert_settled(outcome)


def test_a_run_in_which_nothing_else_happens_waits_for_that_time(simulate: Callable[..., Any]) -> None:
    """No node comes: the group is given up all the same, and then only waits."""
    case = changed("broken-gang-goes-in-time", "minimumLostSeconds: 60", "minimumLostSeconds: 5000")
    case = case.replace("arrival: '300'", "arrival: '20', simulate.kbatch.dev/departure: '30'")
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert list(_gone(outcome).values()) == [5100.0] * 3
    assert outcome.running() == []
    assert_settled(outcome)


def test_a_replacement_comes_to_the_domain_of_the_others(simulate: Callable[..., Any]) -> None:
    outcome = simulate("replacement-in-its-rack", _RACKS, max_cycles=MOST_CYCLES)
    first, second = _after(outcome, 0.0)
    assert first == (100.0, "b3")
    assert (second[0], second[1][0]) == (200.0, "a"), "Preferred: rather elsewhere than nowhere"
    assert outcome.evictions == []


def test_where_it_is_required_a_replacement_waits_for_that_domain(simulate: Callable[..., Any]) -> None:
    case = changed("replacement-in-its-rack", "topology: {mode: Preferred}", "topology: {maxHops: 2}")
    outcome = simulate(case, _RACKS, max_cycles=MOST_CYCLES)
    assert _after(outcome, 0.0) == [(100.0, "b3")]
    assert outcome.reason("g") == "TopologyUnsatisfied"
    assert outcome.evictions == []


def test_given_up_it_starts_in_another_domain(simulate: Callable[..., Any]) -> None:
    """The two ways together: first its own rack, and when that does not hold it for too long all go to another one."""
    case = changed(
        "replacement-in-its-rack", "topology: {mode: Preferred}", "topology: {maxHops: 2}, minimumLostSeconds: 30"
    )
    outcome = simulate(case, _RACKS, max_cycles=MOST_CYCLES)
    assert list(_gone(outcome).values()) == [230.0] * 2
    assert [(time, node[0]) for time, node in _after(outcome, 200.0)] == [(240.0, "a")] * 3
    assert outcome.phase("g") == "Running"


def test_a_node_on_which_its_pods_fail_is_avoided(simulate: Callable[..., Any]) -> None:
    outcome = simulate("bad-node-is-avoided", max_cycles=MOST_CYCLES)
    found = {key.removeprefix("default/"): (pod["phase"], pod["node"]) for key, pod in outcome.pods.items()}
    assert found == {
        "g-0": ("Failed", "bad"),
        "g-1": ("Failed", "bad"),
        "g-0-r1": ("Succeeded", "good"),
        "g-1-r1": ("Succeeded", "good"),
        "other": ("Succeeded", "bad"),
    }
    assert outcome.phase("g") == "Completed"
    assert_settled(outcome)


def test_below_the_limit_it_is_not(simulate: Callable[..., Any]) -> None:
    case = changed("bad-node-is-avoided", "minMember: 2", "minMember: 2, badNodeLimit: 4")
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    places = {key.removeprefix("default/"): pod["node"] for key, pod in outcome.pods.items()}
    assert [places[f"g-{at}{again}"] for at in (0, 1) for again in ("", "-r1", "-r2")] == ["bad", "bad", "good"] * 2


def test_where_there_is_no_other_it_says_so(simulate: Callable[..., Any]) -> None:
    case = changed("bad-node-is-avoided", "allocatable: {cpu: '3'}", "allocatable: {cpu: 500m}")
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert "1 failed its pods" in outcome.message("g")
    assert outcome.phase("g") == "Pending", "its time in queue is over"
    assert_settled(outcome)


def test_what_a_live_group_remembers_counts(simulate: Callable[..., Any]) -> None:
    """As `kbatch what-if` takes it from a cluster: the pods that failed are gone."""
    case = changed(
        "bad-node-is-avoided",
        "spec: {minMember: 2}",
        "spec: {minMember: 2}\n  status: {nodeFailures: [{node: bad, pods: [a, b]}]}",
    )
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert {pod["node"] for key, pod in outcome.pods.items() if key.startswith("default/g")} == {"good"}
