"""enqueue: who comes in queue, so that its pods may be created and placed.

Queues in queue order, first come first served inside a queue; where preempt is configured the higher priority comes
first, for it would evict the other at once. A group that does not fit blocks nobody. What a group
will need at least (its minResources beyond what its pods hold; without minResources, what its pods and templates say)
must fit its queue's capability (less important pods of the queue not counted where preempt can evict them), its
namespace's quotas, and one of: the room that is there less what is promised
already; the queue's deserved share less what it holds and was promised (where reclaim can fetch it); with what less
important pods of its own queue could give (where preempt can).

Groups that wait stand in the backlog. There all of them are compared with the sums at once, and only those that these
would let in are looked at, one by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from kbatch.api import conditions
from kbatch.api.objects import timestamp_us
from kbatch.api.reasons import NotEnoughTasks, Reason
from kbatch.engine.actions.base import Action
from kbatch.engine.admission.demand import Needs, asked_of, needs
from kbatch.engine.admission.sums import Standings, Sums
from kbatch.engine.carryover.backlog import Entry, Index, Standing
from kbatch.engine.carryover.giving import Giving
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Turn
from kbatch.engine.diagnosis.backlog import excess_of, reason_of
from kbatch.engine.diagnosis.verdicts import gates_of
from kbatch.engine.preemption.prospective import foreseen
from kbatch.engine.reservation.ageing import limited, waits_for_room
from kbatch.engine.reservation.clocks import enqueued_since
from kbatch.engine.session.guarding import attempt, working
from kbatch.engine.state.jobs import JobState
from kbatch.model.jobs import Job
from kbatch.resources import Resources
from kbatch.times import SECOND

QUOTA_GRACE: Final = 5 * SECOND
"""A group in queue whose quota others have used up is sent back when it made no pod for so long."""

PODS_GRACE: Final = 30 * SECOND
"""A group that came in queue by its age has its pods made meanwhile; after that somebody else may come in so."""

_WAITS: Final = frozenset({Standing.WAITING, Standing.BEYOND_SHARE})
"""What a group overcomes by its age."""


class Enqueue(Action):
    """The action."""

    name = "enqueue"

    def run(self, context: CycleContext) -> Iterator[Step]:
        """Run the action."""
        return _run(context)


def _run(context: CycleContext) -> Iterator[Turn]:
    """Run the action. It makes no transactions: being in queue is part of a verdict."""
    return _Admission(context).open()


@dataclass(slots=True)
class _Comer:
    """A group that may come in.

    Attributes:
        job: the group. entry: what it asks for, where that is known. fresh: its state, if it has no row.
    """

    job: Job
    entry: Entry | None = None
    fresh: JobState | None = None


@dataclass(slots=True)
class _Line:
    """The groups of one queue that may come in, the next one last; `ahead` of it so many were refused."""

    comers: list[_Comer] = field(default_factory=list)
    ahead: int = 0


class _Admission:
    """One run of the action."""

    def __init__(self, context: CycleContext) -> None:
        self.context = context
        self.session = context.session
        self.backlog = context.backlog
        self.sums = Sums(context)
        self.aged_is_in = False
        self._joined: list[JobState] = []
        self._refused: list[Entry] = []
        self._stale = False

    def open(self) -> Iterator[Turn]:
        """Let in whoever fits, in order."""
        backlog = self.backlog
        lines: dict[str, _Line] = {}
        fresh = yield from self._sort_out()
        rows = backlog.rows
        standings = yield from self.sums.of_rows(backlog, rows)
        known = (backlog.entry(row) for row in self._comers(rows, standings))
        comers = [*fresh, *(_Comer(entry.job, entry) for entry in known)]
        comers.sort(key=self._order, reverse=True)
        for comer in comers:
            lines.setdefault(comer.job.queue, _Line()).comers.append(comer)
        yield from self._let_in_all(lines)
        if self._joined or self._refused:
            yield from self._settle()
            rows = backlog.rows
            standings = yield from self.sums.of_rows(backlog, rows)
        self._wake(rows, standings)
        yield from self._tell(rows, standings)

    # --- who is asked -------------------------------------------------------------------------------------------------

    def _sort_out(self) -> Generator[Turn, None, list[_Comer]]:
        """Go on promising room to those in queue; returns who waits and has no row."""
        session = self.session
        fresh: list[_Comer] = []
        for job in session.live():
            if session.due(2):
                yield TURN
            if job.key in session.failed or job.job.over:
                continue
            if job.in_queue:
                if job.possible and job.missing() and not job.job.shadow:
                    attempt(session, job, partial(self._keep, job), None)
            elif job.possible:
                fresh.append(_Comer(job.job, fresh=job))
            elif self._plain(job):
                entry = attempt(session, job, partial(self._entry, job, None), None)
                if entry is not None:
                    self._refused.append(entry)
        return fresh

    def _settle(self) -> Iterator[Turn]:
        """Give those rows that were refused and had none; the session looks at them no longer."""
        session = self.session
        for entry in self._refused:
            self.backlog.add(entry)
            if session.due():
                yield TURN
        gone = {entry.job.key for entry in self._refused}
        session.stay([*(job for job in session.live() if job.key not in gone), *self._joined])

    def _plain(self, job: JobState) -> bool:
        """Whether a row says all that matters of the group until it changes: soon, if it has not been told yet that it
        waits.
        """
        model = job.job
        told = model.condition(conditions.ENQUEUED)
        return (
            self.session.by_job and not job.bound and not model.nominees and not model.terminating
            and told is not None and told.status != conditions.TRUE
        )  # fmt: skip

    def _entry(self, job: JobState, wanted: Needs | None) -> Entry:
        """What the group asks for while it waits."""
        session, model = self.session, job.job
        fixed: Reason | None = None
        gated = gates_of(job)
        invalid = session.valid(job) if job.possible else None
        if not job.possible:
            fixed = session.reasons[job.key][0]
        elif wanted is None:
            fixed = invalid or (NotEnoughTasks(0, job.minimum) if not job.gated else gated)
        demand = session.model.demand(model)
        wanted = wanted or Needs({}, {})
        lifetime = model.group.spec.lifetime_seconds if model.group is not None else None
        sure = tuple(sorted(model.outstanding)) if not job.attempts and foreseen(session, job) else ()
        since = enqueued_since(session, job) if job.backing_off else None
        back = since + session.policy.backoff(job.attempts) if since is not None else 0
        return Entry(
            job=model,
            least=wanted.least,
            kept=wanted.kept,
            fixed=fixed,
            gated=gated,
            giving=Giving(model.queue, model.priority, lifetime is None, sure),
            asks=job.asks or tuple(sorted(name for name, amount in wanted.kept.items() if amount)),
            shape=self.context.feasibility.mark(job),
            triable=not demand.short and bool(demand.uncreated or invalid is None),
            tried=invalid is None,
            choosing=not model.min_resources and any(task.cls is not job.waiting[0].cls for task in job.waiting),
            stated=bool(model.min_resources),
            attempts=job.attempts,
            due=model.created + session.policy.ageing,
            back=back,
        )

    def _comers(self, rows: Index, standings: Standings) -> list[int]:
        """The rows whose groups the sums let in, and of those that only wait the aged ones, if one may come in so."""
        backlog, session = self.backlog, self.session
        chosen = standings == Standing.PASSES
        aged = np.isin(standings, [*_WAITS]) & (backlog.due[rows] <= session.now) & (backlog.back[rows] <= session.now)
        if not self.aged_is_in and aged.any():
            asks = backlog.ask[rows]
            for number in np.unique(asks[aged]).tolist():
                those = aged & (asks == number)
                if not self._limited(backlog.entry(int(rows[those][0]))):
                    chosen |= those
        return [int(row) for row in rows[chosen]]

    def _wake(self, rows: Index, standings: Standings) -> None:
        """Note when time alone may let one of them in."""
        session, backlog = self.session, self.backlog
        due, back = backlog.due[rows], backlog.back[rows]
        for later in (due[np.isin(standings, [*_WAITS]) & (due > session.now)], back[back > session.now]):
            if len(later):
                session.wake.append(int(later.min()))

    def _limited(self, entry: Entry) -> bool:
        """Whether its queue's share or capability keeps a group from gathering room, and not room."""
        job = self.session.job(entry.job.key)
        job.asks = job.asks or entry.asks
        return limited(self.session, self.context.feasibility, job, ())

    def _order(self, comer: _Comer) -> tuple[int, int, str]:
        """First come, first served, of equal priority where that counts."""
        job = comer.job
        return -job.priority if self.sums.preempts else 0, job.created, job.key

    # --- who comes in -------------------------------------------------------------------------------------------------

    def _let_in_all(self, lines: dict[str, _Line]) -> Iterator[Turn]:
        """Queues by their order, groups in their lines."""
        session = self.session
        heap = [(self._key(name), name) for name in lines]
        heapq.heapify(heap)
        while heap:
            _, name = heap[0]
            line = lines[name]
            if not line.comers:
                heapq.heappop(heap)
                continue
            comer = line.comers.pop()
            state = comer.fresh if comer.fresh is not None else session.job(comer.job.key)
            if (yield from working(session, state, partial(self._let_in, comer, state, line), False)):
                self._stale = True
                heapq.heapreplace(heap, (self._key(name), name))
                if session.due(10 + len(state.waiting) // 10):
                    yield TURN
            else:
                line.ahead += 1
                if comer.fresh is None and state.key in session.failed:
                    self.backlog.remove(state.key)
                    self._joined.append(state)
                if self._stale:
                    yield from self._thin(lines)
                yield TURN  # it may have been tried on the emptied nodes

    def _thin(self, lines: dict[str, _Line]) -> Iterator[Turn]:
        """Leave out of the lines whom the sums do not let in any more."""
        backlog = self.backlog
        comers = [comer for line in lines.values() for comer in line.comers]
        rows = np.array([backlog.row[comer.job.key] for comer in comers if comer.fresh is None], np.intp)
        self._stale = False
        standings = yield from self.sums.of_rows(backlog, rows)
        left = set(self._comers(rows, standings))
        for line in lines.values():
            line.comers = [
                comer for comer in line.comers if comer.fresh is not None or backlog.row[comer.job.key] in left
            ]  # fmt: skip

    def _key(self, name: str) -> Any:
        """Order of a queue, with what its groups were promised counted as held."""
        queue = self.session.queue(name)
        promised = self.sums.by_queue.get(name)
        if not promised:
            return self.session.queue_key(queue)
        queue.add(promised)
        key = self.session.queue_key(queue)
        queue.add(promised, -1)
        return key

    def _let_in(self, comer: _Comer, job: JobState, line: _Line) -> Generator[Turn, None, bool]:
        session, entry = self.session, comer.entry
        if entry is None:
            wanted = needs(session, job) if job.possible else None
            if wanted is not None and self._fits(job, wanted):
                self._come_in(job, wanted.kept)
                return True
            entry = self._entry(job, wanted)
        refused = session.enqueueable(job) if comer.fresh is not None else None
        standing = Standing.UNKNOWN
        if refused is None:
            standing = yield from self.sums.of(entry)
            if standing in _WAITS and not self._stays_out(entry, comer.fresh) and self._comes_by_age(entry, job):
                standing = Standing.PASSES
            if standing is Standing.PASSES and self._stays_out(entry, comer.fresh):
                standing = Standing.SENT_BACK
        if standing is Standing.PASSES:
            job.attempts = entry.attempts
            self._come_in(job, entry.kept)
            if self.backlog.remove(job.key):
                self._joined.append(job)
            return True
        if comer.fresh is not None and self._plain(job):
            self._refused.append(entry)
        elif comer.fresh is not None:
            reason = refused or (yield from reason_of(self.context, self.sums, entry, standing, line.ahead))
            session.refuse(job, reason, attempted=reason.lacks_capacity and entry.tried)
        return False

    def _fits(self, job: JobState, wanted: Needs) -> bool:
        """Whether nothing is in the way of the group at all: the commonest answer, without a closer look."""
        session = self.session
        return not (
            job.backing_off
            or session.queue(job.queue).record.capability
            or self.sums.quotas.of(job.job.namespace)
            or self.sums.short(wanted.least, {}) is not None
            or session.enqueueable(job) is not None
            or self.context.feasibility.hopeless(job)
        )  # fmt: skip

    def _come_in(self, job: JobState, kept: Resources) -> None:
        """The group is in queue from now on."""
        job.in_queue = True
        self._promise(job, kept)

    def _stays_out(self, entry: Entry, fresh: JobState | None) -> bool:
        """Whether it was sent back not long ago."""
        return fresh.backing_off if fresh is not None else entry.back > self.session.now

    def _comes_by_age(self, entry: Entry, job: JobState) -> bool:
        """Whether the group has waited so long that room is to gather for it: others come in only beside it.

        One at a time, the first in order; `allocate` keeps the room once its pods are there.
        """
        session = self.session
        if session.now < entry.due:
            session.wake.append(entry.due)
            return False
        if self.aged_is_in:
            return False
        job.asks = job.asks or entry.asks
        if limited(session, self.context.feasibility, job, ()):
            return False
        self.aged_is_in = True
        return True

    # --- who is in queue ----------------------------------------------------------------------------------------------

    def _keep(self, job: JobState) -> None:
        """Go on promising room to a group in queue, unless it is sent back."""
        session = self.session
        if self._robbed(job):
            return
        wanted = needs(session, job)
        if wanted is not None and not self.context.ledger.expired(job):
            self._promise(job, wanted.kept)
        self.aged_is_in = self.aged_is_in or self._ages_in_queue(job)

    def _promise(self, job: JobState, kept: Resources) -> None:
        """Keep from others what a group in queue has coming, of room and of quotas."""
        self.sums.promise(job.queue, kept)
        if self.sums.quotas.of(job.job.namespace):
            self.sums.quotas.promise(asked_of(job.job))

    def _robbed(self, job: JobState) -> bool:
        """Send a group back whose pods cannot come because others have used up its namespace's quota.

        Quotas count its own pods a little before or after they are seen: so only when it has made none for a while.
        """
        alive = [task for task in job.job.tasks.values() if not task.terminal]
        since = job.job.condition(conditions.ENQUEUED)
        if job.bound or len(alive) >= job.minimum or since is None:
            return False
        excess = self.sums.quotas.exceeded(asked_of(job.job)) if self.sums.quotas.of(job.job.namespace) else None
        if excess is None:
            return False
        session = self.session
        until = QUOTA_GRACE + max(
            timestamp_us(since.last_transition_time) or 0, max((task.created for task in alive), default=0)
        )
        if session.now < until:
            session.wake.append(until)
            return False
        job.in_queue = False
        session.refuse(job, excess_of(excess))
        return True

    def _ages_in_queue(self, job: JobState) -> bool:
        """Whether room is to gather for a group that is in queue: it lacks nothing else, or its pods are being made."""
        session = self.session
        if session.now < job.job.created + session.policy.ageing or session.model.demand(job.job).short:
            return False
        if job.job.waiting or job.bound:
            return waits_for_room(session, self.context.feasibility, self.context.ledger, job)
        until = (enqueued_since(session, job) or 0) + PODS_GRACE
        if session.now >= until:
            return False
        session.wake.append(until)
        return True

    # --- what is told -------------------------------------------------------------------------------------------------

    def _tell(self, rows: Index, standings: Standings) -> Iterator[Turn]:
        """Say of those that are refused why, where that has changed, or is told with numbers that may be old."""
        backlog, context = self.backlog, self.context
        standings[standings == Standing.PASSES] = Standing.WAITING
        for row in backlog.to_tell(rows, standings, self.session.now):
            entry = backlog.entry(row)
            standing = Standing(int(backlog.standing[row]))
            reason = yield from reason_of(context, self.sums, entry, standing, backlog.ahead(row))
            context.told.append((entry, reason))
            if self.session.due(2):
                yield TURN
        later = backlog.tells_again()
        if later is not None:
            self.session.wake.append(later)
