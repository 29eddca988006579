"""Cases of packing: which of the nodes that fit pods go to, by what their queue asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.simulator.invariants import MOST_CYCLES, assert_settled

PACKING = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - {name: gang}
  - {name: predicates}
  - {name: nodeorder, arguments: {leastrequested.weight: 0, balancedresource.weight: 0}}
  - {name: binpack}
"""
LEAST_LOST = PACKING.replace("binpack", "lostopportunity")


def nodes(outcome: Any) -> dict[str, str]:
    return {pod.removeprefix("default/"): found["node"] for pod, found in outcome.pods.items()}


@pytest.mark.parametrize(
    ("conf", "usual"), [(None, "empty"), (PACKING, "busy"), (LEAST_LOST, "busy")], ids=["default", "pack", "least-lost"]
)
def test_a_queue_says_how_its_pods_are_placed(simulate: Callable[..., Any], conf: str | None, usual: str) -> None:
    outcome = simulate("placement-of-queues", conf, max_cycles=MOST_CYCLES)
    found = nodes(outcome)
    assert (found["p"], found["s"], found["u"]) == ("busy", "empty", usual)
    assert_settled(outcome)


@pytest.mark.parametrize("conf", [None, PACKING, LEAST_LOST], ids=["default", "pack", "least-lost"])
def test_least_lost_opens_the_nodes_that_a_gang_fills(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("least-lost-opens-the-node-that-the-gang-fills", conf, max_cycles=MOST_CYCLES)
    found = nodes(outcome)
    assert {found[f"g-{at}"] for at in range(4)} == {"a-eight"}
    assert found["h-0"] == found["h-1"] != "a-eight"
    assert_settled(outcome)
