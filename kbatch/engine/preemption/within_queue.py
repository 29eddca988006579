"""Room made inside a queue for one step of a job: by the queue's other jobs, else by the job's own pods."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import Transaction, Turn
from kbatch.engine.plugin import Preemptor
from kbatch.engine.preemption.candidates import Donors
from kbatch.engine.preemption.goal import Goal
from kbatch.engine.preemption.planning import making_room
from kbatch.engine.preemption.polling import Evictor
from kbatch.engine.preemption.reach import any_may_go, looking_around, within_reach
from kbatch.engine.preemption.reuse import Searches, asks_alike, likeness
from kbatch.engine.preemption.steps import keeping_to, lacking, next_steps
from kbatch.engine.preemption.sums import Promises, capability, promised, promises_to_keep
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import unplaced
from kbatch.engine.state.queues import QueueState
from kbatch.engine.state.wanted import Wanted
from kbatch.model.jobs import Job
from kbatch.model.tasks import Task
from kbatch.resources import Resources, add

EVICTOR: Final = Evictor("preempt", "preemptable")
"""On whose behalf units of the same queue are evicted."""

_LOOKED_AT: Final = 200
_IN_EARNEST: Final = 16
"""So many jobs `in_reach` looks at, and finds: a few milliseconds, and a tenth of a second in pieces."""


def in_reach(session: Session, queue: QueueState, jobs: Iterable[JobState]) -> list[JobState]:
    """Of these jobs the first few for which room and capability would do by sums, were all gone that could go.

    A quick no for nearly all that wait in a queue that is full of their like.
    """
    free = session.usable()
    held: dict[int, Resources] = {}
    found: list[JobState] = []
    for job in islice(jobs, _LOOKED_AT):
        lower = held.get(job.priority)
        if lower is None:
            lower = held[job.priority] = add(
                *(other.bound for other in queue.record.holders.values() if _gives(other, job.priority))
            )
        if lower and _enough(queue, _least(job), free, lower):
            found.append(job)
            if len(found) == _IN_EARNEST:
                break
    return found


def _gives(other: Job, priority: int) -> bool:
    """Whether a group could give anything to one of this priority: to its equals, more than its only pod, unless it
    has a lifetime that may be over.
    """
    if other.disruption == "Never" or other.priority > priority:
        return False
    ends = other.group is not None and other.group.spec.lifetime_seconds is not None
    if other.gang and other.disruption != "Whole" and other.holding <= other.minimum and not ends:
        return False
    return other.holding > (0 if other.priority < priority or ends else 1)


def _least(job: JobState) -> Resources:
    """What its next step asks for at least, whichever pods are taken."""
    tasks, count = unplaced(job), job.missing() or 1
    names = {name for task in tasks for name in task.cls.request}
    return {name: sum(sorted([task.cls.request.get(name, 0) for task in tasks])[:count]) for name in sorted(names)}


def _enough(queue: QueueState, request: Resources, free: Resources, lower: Resources) -> bool:
    hard = queue.record.capability or {}
    return all(
        amount <= free.get(name, 0) + lower.get(name, 0)
        and (name not in hard or queue.allocated.get(name, 0) - lower.get(name, 0) + amount <= hard[name])
        for name, amount in request.items()
    )


def preempting(
    context: CycleContext, queue: QueueState, job: JobState, searches: Searches
) -> Generator[Transaction | Turn, None, bool]:
    """One step of a job, the first that can be taken; returns whether room was made for one."""
    if searches.barren(queue):
        return False
    if context.planned is not None:
        context.planned.lay(job, waits=True)
    for wanted in next_steps(context, job):
        with keeping_to(job, wanted):
            preemptor = preemptor_of(context, job, wanted)
            if (yield from _take(context, queue, preemptor, wanted.single, searches)):
                return True
        if wanted.single is not None and job.job.holding:
            inside = replace(preemptor, intra=True)
            if (yield from _take(context, queue, inside, wanted.single, searches)):
                return True
    return False


def preemptor_of(context: CycleContext, job: JobState, wanted: Wanted, *, ahead: bool = False) -> Preemptor:
    """The job as one that makes room for this step; `ahead`: its pods are yet to be made."""
    lacks = lacking(context, wanted.tasks)
    return Preemptor(job, wanted.tasks, wanted.request, lacks=lacks, held=dict(job.allocated), ahead=ahead)


def _take(
    context: CycleContext, queue: QueueState, preemptor: Preemptor, single: Task | None, searches: Searches
) -> Generator[Transaction | Turn, None, bool]:
    """Make room for one step, by pods of other jobs, or by the job's own; returns whether it was made."""
    job = preemptor.job
    if any_may_go(context.session, EVICTOR.ballot, preemptor, queue.record):
        yield from looking_around(context, (queue.record,))
    if not preemptor.intra and not within_reach(context, EVICTOR.ballot, preemptor, single, (queue.record,)):
        return False
    keeps = promises_to_keep(context, queue, job, single)
    mark = (
        "preempt", tuple([holder.key for holder, _ in keeps]), preemptor.intra, job.key if preemptor.intra else "",
        likeness(preemptor), asks_alike(context, job, preemptor.tasks if single is not None else unplaced(job)),
    )  # fmt: skip
    donors = Donors(only=job) if preemptor.intra else Donors((queue.record,))
    goal = partial(_goal, context, queue, preemptor, single, keeps)
    return (yield from making_room(context, EVICTOR, job, mark, goal, donors, searches))


def _goal(context: CycleContext, queue: QueueState, preemptor: Preemptor, single: Task | None, keeps: Promises) -> Goal:
    """The step, within the queue's capability, and beside what others were promised that it must leave to them."""
    names = preemptor.request
    return Goal(preemptor, single, capability(queue, names, keeps) + promised(context, keeps, names))
