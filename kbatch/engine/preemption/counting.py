"""How many of a list of candidates must go at least before, by counting, there could be room for what is to be placed.

Nothing is evicted for it. What the candidates hold is added to the room of their nodes, and it is counted how many pods
of each class that would hold, each class by itself, and as far as these keep apart from one another or spread. Where it
is not enough, no placement is found; where it is, one has to be tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from kbatch.engine.placement.capacity import fitting_on
from kbatch.engine.placement.enough import would_do
from kbatch.engine.placement.kinds import counts_of
from kbatch.engine.placement.set_room import in_need, most_anywhere
from kbatch.engine.plugin import DomainLimit
from kbatch.engine.preemption.candidates import Candidate, holding
from kbatch.engine.preemption.goal import Attempt
from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import TaskClass

_Free: TypeAlias = dict[str, Column]

_MANY: Final = 64
"""Of more than so many it is not found out: that would cost more than to try sets that may be too large."""
_FEW: Final = 24
"""Of so few it is asked of each whether it can be spared; else the last that is needed is looked for by halves."""


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
        self._size = len(attempt.statement.session.nodes)
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
        kinds: dict[int, int] = {}
        heeds: list[bool] = []
        classes: list[TaskClass] = []
        heeded: set[int] = set()
        numbers: list[int] = []
        rows: list[int] = []
        kind_of: list[int] = []
        for at, candidate in enumerate(self._candidates):
            single = candidate.task
            for task in (single,) if single is not None else holding(candidate.job):
                cls = task.cls
                kind = kinds.get(cls.id)
                if kind is None:
                    kind = kinds[cls.id] = len(classes)
                    classes.append(cls)
                    heeds.append(any(rankings.heeds(each, cls) for each in self._classes))
                if heeds[kind]:
                    heeded.add(at)
                row = candidate.row if single is not None else row_of.get(task.node, -1)
                if row >= 0:
                    numbers.append(at)
                    rows.append(row)
                    kind_of.append(kind)
        self._number: Index = np.array(numbers, np.intp)
        self._row: Index = np.array(rows, np.intp)
        self._rows, self._place = np.unique(self._row, return_inverse=True)
        needs = [dict(cls.needs) for cls in classes]
        self._amounts = {
            name: np.array([each.get(name, 0) for each in needs], np.float64)[np.array(kind_of, np.intp)]
            for name in names
        }  # fmt: skip
        return heeded

    def least(self, more_than: int = 0) -> int | None:
        """The fewest of the first candidates, more than so many, that could be enough; None: not even all are."""
        low, high = more_than, len(self._candidates)
        if not self._enough(self._first(high)):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._enough(self._first(middle)) else (middle, high)
        return high

    def needed(self, count: int) -> list[Candidate]:
        """Of the first candidates, so many, which could be enough, some of which none can be spared: the first, as far
        as they serve. Nothing where too many may matter.
        """
        among = self._likely(count)
        if not self._enough(self._some(among)):
            among = list(range(count))
        if len(among) > _MANY:
            return []
        if len(among) <= _FEW:
            for at in reversed(among):
                fewer = [other for other in among if other != at]
                if self._enough(self._some(fewer)):
                    among = fewer
            return [self._candidates[at] for at in among]
        kept: list[int] = []
        while not self._enough(self._some(kept)):
            low, high = 0, len(among)
            while high - low > 1:
                middle = (low + high) // 2
                enough = self._enough(self._some([*kept, *among[:middle]]))
                low, high = (low, middle) if enough else (middle, high)
            kept.append(among[high - 1])
            among = among[: high - 1]
        return [self._candidates[at] for at in sorted(kept)]

    def _likely(self, count: int) -> list[int]:
        """The numbers of those of the first candidates on whose rows more pods of a class that is short would stand."""
        first = self._first(count)
        gains: Mask = np.zeros(self._size, np.bool_)
        now = self._together(self._now)
        for cls, column in self._without(first).items():
            if now[cls] < self._most[cls]:
                rows = column > self._now[cls]
                for limit in self._limits[cls]:
                    rows &= in_need(self._now[cls], column, limit)
                gains |= rows
        found: list[int] = np.unique(self._number[first][gains[self._row[first]]]).tolist()
        return found

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

    def _first(self, count: int) -> Mask:
        """The pods of so many of the first candidates."""
        found: Mask = self._number < count
        return found

    def _some(self, numbers: Sequence[int]) -> Mask:
        """The pods of the candidates of these numbers."""
        gone = np.zeros(len(self._candidates), np.bool_)
        gone[np.array(numbers, np.intp)] = True
        found: Mask = gone[self._number]
        return found

    def _enough(self, pods: Mask) -> bool:
        """Whether it could be enough with these pods gone."""
        most = self._together(self._without(pods))
        if self._single is not None:
            return most[self._single.id] > 0
        return would_do(lambda cls: most[cls.id], self._counts, self._job)

    def _together(self, fitting: dict[int, Column]) -> dict[int, int]:
        """By class how many of its pods could be placed at most, where so many fit each row."""
        return {
            cls: min([int(column.sum()), *(most_anywhere(column, limit) for limit in self._limits[cls])])
            for cls, column in fitting.items()
        }

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
        return fitting_on(cls.needs, allowed, free, self._most[cls.id])
