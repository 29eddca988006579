"""What is kept of the groups of a queue follows them: after whatever happened it is what a first look would find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kbatch.engine import Policy
from kbatch.engine.carryover.giving import Level, Levels, Share
from kbatch.engine.carryover.holdings import Holdings, QueueHoldings
from kbatch.engine.carryover.lone_pods import LonePod
from kbatch.engine.placement.kept_counts import KeptCounts
from kbatch.engine.plugin import Holder
from kbatch.engine.preemption.candidate_pool import CandidatePool
from kbatch.engine.state.node_resources import NodeResources
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from kbatch.model.jobs import Job
from tests.property.test_engine import POLICIES, World, relaxed, worlds
from tests.property.test_memo import coupled
from tests.property.test_search_shortcuts import mortal
from tests.property.test_victims_help import contested
from tests.unit.engine.worlds import Simulation, priority_class

_FOLLOW, _REACHABLE, _ADD_LONE = Levels.follow, Holdings.reachable, CandidatePool._add_lone


def _amounts(levels: Mapping[int, Level]) -> dict[int, list[dict[str, int]]]:
    """What the levels hold, without the dimensions of which they hold nothing."""
    return {
        priority: [
            {name: amount for name, amount in sums.items() if amount}
            for sums in (level.spare, level.surplus, level.late_spare, level.late_surplus, level.late)
        ]
        for priority, level in levels.items()
    }


def _follow(levels: Levels, now: int, share_of: Callable[[Job], Share]) -> None:
    _FOLLOW(levels, now, share_of)
    anew = Levels(levels.record)
    _FOLLOW(anew, now, share_of)
    assert _amounts(levels.by_priority) == _amounts(anew.by_priority)
    assert levels.until == anew.until


def _held(queue: QueueHoldings) -> dict[Holder, list[tuple[str, int]]]:
    """What the groups of a queue hold in all, by their kinds."""
    found: dict[Holder, list[tuple[str, int]]] = {}
    for holder, held in queue.held.items():
        columns = {name: np.zeros(1000, np.int64) for name in held.names}
        held.add_to(columns, 1)
        found[holder] = sorted((name, int(column.sum())) for name, column in columns.items() if column.any())
    return found


def _comparing(model: ClusterModel) -> Callable[..., KeptCounts]:
    def reachable(
        holdings: Holdings, holders: frozenset[Holder], queues: Sequence[QueueHoldings], room: NodeResources
    ) -> KeptCounts:
        found = _REACHABLE(holdings, holders, queues, room)
        anew = Holdings()
        fresh = [anew.of(queue.record, model.table) for queue in queues]
        expected = _REACHABLE(anew, holders, fresh, room)
        classes = list(dict.fromkeys(task.cls for task in model.tasks.values()))
        free, anew_free = found.free(classes), expected.free(classes)
        if holders:  # else what a queue holds was not worked out
            assert [_held(queue) for queue in queues] == [_held(queue) for queue in fresh]
        assert all(np.array_equal(column, anew_free[name]) for name, column in free.items())
        for key, fit in list(found._fits.items()):
            now, wanted = (each._fit(key, fit.needs, fit.allowed) for each in (found, expected))
            assert (now.fitting.tolist(), now.sum) == (wanted.fitting.tolist(), wanted.sum)
        return found

    return reachable


def _add_lone(pool: CandidatePool, part: Any, model: Job, lone: LonePod, kinds: dict[int, None]) -> None:
    assert lone == pool._lone_of(model) or pool._session.job(model.key).evicted
    _ADD_LONE(pool, part, model, lone, kinds)


@relaxed
@given(st.one_of(worlds(), mortal(), contested()), st.sampled_from(POLICIES), st.data())
def test_pods_that_are_alone_in_their_groups(found: World, by: Policy, data: st.DataObject) -> None:
    sim = Simulation(found.model(), by)
    with mock.patch.object(CandidatePool, "_add_lone", _add_lone):
        for _ in range(5):
            sim.settle()
            sim.tick()
            sim.model.apply(Upsert(priority_class(data.draw(st.sampled_from(["low", "high"])), 50)))


@relaxed
@given(st.one_of(worlds(), mortal(), coupled()), st.sampled_from(POLICIES), st.data())
def test_what_groups_hold_and_could_give(found: World, by: Policy, data: st.DataObject) -> None:
    sim = Simulation(found.model(), by)
    with mock.patch.object(Levels, "follow", _follow), mock.patch.object(Holdings, "reachable", _comparing(sim.model)):
        for _ in range(5):
            sim.settle()
            sim.tick()
            sim.now += data.draw(st.sampled_from([0, 3, 25]))
