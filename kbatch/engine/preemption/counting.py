"""How many of a list of candidates must go at least before, by counting, there could be room for what is to be placed.

Nothing is evicted for it. What the candidates hold is added to the room of their nodes, and it is counted how many pods
of each class that would hold, each class by itself, and as far as these keep apart from one another or spread. Where it
is not enough, no placement is found; where it is, one has to be tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from kbatch.engine.placement.enough import would_do
from kbatch.engine.placement.kinds import counts_of
from kbatch.engine.placement.set_room import most_anywhere
from kbatch.engine.plugin import DomainLimit
from kbatch.engine.preemption.candidates import Candidate, holding
from kbatch.engine.preemption.goal import Attempt
from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import TaskClass

_Free: TypeAlias = dict[str, Column]


class Counting:
    """One list of candidates, none of which is evicted now, for the goal of an attempt that has placed nothing."""

    def __init__(self, attempt: Attempt, candidates: Sequence[Candidate]) -> None:
        rankings, job, single = attempt.context.rankings, attempt.statement.job, attempt.goal.single
        self._job = job
        self._single = single.cls if single is not None else None
        self._counts = counts_of(job) if single is None else [(single.cls, single.role, 1)]
        self._classes = list(dict.fromkeys(cls for cls, _, _ in self._counts))
        self._allowed = {cls.id: rankings.static(cls)[0] for cls in self._classes}
        self._most = {cls.id: sum(n for each, _, n in self._counts if each is cls) for cls in self._classes}
        self._candidates = candidates
        self._sums = bool(attempt.goal.bounds)
        room = attempt.statement.session.room
        for cls in self._classes:
            room.ensure(cls)
        free: _Free = {name: room.future[name] for cls in self._classes for name, _ in cls.needs}
        self._now = {cls.id: self._fitting(cls, self._allowed[cls.id], free) for cls in self._classes}
        self._heeded = self._lay_out(attempt, list(free))
        self._free: _Free = {name: column[self._rows] for name, column in free.items()}
        self._limits: dict[int, list[DomainLimit]] = {
            cls.id: rankings.domain_limits(cls, [each for each in self._classes if each is not cls])
            if not self._heeded else []
            for cls in self._classes
        }  # fmt: skip

    def _lay_out(self, attempt: Attempt, names: Sequence[str]) -> set[int]:
        """What the candidates hold, pod by pod: the candidate's number, the row, and by dimension how much. Returns the
        numbers of those that the goal's pods heed where they stand.
        """
        rankings, row_of = attempt.context.rankings, attempt.statement.session.nodes.row
        heeds: dict[int, bool] = {}
        heeded: set[int] = set()
        numbers: list[int] = []
        rows: list[int] = []
        held: list[TaskClass] = []
        for at, candidate in enumerate(self._candidates):
            tasks = (candidate.task,) if candidate.task is not None else holding(candidate.job)
            for task in tasks:
                cls, row = task.cls, row_of.get(task.node, -1)
                if cls.id not in heeds:
                    heeds[cls.id] = any(rankings.heeds(each, cls) for each in self._classes)
                if heeds[cls.id]:
                    heeded.add(at)
                if row >= 0:
                    numbers.append(at)
                    rows.append(row)
                    held.append(cls)
        self._number: Index = np.array(numbers, np.intp)
        self._row: Index = np.array(rows, np.intp)
        self._rows, self._place = np.unique(self._row, return_inverse=True)
        needs = {cls.id: dict(cls.needs) for cls in held}
        self._amounts = {name: np.array([needs[cls.id].get(name, 0) for cls in held], np.float64) for name in names}
        return heeded

    def least(self, more_than: int = 0) -> int | None:
        """The fewest of the first candidates, more than so many, that could be enough; None: not even all are."""
        if not self._enough(self._first(len(self._candidates))):
            return None
        return self._fewest(more_than, len(self._candidates), ())

    def needed(self, count: int) -> list[Candidate]:
        """Of the first candidates, so many, which could be enough, some of which none can be spared: the first, as far
        as they serve.
        """
        kept: list[int] = []
        while not self._enough(self._some(kept)):
            count = self._fewest(0, count, kept)
            kept.append(count - 1)
        return [self._candidates[at] for at in sorted(kept)]

    def useful(self, count: int) -> list[Candidate]:
        """Of the first candidates, so many, those that may make a difference: on their rows there is room for more pods
        once these have gone, or the pods heed them, or a sum is to be freed as well.
        """
        if self._sums:
            return list(self._candidates[:count])
        first = self._first(count)
        gains = np.logical_or.reduce([column > self._now[cls] for cls, column in self._without(first).items()])
        gaining = set(self._number[first][gains[self._row[first]]].tolist())
        useful = gaining | self._heeded
        return [candidate for at, candidate in enumerate(self._candidates[:count]) if at in useful]

    def _fewest(self, low: int, high: int, besides: Sequence[int]) -> int:
        """The fewest of the first candidates, above `low` and at most `high`, that are enough with some others."""
        others = self._some(besides)
        while high - low > 1:
            middle = (low + high) // 2
            enough = self._enough(self._first(middle) | others)
            low, high = (low, middle) if enough else (middle, high)
        return high

    def _first(self, count: int) -> Mask:
        """The pods of so many of the first candidates."""
        found: Mask = self._number < count
        return found

    def _some(self, numbers: Sequence[int]) -> Mask:
        """The pods of the candidates of these numbers."""
        return np.isin(self._number, np.array(numbers, np.intp))

    def _enough(self, pods: Mask) -> bool:
        """Whether it could be enough with these pods gone."""
        most: dict[int, int] = {}
        for cls, column in self._without(pods).items():
            most[cls] = min([int(column.sum()), *(most_anywhere(column, limit) for limit in self._limits[cls])])
        if self._single is not None:
            return most[self._single.id] > 0
        return would_do(lambda cls: most[cls.id], self._counts, self._job)

    def _without(self, pods: Mask) -> dict[int, Column]:
        """By class how many of its pods each row would hold with these pods gone; counted where candidates stand."""
        place = self._place[pods]
        free: _Free = {}
        for name, column in self._free.items():  # as floats, sums of what stands on one node are exact
            free[name] = column + np.bincount(place, self._amounts[name][pods], len(column)).astype(np.int64)
        found: dict[int, Column] = {}
        for cls in self._classes:
            fitting = self._now[cls.id].copy()
            fitting[self._rows] = self._fitting(cls, self._allowed[cls.id][self._rows], free)
            found[cls.id] = fitting
        return found

    def _fitting(self, cls: TaskClass, allowed: Mask, free: _Free) -> Column:
        """How many pods of a class, no more than there are, these rows hold, of which so much is free."""
        fitting = np.where(allowed, np.int64(self._most[cls.id]), np.int64(0))
        for name, amount in cls.needs:
            np.minimum(fitting, np.maximum(free[name], 0) // amount, out=fitting)
        return fitting
