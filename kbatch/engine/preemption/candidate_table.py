"""Candidates in columns: those of some queues, whoever asks, by node and in order.

They are put in order once in a run of an action; who of them may go for a preemptor is a selection of the columns
(`CandidateIndex`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Final, TypeAlias, TypeVar

import numpy as np

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.preemption.candidates import Candidate, rows_of
from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import TaskClass
from kbatch.resources import PODS

_V = TypeVar("_V")
_W = TypeVar("_W")

_Named: TypeAlias = tuple[bytes, int, int]

_AT_ONCE: Final = 4096
"""So many candidates are sorted, or looked at, between two turns: a few milliseconds."""
_place_of: Final[Callable[[_Named], int]] = itemgetter(2)
_NUMBERS: Final = 8
"""So many numbers stand in the order of a single pod before a name, after which comes one more."""


@dataclass(eq=False, slots=True)
class CandidateTable:
    """Entries sorted by row, then by who goes first of those of one rank; a group has one for each of its rows.

    Attributes:
        candidates: of each entry.
        row, kind, priority: of the row, of the candidate, of its job.
        position: of two candidates of one rank that with the smaller position goes first.
        alive: the entry stands; False once its pod is gone for good. gone: how many entries do not.
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
    gone: int = 0

    def drop(self, candidate: Candidate) -> None:
        """A pod is gone for good."""
        first, last = np.searchsorted(self.row, (candidate.row, candidate.row + 1)).tolist()
        for at in range(first, last):
            if self.candidates[at] is candidate:
                self.alive[at] = False
                self.gone += 1

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
        all_rows, all_positions = np.array(rows, np.intp), np.array(positions, np.int64)
        order = np.lexsort((all_positions, all_rows))
        yield TURN
        table = yield from _table(found, order, all_rows, all_positions)
        table.alive = alive[order]
        return table


def tabulating(candidates: Sequence[Candidate]) -> Generator[Turn, None, CandidateTable]:
    """The table of these single pods; in pieces."""
    count = len(candidates)
    numbers, names = yield from _parts(candidates)
    order = np.array((yield from _collecting((yield from _sorting(names)), _place_of)), np.intp)
    names.clear()
    yield TURN
    for part in reversed(numbers):
        values = _column(part)
        yield TURN
        if (values[1:] != values[:-1]).any():
            order = order[np.argsort(values[order], kind="stable")]
            yield TURN
    row: Index = np.array((yield from _collecting(candidates, attrgetter("row"))), np.intp)
    position: Column = np.empty(count, np.int64)
    position[order] = np.arange(count)
    yield TURN
    order = order[np.argsort(row[order], kind="stable")]
    return (yield from _table(candidates, order, row, position))


def _table(
    candidates: Sequence[Candidate], order: Index, row: Index, position: Column
) -> Generator[Turn, None, CandidateTable]:
    """The table of these candidates, put in order."""
    entries = yield from _collecting(order.tolist(), candidates.__getitem__)
    kind: Column = np.array((yield from _collecting(entries, attrgetter("kind"))), np.int64)
    priority: Column = np.array((yield from _collecting(entries, _part(0))), np.int64)
    numbers: dict[TaskClass | None, int] = {}
    each = yield from _collecting(entries, lambda entry: numbers.setdefault(_class_of(entry), len(numbers)))
    classes: Index = np.array(each, np.intp)
    yield TURN
    return CandidateTable(
        entries, row[order], kind, priority, position[order], np.ones(len(entries), np.bool_),
        None not in numbers, list(numbers), classes,
    )  # fmt: skip


def _parts(candidates: Sequence[Candidate]) -> Generator[Turn, None, tuple[list[list[int]], list[_Named]]]:
    """By what single pods are put in order: numbers; then the name, the number after it, and the place here."""
    numbers: list[list[int]] = [[] for _ in range(_NUMBERS)]
    names: list[_Named] = []
    for first in range(0, len(candidates), _AT_ONCE):
        orders = [candidate.order for candidate in candidates[first : first + _AT_ONCE]]
        for column, values in zip(numbers, zip(*orders, strict=True), strict=False):
            column.extend(values)
        names.extend([(*order[_NUMBERS:], at) for at, order in enumerate(orders, first)])
        yield TURN
    return numbers, names


def _part(at: int) -> Callable[[Candidate], int]:
    """What asks for one of the numbers by which candidates are put in order."""

    def ask(candidate: Candidate) -> int:
        found: int = candidate.order[at]
        return found

    return ask


def _class_of(candidate: Candidate) -> TaskClass | None:
    return candidate.task.cls if candidate.task is not None else None


def _collecting(items: Sequence[_V], of: Callable[[_V], _W]) -> Generator[Turn, None, list[_W]]:
    """What is asked of each item; in pieces."""
    found: list[_W] = []
    for at in range(0, len(items), _AT_ONCE):
        found.extend(map(of, items[at : at + _AT_ONCE]))
        yield TURN
    return found


def _sorting(items: list[_Named]) -> Generator[Turn, None, list[_Named]]:
    """The items in order; sorted in pieces, which are then merged in pairs."""
    runs = []
    for at in range(0, len(items), _AT_ONCE):
        runs.append(sorted(items[at : at + _AT_ONCE]))
        yield TURN
    while len(runs) > 1:
        pairs: list[list[_Named]] = []
        for at in range(0, len(runs) - 1, 2):
            pair = yield from _merging(runs[at], runs[at + 1])
            pairs.append(pair)
        runs = pairs + runs[2 * len(pairs) :]
    return runs[0] if runs else []


def _merging(one: list[_Named], other: list[_Named]) -> Generator[Turn, None, list[_Named]]:
    """Two runs as one; in pieces of the first, each with what comes before its end in the second."""
    found: list[_Named] = []
    begin = 0
    for at in range(0, len(one), _AT_ONCE):
        piece = one[at : at + _AT_ONCE]
        end = bisect_left(other, piece[-1], begin) if at + _AT_ONCE < len(one) else len(other)
        piece += other[begin:end]
        piece.sort()  # it finds the two runs
        found += piece
        begin = end
        yield TURN
    return found


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
