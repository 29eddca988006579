"""Groups with topology and exclusive ones over random clusters: the bounds hold in every cycle, whatever is evicted
and comes again; the memo changes nothing, and the world comes to rest.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import GroupTopology, Node, Pod, PodGroup
from kbatch.engine import Policy
from kbatch.model.cluster import ClusterModel
from kbatch.model.domains import domains
from kbatch.model.tasks import Task
from tests.property.test_engine import ONE_TIER, Checked, Remembering, World, relaxed, worlds
from tests.unit.engine.worlds import EVERYTHING, Decisions, policy

pytestmark = pytest.mark.many

LEVELS = ("rack",)
_CONFIGURED = "{name: nodeorder}, {name: topology, arguments: {levels: rack}}"
POLICIES: list[Policy] = [
    policy(text.replace("{name: nodeorder}", _CONFIGURED)) for text in (EVERYTHING, ONE_TIER)
]  # fmt: skip


@st.composite
def _topologies(draw: st.DrawFn) -> GroupTopology | None:
    hops = draw(st.sampled_from([None, 0, 2, 4]))
    return draw(st.sampled_from([None, GroupTopology(max_hops=hops, mode=draw(st.sampled_from(["", "Required"])))]))


@st.composite
def close_worlds(draw: st.DrawFn, *, exclusive: bool = False) -> World:
    """A world in two racks, in which groups of which nothing runs yet may ask for anything."""
    found = draw(worlds(disruptions=False))
    running = {
        (obj.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, "")
        for obj in found.objects if isinstance(obj, Pod) and obj.spec.node_name
    }  # fmt: skip
    for obj in found.objects:
        if isinstance(obj, Node):
            obj.metadata.labels = {"rack": draw(st.sampled_from(["r0", "r1"]))}
        elif isinstance(obj, PodGroup) and obj.metadata.name not in running:
            roles = tuple(
                msgspec.structs.replace(role, topology=draw(_topologies()), exclusive=exclusive and draw(st.booleans()))
                for role in obj.spec.sub_groups or ()
            )
            alone = exclusive and draw(st.integers(0, 2)) == 0
            obj.spec = msgspec.structs.replace(
                obj.spec, topology=draw(_topologies()), exclusive=alone, sub_groups=roles or None
            )
    return found


class _Close(Checked):
    """Checked, and besides that nobody stands too far apart."""

    def cycle(self) -> Decisions:
        found = super().cycle()
        _check_hops(self.model)
        return found


class _Alone(Remembering):
    """Nobody stands too far apart, or beside those who stand alone. (Whole nodes are cleared where there is room.)"""

    def cycle(self) -> Decisions:
        found = super().cycle()
        _check_hops(self.model)
        _check_alone(self.model)
        return found


def _check_hops(model: ClusterModel) -> None:
    tree = domains(model.table, LEVELS)
    for job in model.jobs.values():
        if job.group is None:
            continue
        holding = [task for task in job.tasks.values() if task.holds]
        wishes = [(job.group.spec.topology, holding)]
        roles = job.group.spec.sub_groups or ()
        wishes += [(role.topology, [task for task in holding if task.role == role.name]) for role in roles]
        for wish, tasks in wishes:
            if wish is not None and wish.max_hops is not None:
                assert 2 * tree.height([model.table.row[task.node] for task in tasks]) <= wish.max_hops


def _check_alone(model: ClusterModel) -> None:
    for record in model.nodes.values():
        tasks: list[Task] = [task for task in record.tasks.values() if task.holds and task.job]
        for task in tasks:
            if model.jobs[task.job].exclusive(task.role):
                assert {other.job for other in tasks} == {task.job}


@relaxed
@given(close_worlds(), st.sampled_from(POLICIES), st.integers(0, 2))
def test_pods_stand_within_their_bounds_in_every_cycle(found: World, by: Policy, ticks: int) -> None:
    sim = _Close(found.model(), by)
    sim.settle()
    for _ in range(ticks):
        sim.tick()
        sim.settle()


@relaxed
@given(close_worlds(exclusive=True), st.sampled_from(POLICIES), st.integers(0, 2))
def test_exclusive_pods_stand_alone_in_every_cycle(found: World, by: Policy, ticks: int) -> None:
    sim = _Alone(found.model(), by)
    sim.settle()
    for _ in range(ticks):
        sim.tick()
        sim.settle()
    sim.run(30)
    gone = len(sim.evictions)
    sim.run(10)
    assert len(sim.evictions) == gone  # it comes to rest
