"""Candidates in columns: those of some queues by node and order, and of these the ones that may go for a preemptor.

A `CandidateTable` holds all candidates, whoever asks. A `CandidateIndex` is the part of it that votes let go, with
lower bounds of what it costs to make room on a row. Both are columns, so that an index of tens of thousands of pods is
made in a few milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.preemption.candidates import Candidate, Cost, rows_of
from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import TaskClass
from kbatch.resources import PODS

_T = TypeVar("_T", bound=tuple[str, int, int])

NEVER: Final = -1
"""In the place of a rank: it does not go."""
_AT_ONCE: Final = 4096
"""So many names are sorted between two turns: a few milliseconds."""
LEAST: Final = -(2**63)
"""In a bound, in the place of a priority: any."""
_NUMBERS: Final = 8
"""So many numbers stand in the order of a single pod before a name, after which comes one more."""


@dataclass(eq=False, slots=True)
class CandidateTable:
    """Entries sorted by row, then by who goes first of those of one rank; a group has one for each of its rows.

    Attributes:
        candidates: of each entry.
        row, kind, priority: of the row, of the candidate, of its job.
        position: of two candidates of one rank that with the smaller position goes first.
        alive: the entry stands; False once its pod is gone for good.
        exact: all candidates are single pods.
    """

    candidates: list[Candidate]
    row: Index
    kind: Column
    priority: Column
    position: Column
    alive: Mask
    exact: bool
    _classes: list[TaskClass | None]
    _class: Index
    _gives: dict[str, Column] = field(default_factory=dict)

    def drop(self, candidate: Candidate) -> None:
        """A pod is gone for good."""
        first, last = np.searchsorted(self.row, (candidate.row, candidate.row + 1)).tolist()
        for at in range(first, last):
            if self.candidates[at] is candidate:
                self.alive[at] = False

    def gives(self, name: str) -> Column:
        """What each entry, if it is a single pod, gives back of a dimension."""
        found = self._gives.get(name)
        if found is None:
            amounts = np.array([gives_of(cls, name) for cls in self._classes], np.int64)
            found = self._gives[name] = amounts[self._class]
        return found

    def with_groups(
        self, groups: Sequence[Candidate], row_of: Mapping[str, int]
    ) -> Generator[Turn, None, CandidateTable]:
        """The same with groups that may go as wholes, each of a kind of its own; in pieces."""
        groups = sorted(groups, key=lambda group: group.order)
        by_position = [self.candidates[at] for at in np.argsort(self.position).tolist()]
        step = len(groups) + 1
        found = list(self.candidates)
        rows, positions = self.row.tolist(), (self.position * step + len(groups)).tolist()
        for number, group in enumerate(groups):
            before = bisect_left(by_position, group.order, key=lambda candidate: candidate.order)
            for row in rows_of(group, row_of):
                found.append(group)
                rows.append(row)
                positions.append(before * step + number)
        alive = np.ones(len(found), np.bool_)
        alive[: len(self.alive)] = self.alive
        order = np.lexsort((positions, rows))
        yield TURN
        table = yield from _table(
            [found[at] for at in order.tolist()], np.array(rows, np.intp)[order], np.array(positions, np.int64)[order]
        )
        table.alive = alive[order]
        return table


def tabulating(candidates: Sequence[Candidate]) -> Generator[Turn, None, CandidateTable]:
    """The table of these single pods; in pieces."""
    count = len(candidates)
    # The later name comes first, and of one name the smaller number.
    named = ((candidate.order, at) for at, candidate in enumerate(candidates))
    names = yield from _sorting([(order[_NUMBERS].name, -order[_NUMBERS + 1], at) for order, at in named])
    order: Index = np.fromiter((at for *_, at in reversed(names)), np.intp, count)
    yield TURN
    for part in reversed(range(_NUMBERS)):
        values = _column([candidate.order[part] for candidate in candidates])
        yield TURN
        if (values[1:] != values[:-1]).any():
            order = order[np.argsort(values[order], kind="stable")]
            yield TURN
    row: Index = np.fromiter((candidate.row for candidate in candidates), np.intp, count)
    position: Column = np.empty(count, np.int64)
    position[order] = np.arange(count)
    order = order[np.argsort(row[order], kind="stable")]
    yield TURN
    return (yield from _table([candidates[at] for at in order.tolist()], row[order], position[order]))


def _table(candidates: list[Candidate], row: Index, position: Column) -> Generator[Turn, None, CandidateTable]:
    count = len(candidates)
    yield TURN
    kind: Column = np.fromiter((candidate.kind for candidate in candidates), np.int64, count)
    yield TURN
    priority: Column = np.fromiter((candidate.order[0] for candidate in candidates), np.int64, count)
    yield TURN
    numbers: dict[TaskClass | None, int] = {}
    of = (candidate.task.cls if candidate.task is not None else None for candidate in candidates)
    each: Index = np.fromiter((numbers.setdefault(cls, len(numbers)) for cls in of), np.intp, count)
    yield TURN
    return CandidateTable(
        candidates, row, kind, priority, position, np.ones(count, np.bool_), None not in numbers, list(numbers), each
    )


def _sorting(items: list[_T]) -> Generator[Turn, None, list[_T]]:
    """The items in order; sorted in pieces, which are then merged in pairs."""
    runs = []
    for at in range(0, len(items), _AT_ONCE):
        runs.append(sorted(items[at : at + _AT_ONCE]))
        yield TURN
    while len(runs) > 1:
        pairs = [runs[at] + runs[at + 1] for at in range(0, len(runs) - 1, 2)]
        for pair in pairs:
            pair.sort()  # it finds the two runs
            yield TURN
        runs = pairs + runs[2 * len(pairs) :]
    return runs[0] if runs else []


def _column(values: list[int]) -> Column:
    """The values, or where they are too large what orders them alike."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        places = {value: place for place, value in enumerate(sorted(set(values)))}
        return np.array([places[value] for value in values], np.int64)


def gives_of(cls: TaskClass | None, name: str) -> int:
    """What a pod of the class gives back of a dimension; nothing is said of a whole group (None)."""
    if cls is None:
        return 0
    return 1 if name == PODS else cls.request.get(name, 0)


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

    def refresh(self) -> None:
        """Leave out the pods that are gone for good."""
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
