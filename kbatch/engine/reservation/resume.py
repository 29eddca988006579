"""What earlier cycles left: who is in queue or late, nominations that stand or end, gangs bound in part.

Nearly all of it is read from the API server's objects; what cannot be is in the snapshot's `CycleState`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kbatch.api.reasons import (
    JobSuspended,
    PodGroupNotFound,
    PriorityClassNotFound,
    QueueClosed,
    QueueNotAllowed,
    QueueNotFound,
    Reason,
    ResourceClaimsUnsupported,
    Suspended,
)
from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.placement.ranking import NodeRankings
from kbatch.engine.reservation.below_minimum import follow, mend
from kbatch.engine.reservation.clocks import judge
from kbatch.engine.reservation.nominations import confirm, parts_beyond_capability
from kbatch.engine.reservation.partial import bound_in_part, complete, lost_members
from kbatch.engine.reservation.resting import not_resting
from kbatch.engine.session.guarding import attempt, working
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.demand import BY_GROUP


def resume(session: Session, rankings: NodeRankings) -> Iterator[Transaction | Turn]:
    """Bring the session to where the last cycle left the cluster, and end what is over."""
    jobs = session.live()
    told: list[JobState] = []
    for job in (yield from not_resting(session)):
        if job.key not in session.failed:
            attempt(session, job, partial(_admit, session, job), None)
        if job.job.group is not None and job.job.group.status.conditions:
            told.append(job)
        if session.due():
            yield TURN
    yield from confirm(session, rankings)
    for job in told:
        attempt(session, job, partial(judge, session, job), None)
        if session.due():
            yield TURN
    broken = session.snapshot.state.broken
    yield TURN
    for job in jobs:
        if not job.job.holding:
            if job.key in broken and job.key not in session.failed:
                attempt(session, job, partial(follow, session, job), None)
        elif job.job.gang and not job.whole:
            job.members_lost = lost_members(session, job)
            if job.members_lost and job.key not in session.failed:
                yield from working(session, job, partial(mend, session, rankings, job), None)
                yield TURN
            elif job.in_queue and bound_in_part(session, job):
                yield from working(session, job, partial(complete, session, rankings, job), None)
                yield TURN
    parts_beyond_capability(session)


def impossible(session: Session, job: JobState) -> Reason | None:
    """What a group names that is not there; such a group cannot be tried."""
    model = job.job
    if model.group is None and not model.shadow:
        return PodGroupNotFound(model.name)
    queue = session.queues.get(model.queue)
    if queue is None or queue.record.queue is None:
        return QueueNotFound(model.queue)
    if not queue.record.open:
        return QueueClosed(model.queue)
    if model.barred:
        return QueueNotAllowed(model.queue, model.namespace)
    if model.priority_class_missing:
        return PriorityClassNotFound(model.priority_class_missing)
    if model.needs_claims():
        return ResourceClaimsUnsupported(model.claiming)
    if model.suspended_by == BY_GROUP:
        return Suspended()
    if model.suspended_by:
        return JobSuspended(model.suspended_by)
    return None


def _admit(session: Session, job: JobState) -> None:
    """Whether the group is in queue, by what it says and what it names."""
    reason = impossible(session, job)
    if reason is not None:
        session.refuse(job, reason)
        job.possible = False
        job.in_queue = job.job.holding > 0 if isinstance(reason, JobSuspended | Suspended) else job.bound > 0
        return
    group = job.job.group
    if group is None or not session.policy.has("enqueue"):
        return
    job.attempts = group.status.scheduling_attempts
    if job.bound == 0:
        job.in_queue = job.job.let_in
