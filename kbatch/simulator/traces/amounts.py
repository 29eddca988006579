"""The timeline of nodes that several pods share: a room is what is free of each dimension on each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kbatch.simulator.traces.cluster import UNLIMITED, Cluster
from kbatch.simulator.traces.jobs import DIMENSIONS, Job, Shape
from kbatch.simulator.traces.timeline import Timeline

Amounts = NDArray[np.int64]
_MANY: Final = 2**31
"""Pods that ask for nothing: as many as anybody wants."""
_FIRST_ROWS: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class Stand:
    """Where a job's pods stand: nodes in rising order, how many on each, and what they take there (by dimension)."""

    nodes: NDArray[np.int64]
    pods: NDArray[np.int64]
    takes: Amounts


class AmountTimeline(Timeline):
    """Rooms are arrays, a row for each dimension that is limited, a column for each node."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        offers = cluster.columns()
        self._dimensions = [at for at in range(len(DIMENSIONS)) if not (offers[at] >= UNLIMITED).any()]
        offers = offers[self._dimensions]
        self._rooms = np.zeros((_FIRST_ROWS, *offers.shape), np.int64)
        self._sums = np.zeros((_FIRST_ROWS, len(offers)), np.int64)
        """What is free on all nodes together."""
        self._rooms[0], self._sums[0] = offers, offers.sum(axis=1)
        self._rows = [0]
        self._spare = list(range(_FIRST_ROWS - 1, 0, -1))

    def room(self, stretch: int) -> Amounts:
        """What is free in a stretch."""
        found: Amounts = self._rooms[self._rows[stretch]].copy()
        return found

    def meet(self, one: Amounts, other: Amounts) -> Amounts:
        """What is free in both."""
        found: Amounts = np.minimum(one, other)
        return found

    def pods(self, room: Amounts, shape: Shape) -> int:
        """How many pods of a shape find room."""
        return int(self._fitting(room, shape).sum())

    def _fitting(self, room: Amounts, shape: Shape) -> NDArray[np.int64]:
        """The same by node."""
        found: NDArray[np.int64] | None = None
        for row, want in enumerate(self._wants(shape)):
            if want:
                these = room[row] // want
                found = these if found is None else np.minimum(found, these)
        return np.full(room.shape[1], _MANY) if found is None else found

    def _wants(self, shape: Shape) -> list[int]:
        return [shape[at] for at in self._dimensions]

    def lowest(self, room: Amounts, job: Job) -> Stand:
        """The lowest nodes, each with as many pods as find room."""
        fitting = self._fitting(room, job.shape)
        before = np.minimum(np.cumsum(fitting), job.tasks)
        pods = np.diff(before, prepend=0)
        nodes = np.flatnonzero(pods)
        return Stand(nodes, pods[nodes], np.outer(self._wants(job.shape), pods[nodes]))

    def levels(self, shape: Shape) -> Sequence[int]:
        """By what is free on all nodes together."""
        wants = np.array(self._wants(shape))
        limited = np.flatnonzero(wants)
        if not len(limited):
            return [_MANY] * len(self.times)
        sums = self._sums[self._rows][:, limited] // wants[limited]
        found: list[int] = sums.min(axis=1).tolist()
        return found

    def runs(self, placed: Stand) -> tuple[int, ...]:
        """Nodes that follow one another with as many pods on each."""
        found: list[int] = []
        for node, pods in zip(placed.nodes.tolist(), placed.pods.tolist(), strict=True):
            if found and found[-1] == pods and found[-3] + found[-2] == node:
                found[-2] += 1
            else:
                found += (node, 1, pods)
        return tuple(found)

    def same(self, one: Stand, other: Stand) -> bool:
        """Whether these are the same nodes with as many pods."""
        return np.array_equal(one.nodes, other.nodes) and np.array_equal(one.pods, other.pods)

    def overlap(self, one: Stand, other: Stand) -> bool:
        """Whether any node is in both."""
        return bool(np.isin(one.nodes, other.nodes, assume_unique=True).any())

    def open(self, begin: int, end: int, placed: Stand) -> bool:
        """Whether there is room for these very pods all the time."""
        rows = self._rows[self.index(begin) : self.index(end - 1) + 1]
        return bool((self._rooms[self._places(rows, placed)] >= placed.takes).all())

    def _places(self, rows: list[int], placed: Stand) -> tuple[NDArray[np.intp], ...]:
        return np.ix_(np.array(rows), np.arange(len(self._dimensions)), placed.nodes)

    def _change(self, first: int, last: int, placed: Stand, *, free: bool) -> None:
        rows = self._rows[first:last]
        sign = 1 if free else -1
        self._rooms[self._places(rows, placed)] += sign * placed.takes
        self._sums[rows] += sign * placed.takes.sum(axis=1)

    def _insert(self, stretch: int) -> None:
        if not self._spare:
            rows = len(self._rooms)
            self._spare = list(range(2 * rows - 1, rows - 1, -1))
            self._rooms = np.concatenate((self._rooms, np.zeros_like(self._rooms)))
            self._sums = np.concatenate((self._sums, np.zeros_like(self._sums)))
        row, before = self._spare.pop(), self._rows[stretch - 1]
        self._rooms[row], self._sums[row] = self._rooms[before], self._sums[before]
        self._rows.insert(stretch, row)

    def _remove(self, first: int, last: int) -> None:
        self._spare += self._rows[first:last]
        del self._rows[first:last]

    def _alike(self, one: int, other: int) -> bool:
        one, other = self._rows[one], self._rows[other]
        return bool(
            np.array_equal(self._sums[one], self._sums[other]) and np.array_equal(self._rooms[one], self._rooms[other])
        )
