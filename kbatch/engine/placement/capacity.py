"""How many pods of a class each row has room for, kept as rows change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from kbatch.engine.state.node_resources import Index, NodeResources
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import TaskClass

_NONE: Final = np.int64(1 << 62)
"""Stands for the room of a row that takes no pod, where the least is looked for."""
_FEW: Final = 4
"""So few rows are counted one by one in less time than as columns."""


def fitting_on(needs: Iterable[tuple[str, int]], allowed: Mask, free: Mapping[str, Column], most: int) -> Column:
    """How many pods with these needs, up to `most`, each of the rows `allowed` holds, of which so much is free, were no
    others placed.
    """
    fitting: Column = np.where(allowed, np.int64(most), np.int64(0))
    for name, amount in needs:
        column = free[name]
        if not len(column) or int(column.min()) < amount * most:  # else it bounds nothing, as pods mostly do not
            np.minimum(fitting, np.maximum(column, 0) // amount, out=fitting)
    return fitting


class Capacity:
    """The numbers of one class: each as if no other pod was in the way, 0 on rows that are not `allowed`.

    With `now` only room counts that is there already; else also what comes free once what terminates is gone.
    """

    def __init__(self, room: NodeResources, cls: TaskClass, allowed: Mask, *, now: bool) -> None:
        self._room = room
        self._needs = cls.needs
        self._allowed = allowed
        self._now = now
        self._cursor = -1
        self._takes: Column = np.zeros(0, np.int64)
        self._some: Column = self._takes
        """The same, `_NONE` in the place of 0."""

    def each(self) -> Column:
        """By row, as of now; not to be changed, and others after the next change."""
        log = self._room.log
        if self._cursor < len(log):
            changed = set(log[self._cursor :]) if self._cursor >= 0 else set()
            if self._cursor < 0 or len(changed) * 4 > len(self._allowed):
                self._takes = np.where(self._allowed, np.maximum(self.at(slice(None)), 0), np.int64(0))
                self._some = np.where(self._takes > 0, self._takes, _NONE)
            elif len(changed) <= _FEW:
                for row in changed:
                    more = max(0, self._at(row)) if self._allowed[row] else 0
                    self._takes[row], self._some[row] = more, more or _NONE
            else:
                index = np.array(sorted(changed), np.intp)
                takes = np.where(self._allowed[index], np.maximum(self.at(index), 0), np.int64(0))
                self._takes[index], self._some[index] = takes, np.where(takes > 0, takes, _NONE)
            self._cursor = len(log)
        return self._takes

    def least(self) -> Index:
        """Of the rows with room for any those that have the least, in order."""
        self.each()
        least = self._some.min(initial=_NONE)
        return (self._some == least).nonzero()[0] if least < _NONE else np.zeros(0, np.intp)

    def at(self, index: Index | slice) -> Column:
        """The room of some rows, allowed or not, counted anew; below 0 where more is taken than there is."""
        room = self._room
        least: Column | None = None
        for name, amount in self._needs:
            free: Column = room.future[name][index]
            if self._now:
                free = np.minimum(free, room.idle[name][index])
            fitting = free // amount
            least = fitting if least is None else np.minimum(least, fitting)
        return least if least is not None else np.zeros(len(self._allowed[index]), np.int64)

    def _at(self, row: int) -> int:
        """The same of one row."""
        room = self._room
        least: int | None = None
        for name, amount in self._needs:
            free = room.future[name].item(row)
            if self._now:
                free = min(free, room.idle[name].item(row))
            fitting = free // amount
            least = fitting if least is None or fitting < least else least
        return least or 0
