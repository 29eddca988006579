"""Choosing nodes for a job that fills its own gives the same however many pods are chosen at once."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.engine.placement.own_nodes import JobRanking
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.plugin import NoArguments, Plugin, Scope, Scores
from kbatch.engine.state.node_resources import NodeResources, Rows
from kbatch.model.tasks import TaskClass
from tests.examples import examples
from tests.unit.engine.worlds import members, node, queue, world

_BEST = 10_000


class Tidy(Plugin):
    """The full score on the job's own nodes; else what is left of cpu, for each pod that comes there."""

    name = "tidy"
    scope = Scope.NODE
    own_nodes = True

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores:
        left = rows.free("cpu") - rows.coming * cls.request["cpu"]
        found = np.asarray(_BEST - 1 - np.maximum(left, 0) // 100 // rows.coming, np.int64)
        if rows.opened is not None:
            found[rows.opened] = _BEST
        return found


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.integers(1, 14),
    st.sets(st.integers(0, 5), max_size=2),
    st.sampled_from(["500m", "1", "1500m"]),
    st.sampled_from(list(When)),
)
def test_a_job_opens_nodes_one_by_one_and_fills_them(
    cpus: list[int], count: int, own: set[int], cpu: str, when: When
) -> None:
    model = world(queue(), [node(f"n{at}", str(each), pods="9") for at, each in enumerate(cpus)], members("a", 1, cpu))
    cls = model.tasks["ns/a-0"].cls
    mine = {row for row in own if row < len(cpus)}
    room = NodeResources(model.table)
    rankings = NodeRankings(room, [], [Tidy(NoArguments(), None)], "tidy")  # type: ignore[arg-type]
    opened = set(mine)
    chosen: list[int] = []
    while len(chosen) < count:
        rows = JobRanking(rankings.of(cls, when), partial(sorted, opened)).choose(count - len(chosen))
        if not rows:
            break
        for row in rows:
            room.allocate(cls, row) if when is When.NOW else room.pipeline(cls, row)
        opened |= set(rows)
        chosen.extend(rows)
    assert chosen == _slowly(NodeResources(model.table), cls, count, mine)


def _slowly(room: NodeResources, cls: TaskClass, count: int, own: set[int]) -> list[int]:
    """The rule itself: the job's own node with room, the first by name; else the one that loses least for each pod."""
    chosen: list[int] = []
    free = {row: _capacity(room, cls, row) for row in range(len(room.table))}
    opened = set(own)
    while len(chosen) < count:
        rows = [row for row, most in free.items() if most]
        if not rows:
            break
        mine = [row for row in rows if row in opened]
        row = (
            min(mine)
            if mine
            else min(rows, key=lambda row: (_lost(room, cls, row, min(free[row], count - len(chosen))), row))
        )
        opened.add(row)
        chosen.append(row)
        free[row] -= 1
    return chosen


def _capacity(room: NodeResources, cls: TaskClass, row: int) -> int:
    return min(int(room.idle[name][row]) // amount for name, amount in cls.needs)


def _lost(room: NodeResources, cls: TaskClass, row: int, coming: int) -> int:
    return (int(room.idle["cpu"][row]) - coming * cls.request["cpu"]) // 100 // coming
