"""enqueue: who comes in queue, so that its pods may be created and placed.

Queues in queue order, first come first served inside a queue; a group that does not fit blocks nobody. What a group
will need at least (its minResources beyond what its pods hold; without minResources, what its pods and templates say)
must fit its queue's capability (less important pods of the queue not counted where preempt can evict them), its
namespace's quotas, and one of: the room that is there less what is promised
already; the queue's deserved share less what it holds and was promised (where reclaim can fetch it); with what less
important pods of its own queue could give (where preempt can).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from kbatch.api import conditions
from kbatch.api.objects import timestamp_us
from kbatch.api.reasons import (
    GangExceedsReclaimableShare,
    MinResourcesTooLarge,
    NotEnoughTasks,
    QueueCapabilityExceeded,
    QuotaExceeded,
    Reason,
    SentBack,
    WaitingInQueue,
)
from kbatch.engine.actions.base import Action
from kbatch.engine.admission.demand import Quotas, needs
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Turn
from kbatch.engine.diagnosis.shortages import too_small
from kbatch.engine.preemption.prospective import behind, foreseen, gives
from kbatch.engine.reservation.ageing import limited, waits_for_room
from kbatch.engine.reservation.clocks import enqueued_since
from kbatch.engine.session.guarding import attempt
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.resources import Resources, add, lacking
from kbatch.times import SECOND

QUOTA_GRACE: Final = 5 * SECOND
"""A group in queue whose quota others have used up is sent back when it made no pod for so long."""

PODS_GRACE: Final = 30 * SECOND
"""A group that came in queue by its age has its pods made meanwhile; after that somebody else may come in so."""


class Enqueue(Action):
    """The action."""

    name = "enqueue"

    def run(self, context: CycleContext) -> Iterator[Step]:
        """Run the action."""
        return _run(context)


def _run(context: CycleContext) -> Iterator[Turn]:
    """Run the action. It makes no transactions: being in queue is part of a verdict."""
    return _Admission(context).open()


class _Admission:
    """One run of the action; `promised` is what groups in queue have coming, in all and by queue."""

    def __init__(self, context: CycleContext) -> None:
        self.context = context
        session = self.session = context.session
        self.room = session.usable()
        self.promised: Resources = {}
        self.by_queue: dict[str, Resources] = {}
        self.quotas = Quotas(session)
        self.reclaims = session.policy.has("reclaim")
        self.preempts = session.policy.has("preempt")
        self.aged_is_in = False

    def open(self) -> Iterator[Turn]:
        """Let in whoever fits, in order."""
        session = self.session
        lines: dict[str, list[JobState]] = {}
        for job in session.live():
            if session.due(2):
                yield TURN
            if not job.possible or job.job.over:
                continue
            if job.in_queue:
                if job.missing() and not job.job.shadow:
                    attempt(session, job, partial(self._keep, job), None)
            else:
                lines.setdefault(job.queue, []).append(job)
        places = dict.fromkeys(lines, 0)
        heap = [(self._key(name), name) for name in lines]
        heapq.heapify(heap)
        waiting = dict.fromkeys(lines, 0)
        while heap:
            _, name = heap[0]
            line, place = lines[name], places[name]
            if place == len(line):
                heapq.heappop(heap)
                continue
            places[name] += 1
            job = line[place]
            if attempt(session, job, partial(self._let_in, job, waiting[name]), False):
                heapq.heapreplace(heap, (self._key(name), name))
            else:
                waiting[name] += 1
            yield TURN

    def _keep(self, job: JobState) -> None:
        """Go on promising room to a group in queue, unless it is sent back."""
        session = self.session
        if self._robbed(job):
            return
        wanted = needs(session, job)
        if wanted is not None and not self.context.ledger.expired(job):
            self._promise(job, wanted.kept)
            self.quotas.promise(job)
        self.aged_is_in = self.aged_is_in or self._ages_in_queue(job)

    def _key(self, name: str) -> Any:
        """Order of a queue, with what its groups were promised counted as held."""
        queue = self.session.queue(name)
        promised = self.by_queue.get(name)
        if not promised:
            return self.session.queue_key(queue)
        queue.add(promised)
        key = self.session.queue_key(queue)
        queue.add(promised, -1)
        return key

    def _promise(self, job: JobState, wanted: Mapping[str, int]) -> None:
        self.promised = add(self.promised, wanted)
        self.by_queue[job.queue] = add(self.by_queue.get(job.queue, {}), wanted)

    def _let_in(self, job: JobState, ahead: int) -> bool:
        session = self.session
        found = needs(session, job)
        if found is None:
            invalid = session.valid(job)
            if invalid is not None or not job.gated:  # else gates are why, and said at the end
                session.refuse(job, invalid or NotEnoughTasks(0, job.minimum))
            return False
        queue, wanted = session.queue(job.queue), found.least
        reason = (
            session.enqueueable(job)
            or self._over_capability(job, queue, wanted)
            or self._over_quota(job)
            or self._too_large(job, wanted)
            or self._no_room(job, queue, wanted, ahead)
        )
        waits = isinstance(reason, WaitingInQueue | GangExceedsReclaimableShare)
        if waits and self._comes_by_age(job, found.kept):
            reason = None
        if reason is None and job.backing_off:
            reason = SentBack(queue.name, job.attempts, session.policy.backoff(job.attempts) // SECOND)
        if reason is not None:
            session.refuse(job, reason, attempted=reason.lacks_capacity and session.valid(job) is None)
            return False
        job.in_queue = True
        self._promise(job, found.kept)
        self.quotas.promise(job)
        return True

    def _over_capability(self, job: JobState, queue: QueueState, wanted: Resources) -> Reason | None:
        """Why its queue's hard cap keeps it out, with what less important victims of the queue could give freed."""
        capability = queue.record.capability or {}
        promised = self.by_queue.get(queue.name, {})
        freed: Resources | None = None if self.preempts else {}
        for name in sorted(wanted):
            hard = capability.get(name)
            used, reserved = queue.allocated.get(name, 0), promised.get(name, 0)
            if hard is None or not wanted[name] or used + reserved + wanted[name] <= hard:
                continue
            freed = self._weaker(job, queue) if freed is None else freed
            if used - freed.get(name, 0) + reserved + wanted[name] > hard:
                return QueueCapabilityExceeded(queue.name, name, wanted[name], reserved, used, hard)
        return None

    def _over_quota(self, job: JobState) -> Reason | None:
        excess = self.quotas.exceeded(job)
        if excess is None:
            return None
        return QuotaExceeded(
            excess.quota, excess.resource, excess.asked, excess.reserved, excess.used, excess.hard
        )  # fmt: skip

    def _robbed(self, job: JobState) -> bool:
        """Send a group back whose pods cannot come because others have used up its namespace's quota.

        Quotas count its own pods a little before or after they are seen: so only when it has made none for a while.
        """
        alive = [task for task in job.job.tasks.values() if not task.terminal]
        since = job.job.condition(conditions.ENQUEUED)
        if job.bound or len(alive) >= job.minimum or since is None:
            return False
        reason = self._over_quota(job)
        if reason is None:
            return False
        session = self.session
        until = QUOTA_GRACE + max(
            timestamp_us(since.last_transition_time) or 0, max((task.created for task in alive), default=0)
        )
        if session.now < until:
            session.wake.append(until)
            return False
        job.in_queue = False
        session.refuse(job, reason)
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

    def _comes_by_age(self, job: JobState, wanted: Resources) -> bool:
        """Whether the group has waited so long that room is to gather for it: others come in only beside it.

        One at a time, the first in order; `allocate` keeps the room once its pods are there.
        """
        session = self.session
        due = job.job.created + session.policy.ageing
        if session.now < due:
            session.wake.append(due)
            return False
        if self.aged_is_in or job.backing_off:
            return False
        job.asks = job.asks or tuple(sorted(name for name, amount in wanted.items() if amount))
        if limited(session, self.context.feasibility, job, ()):
            return False
        self.aged_is_in = True
        return True

    def _too_large(self, job: JobState, wanted: Resources) -> Reason | None:
        """Why no cluster of these nodes would hold the group's minimum: it must not keep others from their room."""
        session = self.session
        if self.context.feasibility.hopeless(job):
            return too_small(session, job, self.context.feasibility.attempt(job))
        short = lacking(wanted, session.total) if job.job.min_resources else {}
        if short:
            name = min(short, key=lambda name: (session.total.get(name, 0) / wanted[name], name))
            return MinResourcesTooLarge(name, wanted[name], session.total.get(name, 0), len(session.nodes))
        return None

    def _no_room(self, job: JobState, queue: QueueState, wanted: Resources, ahead: int) -> Reason | None:
        if self._short(wanted, {}) is None:
            return None
        promised = self.by_queue.get(queue.name, {})
        share = {
            name: queue.deserved.get(name, 0) - queue.allocated.get(name, 0) - promised.get(name, 0) for name in wanted
        }
        beyond = next((name for name in sorted(wanted) if wanted[name] > max(0, share[name])), None)
        if self.reclaims and beyond is None:
            return None
        if self.preempts and self._short(wanted, self._weaker(job, queue)) is None:
            return None
        session = self.session
        demand = session.model.demand(job.job)
        if not demand.short and (demand.uncreated or session.valid(job) is None):
            alone = self.context.feasibility.attempt(job)
            if not alone.fits:
                return too_small(session, job, alone)
        if self.reclaims and beyond is not None and wanted[beyond] > queue.deserved.get(beyond, 0):
            return GangExceedsReclaimableShare(
                queue.name, beyond, wanted[beyond], queue.allocated.get(beyond, 0), queue.deserved.get(beyond, 0),
                session.idle(beyond),
            )  # fmt: skip
        return self._waiting(queue, wanted, ahead)

    def _short(self, wanted: Resources, more: Mapping[str, int]) -> str | None:
        """A dimension in which the room less what is promised, and `more`, is not enough."""
        for name in sorted(wanted):
            free = self.room.get(name, 0) - self.promised.get(name, 0) + more.get(name, 0)
            if wanted[name] > max(0, free):
                return name
        return None

    def _waiting(self, queue: QueueState, wanted: Resources, ahead: int) -> Reason:
        name = self._short(wanted, {}) or min(wanted, default="cpu")
        free = max(0, self.room.get(name, 0) - self.promised.get(name, 0))
        return WaitingInQueue(queue.name, name, wanted.get(name, 0), free, self.promised.get(name, 0), ahead)

    def _weaker(self, job: JobState, queue: QueueState) -> Resources:
        """What jobs of the queue that matter less could give up; to pods to come also the surplus of equals."""
        found: Resources = {}
        ahead = not job.attempts and bool(foreseen(self.session, job)) and not behind(self.session, job)
        for key, other in queue.record.jobs.items():
            if not other.holding or other.disruption == "Never" or other.priority > job.priority:
                continue
            spare = other.holding if other.disruption == "Whole" or not other.gang else other.holding - other.minimum
            if self.context.consent.may_follow(job, self.session.job(key)):
                spare = other.holding
            elif other.priority == job.priority:
                found = add(found, gives(other)) if ahead else found
                continue
            if spare > 0:
                found = add(found, {name: amount * spare // other.holding for name, amount in other.bound.items()})
        return found
