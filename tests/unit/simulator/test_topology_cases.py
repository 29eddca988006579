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
