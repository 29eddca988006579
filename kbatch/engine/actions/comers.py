"""The groups that may come in queue, in the order in which they are asked: a line for each queue.

Those that have a row in the backlog stand there by age; the others are sorted here. There may be very many, of whom
only a few ever get their turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kbatch.engine.actions.places import Order, order_of
from kbatch.engine.carryover.backlog import Backlog, Entry, Index
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.jobs import Job

_AT_ONCE: Final = 256
"""Of so many rows it is looked up at once whether their kinds are left out."""


@dataclass(slots=True)
class Comer:
    """A group that may come in.

    Attributes:
        job: the group. entry: what it asks for, where that is known. fresh: its state, if it has no row.
        again: it was in queue and ran, and stays there if there is room for it.
    """

    job: Job
    entry: Entry | None = None
    fresh: JobState | None = None
    again: bool = False


@dataclass(slots=True)
class Line:
    """The groups of one queue that may come in.

    Attributes:
        fresh: those that have no row, the next one last.
        rows: of the others, in order. There may be very many, of whom only a few ever get their turn. kinds: of each
            of these the number of its kind.
        taken: so many of these have had it.
        ahead: so many were refused of those that had no row.
        peeked: the next one of all, if it was looked at already.
    """

    fresh: list[Comer] = field(default_factory=list)
    rows: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    kinds: Index = field(default_factory=lambda: np.zeros(0, np.intp))
    taken: int = 0
    ahead: int = 0
    peeked: Comer | None = None


class Lines:
    """Makes the lines of one cycle, and takes groups out of them.

    Args:
        ranks: the higher priority comes first, of equal priority who came first; else who came first.
    """

    def __init__(self, session: Session, backlog: Backlog, *, ranks: bool) -> None:
        self._session = session
        self._backlog = backlog
        self.ranks = ranks
        self._out = np.zeros(0, np.bool_)
        """Of each kind whether its rows are in no line any more."""

    def _order(self, comer: Comer) -> Order:
        return order_of(comer.job, ranks=self.ranks)

    def of(self, fresh: list[Comer], rows: Index) -> Generator[Turn, None, dict[str, Line]]:
        """By queue who may come in."""
        backlog = self._backlog
        lines: dict[str, Line] = defaultdict(Line)
        for comer in fresh:
            lines[comer.job.queue].fresh.append(comer)
        for line in lines.values():
            if self._session.due(len(line.fresh)):
                yield TURN
            line.fresh.sort(key=self._order, reverse=True)
        if not len(rows):
            return lines
        chosen = np.zeros(backlog.size, np.bool_)
        chosen[rows] = True
        for number in np.flatnonzero(np.bincount(backlog.queue[rows])).tolist():
            by_age = backlog.by_age(number)
            by_age = by_age[chosen[by_age]]
            if self.ranks:
                by_age = backlog.ranked(by_age)
            line = lines[backlog.entry(int(by_age[0])).job.queue]
            line.rows, line.kinds = by_age, backlog.kind[by_age]
        return lines

    def next(self, line: Line) -> Comer | None:
        """Take the next out of the line; None: nobody is left."""
        if line.peeked is not None:
            comer, line.peeked = line.peeked, None
            return comer
        entry = self._first_row(line)
        if entry is None:
            return line.fresh.pop() if line.fresh else None
        comer = Comer(entry.job, entry)
        if line.fresh and self._order(line.fresh[-1]) < self._order(comer):
            return line.fresh.pop()
        line.taken += 1
        return comer

    def leave_out(self, comer: Comer) -> None:
        """From now on the rows of this one's kind are in no line. It is the oldest of them that was in line: where it
        did not come in by its age, none does.
        """
        backlog = self._backlog
        if not len(self._out):
            self._out = np.zeros(len(backlog.kinds), np.bool_)
        self._out[backlog.kind[backlog.row[comer.job.key]]] = True

    def _first_row(self, line: Line) -> Entry | None:
        """What stands in the first row of the line that is still in use."""
        while line.taken < len(line.rows):
            if len(self._out):
                kinds = line.kinds[line.taken : line.taken + _AT_ONCE]
                skipped = int(self._out[kinds].argmin())  # as long as nobody is found, the first
                if self._out[kinds[skipped]]:
                    line.taken += len(kinds)
                    continue
                line.taken += skipped
            row = int(line.rows[line.taken])
            if self._backlog.lives(row):
                return self._backlog.entry(row)
            line.taken += 1
        return None
