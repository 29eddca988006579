"""The dimension in which nodes fall short of what some tasks ask for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbatch.engine.state.node_resources import NodeResources
from kbatch.model.nodes import Column, Mask, NodeTable, exact_sum
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import scale, total


def shortage(table: NodeTable, room: NodeResources, tasks: Sequence[Task]) -> tuple[str, int]:
    """`shortage_of` these tasks."""
    counts: dict[TaskClass, int] = {}
    for task in tasks:
        counts[task.cls] = counts.get(task.cls, 0) + 1
    return shortage_of(table, room, list(counts.items()))


def shortage_of(table: NodeTable, room: NodeResources, pods: Sequence[tuple[TaskClass, int]]) -> tuple[str, int]:
    """The dimension that is shortest for these pods over all nodes, relative to what they ask, and by how much.

    Pods that are larger than any node do not count while there are others: more room of the same kind is none for them.
    """
    usable = table.open & table.ready & ~table.cordoned
    asked = total(scale(cls.request, count) for cls, count in pods if _some_node_holds(table, usable, cls))
    worst: tuple[float, str, int] = (0.0, "", 0)
    for name in sorted(asked):
        idle = room.idle.get(name)
        free = exact_sum(np.maximum(idle, 0)[usable]) if idle is not None else 0
        missing = asked[name] - free
        if missing > 0 and missing / asked[name] > worst[0]:
            worst = (missing / asked[name], name, missing)
    if not worst[1]:
        # No sum is short: room is there, but not in pieces that are large enough.
        for name in sorted(total(cls.request for cls, _ in pods)):
            column = room.idle.get(name)
            pieces = np.maximum(column, 0)[usable] if column is not None else np.zeros(0, np.int64)
            most = int(pieces.max()) if len(pieces) else 0
            larger = [(cls, count) for cls, count in pods if cls.request.get(name, 0) > most]
            held = [(cls.request[name], count) for cls, count in larger if _some_node_holds(table, usable, cls)]
            if held:
                return name, _to_be_freed(pieces, held)
            if larger:
                return name, max(cls.request[name] for cls, _ in larger) - most
    return worst[1], worst[2]


def _to_be_freed(pieces: Column, larger: Sequence[tuple[int, int]]) -> int:
    """How much is to become free at the least for pods that are larger than any of these pieces: so large, so many.
    Each gets one of the largest pieces, and what it lacks of its request.
    """
    count = sum(number for _, number in larger)
    asked = sum(amount * number for amount, number in larger)
    return asked - exact_sum(np.sort(pieces)[::-1][:count])


def _some_node_holds(table: NodeTable, usable: Mask, cls: TaskClass) -> bool:
    """Whether any of these nodes, were it empty, would have room for a pod of the class."""
    able = usable
    for name, amount in cls.needs:
        column = table.allocatable.get(name)
        if column is None:
            return False
        able = able & (column >= amount)
    return bool(able.any())
