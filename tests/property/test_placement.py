"""Looking ahead by ladders gives the very sequence that placing pod by pod gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.plugin import NoArguments, Plugin, Scope, Scores
from kbatch.engine.state.node_resources import NodeResources, Rows
from kbatch.model.tasks import TaskClass
from tests.examples import examples
from tests.unit.engine.worlds import members, node, pod, queue, world


class Scored(Plugin):
    """Least requested, most requested, or a jagged function of what is free: whatever the row alone decides."""

    name = "scored"
    scope = Scope.NODE
    kind = "least"

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores:
        free = rows.free("cpu") - cls.request.get("cpu", 0)
        part = np.maximum(free, 0) * 100 // np.maximum(rows.allocatable("cpu"), 1)
        if self.kind == "least":
            return np.asarray(part, np.int64)
        if self.kind == "most":
            return np.asarray(100 - part, np.int64)
        return np.asarray(free // 250 * 37 % 101, np.int64)


def plugin(kind: str) -> Scored:
    found = Scored(NoArguments(), None)  # type: ignore[arg-type]
    found.kind = kind
    return found


@settings(deadline=None, max_examples=examples(30))
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=7),
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 9)), min_size=1, max_size=6),
    st.sampled_from(["least", "most", "jagged"]),
    st.sampled_from(list(When)),
)
def test_ladders_equal_placing_pod_by_pod(cpus: list[int], steps: list[tuple[int, int]], kind: str, when: When) -> None:
    nodes = [node(f"n{at}", str(cpu), pods="9") for at, cpu in enumerate(cpus)]
    model = world(queue(), nodes, members("a", 1, "500m"), members("b", 1, "1500m"))
    classes = [model.tasks[f"ns/{name}-0"].cls for name in "ab"]
    fast, slow = NodeResources(model.table), NodeResources(model.table)
    ahead = NodeRankings(fast, [], [plugin(kind)], kind)
    for which, count in steps:
        cls = classes[which]
        chosen: list[int] = []
        while len(chosen) < count:
            rows = ahead.of(cls, when).choose(count - len(chosen))
            if not rows:
                break
            for row in rows:
                _put(fast, cls, row, when)
            chosen.extend(rows)
        wanted: list[int] = []
        for _ in range(count):
            best = _best(slow, cls, kind, when)
            if best is None:
                break
            _put(slow, cls, best, when)
            wanted.append(best)
        assert chosen == wanted


def _put(room: NodeResources, cls: TaskClass, row: int, when: When) -> None:
    if when is When.NOW:
        room.allocate(cls, row)
    else:
        room.pipeline(cls, row)


def _best(room: NodeResources, cls: TaskClass, kind: str, when: When) -> int | None:
    """The best row by looking at each: the highest score, then the first."""
    best: tuple[int, int] | None = None
    for row in range(len(room.table)):
        fits = all(
            room.future[name][row] >= amount and (when is When.LATER or room.idle[name][row] >= amount)
            for name, amount in cls.needs
        )
        if fits:
            score = int(plugin(kind).node_order(cls, Rows(room, np.array([row]), cls))[0])
            if best is None or score > best[0]:
                best = (score, row)
    return best[1] if best is not None else None


def test_pods_is_a_dimension_like_the_others() -> None:
    model = world(queue(), node("n1", "8", pods="3"), [pod(f"p{at}", "0") for at in range(2)])
    cls: Any = model.tasks["ns/p0"].cls
    room = NodeResources(model.table)
    assert len(NodeRankings(room, [], [], "none").of(cls, When.NOW).choose(9)) == 3
