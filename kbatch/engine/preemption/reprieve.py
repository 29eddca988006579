"""No victim too many: of the units chosen for a plan, those go free without which the step can still be taken."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

import numpy as np

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.capacity import fitting_on
from kbatch.engine.plugin import Unit
from kbatch.engine.preemption.candidates import order_of
from kbatch.engine.preemption.goal import Attempt
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.minimum import unplaced
from kbatch.model.nodes import Column, exact_sum
from kbatch.model.tasks import Task
from kbatch.resources import PODS, Resources, add

_AT_ONCE: Final = 400
"""So many steps are undone or done again between two turns: a few milliseconds."""


def reprieve(attempt: Attempt, units: Sequence[Unit]) -> Generator[Turn, None, list[Unit]]:
    """Drop every unit without which the goal can still be reached, those that cost most first; returns the others.

    In the end none of those left can be left out: where one was dropped, the others are tried again. The statement
    holds the plan with those that are left.
    """
    if not units:
        return []
    statement = attempt.statement
    due = statement.session.due
    steps = statement.recorded()
    yield from _undoing(statement)
    slack = _Slack(attempt)
    yield from slack.evicting(units)
    needed = sorted(units, key=order_of, reverse=True)
    found = True
    while found:
        found = False
        whole = {unit.job.key for unit in needed if unit.whole}
        for unit in list(needed):
            if due():
                yield TURN
            if not unit.whole and unit.job.key in whole:
                continue  # it is the rest of a group that goes as a whole
            if not slack.without(unit):
                continue
            trial = [other for other in needed if other is not unit]
            if (yield from attempt.works(trial)):
                needed, found = trial, True
                slack.drop(unit)
                steps = statement.recorded()
                whole = {unit.job.key for unit in needed if unit.whole}
            yield from _undoing(statement)
            yield TURN
    for at in range(0, len(steps), _AT_ONCE):
        if at:
            yield TURN
        statement.replay(steps[at : at + _AT_ONCE])
    return needed


def _undoing(statement: Statement) -> Generator[Turn, None, None]:
    """Undo all steps of the statement; in pieces."""
    while len(statement) > _AT_ONCE:
        statement.rollback(len(statement) - _AT_ONCE)
        yield TURN
    statement.rollback()


class _Slack:
    """How much of what is asked for there would be room for with the units gone: a quick no for most of them.

    Of one class it counts the pods that would fit. Of several it adds up, dimension by dimension, the room of the rows
    on which any of them would, and compares with the least that the step asks for. It never says no to a unit that can
    be left out: what else keeps pods from a row only makes it less. Where groups share nodes with nobody it says
    nothing.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._session = attempt.statement.session

    def evicting(self, units: Sequence[Unit]) -> Generator[Turn, None, None]:
        """Count with these gone; in pieces. Leaves no trace."""
        attempt, session = self._attempt, self._session
        context, statement, single = attempt.context, attempt.statement, attempt.goal.single
        job = statement.job
        self._knows = not session.whole_nodes.active
        if not self._knows:
            return
        tasks = [single] if single is not None else unplaced(job)
        wanted = 1 if single is not None else job.missing()
        self._classes = list({task.cls.id: task.cls for task in tasks}.values())
        self._names = sorted({name for cls in self._classes for name, _ in cls.needs})
        among = statement.rows(tasks[0]) if not job.job.roles and len(self._classes) == 1 else None
        self._allowed = [context.rankings.static(cls)[0] for cls in self._classes]
        if among is not None:
            self._allowed = [allowed & among for allowed in self._allowed]
        for cls in self._classes:
            session.room.ensure(cls)
        for unit in units:
            attempt.evict((unit,))
            if session.due(1 + 2 * len(unit.tasks)):
                yield TURN
        self._room: dict[str, Column] = {name: session.room.future[name].copy() for name in self._names}
        yield from _undoing(statement)
        self._least = [wanted] if len(self._classes) == 1 else [_least(tasks, name, wanted) for name in self._names]
        self._worth = self._worths(wanted)
        self._total = [exact_sum(column) for column in self._worth]

    def _worths(self, wanted: int) -> list[Column]:
        """For each row how many pods of the only class it would hold; or what it has of each dimension."""
        fits = np.zeros(len(self._session.nodes), np.bool_)
        count: Column = np.zeros(len(fits), np.int64)
        for cls, allowed in zip(self._classes, self._allowed, strict=True):
            count = fitting_on(cls.needs, allowed, self._room, wanted)
            fits |= count > 0
        if len(self._classes) == 1:
            return [count]
        return [np.where(fits, np.maximum(self._room[name], 0), np.int64(0)) for name in self._names]

    def without(self, unit: Unit) -> bool:
        """Whether there might be room enough were the unit to stay."""
        if not self._knows:
            return True
        left = list(self._total)
        for row, worth in self._left(unit).items():
            for at, amount in enumerate(worth):
                left[at] -= int(self._worth[at][row]) - amount
        return all(amount >= least for amount, least in zip(left, self._least, strict=True))

    def drop(self, unit: Unit) -> None:
        """The unit stays."""
        if not self._knows:
            return
        for row, worth in self._left(unit).items():
            for at, amount in enumerate(worth):
                self._total[at] -= int(self._worth[at][row]) - amount
                self._worth[at][row] = amount
        for row, gives in self._gives(unit).items():
            for name, column in self._room.items():
                column[row] -= gives.get(name, 0)

    def _gives(self, unit: Unit) -> dict[int, Resources]:
        found: dict[int, Resources] = {}
        for task in unit.tasks:
            row = self._session.nodes.row.get(task.node, -1)
            if row >= 0:
                found[row] = add(found.get(row, {}), task.cls.request, {PODS: 1})
        return found

    def _left(self, unit: Unit) -> dict[int, list[int]]:
        """For each row of the unit what it would be worth were the unit to stay."""
        found: dict[int, list[int]] = {}
        for row, gives in self._gives(unit).items():
            room = {name: max(0, int(column[row]) - gives.get(name, 0)) for name, column in self._room.items()}
            counts = [
                min(room[name] // amount for name, amount in cls.needs) if allowed[row] else 0
                for cls, allowed in zip(self._classes, self._allowed, strict=True)
            ]
            if len(counts) == 1:
                found[row] = [min(counts[0], int(self._worth[0][row]))]
            else:
                found[row] = [room[name] if any(counts) else 0 for name in self._names]
        return found


def _least(tasks: Sequence[Task], name: str, count: int) -> int:
    """What so many of the tasks ask for of a dimension at least."""
    return sum(sorted(dict(task.cls.needs).get(name, 0) for task in tasks)[:count])
