"""Gangs bound in part: some of their binds failed, or were never made.

That is another thing than a gang that was whole and lost a member: this one keeps what runs. Which of the two it is, is
written where it happens. Of a gang that was whole and is not any more, the condition Enqueued says so
(`conditions.REASON_MEMBERS_LOST`) from the cycle on that takes Scheduled=True back. Binds that this process has decided
and that are not all confirmed are in `CycleState.binding`: a gang that is found in part among these was never whole,
whatever its conditions say as yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from kbatch.api import conditions
from kbatch.engine.decisions import TAKEN_BACK, TURN, Transaction, Turn
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.reservation.clocks import fell, send_back
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import unplaced
from kbatch.model.jobs import Job


def lost_members(session: Session, job: JobState) -> bool:
    """Whether the gang was whole since it came in queue, is not any more, and still holds something."""
    model = job.job
    if model.group is None or not model.gang or not model.holding or job.whole or model.key in _binding(session):
        return False
    if model.key in session.snapshot.state.broken or model.is_true(conditions.SCHEDULED):
        return True
    enqueued = model.condition(conditions.ENQUEUED)
    if enqueued is None:  # nothing was written yet: too few pods are not what is left of binds
        return job.bound + len(model.waiting) < job.minimum
    if enqueued.status != conditions.TRUE:
        return False
    return enqueued.reason == conditions.REASON_MEMBERS_LOST or fell(session, job) is not None


def bound_in_part(session: Session, job: JobState) -> bool:
    """Whether a bind failed, or was never made, in the middle of the gang."""
    model = job.job
    if not model.gang or not model.holding or job.whole:
        return False
    if job.bound + len(model.waiting) < job.minimum:
        return False  # a bind that fails leaves its pod there: here pods are gone
    if model.key in _binding(session):
        return True
    # Of a gang without a PodGroup nothing is written: only who decided on its binds knows that they failed.
    return model.group is not None and not lost_members(session, job)


def binding_after(session: Session) -> Generator[Turn, None, tuple[str, ...]]:
    """The gangs whose binds are decided and not all confirmed, as the cycle leaves them."""
    jobs = session.model.jobs
    found: set[str] = set()
    for job in session.live():
        if session.due():
            yield TURN
        # Who was whole before, or has lost members, is not what fails when one more bind does.
        if job.placed and job.job.gang and not (job.members_lost or job.job.whole()):
            found.add(job.key)
    for key in _binding(session) - found:
        model = jobs.get(key)
        if model is not None and model.holding and not confirmed(model):
            found.add(key)
    return tuple(sorted(found))


def _binding(session: Session) -> frozenset[str]:
    return frozenset(session.snapshot.state.binding)


def confirmed(job: Job) -> bool:
    """Whether the API server has bound the minimum, and each role's."""
    if not job.confirmed():
        return False
    placed = Counter(job.gone)
    placed.update(task.role for task in job.tasks.values() if task.confirmed)
    return all(placed[role.name] >= role.min_member for role in job.roles)


def complete(session: Session, rankings: NodeRankings, job: JobState) -> Generator[Transaction | Turn, None, None]:
    """Place the rest before anything else; after the time-out take back what is bound.

    Not while binds are under way: what came of them afterwards would be a part of the gang again. It is sent back when
    the last of it goes: not while the API server refuses to evict a pod.
    """
    statement = Statement(session, job)
    if job.possible:
        if (yield from placing(rankings, statement, (When.NOW, When.LATER))):
            yield from statement.commit()
            return
        if statement.refused is not None:
            session.refuse(job, statement.refused[1], attempted=True)
        elif unplaced(job):
            session.refuse_room(job)
        statement.rollback()
    since = job.job.bound_since
    if since is None:
        return
    until = since + session.policy.bind_timeout
    if session.now < until:
        session.wake.append(until)
        return
    if any(task.assumed for task in job.job.tasks.values()):
        return  # when the last of them is answered, there is a cycle
    stays = False
    for task in sorted(job.job.tasks.values(), key=lambda task: task.key):
        if task.holds and task.key in session.model.refusals.evictions:
            stays = True
        elif task.holds:
            statement.evict(job, task, TAKEN_BACK)
    yield from statement.commit()
    if not stays:
        send_back(session, job)
