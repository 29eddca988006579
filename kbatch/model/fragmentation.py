"""Fragmentation: the part of what is idle that the pods that wait cannot use.

Of one class of pods: those would use of a node what as many of them ask for as have room there, were no others in the
way, and nothing of a node where they may not stand. Fragmentation of a resource is one less the part of all that is
idle that a class would use, the mean over the classes that wait and ask for the resource. Of a resource that nobody who
waits asks for, or of which nothing is idle, nothing is said. What a class asks of nodes counts as for shares: labels
and taints, not other pods.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Generator, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from kbatch.model.cluster import ClusterModel
from kbatch.model.journal import Journal
from kbatch.model.node_classes import usable
from kbatch.model.nodes import Column, Mask, NodeTable, exact_sum
from kbatch.model.tasks import TaskClass, counted
from kbatch.resources import CPU, PODS

MOST_CLASSES: Final = 64
"""Of more classes those count of which the most pods wait."""
_AT_ONCE: Final = 200
"""So many groups are looked at between two turns."""
_CELLS: Final = 1 << 15
"""So many kinds of pods times nodes are looked at between two turns."""
_MANY: Final = np.iinfo(np.int64).max
_NONE: Final[Mapping[TaskClass, int]] = {}


def counts(name: str) -> bool:
    """Whether the resource is of those that fragmentation is told of: cpu, and extended ones such as GPUs."""
    return name == CPU or "/" in name


class Mix:
    """Which classes the pods that wait are of. Remembers each group's until the group changes."""

    def __init__(self) -> None:
        self._of: dict[str, Mapping[TaskClass, int]] = {}
        self._sums: dict[int, int] = {}
        self._classes: dict[int, TaskClass] = {}
        self._order: list[tuple[int, int]] = []
        """The classes by how many pods of them wait, the most first: that number less than zero, and the class's id."""
        self._first: list[tuple[int, int]] = []
        self._found: list[TaskClass] = []
        """Those that count, and what was last told of them: mostly they are the same as before."""
        self._changes: Journal[str] | None = None
        self._position = 0

    def looking(self, model: ClusterModel) -> Generator[None, None, Sequence[TaskClass]]:
        """The classes of the groups' waiting pods, those of the most pods first, in pieces; no more than counts."""
        live, changes = model.live, model.changes
        changed = changes.since(self._position) if self._changes is changes else None
        if changed is None:
            self._of, self._sums, self._classes, self._order, self._position = {}, {}, {}, [], 0
            changed = list(live)
        # What changes meanwhile is looked at the next time, and what was not looked at as well if this is left off.
        self._changes, position = changes, changes.position
        for at, key in enumerate(dict.fromkeys(changed)):
            if not at % _AT_ONCE:
                yield
            job = live.get(key)
            now: Mapping[TaskClass, int] = counted(job.waiting) if job is not None else _NONE
            before = self._of.pop(key, _NONE)
            if now:
                self._of[key] = now
            for cls in {**before, **now}:
                self._add(cls, now.get(cls, 0) - before.get(cls, 0))
        self._position = position
        first = self._order[:MOST_CLASSES]
        if first != self._first:
            self._first = first
            self._found = [self._classes[number] for _, number in first]
        return self._found

    def _add(self, cls: TaskClass, count: int) -> None:
        """So many more, or fewer, of the class wait."""
        before = self._sums.pop(cls.id, 0)
        if before:
            del self._order[bisect_left(self._order, (-before, cls.id))]
            del self._classes[cls.id]
        if before + count:
            self._sums[cls.id], self._classes[cls.id] = before + count, cls
            insort(self._order, (-before - count, cls.id))


def measuring(table: NodeTable, waiting: Sequence[TaskClass]) -> Generator[None, None, dict[str, Fraction]]:
    """Fragmentation by resource, in pieces: some classes between two turns."""
    placeable: Mask = table.open & table.ready & ~table.cordoned
    idle = {name: np.where(placeable, np.maximum(column, 0), 0) for name, column in table.idle.items()}
    total = {name: amount for name, column in idle.items() if counts(name) and (amount := exact_sum(column))}
    alike: dict[tuple[tuple[tuple[str, int], ...], int], list[TaskClass]] = {}
    for cls in waiting:
        if not cls.request.keys().isdisjoint(total):
            alike.setdefault((cls.needs, cls.selection.id), []).append(cls)
    kinds = list(alike.values())
    used: dict[str, int] = {}
    asking: dict[str, int] = {}
    at_once = max(1, _CELLS // max(1, len(table)))
    for start in range(0, len(kinds), at_once):
        some = kinds[start : start + at_once]
        for name, amounts in _used(table, idle, [kind[0] for kind in some], total).items():
            for kind, taken in zip(some, amounts, strict=True):
                if taken is not None:
                    used[name] = used.get(name, 0) + taken * len(kind)
                    asking[name] = asking.get(name, 0) + len(kind)
        yield
    return {name: 1 - Fraction(used[name], total[name] * count) for name, count in sorted(asking.items())}


def _used(
    table: NodeTable, idle: Mapping[str, Column], classes: list[TaskClass], names: Iterable[str]
) -> dict[str, list[int | None]]:
    """By resource what pods of each class would use of it on all nodes; None of what the class does not ask for."""
    needs = [dict(cls.needs) for cls in classes]
    fitting: Column = np.full((len(classes), len(table)), _MANY)
    for name in sorted({name for each in needs for name in each}):
        asked = np.array([each.get(name, 0) for each in needs], np.int64)[:, None]
        column = idle.get(name, np.zeros(len(table), np.int64))
        np.minimum(fitting, np.where(asked > 0, column // np.maximum(asked, 1), _MANY), out=fitting)
    fitting[~np.array([usable(table, cls.selection) for cls in classes])] = 0
    found: dict[str, list[int | None]] = {}
    for name in names:
        asked = np.array([each.get(name, 0) for each in needs], np.int64)[:, None]
        amounts = fitting * asked
        high, low = (amounts >> 32).sum(axis=1).tolist(), (amounts & 0xFFFFFFFF).sum(axis=1).tolist()
        found[name] = [(high[at] << 32) + low[at] if name in each else None for at, each in enumerate(needs)]
    return found


def opened(table: NodeTable) -> list[str]:
    """The nodes that may be used and hold pods of this scheduler."""
    capacity, idle = table.capacity.get(PODS), table.idle.get(PODS)
    if capacity is None or idle is None:
        return []
    # `capacity` is what nodes offer less what stays of others.
    held = (capacity > idle) & table.open & table.ready & ~table.cordoned
    return [table.names[row] for row in np.flatnonzero(held).tolist()]
