"""Victims for pods that spread are counted out before any is tried: those on the nodes that matter, or none."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any
from unittest import mock

import pytest

from kbatch.api.objects import LabelSelector, Node, TopologySpreadConstraint
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.preemption.clearing import _Clearing
from kbatch.engine.preemption.planning import _Plan
from kbatch.engine.preemption.search import Search
from tests.unit.engine.worlds import Decisions, group, members, node, pod, policy, priority_class, queue, run, world

POLICY = policy("""
actions: "allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]
""")
SPREAD = TopologySpreadConstraint(
    max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule",
    label_selector=LabelSelector(match_labels={"app": "high"}),
)  # fmt: skip
NODES = [node(f"{zone}{at}", "4", labels={"zone": zone}) for zone in "abc" for at in range(4)]


def tried(*objects: Any, size: int, cpu: str = "1", nodes: Sequence[Node] = NODES) -> tuple[list[int], Decisions]:
    """How many units were evicted in each trial for a gang that spreads over three zones, and what was decided, where
    the search node by node finds nothing.
    """
    gang = group("high", size, priority_class_name="high")
    pods = members("high", size, cpu, topology_spread_constraints=(SPREAD,), labels={"app": "high"})
    trials: list[int] = []
    works = _Clearing._works

    def counted(self: _Clearing, units: Any, *, at_all: bool = False) -> Any:
        trials.append(len(units))
        return works(self, units, at_all=at_all)

    def nothing(_: _Plan, __: Search) -> Generator[Turn, None, bool]:
        yield TURN
        return False

    with mock.patch.object(_Clearing, "_works", counted), mock.patch.object(_Plan, "_node_by_node", nothing):
        classes = priority_class("low", 1), priority_class("high", 9)
        found = run(world(queue(), *classes, nodes, *objects, gang, pods), POLICY)
    assert found.outcome is not None
    assert not found.outcome.errors
    return trials, found


def low(name: str, on: str, count: int, *, at: int = 0, **spec: Any) -> list[Any]:
    """A group of so many pods of a CPU on a node."""
    owner = group(name, priority_class_name="low", at=at, **spec)
    return [owner, *(pod(f"{name}-{number}", of=name, on=on, at=at) for number in range(count))]


@pytest.mark.parametrize("size", [5, 6])
def test_only_those_go_that_the_spread_asks_for(size: int) -> None:
    """Two pods fit the zones a and b each, none zone c, whose pods are the last to go as they are the oldest."""
    others = [
        low(f"{zone}{at}", f"{zone}{at}", 4 if zone == "c" or at else 2, at=9) for zone in "ab" for at in range(4)
    ]
    oldest = [low(f"c{at}", f"c{at}", 4, at=at) for at in range(4)]
    trials, found = tried(*others, *oldest, size=size)
    victims = size - 4
    assert [name[0] for name in found.evicted] == ["c"] * victims
    assert max(trials) == victims


def test_where_all_together_are_too_few_none_is_tried() -> None:
    """Of zone c one pod may go: three zones with at most one more than that each, and the gang is of six."""
    stays = [low(f"c{at}", f"c{at}", 4 if at else 3, disruption="Never") for at in range(4)]
    other = low("other", "c0", 1)
    gives = [low(f"{zone}{at}", f"{zone}{at}", 4) for zone in "ab" for at in range(4)]
    assert tried(*stays, other, *gives, size=6)[0] == []
    trials, found = tried(*stays, other, *gives, size=5)
    assert trials
    assert len(found.evicted) == 5


def test_of_many_on_a_node_as_many_stay_as_can() -> None:
    """A pod of thirty CPUs needs all but two of the pods of a node; of zone c, that is, though all others would go."""
    nodes = [node(zone, "32", labels={"zone": zone}) for zone in "abc"]
    others = [low(f"b{at}", zone, 1, at=99) for at, zone in enumerate("ab")]
    oldest = [low(f"c{at}", "c", 1, at=at) for at in range(32)]
    trials, found = tried(*others, *oldest, size=3, cpu="30", nodes=nodes)
    assert trials == [30]
    assert sorted(found.evicted) == sorted(f"c{at}-0" for at in range(2, 32))
