"""The room of lost members is kept on nodes until what replaces them is made: in their domain, on their whole nodes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbatch.api.objects import Pod, PodGroup
from kbatch.engine import Memo
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.closeness import close, nodes_at, wired
from tests.unit.engine.worlds import EVERYTHING, Simulation, group, members, pod, queue, run, world

BY = wired(EVERYTHING.replace("{name: nodeorder}", "{name: binpack}"))


def _templated(made: PodGroup, **spec: Any) -> PodGroup:
    """Its first role has a template for pods of one CPU."""
    template = {
        "spec": {"schedulerName": "kube-batch", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    }
    first, *others = made.spec.sub_groups or ()
    subs = (msgspec.structs.replace(first, template=template), *others)
    made.spec = msgspec.structs.replace(made.spec, sub_groups=subs, **spec)
    return made


def _broken(**spec: Any) -> Simulation:
    """A gang that fills the first of two racks, as far as one pod that is lost; its replacement is not made yet."""
    nodes = nodes_at("z/b/r1/a1", "z/b/r1/a2", "z/b/r2/b1", "z/b/r2/b2", cpu="2")
    made = close(_templated(group("g", roles={"w": 4}), **spec), 2)
    simulation = Simulation(world(queue(), nodes, made, members("g", 4, role="w")), BY, recreate=False)
    simulation.settle()
    assert len(simulation.running("g")) == 4
    simulation.model.apply(Delete(Pod, "ns", "g-0"))
    return simulation


def _where(simulation: Simulation, name: str) -> str:
    return simulation.model.tasks[f"ns/{name}"].node


def _cycle(simulation: Simulation) -> None:
    """One cycle, that decides without the memo as it does with it."""
    blank = run(simulation.model, BY, now=simulation.now, memo=Memo(), state=simulation.state)
    assert simulation.cycle().transactions == blank.transactions


def test_others_leave_the_room_in_the_domain_to_the_replacement() -> None:
    simulation = _broken()
    lost = next(name for name in ("a1", "a2") if sum(t.node == name for t in simulation.model.tasks.values()) == 1)
    for at in range(5):  # four have room in the other rack
        simulation.model.apply(Upsert(pod(f"x-{at}", at=1)))
    for _ in range(4):
        _cycle(simulation)
    assert len(simulation.running("x")) == 4
    simulation.model.apply(Upsert(pod("g-new", of="g", role="w", at=2)))
    _cycle(simulation)
    assert _where(simulation, "g-new") == lost


def test_others_keep_off_the_whole_node_of_a_lost_member() -> None:
    nodes = nodes_at("z/b/r1/a1", "z/b/r1/a2", cpu="4")
    made = _templated(group("g", roles={"w": 2}), exclusive=True)
    spread = Simulation(
        world(queue(), nodes, made, [pod(f"g-{at}", of="g", role="w", on=f"a{at + 1}") for at in range(2)]), BY
    )
    spread.settle()
    spread.model.apply(Delete(Pod, "ns", "g-0"))
    spread.model.apply(Upsert(pod("x", "4", at=1)))
    spread.settle()
    assert spread.running() == ["g-1", "x"]  # the replacement has room beside the other
    spread.model.apply(Upsert(pod("g-new", of="g", role="w", at=2)))
    spread.settle()
    assert _where(spread, "g-new") == "a2"


@pytest.mark.parametrize(("now", "waits"), [(29, True), (30, False)])
def test_the_room_is_given_to_others_when_the_time_is_over(now: int, waits: bool) -> None:
    simulation = _broken(schedule_timeout_seconds=30)
    for at in range(5):
        simulation.model.apply(Upsert(pod(f"x-{at}", at=1)))
    for _ in range(4):
        _cycle(simulation)
    simulation.now = now
    for _ in range(3):
        _cycle(simulation)
    assert len(simulation.running("x")) == (4 if waits else 5)


def test_nothing_is_kept_for_pods_that_nobody_is_known_to_make() -> None:
    nodes = nodes_at("z/b/r1/a1", "z/b/r1/a2", cpu="1")
    simulation = Simulation(world(queue(), nodes, group("g", 2), members("g", 2)), BY, recreate=False)
    simulation.settle()
    simulation.model.apply(Delete(Pod, "ns", "g-0"))
    simulation.model.apply(Upsert(pod("x", at=1)))
    simulation.settle()
    assert simulation.running() == ["g-1", "x"]
