"""preempt: inside a queue, what matters more takes the place of what matters less.

First between jobs: a job that lacks its minimum as a whole, one that has it pod by pod. Then inside a job: its waiting
pods take the place of its own pods of lower priority. A group that has just come in queue, and whose pods are yet to be
made, is cleared room of its queue's surplus.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from kbatch.engine.actions.base import Action
from kbatch.engine.actions.common import Line, lines_of
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Transaction, Turn
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import When
from kbatch.engine.plugin import Preemptor
from kbatch.engine.preemption.goal import Goal
from kbatch.engine.preemption.planning import planning
from kbatch.engine.preemption.polling import Evictor
from kbatch.engine.preemption.prospective import awaited, behind, foreseen, fresh
from kbatch.engine.preemption.reuse import Searches, likeness
from kbatch.engine.preemption.steps import keeping_to, lacking, next_steps
from kbatch.engine.preemption.sums import capability, promised
from kbatch.engine.session.guarding import attempt, working
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Operation, Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, signature, unplaced
from kbatch.engine.state.queues import QueueState
from kbatch.model.makers import ToCome
from kbatch.model.tasks import Task
from kbatch.resources import add, total
from kbatch.resources import lacking as short_of

_EVICTOR: Final = Evictor("preempt", "preemptable")


class Preempt(Action):
    """The action."""

    name = "preempt"
    victims = "preemptable"
    example = "priority or drf"

    def run(self, context: CycleContext) -> Iterator[Step]:
        """Run the action."""
        return _run(context)


def _run(context: CycleContext) -> Iterator[Transaction | Turn]:
    """Run the action."""
    session = context.session
    lines = yield from lines_of(session)
    coming = _to_come(context)
    for job, _ in coming.values():
        if job.idle:
            lines.setdefault(job.queue, Line(session, session.queue(job.queue))).stand(job)
    searches = Searches(context, _EVICTOR)
    session.caches.append(searches.forget)
    for line in sorted(lines.values(), key=lambda line: session.queue_key(line.queue)):
        queue = line.queue
        gives = any(other.holding for other in queue.record.jobs.values())
        while line:
            job = line.next()
            pods = coming.pop(job.key, None)
            if not job.possible:
                continue  # another one's step has found it failing
            if pods is not None:
                yield from working(session, job, partial(_clear, context, queue, job, pods[1], searches), None)
                yield TURN
                continue
            moved = gives and (yield from working(session, job, partial(_step, context, queue, job, searches), False))
            yield TURN
            if moved:
                line.stand(job)


def _step(
    context: CycleContext, queue: QueueState, job: JobState, searches: Searches
) -> Generator[Transaction | Turn, None, bool]:
    """One step of a job, the first that can be taken; returns whether room was made for one."""
    for wanted in next_steps(context, job):
        with keeping_to(job, wanted):
            preemptor = _preemptor(context, job, wanted.tasks)
            if (yield from _take(context, queue, preemptor, wanted.single, searches)):
                return True
        if wanted.single is not None and job.job.holding:
            inside = replace(preemptor, intra=True)
            if (yield from _take(context, queue, inside, wanted.single, searches)):
                return True
    return False


def _preemptor(context: CycleContext, job: JobState, tasks: Sequence[Task], *, ahead: bool = False) -> Preemptor:
    request = total(task.cls.request for task in tasks)
    return Preemptor(
        job, tuple(tasks), request, lacks=lacking(context, tasks), held=dict(job.allocated), ahead=ahead
    )  # fmt: skip


def _take(
    context: CycleContext, queue: QueueState, preemptor: Preemptor, single: Task | None, searches: Searches
) -> Generator[Transaction | Turn, None, bool]:
    """Make room for one step, by pods of other jobs, or by the job's own; returns whether it was made."""
    session, job = context.session, preemptor.job
    mark = (
        "preempt", preemptor.intra, job.key if preemptor.intra else "", likeness(preemptor),
        signature(job, preemptor.tasks if single is not None else unplaced(job)),
    )  # fmt: skip
    if context.unschedulable.hopeless(mark):
        return False
    donors = (lambda: [job]) if preemptor.intra else (lambda: _rivals(session, queue, job))
    found = yield from planning(context, _EVICTOR, _goal(context, queue, preemptor, single), donors, searches)
    if found is None:
        context.unschedulable.note_hopeless(mark)
        return False
    yield from found.commit()
    return True


def _goal(context: CycleContext, queue: QueueState, preemptor: Preemptor, single: Task | None) -> Goal:
    """The step, within the queue's capability; and beside what others were promised, if it was promised nothing."""
    job, names = preemptor.job, preemptor.request
    bounds = capability(queue, names)
    if single is not None or job.job.shadow:
        bounds += promised(context, job, names)
    return Goal(preemptor, single, bounds)


def _rivals(session: Session, queue: QueueState, job: JobState) -> list[JobState]:
    """The other jobs of the queue that hold something."""
    return [session.job(key) for key, other in queue.record.jobs.items() if other.holding and key != job.key]


def _to_come(context: CycleContext) -> dict[str, tuple[JobState, list[ToCome]]]:
    """Groups whose pods are yet to be made, where the room falls short of what they and others were promised.

    None where no group has just come in queue: only for such a one is anybody to go.
    """
    session = context.session
    promises = context.ledger.promises() if session.policy.has("enqueue") else ()
    if not any(fresh(job) for job, _ in promises):
        return {}
    if not short_of(add(*(amounts for _, amounts in promises)), session.usable()):
        return {}
    none: list[ToCome] = []
    found = {job.key: (job, attempt(session, job, partial(foreseen, session, job), none)) for job, _ in promises}
    return {key: (job, pods) for key, (job, pods) in found.items() if pods}


def _clear(
    context: CycleContext, queue: QueueState, job: JobState, pods: list[ToCome], searches: Searches
) -> Generator[Transaction | Turn, None, None]:
    """Keep room for pods that are yet to be made, for the rest of the cycle; fetch it from surplus if need be."""
    if context.feasibility.hopeless(job):
        return
    session = context.session
    whole = replace(job, waiting=[*job.waiting, *(yield from awaited(session, job, pods))])  # the same sums
    found = yield from _plan_ahead(context, queue, whole, searches)
    if found is None:
        return
    rows = list(whole.nominated.values())
    units = [(other, task) for operation, task, _, other, _ in found.recorded() if operation is Operation.EVICT]
    found.rollback()
    clearing = Statement(session, job)
    for other, task in units:
        clearing.evict(other, task, _EVICTOR.name)
    for task, row in rows:
        session.room.pipeline(task.cls, row)
    yield from clearing.commit()


def _plan_ahead(
    context: CycleContext, queue: QueueState, job: JobState, searches: Searches
) -> Generator[Turn, None, Statement | None]:
    session = context.session
    statement = Statement(session, job)
    if (yield from placing(context.rankings, statement, (When.LATER,))):
        return statement
    statement.rollback()
    if not fresh(job) or _reclaims(context, queue, job) or behind(session, job):
        return None
    preemptor = _preemptor(context, job, next_tasks(job, unplaced(job)), ahead=True)
    goal = Goal(preemptor, None, capability(queue, preemptor.request))
    return (yield from planning(context, _EVICTOR, goal, lambda: _rivals(session, queue, job), searches))


def _reclaims(context: CycleContext, queue: QueueState, job: JobState) -> bool:
    """Whether its queue's share covers all that its groups were promised: what lacks is fetched from other queues."""
    if not context.session.policy.has("reclaim"):
        return False
    promised = add(*(amounts for other, amounts in context.ledger.promises() if other.queue == job.queue))
    return all(
        queue.allocated.get(name, 0) + promised[name] <= queue.deserved.get(name, 0) for name in job.job.outstanding
    )
