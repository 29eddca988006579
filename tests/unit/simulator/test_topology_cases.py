"""Cases of topology: a file in tests/cases for each thing that is said of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.simulator.invariants import MOST_CYCLES, assert_settled, times

CONF = """
actions: "enqueue, reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
  - {name: topology, arguments: {levels: "block, rack"}}
"""


def _nodes(outcome: Any, prefix: str) -> set[str]:
    return {
        found["node"] for pod, found in outcome.pods.items() if pod.startswith(f"default/{prefix}") and found["node"]
    }


def _stand(outcome: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = outcome.json["podgroups"][f"default/{name}"]["topology"]
    return found


def test_a_gang_waits_for_its_rack(simulate: Callable[..., Any]) -> None:
    case = "topology-gang-waits-for-its-rack"
    before = simulate(case, CONF, max_cycles=MOST_CYCLES, until=20)
    assert before.reason("g") == "TopologyUnsatisfied"
    assert before.message("g").startswith("1 of 2 pods fit within 2 hops of one another, in rack b1/a;")
    outcome = simulate(case, CONF, max_cycles=MOST_CYCLES)
    assert times(outcome) == {"g-0": 30.0, "g-1": 30.0}
    assert _nodes(outcome, "g") == {"b1", "b2"}
    assert_settled(outcome)


def test_preferred_spills_over(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-preferred-spills-over", CONF, max_cycles=MOST_CYCLES)
    assert _stand(outcome, "first")["domain"] == "b1"
    assert _stand(outcome, "second")["hops"] == 6


def test_roles_in_racks_of_one_block(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-roles-in-racks-of-one-block", CONF, max_cycles=MOST_CYCLES)
    found = _stand(outcome, "g")
    assert (found["domain"], {role["hops"] for role in found["roles"].values()}) == ("b1", {2})


def test_earlier_choices_are_revised(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-earlier-choices-are-revised", CONF, max_cycles=MOST_CYCLES)
    found = _stand(outcome, "g")["roles"]
    assert (found["large"]["domain"], found["small"]["domain"]) == ("a1", "b1")
    assert len(outcome.running()) == 5


def test_preemption_clears_one_rack(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-preemption-clears-one-rack", CONF, max_cycles=MOST_CYCLES)
    assert [each["pod"] for each in outcome.evictions] == ["default/low-b1"]
    assert _nodes(outcome, "g") == {"b1", "b2"}
    assert_settled(outcome)


def test_nobody_is_evicted_in_vain(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-nobody-is-evicted-in-vain", CONF, max_cycles=MOST_CYCLES, until=900)
    assert outcome.evictions == []
    assert outcome.reason("g") == "TopologyUnsatisfied"


def test_preferred_evicts_nobody_for_closeness(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-preferred-evicts-nobody-for-closeness", CONF, max_cycles=MOST_CYCLES)
    assert outcome.evictions == []
    assert len(outcome.running("g")) == 3


def test_reclaim_in_one_block(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-reclaim-in-one-block", CONF, max_cycles=MOST_CYCLES)
    assert [each["action"] for each in outcome.evictions] == ["reclaim"] * 3
    assert _stand(outcome, "g")["domain"] == "b1"
    assert_settled(outcome)


def test_members_that_join_later(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-members-that-join-later", CONF, max_cycles=MOST_CYCLES)
    assert times(outcome) == {"g-2": 30.0}
    assert _nodes(outcome, "g-2") == {"b1"}


def test_required_without_a_number(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-required-without-a-number", CONF, max_cycles=MOST_CYCLES)
    assert times(outcome) == {"g-0": 30.0, "g-1": 30.0}


def test_room_gathers_in_one_rack(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-room-gathers-in-one-rack", CONF, max_cycles=MOST_CYCLES)
    assert _stand(outcome, "g")["hops"] == 2
    started = {pod: time for pod, time in times(outcome).items() if pod.startswith("g-")}
    assert 730 <= min(started.values()) == max(started.values()) <= 860


def test_plain_pods_by_annotation(simulate: Callable[..., Any]) -> None:
    outcome = simulate("topology-plain-pods-by-annotation", CONF, max_cycles=MOST_CYCLES, until=900)
    assert outcome.reason("g") == "TopologyUnsatisfied"
    assert _stand(outcome, "h")["domain"] == "b1"


# --- racks and blocks -------------------------------------------------------------------------------------------------


def test_gpus_that_are_scattered_over_a_rack_hold_no_pod(simulate: Callable[..., Any]) -> None:
    outcome = simulate("rack-whose-gpus-are-scattered", CONF, max_cycles=MOST_CYCLES)
    assert _nodes(outcome, "g") == {"b1", "b2"}
    assert_settled(outcome)


def test_a_block_holds_what_no_rack_does(simulate: Callable[..., Any]) -> None:
    outcome = simulate("block-holds-what-no-rack-does", CONF, max_cycles=MOST_CYCLES, until=100)
    assert (_stand(outcome, "first")["domain"], _stand(outcome, "first")["hops"]) == ("b1", 4)
    assert outcome.reason("second") == "TopologyUnsatisfied"
    assert outcome.message("second").startswith("2 of 3 pods fit within 4 hops of one another, in block b2;")


def test_nodes_that_take_nobody_do_not_count(simulate: Callable[..., Any]) -> None:
    outcome = simulate("rack-nodes-that-take-nobody-do-not-count", CONF, max_cycles=MOST_CYCLES)
    assert _nodes(outcome, "g") == {"b1", "b2"}
    assert_settled(outcome)


def test_pods_of_other_schedulers_take_room_in_a_rack(simulate: Callable[..., Any]) -> None:
    case = "rack-beside-pods-of-other-schedulers"
    before = simulate(case, CONF, max_cycles=MOST_CYCLES, until=20)
    assert before.message("g").startswith("1 of 2 pods fit within 2 hops of one another, in rack b1/a, even without")
    outcome = simulate(case, CONF, max_cycles=MOST_CYCLES)
    assert set(times(outcome).values()) == {30.0}
    assert _nodes(outcome, "g") == {"a1", "a2"}
    assert_settled(outcome)


def test_the_smallest_rack_that_holds_a_gang_is_taken(simulate: Callable[..., Any]) -> None:
    outcome = simulate("rack-of-four-is-left-to-the-gang-of-four", CONF, max_cycles=MOST_CYCLES)
    assert _nodes(outcome, "small") == {"b1", "b2"}
    assert set(times(outcome).values()) == {0.0, 10.0}
    assert len(outcome.running("large")) == 4


def test_gangs_run_in_the_one_rack_one_after_the_other(simulate: Callable[..., Any]) -> None:
    outcome = simulate("rack-gangs-run-one-after-the-other", CONF, max_cycles=MOST_CYCLES)
    began = times(outcome)
    assert [{began[f"g{at}-w-0"], began[f"g{at}-w-1"]} for at in range(3)] == [{0.0}, {30.0}, {60.0}]
    assert began["single"] == 5.0
    assert _nodes(outcome, "g") == {"a1", "a2"}
    assert_settled(outcome)


def test_a_group_grows_in_its_rack_only(simulate: Callable[..., Any]) -> None:
    outcome = simulate("rack-bounds-the-growth-of-a-group", CONF, max_cycles=MOST_CYCLES, until=100)
    assert _nodes(outcome, "g") == {"b1", "b2", "b3"}
    assert outcome.phase("g") == "Running"


def test_an_exclusive_gang_has_a_rack_of_whole_nodes(simulate: Callable[..., Any]) -> None:
    outcome = simulate("rack-of-whole-nodes", CONF, max_cycles=MOST_CYCLES)
    assert len(outcome.running("g")) == 2
    assert _nodes(outcome, "g") == {"b1", "b2"}
    assert_settled(outcome)


def test_one_gang_goes_for_another_that_wants_one_rack(simulate: Callable[..., Any]) -> None:
    outcome = simulate("rack-of-one-gang-is-cleared-for-another", CONF, max_cycles=MOST_CYCLES)
    gone = {each["pod"].removeprefix("default/") for each in outcome.evictions}
    assert gone in ({"low-a-1", "low-a-2"}, {"low-b-1", "low-b-2"})
    assert {node[0] for node in _nodes(outcome, "g")} == {gone.pop().split("-")[1]}
    assert_settled(outcome)
