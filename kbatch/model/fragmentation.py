"""Fragmentation: the part of what is idle that the pods that wait cannot use.

Of one class of pods: those would use of a node what as many of them ask for as have room there, were no others in the
way, and nothing of a node where they may not stand. Fragmentation of a resource is one less the part of all that is
idle that a class would use, the mean over the classes that wait and ask for the resource. Of a resource that nobody who
waits asks for, or of which nothing is idle, nothing is said. What a class asks of nodes counts as for shares: labels
and taints, not other pods.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from fractions import Fraction
from typing import Final

import numpy as np

from kbatch.model.jobs import Job
from kbatch.model.node_classes import usable
from kbatch.model.nodes import Column, Mask, NodeTable, exact_sum
from kbatch.model.tasks import TaskClass, counted
from kbatch.resources import CPU, PODS

MOST_CLASSES: Final = 64
"""Of more classes those count of which the most pods wait."""
_AT_ONCE: Final = 200
"""So many groups are looked at between two turns."""


def counts(name: str) -> bool:
    """Whether the resource is of those that fragmentation is told of: cpu, and extended ones such as GPUs."""
    return name == CPU or "/" in name


class Mix:
    """Which classes the pods that wait are of. Remembers each group's until the group changes."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, dict[TaskClass, int]]] = {}

    def looking(self, live: Mapping[str, Job]) -> Generator[None, None, list[TaskClass]]:
        """The classes of the groups' waiting pods, those of the most pods first, in pieces; no more than counts."""
        before, self._of = self._of, {}
        found: dict[TaskClass, int] = {}
        for at, (key, job) in enumerate(list(live.items())):
            if not at % _AT_ONCE:
                yield
            if not job.waiting:
                continue
            known = before.get(key)
            if known is None or known[0] != job.generation:
                known = (job.generation, counted(job.waiting))
            self._of[key] = known
            for cls, count in known[1].items():
                found[cls] = found.get(cls, 0) + count
        return sorted(found, key=lambda cls: (-found[cls], cls.id))[:MOST_CLASSES]


def measuring(table: NodeTable, waiting: list[TaskClass]) -> Generator[None, None, dict[str, Fraction]]:
    """Fragmentation by resource, in pieces: one class between two turns."""
    placeable: Mask = table.open & table.ready & ~table.cordoned
    idle = {name: np.where(placeable, np.maximum(column, 0), 0) for name, column in table.idle.items()}
    total = {name: exact_sum(column) for name, column in idle.items() if counts(name)}
    parts: dict[str, list[Fraction]] = {}
    for cls in waiting:
        asked = [(name, amount) for name, amount in cls.needs if total.get(name)]
        if asked:
            fitting = np.where(usable(table, cls.selection), _fitting(idle, cls, len(table)), 0)
            for name, amount in asked:
                parts.setdefault(name, []).append(1 - Fraction(exact_sum(fitting * amount), total[name]))
        yield
    return {name: sum(each, Fraction(0)) / len(each) for name, each in sorted(parts.items())}


def _fitting(idle: Mapping[str, Column], cls: TaskClass, count: int) -> Column:
    """How many pods of the class each node has room for."""
    least: Column | None = None
    for name, amount in cls.needs:
        column = idle.get(name)
        fitting: Column = column // amount if column is not None else np.zeros(count, np.int64)
        least = fitting if least is None else np.minimum(least, fitting)
    return least if least is not None else np.zeros(count, np.int64)


def opened(table: NodeTable) -> list[str]:
    """The nodes that may be used and hold pods of this scheduler."""
    capacity, idle = table.capacity.get(PODS), table.idle.get(PODS)
    if capacity is None or idle is None:
        return []
    # `capacity` is what nodes offer less what stays of others.
    held = (capacity > idle) & table.open & table.ready & ~table.cordoned
    return [table.names[row] for row in np.flatnonzero(held).tolist()]
