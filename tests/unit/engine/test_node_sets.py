"""Plugins that say where the pods of a gang may stand together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from kbatch.api.reasons import ClusterTooSmall
from kbatch.engine import Policy
from kbatch.engine.plugin import NoArguments, NodeSet, Plugin
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Column
from tests.unit.engine.worlds import ALLOCATE, Simulation, group, members, node, pod, policy, queue, run, world


class _ByLabel(Plugin):
    """Keeps a gang within one value of a label; the value's number, if it has one, is the cost."""

    key = ""
    of_role: str | None = None

    def node_sets(
        self, job: JobState, role: str | None, fitting: Column, placed: Sequence[int]
    ) -> Sequence[NodeSet] | None:
        if role != self.of_role:
            return None
        ids, values = self.view.nodes.labels(self.key)
        sets = [NodeSet(ids == at, int(value.partition("-")[2] or 0)) for at, value in enumerate(values)]
        if placed:
            sets = [each for each in sets if each.rows[list(placed)].all()]
        return sets


class _ByZone(_ByLabel):
    name = "by-zone"
    key = "zone"


class _ByKind(_ByLabel):
    name = "by-kind"
    key = "kind"


class _WorkersByZone(_ByLabel):
    name = "workers-by-zone"
    key = "zone"
    of_role = "w"


def _with(*plugins: type[Plugin]) -> Policy:
    by = policy(ALLOCATE)
    more = tuple(dataclasses.replace(by.plugins[0], plugin=each, arguments=NoArguments()) for each in plugins)
    return dataclasses.replace(by, plugins=(*by.plugins, *more))


def _nodes(**zones: tuple[str, int]) -> list[Any]:
    return [node(name, str(cpu), labels={"zone": zone}) for name, (zone, cpu) in zones.items()]


def test_a_gang_stands_in_one_set_that_holds_it() -> None:
    objects = (queue(), _nodes(n0=("a", 2), n1=("a", 1), n2=("b", 2), n3=("b", 2)), group("g", 4), members("g", 4))
    assert set(run(world(*objects), _with(_ByZone)).binds.values()) == {"n2", "n3"}
    assert set(run(world(*objects), policy(ALLOCATE)).binds.values()) != {"n2", "n3"}


def test_a_gang_that_no_set_holds_waits() -> None:
    nodes = _nodes(n0=("a", 2), n1=("b", 2))
    found = run(world(queue(), nodes, group("g", 3), members("g", 3)), _with(_ByZone))
    assert found.binds == {}
    assert isinstance(found.verdicts["ns/g"].reason, ClusterTooSmall)


def test_the_cheapest_set_that_holds_it_is_taken() -> None:
    zones = _nodes(n0=("a-9", 8), n1=("b-2", 1), n2=("c-5", 2))
    found = run(world(queue(), zones, group("g", 2), members("g", 2)), _with(_ByZone))
    assert set(found.binds.values()) == {"n2"}


def test_of_sets_of_equal_cost_that_with_the_better_nodes_is_taken() -> None:
    nodes = _nodes(n0=("a", 4), n1=("b", 8))
    busy = pod("other", "2", on="n0", scheduler="default-scheduler")
    found = run(world(queue(), nodes, busy, group("g", 2), members("g", 2)), _with(_ByZone))
    assert set(found.binds.values()) == {"n1"}


def test_the_sets_of_several_plugins_are_intersected() -> None:
    nodes = [
        node(f"n{at}", "2", labels={"zone": zone, "kind": kind})
        for at, (zone, kind) in enumerate([("a", "x"), ("a", "y"), ("b", "x"), ("b", "y"), ("b", "y")])
    ]
    found = run(world(queue(), nodes, group("g", 4), members("g", 4)), _with(_ByZone, _ByKind))
    assert set(found.binds.values()) == {"n3", "n4"}


def test_a_role_is_kept_together_and_the_others_are_not() -> None:
    nodes = _nodes(n0=("a", 2), n1=("b", 2), n2=("c", 1))
    workers = [pod(f"w-{at}", of="g", role="w") for at in range(2)]
    masters = [pod(f"m-{at}", "1", of="g", role="m") for at in range(3)]
    found = run(world(queue(), nodes, group("g", 5, roles={"m": 3, "w": 2}), workers, masters), _with(_WorkersByZone))
    assert len(found.binds) == 5
    assert len({found.binds["w-0"], found.binds["w-1"]}) == 1


def test_pods_that_come_later_are_told_where_the_others_stand() -> None:
    model = world(
        queue(), _nodes(n0=("a", 1), n1=("b", 4)), group("g", 2), pod("g-0", of="g", on="n0"), pod("g-1", of="g")
    )
    sim = Simulation(model, _with(_ByZone))
    sim.settle()
    assert sim.running() == ["g-0"]
