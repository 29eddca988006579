"""In which order nominated pods could take their nodes one after the other.

Pods that heed others are planned in an order, and may not all be valid beside one another once all stand there: of
pods that want the company of their own kind the first may stand alone, and one that spreads over few domains does not
mind who comes after it. The search goes backwards: whoever may stand with all others in their places can come last.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.statement import Statement
from kbatch.model.tasks import Task, TaskClass

_STEPS: Final = 300
"""Tries at most, besides two for each pod; each costs a look at all nodes."""


@dataclass(eq=False, slots=True)
class _Place:
    """Nominated pods of one class and row; they are interchangeable."""

    cls: TaskClass
    row: int
    stepwise: bool
    tasks: list[Task]


def sequence(
    rankings: NodeRankings, statement: Statement, when: When
) -> Generator[Turn, None, list[tuple[Task, int]] | None]:
    """The nominated pods of the statement's job with their rows, in an order in which each may take its row when its
    turn comes, beside all that the session has placed otherwise; None: none was found. Leaves no trace.
    """
    search = _Backwards(rankings, statement, when)
    base = len(statement)
    found = yield from search.run()
    statement.rollback(base)
    return list(reversed(search.last)) if found else None


class _Backwards:
    """One search, depth first: who may come last is taken away, then who may come before that one, and so on."""

    def __init__(self, rankings: NodeRankings, statement: Statement, when: When) -> None:
        self._rankings = rankings
        self._statement = statement
        self._when = when
        self._places = _places(rankings, statement)
        self._left = [len(place.tasks) for place in self._places]
        self._tries = _STEPS + 2 * sum(self._left)
        self.last: list[tuple[Task, int]] = []
        """Those taken away so far with their rows, the last of the order first."""

    def run(self) -> Generator[Turn, None, bool]:
        """Search; whether all can come in turn."""
        seen: set[tuple[int, ...]] = set()
        path: list[tuple[int, int, int]] = []
        stack = [iter(range(len(self._places)))]
        while self._tries > 0:
            at = next(stack[-1], None)
            if at is None:
                stack.pop()
                if not path:
                    return False
                self._put_back(*path.pop())
                continue
            mark = len(self._statement)
            taken = self._take_away(at)
            if not taken:
                continue
            if not any(self._left):
                return True
            path.append((at, mark, taken))
            state = tuple(self._left)
            stack.append(iter(()) if state in seen else iter(range(len(self._places))))
            seen.add(state)
            yield TURN
        return False

    def _take_away(self, at: int) -> int:
        """Take pods of a place away if they may come last of those that are there; how many were."""
        place, left = self._places[at], self._left[at]
        if not left:
            return 0
        count = 1 if place.stepwise else left
        tasks = place.tasks[left - count : left]
        mark = len(self._statement)
        for task in tasks:
            self._statement.withdraw(self._statement.job, task)
        if place.stepwise:
            self._tries -= 1
            if not self._rankings.allows(place.cls, place.row, self._when):
                self._statement.rollback(mark)
                return 0
        self._left[at] -= count
        self.last += [(task, place.row) for task in reversed(tasks)]
        return count

    def _put_back(self, at: int, mark: int, count: int) -> None:
        self._statement.rollback(mark)
        self._left[at] += count
        del self.last[len(self.last) - count :]


def _places(rankings: NodeRankings, statement: Statement) -> list[_Place]:
    """The nominated pods, those who want company first: they come last, and those who ask for nothing come first."""
    found: dict[tuple[int, int], _Place] = {}
    for task, row in statement.job.nominated.values():
        place = found.get((task.cls.id, row))
        if place is None:
            stepwise = rankings.of(task.cls, When.LATER).stepwise
            place = found[task.cls.id, row] = _Place(task.cls, row, stepwise, [])
        place.tasks.append(task)
    return sorted(
        found.values(),
        key=lambda place: (not place.stepwise, not _wants_company(place.cls), place.cls.order, place.row),
    )


def _wants_company(cls: TaskClass) -> bool:
    affinity = cls.spec.affinity
    return affinity is not None and affinity.pod_affinity is not None
