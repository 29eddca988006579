"""No victim too many in a cycle: who need not go after all stays.

The victims of one step are irreducible (`reprieve`). A later step, of the same action or of another, may evict a larger
unit of the same node, and leave as much room there as an earlier victim holds. And room that a beneficiary was not
given may be left over by those who were to have it. So what the steps decide is told when the actions are over, without
the evictions of units whose room nobody uses. What the steps have placed stays where it is, unless all of it can be
bound to idle room in the same cycle, as the next one would do it, and those who were to go for it can stay then.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.plugin import Unit
from kbatch.engine.preemption.candidates import order_of
from kbatch.engine.preemption.sums import promised
from kbatch.engine.reservation.nominations import moving
from kbatch.engine.session.guarding import attempt, working
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task
from kbatch.resources import Resources, add, add_to

_T = TypeVar("_T")
_PIECE: Final = 4
"""The work that a look at one victim is counted as (see `Pace.due`)."""


class Decided:
    """What steps that evict have decided in this cycle so far, and nobody has been told."""

    def __init__(self, context: CycleContext) -> None:
        self._context = context
        self._session = context.session

    def keeping(self, steps: Generator[Transaction | Turn, None, _T]) -> Generator[Turn, None, _T]:
        """Take the steps, and keep what they decide."""
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                result: _T = end.value
                return result
            if isinstance(step, Transaction):
                self._context.decided.append(self._context.hourly.telling(step))
            else:
                yield step

    def telling(self) -> Iterator[Transaction | Turn]:
        """Tell all of it, when the actions are over, as far as it is still needed."""
        found = self._context.decided
        if found:
            yield from self._moving()
            yield from self.sparing()
            yield from found
            found.clear()

    def sparing(self) -> Generator[Turn, None, bool]:
        """Take back the evictions of units that can stay; whether there are any. What is set aside counts as used."""
        decided, planned = self._context.decided, self._context.planned
        stay: set[str] = set()
        failed = any(found.job in self._session.failed for found in decided)  # its victims may go for nobody
        # Where starts are planned these may count on the room.
        if (len(decided) > 1 or failed) and (planned is None or not planned.starts):
            for unit in self._units(decided):
                if self._session.due(_PIECE * len(unit.tasks)):
                    yield TURN
                if unit.job.possible and attempt(self._session, unit.job, partial(self._stays, unit), False):
                    stay.update(task.key for task in unit.tasks)
        if stay:
            for at, found in enumerate(decided):
                left = tuple([gone for gone in found.evictions if gone.pod not in stay])
                if len(left) < len(found.evictions):
                    decided[at] = msgspec.structs.replace(found, evictions=left)
            decided[:] = [found for found in decided if found.evictions or found.binds or found.nominations]
        return bool(stay)

    def _stays(self, unit: Unit) -> bool:
        """Take the unit's evictions back, if it can stay; whether they were."""
        if not self._can_stay((unit,)):
            return False
        self._take_back((unit,))
        return True

    def _take_back(self, units: Iterable[Unit]) -> None:
        for unit in units:
            statement = Statement(self._session, unit.job)
            for task in unit.tasks:
                statement.take_back(task)

    # --- beneficiaries that need nobody's room ------------------------------------------------------------------------

    def _moving(self) -> Iterator[Turn]:
        """Bind those to idle room who can be, if nobody has to go for them then."""
        context, session = self._context, self._session
        ledger, planned = context.ledger, context.planned
        if session.whole_nodes.active or (planned is not None and planned.keeps):
            return
        by_job: dict[str, list[Transaction]] = {}
        for found in context.decided:
            if found.job:
                by_job.setdefault(found.job, []).append(found)
        ledger.resume()
        for key, those in by_job.items():
            job = session.job(key)
            if session.due():
                yield TURN
            if job.possible and job.nominated and any(found.evictions for found in those):
                if planned is not None:
                    planned.lay(job)
                lifted = ledger.lift(job)
                yield from working(session, job, partial(self._move, job, those), None)
                if lifted:
                    ledger.lay()
        ledger.end()
        if planned is not None:
            planned.lift()

    def _move(self, job: JobState, those: Sequence[Transaction]) -> Generator[Turn, None, None]:
        """The same for one of them, whose part these are in what was decided."""
        units = self._units(those)
        if sum(len(unit.tasks) for unit in units) < sum(len(found.evictions) for found in those):
            return
        told = {each.pod for found in those for each in found.nominations}
        waiting = [(task, row) for task, row in job.nominated.values() if not job.whole or task.key in told]
        statement = yield from moving(self._session, self._context.rankings, job, waiting)
        if statement is None:
            return
        if not self._can_stay(units):
            statement.rollback()
            return
        self._take_back(units)
        decided = self._context.decided
        decided[:] = [found for found in decided if found.job != job.key]
        decided.extend(statement.commit())

    # --- who can stay -------------------------------------------------------------------------------------------------

    def _units(self, decided: Iterable[Transaction]) -> list[Unit]:
        """What these evict, by what goes together; those that cost most first. None of the beneficiaries' own."""
        session, tasks = self._session, self._session.model.tasks
        gone: dict[str, list[Task]] = {}
        own: set[str] = set()
        for found in decided:
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

    def _can_stay(self, units: Sequence[Unit]) -> bool:
        """Whether their room is free now, on the very nodes, and no sum would be passed with them there."""
        session = self._session
        if session.whole_nodes.active:
            return False
        needs: dict[int, Resources] = {}
        for unit in units:
            for task in unit.tasks:
                row = session.nodes.row.get(task.node, -1)
                if row < 0:
                    return False
                session.room.ensure(task.cls)
                add_to(needs.setdefault(row, {}), dict(task.cls.needs))
        future = session.room.future
        if any(future[name][row] < amount for row, need in needs.items() for name, amount in need.items()):
            return False
        return self._within(units) and not self._heeded(units)

    def _heeded(self, units: Iterable[Unit]) -> bool:
        """Whether it matters to any pod, of the units or of those that were placed, which others stand where."""
        rankings = self._context.rankings
        classes = {task.cls.id: task.cls for unit in units for task in unit.tasks}
        for job in self._beneficiaries():
            for task, _ in (*job.placed.values(), *job.nominated.values()):
                classes[task.cls.id] = task.cls
        return any(map(rankings.stepwise, classes.values()))

    def _within(self, units: Sequence[Unit]) -> bool:
        """Whether the queues may hold the units beside what was placed, and others are left what they were promised."""
        for queue in [self._session.queues.get(unit.job.queue) for unit in units]:
            if queue is None or queue.record.evictions_per_hour is not None:
                return False  # the later transactions say how many groups of the queue went before
            if queue.record.excess_budget is not None and self._session.plugins.charged_now(queue.name):
                return False  # what that is, was judged without them
        if self._limited(units):
            return False
        request = add(*(unit.request for unit in units))
        for job in self._beneficiaries():
            others = self._context.ledger.promised_to_others(job, surplus=True)
            if any(bound(request) for bound in promised(self._context, others, sorted(request))):
                return False
        return True

    def _limited(self, units: Iterable[Unit]) -> bool:
        """Whether some limit refuses one of their pods beside those before it."""
        session, counted = self._session, list[tuple[JobState, Task]]()
        try:
            for unit in units:
                for task in unit.tasks:
                    if any(limit.headroom(unit.job, task) == 0 for limit in session.limits):
                        return True
                    self._count(unit.job, task, 1)
                    counted.append((unit.job, task))
            return False
        finally:
            for job, task in counted:
                self._count(job, task, -1)

    def _count(self, job: JobState, task: Task, sign: int) -> None:
        job.count(task, sign)
        self._session.queues[job.queue].add(task.cls.request, sign, ends=job.ends)

    def _beneficiaries(self) -> list[JobState]:
        return [self._session.job(key) for key in dict.fromkeys(found.job for found in self._context.decided)]
