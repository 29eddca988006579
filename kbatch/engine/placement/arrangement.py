"""A bounded search for an arrangement of a gang's minimum where placing it pod by pod, each on its best node, fails.

Depth first over (kind, node): of the kinds that are still wanted the one with the fewest nodes comes first, and nodes
are tried from the fullest to the emptiest, because what is packed tightly leaves the most for the rest. Nodes that no
pod of the gang could tell apart are tried once, and so is each set of placements, however it was reached. The search
ends after a few hundred steps, and only so many gangs of a cycle are searched for; the same world makes the same
steps.

It is not begun where it cannot help: where the room that is there cannot hold the minimum even if every kind were
alone, and where all pods are alike and like pods placed one by one wherever they fit are as many as can be.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.kinds import counts_of, hardest_first, kinds_of, wanted_of
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Column

_WIDTH: Final = 8
"""Nodes of a kind that are tried at most in one place of the search."""

_Move: TypeAlias = tuple[int, int]
"""A kind, by its place in the order, and a row."""


def arranging(rankings: NodeRankings, statement: Statement, when: When, mark: int) -> Generator[Turn, None, bool]:
    """Look for another arrangement of what the statement placed after the mark and what the minimum lacks besides.

    Returns whether there is one, and the minimum complete with it; else the statement is left as it was.
    """
    if _in_order(rankings, statement.job) and len(statement) == mark:
        return False
    steps = statement.recorded()[mark:]
    statement.rollback(mark)
    search = _Search(rankings, statement, when)
    if search.hopeful():
        if rankings.searches <= 0:
            statement.searched = False
        else:
            rankings.searches -= 1
            if (yield from search.run()):
                return True
            statement.rollback(mark)
    statement.replay(steps)
    return False


def account_for(rankings: NodeRankings, statement: Statement, moments: Sequence[When]) -> None:
    """Count the searches that would be made for an empty statement, were it not known that they fail: who is searched
    for must not depend on what is known.
    """
    if rankings.searches <= 0 or _in_order(rankings, statement.job):
        return
    for when in moments:
        if rankings.searches > 0 and _Search(rankings, statement, when).hopeful():
            rankings.searches -= 1


def _in_order(rankings: NodeRankings, job: JobState) -> bool:
    """Whether placing one by one holds as many of the job's tasks as any arrangement does."""
    counts = counts_of(job)
    return not counts or (len(counts) == 1 and rankings.one_by_one(counts[0][0]))


class _Search:
    """One search; `run` leaves what it found in the statement."""

    def __init__(self, rankings: NodeRankings, statement: Statement, when: When) -> None:
        self._rankings = rankings
        self._statement = statement
        self._job = statement.job
        self._when = when
        self._kinds = hardest_first(rankings, statement, kinds_of(self._job))
        self._fits = [rankings.of(kind.cls, when) for kind in self._kinds]
        self._coupled = [rankings.coupled(kind.cls) for kind in self._kinds]
        self._used = [0] * len(self._kinds)
        """How many of each kind are placed."""
        self._choice = sum(len(kind.tasks) for kind in self._kinds) > self._job.missing()
        self._room = statement.session.room
        self._apart = any(self._coupled)
        self._names = sorted({name for kind in self._kinds for name, _ in kind.cls.needs})

    def hopeful(self) -> bool:
        """Whether another arrangement might do where placing one by one did not."""
        return not _in_order(self._rankings, self._job) and self._possible()

    def _possible(self) -> bool:
        """Whether what is wanted would find room were each kind alone with what is placed; true where in doubt."""
        wanted = wanted_of(self._job)
        total = 0
        of_role: dict[str, int] = {}
        for at, kind in enumerate(self._kinds):
            count = self._left(at)
            if count:
                count = min(count, int(self._fits[at].capacity().sum()))
            of_role[kind.role] = of_role.get(kind.role, 0) + count
        for role, count in of_role.items():
            headroom = self._job.role_headroom(role)
            total += count if headroom is None else min(count, headroom)
        if any(of_role.get(role, 0) < least for role, least in wanted.by_role.items()):
            return False
        return total >= self._job.missing()

    def _left(self, at: int) -> int:
        """How many more of a kind there are, within the limits."""
        left = len(self._kinds[at].tasks) - self._used[at]
        headroom = self._statement.headroom(self._kinds[at].tasks[0]) if left else 0
        return left if headroom is None else min(left, headroom)

    def run(self) -> Generator[Turn, None, bool]:
        """Search; whether all is placed."""
        statement = self._statement
        counts: dict[_Move, int] = {}
        seen: set[frozenset[tuple[_Move, int]]] = set()
        stack: list[Iterator[_Move]] = [self._moves()]
        path: list[tuple[int, _Move]] = []
        for _ in range(self._rankings.steps):
            move = next(stack[-1], None)
            while move is None:
                stack.pop()
                if not stack:
                    return False
                mark, (at, row) = path.pop()
                statement.rollback(mark)
                self._used[at] -= 1
                counts[at, row] -= 1
                move = next(stack[-1], None)
            at, row = move
            mark = len(statement)
            task = self._kinds[at].tasks[self._used[at]]
            if not statement.place((task,), (row,), waits=self._when is When.LATER):
                continue
            if not self._job.missing():
                return True
            self._used[at] += 1
            counts[move] = counts.get(move, 0) + 1
            path.append((mark, move))
            state = frozenset((where, count) for where, count in counts.items() if count)
            stack.append(iter(()) if state in seen else self._moves())
            seen.add(state)
            yield TURN
        return False

    def _moves(self) -> Iterator[_Move]:
        """What may be placed next, the most promising first; nothing where what is placed leaves no hope."""
        if not self._possible():
            return
        wanted = wanted_of(self._job)
        open_: list[tuple[int, int, Index]] = []
        for at, kind in enumerate(self._kinds):
            if wanted.of(kind.role) and self._left(at):
                open_rows = self._fits[at].refresh() >= 0
                among = self._statement.rows(kind.tasks[0], waits=self._when is When.LATER)
                rows = np.flatnonzero(open_rows if among is None else open_rows & among)
                if len(rows):
                    open_.append((len(rows), at, rows))
                elif not (self._choice or any(self._coupled)):
                    return  # it never fits again
        open_.sort(key=lambda each: each[:2])
        if not (self._choice or any(self._coupled)):
            open_ = open_[:1]
        for _, at, rows in open_:
            for row in self._promising(at, rows):
                yield at, row

    def _promising(self, at: int, rows: Index) -> Sequence[int]:
        """Of the rows that take a kind those to be tried, in order: the tightest first, alike ones once."""
        room = self._room
        columns = room.idle if self._when is When.NOW else room.future
        tight = np.stack([columns[name][rows] for name in self._names])
        fits = np.stack([fit.key[rows] >= 0 for fit in self._fits])
        apart = self._told_apart(rows) if self._apart else None
        order = np.lexsort((rows, *tight[::-1]))
        found: list[int] = []
        seen: set[tuple[object, ...]] = set()
        for position in order.tolist():
            like: tuple[object, ...] = (tuple(tight[:, position].tolist()), tuple(fits[:, position].tolist()))
            row = int(rows[position])
            if self._apart:
                like = (*like, row if apart is None else tuple(apart[:, position].tolist()))
            if like in seen:
                continue
            seen.add(like)
            found.append(row)
            if len(found) == _WIDTH:
                break
        return found

    def _told_apart(self, rows: Index) -> Column | None:
        """What else the plugins tell rows apart by, for any kind; None: by anything."""
        found: list[Column] = []
        for at, kind in enumerate(self._kinds):
            if self._coupled[at]:
                for plugin in self._rankings.far_predicates(kind.cls):
                    columns = plugin.told_apart(kind.cls)
                    if columns is None:
                        return None
                    found.extend(column[rows] for column in columns)
        return np.stack(found) if found else np.zeros((0, len(rows)), np.int64)
