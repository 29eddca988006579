"""The candidates that may go for one preemptor, by the node that they would leave, in columns.

An index is the part of a `CandidateTable` that votes let go, with lower bounds of what it costs to make room on a row.
One of tens of thousands of pods is made in a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.preemption.candidate_table import CandidateTable
from kbatch.engine.preemption.candidates import Candidate, Cost
from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import TaskClass

NEVER: Final = -1
"""In the place of a rank: it does not go."""
_MANY: Final = 16
"""One pod of so many that is gone."""
LEAST: Final = -(2**63)
"""In a bound, in the place of a priority: any."""


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Lower bounds of what room costs on rows, least first.

    Attributes:
        rows: those that could be made to take the pod.
        last: for each the entry of the last of the pods that must go at least. rank: of that one. mixed: the first has
            another rank. count: how many must go.
    """

    table: CandidateTable
    rows: list[int]
    last: list[int]
    rank: list[int]
    mixed: list[bool]
    count: list[int]

    def cost(self, at: int) -> Cost:
        """The bound of the row at this place.

        The last of any such set to go comes no earlier than the candidate of that number.
        """
        rank = self.rank[at]
        if self.mixed[at]:
            return rank, 0, LEAST
        priority, *others = self.table.candidates[self.last[at]].order
        return rank, 0, priority, self.count[at], *others


class CandidateIndex:
    """The candidates that may go for a preemptor. Shrinks as pods are evicted."""

    def __init__(self, table: CandidateTable, ranks: Column, rows: int) -> None:
        """`ranks` is by kind how willingly its candidates go (`NEVER`: not at all), `rows` how many rows there are."""
        self.exact = table.exact
        self._table = table
        self._known = table.gone
        self._ranks = ranks
        self._place: Index = np.full(rows, -1, np.intp)
        rank = np.where(table.alive, ranks[table.kind], np.int64(NEVER))
        at = np.flatnonzero(rank != NEVER)
        rank = rank[at]
        if len(rank) and (rank != rank[0]).any():
            order = np.lexsort((rank, table.row[at]))  # stable: of one rank they stay in order
            at, rank = at[order], rank[order]
        self._at: Index = at
        self._rank: Column = rank
        self._lay_out()

    def _lay_out(self) -> None:
        """Where the entries of each row begin, and how many there are."""
        row = self._table.row[self._at]
        self._start: Index = np.flatnonzero(np.concatenate(([True], row[1:] != row[:-1]))) if len(row) else row
        self._index: Index = row[self._start]
        self._size: Index = np.diff(np.append(self._start, len(row)))
        self._place[:] = -1
        self._place[self._index] = np.arange(len(self._index))
        self._columns: dict[str, tuple[Column, Column]] = {}

    def refresh(self, *, at_once: bool) -> None:
        """Leave out the pods that are gone for good, `at_once` or when they are many; before, some bounds are low."""
        if at_once or (self._table.gone - self._known) * _MANY >= len(self._at):
            self._leave_out()

    def _leave_out(self) -> None:
        if self._table.gone == self._known:
            return
        self._known = self._table.gone
        alive = self._table.alive[self._at]
        if not alive.all():
            self._at, self._rank = self._at[alive], self._rank[alive]
            self._lay_out()

    @property
    def empty(self) -> bool:
        """Whether there is no candidate."""
        return not len(self._at)

    @property
    def rows(self) -> list[int]:
        """The rows with candidates, in order."""
        self._leave_out()
        found: list[int] = self._index.tolist()
        return found

    def on(self, row: int) -> list[Candidate]:
        """The candidates on a row, those that go first at the front; some may be gone by now."""
        place = int(self._place[row])
        if place < 0:
            return []
        start = int(self._start[place])
        candidates = self._table.candidates
        return [candidates[at] for at in self._at[start : start + int(self._size[place])].tolist()]

    def order(self, candidate: Candidate) -> tuple[object, ...]:
        """Its place among those that may go."""
        return self.rank(candidate), *candidate.order

    def rank(self, candidate: Candidate) -> int:
        """How willingly it goes, by what was said of its kind."""
        return int(self._ranks[candidate.kind])

    def bound(self, candidates: Sequence[Candidate], count: int) -> Cost:
        """The least that `count` of these, or more, could cost; those that go first stand at the front."""
        last, rank = candidates[count - 1], self.rank(candidates[count - 1])
        if rank != self.rank(candidates[0]):
            return rank, 0, LEAST
        priority, *others = last.order
        return rank, 0, priority, count, *others

    def ordered(self) -> Iterator[Candidate]:
        """All candidates, each once, those that go first at the front; some may be gone by now."""
        self._leave_out()
        order = np.lexsort((self._table.position[self._at], self._rank))
        last: Candidate | None = None
        for at in self._at[order].tolist():
            candidate = self._table.candidates[at]
            if candidate is not last:  # the entries of a group follow one another
                yield candidate
            last = candidate

    def first(self, row: int) -> Cost:
        """The least that any set from the row could cost; empty where there are none."""
        place = int(self._place[row])
        if place < 0:
            return ()
        start = int(self._start[place])
        priority, *others = self._table.candidates[self._at[start]].order
        return int(self._rank[start]), 0, priority, 1, *others

    def preparing(self, classes: Iterable[TaskClass]) -> Iterator[Turn]:
        """Work out what `bounds` will ask for, in pieces."""
        yield TURN
        for name in dict.fromkeys(name for cls in classes for name, _ in cls.needs) if self.exact else ():
            self._column(name)
            yield TURN

    def bounds(self, context: CycleContext, classes: Iterable[TaskClass], among: Mask | None = None) -> Bounds:
        """For each row (of those `among`) that could be made to take a pod of one of the classes, the least that this
        could cost there.

        At least as many pods must go as it takes of the largest to fill the gap.
        """
        least: Column = np.full(len(self._index), 0 if self.exact else 1, np.int64)
        for cls in classes if self.exact else ():
            count, possible = self._counts(context, cls)
            count[~possible] = 0
            least = np.where((least == 0) | ((count > 0) & (count < least)), count, least)
        good = (least > 0) & (least <= self._size)
        if among is not None:
            good &= among[self._index]
        start, least, rows = self._start[good], least[good], self._index[good]
        last, rank = self._at[start + least - 1], self._rank[start + least - 1]
        mixed = rank != self._rank[start]
        table = self._table
        priority = np.where(mixed, np.int64(LEAST), table.priority[last])
        count = np.where(mixed, np.int64(0), least)
        position = np.where(mixed, np.int64(-1), table.position[last])
        order = np.lexsort((rows, position, count, priority, rank))
        return Bounds(
            table, rows[order].tolist(), last[order].tolist(), rank[order].tolist(), mixed[order].tolist(),
            least[order].tolist(),
        )  # fmt: skip

    def _counts(self, context: CycleContext, cls: TaskClass) -> tuple[Column, Mask]:
        """How many pods must go at least, and where that could be enough."""
        index = self._index
        possible: Mask = context.rankings.static(cls)[0][index].copy()
        count: Column = np.ones(len(index), np.int64)
        for name, amount in cls.needs:
            short = amount - context.session.room.future[name][index]
            most, whole = self._column(name)
            possible &= whole >= short
            count = np.maximum(count, -(-short // np.maximum(most, 1)))
        return count, possible

    def gives(self, name: str) -> tuple[Index, Column]:
        """The rows, and for each what its candidates, if they are single pods, give of a dimension together."""
        self._leave_out()
        return self._index, self._column(name)[1]

    def _column(self, name: str) -> tuple[Column, Column]:
        """By row the most that one candidate gives of a dimension, and what all give.

        What stands on a row that is open is at most 2^53 in all; on others nothing is placed.
        """
        found = self._columns.get(name)
        if found is None:
            amounts = self._table.gives(name)[self._at]
            if len(amounts):
                most = np.maximum.reduceat(amounts, self._start)
                found = most, np.add.reduceat(amounts, self._start)
            else:
                found = amounts, amounts
            self._columns[name] = found
        return found
