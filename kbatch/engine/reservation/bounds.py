"""A quick no while the instants are gone through at which a job might start: how many of its pods have room at most.

From one instant to the next only rows on which something ends can take more; all others take as many as before, or
fewer, as more of what is planned falls into the time in which the job would run. So at each instant only those rows are
looked at again, and where the sum is too small nothing needs to be placed on trial.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kbatch.engine.placement.kinds import Kind, kinds_of
from kbatch.engine.placement.ranking import NodeRankings
from kbatch.engine.reservation.ends import Ends
from kbatch.engine.reservation.kept import PlannedStart, kept_of
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import shortfalls
from kbatch.model.nodes import Column


class Bounds:
    """Of one job; the session is at the instant that is asked about.

    Args:
        rankings: of the nodes.
        ends: what ends.
        others: the planned starts that the job could meet.
    """

    def __init__(self, rankings: NodeRankings, ends: Ends, job: JobState, others: Iterable[PlannedStart]) -> None:
        self._rankings = rankings
        self._ends = ends
        self._job = job
        self._kinds = kinds_of(job)
        self._most: list[Column] = []
        self._sums: list[int] = []
        self._by_row: dict[int, list[PlannedStart]] = {}
        for start in others:
            for row in start.needs:
                self._by_row.setdefault(row, []).append(start)

    def could(self, at: int, until: int | None, rows: Sequence[int]) -> bool:
        """Whether the job might have room from an instant on until another (None: for ever), where since it was asked
        last something has ended on these rows alone.
        """
        if not self._most:
            self._most = [self._of_all(kind) for kind in self._kinds]
            self._sums = [int(column.sum()) for column in self._most]
            rows = list(self._by_row)
        for row in dict.fromkeys(rows):
            some = [start for start in self._by_row.get(row, ()) if _meets(start, at, until)]
            kept = kept_of(some, row, at, self._ends.all_on(row)) if some else {}
            for kind, column, number in zip(self._kinds, self._most, range(len(self._sums)), strict=True):
                now = self._of_row(kind, row, kept)
                self._sums[number] += now - int(column[row])
                column[row] = now
        return self._enough()

    def _enough(self) -> bool:
        placeable: dict[str, int] = {}
        for kind, there in zip(self._kinds, self._sums, strict=True):
            placeable[kind.role] = placeable.get(kind.role, 0) + min(len(kind.tasks), there)
        if any(role is not None and placeable.get(role, 0) < count for role, count in shortfalls(self._job)):
            return False
        return sum(placeable.values()) >= self._job.missing()

    def _of_all(self, kind: Kind) -> Column:
        """How many pods of a kind each row has room for, were nothing planned."""
        room = self._rankings.room
        room.ensure(kind.cls)
        found = np.where(self._rankings.static(kind.cls)[0], np.int64(len(kind.tasks)), np.int64(0))
        for name, amount in kind.cls.needs:
            np.minimum(found, np.maximum(room.future[name], 0) // amount, out=found)
        return found

    def _of_row(self, kind: Kind, row: int, kept: dict[str, int]) -> int:
        if not self._rankings.static(kind.cls)[0][row]:
            return 0
        future = self._rankings.room.future
        least = min((int(future[name][row]) - kept.get(name, 0)) // amount for name, amount in kind.cls.needs)
        return max(0, min(len(kind.tasks), least))


def _meets(start: PlannedStart, at: int, until: int | None) -> bool:
    """Whether a job that runs from `at` to `until` is there at a time for which the start is planned."""
    ended = start.until is not None and start.until <= at
    return not ended and (start.at is None or until is None or until > start.at)
