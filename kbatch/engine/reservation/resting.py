"""Groups in queue that rest: each waits for its single pod, and nothing happens to it from cycle to cycle.

Of such a group hardly anything need be asked again until it changes: that it may be in queue, since when its time
counts, what it is promised. So its state goes on as it is. Whether there is room for it is another question.
"""

from __future__ import annotations

from collections.abc import Generator

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.reservation.clocks import counts_from, fell
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState, Rest
from kbatch.engine.state.minimum import likeness
from kbatch.times import SECOND


def not_resting(session: Session) -> Generator[Turn, None, list[JobState]]:
    """The groups of which more is to be asked than is known. Notes when the first of the others is late."""
    found: list[JobState] = []
    late: int | None = None
    for job in session.live():
        if session.due():
            yield TURN
        rest = job.rest
        if rest is None or not _holds(session, job.key, rest):
            job.rest = None
            found.append(job)
        elif rest.late is not None and (late is None or rest.late < late):
            late = rest.late
    if late is not None:
        session.wake.append(late)
    return found


def _holds(session: Session, key: str, rest: Rest) -> bool:
    """Whether what is known of a group that has not changed holds now."""
    if rest.late is not None and session.now >= rest.late:
        return False
    return session.now >= rest.noted and key not in session.snapshot.state.clocks


def resting_after(session: Session) -> Generator[Turn, None, dict[str, JobState]]:
    """By key the groups that rest, as the cycle leaves them; each with what is known of it."""
    found: dict[str, JobState] = {}
    for job in session.live():
        if session.due():
            yield TURN
        if job.moves[0] or not (job.in_queue and job.possible) or job.key in session.failed:
            continue
        if job.rest is None:
            job.rest = _rest(session, job)
        if job.rest is not None:
            found[job.key] = job
    return found


def _rest(session: Session, job: JobState) -> Rest | None:
    """What is known of the group, if it is one that can rest."""
    model, group = job.job, job.job.group
    if group is None or not likeness(job) or session.plugins.gathering or not session.plugins.by_job:
        return None
    if model.nominees or model.terminating or fell(session, job) is not None:
        return None
    if not session.policy.has("enqueue"):
        return Rest(model.generation, session.now, None)
    since = counts_from(session, job)
    if not model.let_in or since is None or since > session.now:
        return None
    return Rest(model.generation, session.now, since + group.spec.schedule_timeout_seconds * SECOND)
