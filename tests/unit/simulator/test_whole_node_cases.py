"""Cases of exclusive groups and roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.simulator.invariants import MOST_CYCLES, assert_settled, times


def _node(outcome: Any, pod: str) -> str:
    node: str = outcome.pods[f"default/{pod}"]["node"]
    return node


def test_an_exclusive_gang_beside_a_stream(simulate: Callable[..., Any]) -> None:
    outcome = simulate("exclusive-gang-beside-a-stream", max_cycles=MOST_CYCLES)
    alone = {_node(outcome, "g-0"), _node(outcome, "g-1")}
    began = {pod.removeprefix("default/"): found["bound"] for pod, found in outcome.pods.items()}
    assert (began["g-0"], began["g-1"]) == (0.0, 0.0)
    beside = [
        pod for pod, bound in began.items() if pod.startswith("s-") and bound < 100 and _node(outcome, pod) in alone
    ]
    later = [
        pod for pod, bound in began.items() if pod.startswith("s-") and bound >= 100 and _node(outcome, pod) in alone
    ]
    assert beside == []
    assert later


def test_an_exclusive_gang_waits_for_an_empty_node(simulate: Callable[..., Any]) -> None:
    case = "exclusive-gang-waits-for-an-empty-node"
    before = simulate(case, max_cycles=MOST_CYCLES, until=20)
    assert before.reason("g") == "NotEnoughResources"
    assert "0/2 nodes fit: 2 exclusive" in before.message("g")
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert times(outcome) == {"g-0": 30.0, "g-1": 30.0, "late": 40.0}
    assert {_node(outcome, pod) for pod in ("g-0", "g-1")} == {"n1"}
    assert _node(outcome, "late") == "n2"
    assert_settled(outcome)


def test_an_exclusive_role_shares_with_its_group(simulate: Callable[..., Any]) -> None:
    outcome = simulate("exclusive-role-shares-with-its-group", max_cycles=MOST_CYCLES, until=200)
    assert outcome.running() == ["g-m", "g-w0", "g-w1"]
    assert "exclusive" in outcome.message("stranger")


def test_reclaim_clears_whole_nodes(simulate: Callable[..., Any]) -> None:
    outcome = simulate("exclusive-reclaim-clears-whole-nodes", max_cycles=MOST_CYCLES)
    assert len(outcome.evictions) == 2
    assert outcome.running("g") == ["g-0"]
    assert all(_node(outcome, pod) != _node(outcome, "g-0") for pod in outcome.running("x"))
