"""Who is in queue: what these groups are promised from cycle to cycle, who is sent back, and for whom room gathers."""

from __future__ import annotations

from functools import partial
from typing import Final

from kbatch.api import conditions
from kbatch.api.objects import timestamp_us
from kbatch.engine.actions.places import Places
from kbatch.engine.admission.demand import needs
from kbatch.engine.admission.sums import Sums
from kbatch.engine.carryover.backlog import Entry
from kbatch.engine.context import CycleContext
from kbatch.engine.diagnosis.backlog import excess_of
from kbatch.engine.reservation.ageing import limited, waits_for_room
from kbatch.engine.reservation.clocks import PODS_GRACE, enqueued_since
from kbatch.engine.session.guarding import attempt
from kbatch.engine.session.limits import beyond_capability
from kbatch.engine.state.jobs import JobState
from kbatch.resources import Resources
from kbatch.times import SECOND

QUOTA_GRACE: Final = 5 * SECOND
"""A group in queue whose quota others have used up is sent back when it made no pod for so long."""

_CANDIDATES: Final = 100
"""Where starts are planned, so many groups wait in queue for their turn without keeping others out, at the least."""


class InQueue:
    """Those that are in queue, in one cycle.

    Attributes:
        ageing: for how long a group waits, in microseconds, before it may come in although there is no room for it.
        places: of such groups.
    """

    def __init__(self, context: CycleContext, sums: Sums, *, ranks: bool) -> None:
        self._context = context
        self._session = context.session
        self._sums = sums
        planned = context.planned
        self.ageing = 0 if planned is not None else context.session.policy.ageing
        self.places = Places(planned.depth if planned is not None else 1, ranks=ranks, in_order=planned is not None)
        self._left = dict(sums.room) if planned is not None else None
        """Where starts are planned, what is idle beside the groups in queue that may start in this cycle."""
        self._turns = max(_CANDIDATES, self.places.depth) if planned is not None else 0
        """So many more groups in queue wait for their turn and are promised no room."""

    def rests(self, job: JobState) -> bool:
        """`keep`, for a group that rests; False where more is to be asked than is known of it."""
        session, rest = self._session, job.rest
        if rest is None or rest.kept is None or job.moves[0] or not (job.in_queue and job.possible):
            return False
        if session.queue(job.queue).record.capability or self._sums.quotas.of(job.job.namespace):
            return False
        aged = self.places.left(job.job) and attempt(session, job, partial(self._ages_in_queue, job), False)
        self._take_place(job, rest.kept, aged=aged)
        if self._turns > 0:
            self._turns -= 1
        elif not attempt(session, job, partial(self._keeps_idle, job, aged=aged), False):
            self._sums.promise(job, rest.kept)
            session.plugins.promise(job, rest.kept)
        return True

    def keep(self, job: JobState) -> None:
        """Go on promising room to a group in queue, unless it is sent back. Nothing is promised to one that even the
        emptied nodes could not hold, as its pods have shown or the nodes have become, or that waits in vain, unless
        room is to gather for it: it would keep room idle.
        """
        if not self._robbed(job):
            self.go_on(job)

    def go_on(self, job: JobState) -> None:
        """The same for one that is not sent back: also one that was in queue, ran, and stays."""
        session = self._session
        wanted = needs(session, job)
        if job.rest is not None and wanted is not None and not job.moves[0]:
            job.rest.kept = wanted.kept
        there = self._turns > 0 and job.bound + len(job.job.waiting) >= job.minimum
        if there:
            self._turns -= 1  # it waits for its turn like any other, and keeps nobody out that may backfill
        aged = self.places.left(job.job) and self._ages_in_queue(job)
        self._take_place(job, wanted.kept if wanted is not None else None, aged=aged)
        idle = self._keeps_idle(job, aged=aged)
        if wanted is None or there or idle or self._context.ledger.expired(job):
            return
        if not beyond_capability(session.queue(job.queue), wanted.least):  # it may have been lowered
            self.promise(job, wanted.kept)

    def _take_place(self, job: JobState, kept: Resources | None, *, aged: bool) -> None:
        """A group in queue for which there is no room has a place, unless it starts now."""
        if aged and not (kept is not None and self._starts_at_once(kept)):
            self.places.take(job.job)

    def _starts_at_once(self, kept: Resources) -> bool:
        """Whether a group may start in this cycle, by the sum of what is idle beside those that were asked before: its
        start need not be planned, and the next in order takes its turn.
        """
        left = self._left
        if left is None or any(amount > left.get(name, 0) for name, amount in kept.items()):
            return False
        self._left = {name: amount - kept.get(name, 0) for name, amount in left.items()}
        return True

    def _keeps_idle(self, job: JobState, *, aged: bool) -> bool:
        """Whether room that was promised to the group would stand idle."""
        if self._context.feasibility.hopeless(job):
            return True
        return self._sums.in_vain.waits(job) and not (aged or self._gathers(job))

    def _gathers(self, job: JobState) -> bool:
        """Whether room gathers for the group since an earlier cycle: an older one may have become able to start since,
        and count as the aged one, but the room stays with whom it gathers for.
        """
        gathered = self._session.snapshot.state.gathered
        return gathered is not None and gathered.job == job.key

    def promise(self, job: JobState, kept: Resources) -> None:
        """Keep from others what a group in queue has coming, of room and of quotas."""
        self._sums.promise(job, kept)
        self._session.plugins.promise(job, kept)
        if self._sums.quotas.of(job.job.namespace):
            self._sums.quotas.promise(self._sums.quotas.asked_of(job.job))

    def _robbed(self, job: JobState) -> bool:
        """Send a group back whose pods cannot come because others have used up its namespace's quota.

        Quotas count its own pods a little before or after they are seen: so only when it has made none for a while.
        """
        alive = [task for task in job.job.tasks.values() if not task.terminal]
        since = job.job.condition(conditions.ENQUEUED)
        if job.bound or len(alive) >= job.minimum or since is None:
            return False
        quotas = self._sums.quotas
        excess = quotas.exceeded(quotas.asked_of(job.job)) if quotas.of(job.job.namespace) else None
        if excess is None:
            return False
        session = self._session
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
        session = self._session
        if session.now < job.job.created + self.ageing or session.model.demand(job.job).short:
            return False
        if job.job.waiting or job.bound:
            return waits_for_room(session, self._context.feasibility, self._context.ledger, job)
        until = (enqueued_since(session, job) or 0) + PODS_GRACE
        if session.now >= until:
            return False
        session.wake.append(until)
        return True

    def comes_by_age(self, entry: Entry, job: JobState, *, in_rows: bool) -> bool:
        """Whether the group has waited so long that room is to gather for it, or its start may be planned: then others
        come in only beside it. Of those that have rows (`in_rows`), or are given them, the caller says when they are
        old enough.

        One at a time, or as many as there may be planned starts, the first in order; `allocate` keeps the room once
        their pods are there.
        """
        session = self._session
        if session.now < entry.due:
            if not in_rows:
                session.wake.append(entry.due)
            return False
        if not self.places.left(job.job):
            return False
        job.asks = job.asks or entry.asks
        if limited(session, self._context.feasibility, job, ()):
            return False
        self.places.take(job.job)
        return True
