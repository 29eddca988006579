"""What earlier cycles left: nominations that stand or end, gangs bound in part, groups that are in queue or late.

All of it is read from the API server's objects; nothing is remembered here.
"""

from __future__ import annotations

from collections.abc import Iterator

from kbatch.api import conditions
from kbatch.api.objects import timestamp_us
from kbatch.api.reasons import (
    JobSuspended,
    PodGroupNotFound,
    PriorityClassNotFound,
    QueueClosed,
    QueueNotFound,
    Reason,
    ResourceClaimsUnsupported,
)
from kbatch.engine.decisions import TURN, Nomination, Transaction, Turn
from kbatch.engine.placement.gang import place_minimum
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import unplaced
from kbatch.times import SECOND

_FUTURE = 60 * SECOND
"""A condition dated later than this was dated by a scheduler whose clock was wrong. Nobody waits for its time to come:
it counts as long past."""


def resume(session: Session, rankings: NodeRankings) -> Iterator[Transaction | Turn]:
    """Bring the session to where the last cycle left the cluster, and end what is over."""
    jobs = session.live()
    for job in jobs:
        _admit(session, job)
        if session.due():
            yield TURN
    for job in jobs:
        if job.job.nominees:
            ended = _nominations(session, rankings, job)
            yield ended if ended is not None else TURN
    for job in jobs:
        if job.in_queue and _bound_in_part(job):
            yield from _complete(session, rankings, job)
            yield TURN


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
    if model.priority_class_missing:
        return PriorityClassNotFound(model.priority_class_missing)
    if model.needs_claims():
        return ResourceClaimsUnsupported(model.claiming)
    if model.suspended_by:
        return JobSuspended(model.suspended_by)
    return None


def _admit(session: Session, job: JobState) -> None:
    """Whether the group is in queue, and since when."""
    reason = impossible(session, job)
    if reason is not None:
        session.refuse(job, reason)
        job.possible = False
        job.in_queue = job.job.holding > 0 if isinstance(reason, JobSuspended) else job.bound > 0
        return
    group = job.job.group
    if group is None or not session.policy.has("enqueue"):
        return
    job.attempts = group.status.scheduling_attempts
    enqueued = job.job.condition(conditions.ENQUEUED)
    since = timestamp_us(enqueued.last_transition_time) if enqueued is not None else None
    if since is not None and since > session.now + _FUTURE:
        since = 0
    if job.bound > 0:
        return
    job.in_queue = enqueued is not None and enqueued.status == conditions.TRUE
    if job.whole:
        return
    if job.in_queue and since is not None:
        until = since + group.spec.schedule_timeout_seconds * SECOND
        if session.now >= until:
            send_back(session, job)
        else:
            session.wake.append(until)
    elif not job.in_queue and job.attempts and since is not None:
        delay = session.policy.backoff(job.attempts)
        if session.now < since + delay:
            job.backing_off = True
            session.wake.append(since + delay)


def send_back(session: Session, job: JobState) -> None:
    """Back to Pending, with a longer wait each time."""
    job.in_queue = False
    job.attempts += 1
    job.backing_off = True
    session.wake.append(session.now + session.policy.backoff(job.attempts))


# --- nominations ------------------------------------------------------------------------------------------------------


def _nominations(session: Session, rankings: NodeRankings, job: JobState) -> Transaction | None:
    """Restore the job's nominations, or end them all: a gang waits as a whole."""
    queue = session.queues.get(job.queue)
    if queue is not None:
        for task in job.job.nominees:  # the model's sums contain them; those that stand are counted again below
            queue.add(task.cls.request, -1)
    statement = Statement(session, job)
    stands = job.in_queue and job.possible
    for task in sorted(job.job.nominees, key=lambda task: task.key):
        row = session.nodes.row.get(task.nominated, -1)
        if not stands or row < 0 or task.gated or _over(session, task.nominated):
            stands = False
            break
        if not rankings.allows(task.cls, row, When.LATER):
            stands = False
            break
        statement.pipeline(task, row)
    if stands and (not job.missing() or job.bound):
        statement.commit()
        return None
    statement.rollback()
    session.room_moves += 1
    ended = tuple(Nomination(task.key, task.uid, None) for task in sorted(job.job.nominees, key=lambda task: task.key))
    return Transaction(job.name, nominations=ended, job=job.key)


def _over(session: Session, node: str) -> bool:
    """Whether a nomination to this node has waited too long for what terminates there."""
    latest: int | None = None
    for task in session.model.nodes[node].tasks.values():
        if task.terminating:
            if task.release_at is None:
                return False
            latest = max(latest or 0, task.release_at)
    if latest is None:
        return False
    until = latest + session.policy.nomination_grace
    if session.now >= until:
        return True
    session.wake.append(until)
    return False


# --- gangs bound in part ----------------------------------------------------------------------------------------------


def _bound_in_part(job: JobState) -> bool:
    """Whether a bind failed, or was never made, in the middle of the gang.

    A gang that once ran and lost a member is another matter: its missing pods were created after the others were bound.
    """
    model = job.job
    if not model.gang or not model.holding or job.whole or model.is_true(conditions.SCHEDULED):
        return False
    since = model.bound_since
    early = sum(1 for task in model.waiting if since is None or task.created <= since)
    return job.bound + early >= job.minimum


def _complete(session: Session, rankings: NodeRankings, job: JobState) -> Iterator[Transaction]:
    """Place the rest before anything else; after the time-out take back what is bound."""
    statement = Statement(session, job)
    if job.possible:
        if place_minimum(rankings, statement, (When.NOW, When.LATER)):
            yield from statement.commit()
            return
        statement.rollback()
        if unplaced(job):
            session.refuse_room(job)
    since = job.job.bound_since
    if since is None:
        return
    until = since + session.policy.bind_timeout
    if session.now < until:
        session.wake.append(until)
        return
    for task in sorted(job.job.tasks.values(), key=lambda task: task.key):
        if task.holds and not task.assumed:
            statement.evict(job, task, "allocate")
    yield from statement.commit()
    send_back(session, job)
