"""The time of groups in queue: it stands still while a group's victims end, or room is gathered or planned for it.

Who waits for what it was promised is not late. What the time counts from is the transition of the condition Enqueued,
or, of a group that has lost all its pods since, that of Scheduled; for how long it stood still is known to this process
alone (`CycleState.clocks`).
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from typing import Final

from kbatch.api import conditions
from kbatch.api.objects import Condition, timestamp_us
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.session.session import Session
from kbatch.engine.state.cycle_state import QueueClock
from kbatch.engine.state.jobs import JobState
from kbatch.times import SECOND

_FUTURE = 60 * SECOND
"""A condition dated later than this was dated by a scheduler whose clock was wrong. Nobody waits for its time to come:
it counts as long past."""


PODS_GRACE: Final = 30 * SECOND
"""So long the pods of a group that has come in queue are expected to be made."""


def transition(session: Session, condition: Condition | None) -> int | None:
    """When a condition last changed, in microseconds; 0 where that is said to be in the future; None: nobody knows."""
    since = timestamp_us(condition.last_transition_time) if condition is not None else None
    return 0 if since is not None and since > session.now + _FUTURE else since


def enqueued_since(session: Session, job: JobState) -> int | None:
    """Since when the condition Enqueued is what it is."""
    return transition(session, job.job.condition(conditions.ENQUEUED))


def fell(session: Session, job: JobState) -> int | None:
    """Since when the minimum is not placed any more, of a group in queue for which it was since it came in; else None.

    What the API server has not been told yet begins now.
    """
    model = job.job
    if model.is_true(conditions.SCHEDULED):
        return session.now
    if not model.is_true(conditions.ENQUEUED):
        return None
    # Scheduled=False that is younger than Enqueued=True has taken Scheduled=True back.
    let_in, lost = enqueued_since(session, job), transition(session, model.condition(conditions.SCHEDULED))
    return lost if let_in is not None and lost is not None and lost > let_in else None


def used_up(session: Session, job: JobState) -> bool:
    """Whether what the group was promised is kept no longer, since it has run for too long without using it.

    A group of which nothing runs is sent back in time, which ends its promise.
    """
    group = job.job.group
    if group is None or not job.bound:
        return False
    scheduled = job.job.condition(conditions.SCHEDULED)
    if scheduled is None or scheduled.status == conditions.TRUE:
        return False  # it has lost something only now
    lost = transition(session, scheduled)
    until = max(enqueued_since(session, job) or 0, lost or 0) + group.spec.schedule_timeout_seconds * SECOND
    if session.now < until:
        session.wake.append(until)
        return False
    return True


def ousted(session: Session, job: JobState) -> bool:
    """Whether the group ran since it came in queue, and all its pods were taken from it: it is in queue by a decision
    on a cluster that held its pods, and which says nothing of the one without them.
    """
    model = job.job
    if model.group is None or not job.in_queue or job.bound or job.nominated or model.holding:
        return False
    return model.key not in session.snapshot.state.binding and fell(session, job) is not None


def judge(session: Session, job: JobState) -> None:
    """Send the group back that is in queue and not whole for too long; keep one out that was sent back not long ago."""
    group = job.job.group
    if group is None or not job.possible or not session.policy.has("enqueue") or job.bound > 0 or job.whole:
        return
    since = counts_from(session, job)
    if since is None:
        return
    if job.in_queue:
        if job.nominated:
            return
        limit = group.spec.schedule_timeout_seconds * SECOND
        clock = _clock(session, job, since)
        elapsed = clock.elapsed(session.now)
        if elapsed >= limit:
            send_back(session, job)
        elif clock.stopped is None:
            session.wake.append(session.now + limit - elapsed)
    elif job.attempts:
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


def clocks_after(session: Session, kept: Collection[str]) -> Generator[Turn, None, dict[str, QueueClock]]:
    """The clocks as the cycle leaves them; `kept` are the keys of those that room is kept for.

    Of those that stood still and go on from now on it is noted when their time is over.
    """
    found: dict[str, QueueClock] = {}
    known = session.snapshot.state.clocks
    for job in session.live():
        if session.due():
            yield TURN
        key = job.key
        waits = job.nominated or key in kept
        if not (waits or key in known):
            continue
        if job.job.group is None or not job.in_queue or job.bound > 0 or job.whole:
            continue
        enqueued = job.job.condition(conditions.ENQUEUED)
        since = counts_from(session, job)
        if enqueued is None or enqueued.status != conditions.TRUE or since is None:
            continue
        clock = _clock(session, job, since)
        if clock.stopped is not None and not waits:
            limit = job.job.group.spec.schedule_timeout_seconds * SECOND
            session.wake.append(session.now + limit - clock.elapsed(session.now))
        clock = clock.halted(session.now) if waits else clock.resumed(session.now)
        if clock.paused or clock.stopped is not None:
            found[key] = clock
    return found


def counts_from(session: Session, job: JobState) -> int | None:
    """The instant from which the time of a group of which nothing runs counts, in queue or sent back."""
    since = enqueued_since(session, job)
    lost = fell(session, job) if job.in_queue and since is not None else None
    return since if since is None or lost is None else max(since, lost)


def _clock(session: Session, job: JobState, since: int) -> QueueClock:
    found = session.snapshot.state.clocks.get(job.key)
    return found if found is not None and found.since == since else QueueClock(since)
