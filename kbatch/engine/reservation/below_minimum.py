"""Gangs that were whole and have lost members: what replaces these comes first, or the rest goes too.

What is left runs on, and its replacements are placed before anything else, where its pods must stand together beside
them. A group with `minimumLostSeconds` that is not whole again in time is given up: all that is left of it is evicted
as one, and when that is under way the group is sent back, to queue again after its back-off.

For how long a group is below its minimum is in `CycleState.broken`; a process that begins without it counts from when
the condition Scheduled became False. It is over once the API server has bound the minimum: a bind may fail.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import Final

from kbatch.api import conditions
from kbatch.api.reasons import MinimumLost, Suspended
from kbatch.engine.decisions import MINIMUM_LOST, TURN, Transaction, Turn
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.reservation.clocks import send_back, transition, used_up
from kbatch.engine.reservation.partial import confirmed
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import unplaced
from kbatch.engine.state.to_come import pod_to_come, tasks_to_come
from kbatch.model.demand import BY_GROUP
from kbatch.model.jobs import Job
from kbatch.model.tasks import Task
from kbatch.times import SECOND

_MOST_KEPT: Final = 2_000
"""For more pods of one group no room is kept on nodes before they exist."""


def mend(session: Session, rankings: NodeRankings, job: JobState) -> Generator[Transaction | Turn, None, None]:
    """Place what replaces the lost members of a gang, before others are asked; or give it up, if its time is over."""
    if _held_back(job.job):
        return  # what it loses meanwhile is taken by its user: nobody is evicted for that
    until = _until(session, job.job)
    if until is not None and session.now >= until:
        given_up = _give_up(session, job)
        if given_up is not None:
            yield from given_up
            return
    elif until is not None:
        session.wake.append(until)
    if not (job.in_queue and job.possible):
        return
    if unplaced(job):
        statement = Statement(session, job)
        if (yield from placing(rankings, statement, (When.NOW, When.LATER))):
            yield from statement.commit()
            return
        statement.rollback()  # whose turn it is when room is made, and why there is none, the actions say
    yield from _keep_room(session, rankings, job)


def _keep_room(session: Session, rankings: NodeRankings, job: JobState) -> Generator[Turn, None, None]:
    """Keep, until the cycle ends, the room of replacements that are still to be made, where there is room for all that
    the minimum lacks: a sum is promised for them in any case, and this says on which nodes.
    """
    demand = session.model.demand(job.job)
    if demand.short or not demand.needed or demand.uncreated > _MOST_KEPT or used_up(session, job):
        return
    ready = {task.key for task in job.waiting}
    gated = sorted((task for task in job.job.waiting if task.key not in ready), key=lambda task: task.key)
    awaited: list[Task] = []
    for pods in demand.needed:
        cls = pods.template.task_class(session.model.classes, job.job.namespace)
        pod = pod_to_come(job, pods.template, cls.spec)
        numbers = range(len(awaited), len(awaited) + pods.count)
        awaited += tasks_to_come(job, pods.template.role, pod, cls, numbers, session.now)
    whole = replace(job, waiting=[*job.waiting, *gated, *awaited])  # the same sums
    before = job.nominated.keys() | job.placed.keys()
    statement = Statement(session, whole)
    done = yield from placing(rankings, statement, (When.NOW, When.LATER), search=())
    found = [place for key, place in (*job.placed.items(), *job.nominated.items()) if key not in before]
    statement.rollback()
    if done:
        session.keep_room(job, found)


def _give_up(session: Session, job: JobState) -> list[Transaction] | None:
    """Evict all that is left, as one; None while that cannot be: a bind is under way, or an eviction was refused."""
    left = sorted((task for task in job.job.tasks.values() if task.holds), key=lambda task: task.key)
    if any(task.assumed or task.key in session.model.refusals.evictions for task in left):
        return None
    statement = Statement(session, job)
    for task, _ in list(job.nominated.values()):
        statement.withdraw(job, task)
    stood = job.bound
    for task in left:
        statement.evict(job, task, MINIMUM_LOST)
    session.refuse(job, MinimumLost(stood, job.minimum, _limit(job.job) or 0))
    job.possible = False  # in this cycle: those that wait for nodes are not placed beside those that go
    return statement.commit()


def follow(session: Session, job: JobState) -> None:
    """Send a group back of which nothing is left on nodes because it was given up."""
    until = _until(session, job.job)
    over = until is not None and session.now >= until
    if over and job.in_queue and not job.whole and session.policy.has("enqueue"):
        send_back(session, job)


def broken_after(session: Session) -> Generator[Turn, None, dict[str, int]]:
    """`CycleState.broken` as the cycle leaves it."""
    known, jobs = session.snapshot.state.broken, session.model.jobs
    under_way = session.model.marks()[1]
    found: dict[str, int] = {}
    for job in session.live():
        if session.due():
            yield TURN
        if job.members_lost and _limit(job.job) is not None and not _held_back(job.job):
            found[job.key] = _since(session, job.job)
    for key, since in known.items():
        model = jobs.get(key)
        if key in found or model is None or _limit(model) is None or (model.holding and _held_back(model)):
            continue
        if model.holding and not confirmed(model):
            found[key] = since
        elif model.holding and model.is_true(conditions.SCHEDULED):
            continue
        elif model.holding:
            found[key] = session.now  # its condition speaks of a time that is over
        elif not model.whole() and (model.is_true(conditions.ENQUEUED) or model.tasks.keys() & under_way.keys()):
            found[key] = since  # until it is written that it was sent back, and no eviction can be refused any more
    return dict(sorted(found.items()))


def _held_back(job: Job) -> bool:
    """Whether the group is suspended and lacks its minimum: no time runs until it is resumed."""
    return job.suspended_by == BY_GROUP


def _limit(job: Job) -> int | None:
    """For how many seconds what is left of the group stays; None: for good."""
    return job.group.spec.minimum_lost_seconds if job.group is not None else None


def _until(session: Session, job: Job) -> int | None:
    """When the group is given up, in microseconds since the epoch; None: never."""
    limit = _limit(job)
    return None if limit is None else _since(session, job) + limit * SECOND


def _since(session: Session, job: Job) -> int:
    """Since when the group is below its minimum."""
    known = session.snapshot.state.broken.get(job.key)
    if known is not None:
        return known
    scheduled = job.condition(conditions.SCHEDULED)
    if scheduled is None or scheduled.status != conditions.FALSE or scheduled.reason == Suspended.code:
        return session.now  # its time begins
    return transition(session, scheduled) or session.now  # a date in the future says nothing but that it is wrong
