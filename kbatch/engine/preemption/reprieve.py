"""No victim too many: of the units chosen for a plan, those go free without which the step can still be taken."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.ranking import When
from kbatch.engine.plugin import Unit
from kbatch.engine.preemption.candidates import order_of
from kbatch.engine.preemption.goal import Attempt
from kbatch.engine.state.minimum import unplaced
from kbatch.model.nodes import Column
from kbatch.resources import PODS, Resources, add


def reprieve(attempt: Attempt, units: Sequence[Unit]) -> Generator[Turn, None, list[Unit]]:
    """Drop every unit without which the goal can still be reached, those that cost most first; returns the others.

    In the end none of those left can be left out: where one was dropped, the others are tried again. The statement
    holds the plan with those that are left.
    """
    if not units:
        return []
    statement = attempt.statement
    steps = statement.recorded()
    statement.rollback()
    slack = _Slack(attempt, units)
    needed = sorted(units, key=order_of, reverse=True)
    found = True
    while found:
        found = False
        for unit in list(needed):
            if not unit.whole and any(other.whole and other.job is unit.job for other in needed):
                continue  # it is the rest of a group that goes as a whole
            if not slack.without(unit):
                continue
            trial = [other for other in needed if other is not unit]
            if (yield from attempt.works(trial)):
                needed, found = trial, True
                slack.drop(unit)
                steps = statement.recorded()
            statement.rollback()
            yield TURN
    statement.replay(steps)
    return needed


class _Slack:
    """How many pods of the only class asked for would fit with the units gone: a quick no for most of them.

    It never says no to a unit that can be left out. Of several classes, or of
    pods for which room is not all, it says nothing.
    """

    def __init__(self, attempt: Attempt, units: Sequence[Unit]) -> None:
        context, statement, single = attempt.context, attempt.statement, attempt.goal.single
        session, job = statement.session, statement.job
        self._session = session
        tasks = [single] if single is not None else unplaced(job)
        self._cls = tasks[0].cls
        self._knows = all(task.cls is self._cls for task in tasks)
        fit = context.rankings.of(self._cls, When.LATER)
        self._knows = self._knows and not fit.stepwise and not session.whole_nodes.active
        if not self._knows:
            return
        attempt.evict(units)
        self._wanted: int = 1 if single is not None else job.missing()
        self._room: dict[str, Column] = {name: session.room.future[name].copy() for name, _ in self._cls.needs}
        statement.rollback()
        allowed = context.rankings.static(self._cls)[0]
        among = statement.rows(tasks[0]) if not job.job.roles else None
        if among is not None:
            allowed = allowed & among
        fitting = np.where(allowed, np.int64(self._wanted), np.int64(0))
        for name, amount in self._cls.needs:
            fitting = np.minimum(fitting, np.maximum(self._room[name], 0) // amount)
        self._fitting: list[int] = fitting.tolist()
        self._total: int = sum(self._fitting)

    def without(self, unit: Unit) -> bool:
        """Whether there might be room enough were the unit to stay."""
        if not self._knows:
            return True
        lost = sum(self._fitting[row] - count for row, count in self._left(unit).items())
        return self._total - lost >= self._wanted

    def drop(self, unit: Unit) -> None:
        """The unit stays."""
        if not self._knows:
            return
        for row, count in self._left(unit).items():
            self._total -= self._fitting[row] - count
            self._fitting[row] = count
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

    def _left(self, unit: Unit) -> dict[int, int]:
        """For each row of the unit, how many of the pods fit there were it to stay."""
        found: dict[int, int] = {}
        for row, gives in self._gives(unit).items():
            found[row] = self._fitting[row]
            for name, amount in self._cls.needs:
                room = int(self._room[name][row]) - gives.get(name, 0)
                found[row] = min(found[row], max(0, room) // amount)
        return found
