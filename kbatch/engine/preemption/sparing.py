"""No victim too many among the steps of an action: who need not go after all stays.

The victims of one step are irreducible (`reprieve`). A later step of the same action may evict a larger unit of the
same node, and leave as much room there as an earlier victim holds. So what the steps decide is told when the action
ends, without the evictions of units whose room nobody uses. What the steps have placed stays where it is.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Final, TypeVar

import msgspec

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.plugin import Unit
from kbatch.engine.preemption.candidates import order_of
from kbatch.engine.preemption.sums import promised
from kbatch.engine.session.guarding import attempt
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.model.tasks import Task
from kbatch.resources import Resources, add, add_to

_T = TypeVar("_T")
_PIECE: Final = 4
"""The work that a look at one victim is counted as (see `Pace.due`)."""


class Decided:
    """What the steps of one action have decided so far."""

    def __init__(self, context: CycleContext) -> None:
        self._context = context
        self._session = context.session
        self._found: list[Transaction] = []

    def keeping(self, steps: Generator[Transaction | Turn, None, _T]) -> Generator[Turn, None, _T]:
        """Take the steps, and keep what they decide."""
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: _T = end.value
                return result
            if isinstance(step, Transaction):
                self._found.append(self._context.hourly.telling(step))
            else:
                yield step

    def telling(self) -> Generator[Transaction | Turn, None, bool]:
        """Tell all of it, without the evictions of units that can stay; whether there are any. Room that is set aside
        counts as used.
        """
        stay: set[str] = set()
        failed = any(found.job in self._session.failed for found in self._found)  # its victims may go for nobody
        # Where starts are planned these may count on the room.
        if (len(self._found) > 1 or failed) and self._context.planned is None:
            for unit in self._units():
                if self._session.due(_PIECE * len(unit.tasks)):
                    yield TURN
                if unit.job.possible and attempt(self._session, unit.job, partial(self._stays, unit), False):
                    stay.update(task.key for task in unit.tasks)
        for found in self._found:
            left = tuple([gone for gone in found.evictions if gone.pod not in stay])
            if len(left) < len(found.evictions):
                found = msgspec.structs.replace(found, evictions=left)
            if left or found.binds or found.nominations:
                yield found
        self._found.clear()
        return bool(stay)

    def _stays(self, unit: Unit) -> bool:
        """Take the unit's evictions back, if it can stay; whether they were."""
        if not self._can_stay(unit):
            return False
        statement = Statement(self._session, unit.job)
        for task in unit.tasks:
            statement.take_back(task)
        return True

    def _units(self) -> list[Unit]:
        """What was evicted, by what goes together; those that cost most first. None of the beneficiaries' own."""
        session, tasks = self._session, self._session.model.tasks
        gone: dict[str, list[Task]] = {}
        own: set[str] = set()
        for found in self._found:
            for eviction in found.evictions:
                task = tasks[eviction.pod]
                gone.setdefault(task.job, []).append(task)
                if task.job == found.job:
                    own.add(task.job)
        units: list[Unit] = []
        for key, those in gone.items():
            job = session.job(key)
            if key in own or not job.possible:
                continue
            whole = job.job.gang and (job.bound < job.minimum or not job.whole)
            for some in (those,) if whole else [[task] for task in those]:
                request = add(*(task.cls.request for task in some))
                units.append(Unit(job, tuple(some), whole=whole, request=request))
        units.sort(key=order_of, reverse=True)
        return units

    def _can_stay(self, unit: Unit) -> bool:
        """Whether its room is free now, on the very nodes, and no sum would be passed with it there."""
        session = self._session
        if session.whole_nodes.active:
            return False
        needs: dict[int, Resources] = {}
        for task in unit.tasks:
            row = session.nodes.row.get(task.node, -1)
            if row < 0:
                return False
            session.room.ensure(task.cls)
            add_to(needs.setdefault(row, {}), dict(task.cls.needs))
        future = session.room.future
        if any(future[name][row] < amount for row, need in needs.items() for name, amount in need.items()):
            return False
        return self._within(unit) and not self._heeded(unit)

    def _heeded(self, unit: Unit) -> bool:
        """Whether it matters to any pod, of the unit or of those that were placed, which others stand where."""
        rankings = self._context.rankings
        classes = {task.cls.id: task.cls for task in unit.tasks}
        for job in self._beneficiaries():
            for task, _ in (*job.placed.values(), *job.nominated.values()):
                classes[task.cls.id] = task.cls
        return any(map(rankings.stepwise, classes.values()))

    def _within(self, unit: Unit) -> bool:
        """Whether the queue may hold the unit beside what was placed, and what others were promised is left to them."""
        session = self._session
        queue = session.queues.get(unit.job.queue)
        if queue is None or self._limited(queue, unit):
            return False
        if queue.record.evictions_per_hour is not None:
            return False  # the later transactions say how many groups of the queue went before
        for job in self._beneficiaries():
            if any(bound(unit.request) for bound in promised(self._context, job, sorted(unit.request))):
                return False
        return True

    def _limited(self, queue: QueueState, unit: Unit) -> bool:
        """Whether some limit refuses one of its pods beside those before it."""
        job, counted = unit.job, list[Task]()
        try:
            for task in unit.tasks:
                if any(limit.headroom(job, task) == 0 for limit in self._session.limits):
                    return True
                job.count(task, 1)
                queue.add(task.cls.request, 1, ends=job.ends)
                counted.append(task)
            return False
        finally:
            for task in counted:
                job.count(task, -1)
                queue.add(task.cls.request, -1, ends=job.ends)

    def _beneficiaries(self) -> list[JobState]:
        return [self._session.job(key) for key in dict.fromkeys(found.job for found in self._found)]
