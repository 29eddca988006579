"""preempt: inside a queue, what matters more takes the place of what matters less.

First between jobs: a job that lacks its minimum as a whole, one that has it pod by pod. Then inside a job: its waiting
pods take the place of its own pods of lower priority. A group that has just come in queue, and whose pods are yet to be
made, is cleared room of its queue's surplus.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import partial

from kbatch.engine.actions.alike import before_trying, pass_alike, tells_of_others
from kbatch.engine.actions.base import Action
from kbatch.engine.actions.common import Line, lines_of
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Transaction, Turn
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import When
from kbatch.engine.preemption.candidates import Donors
from kbatch.engine.preemption.goal import Goal
from kbatch.engine.preemption.planning import planning
from kbatch.engine.preemption.prospective import awaited, behind, foreseen, fresh
from kbatch.engine.preemption.reuse import Searches
from kbatch.engine.preemption.sparing import Decided
from kbatch.engine.preemption.sums import capability
from kbatch.engine.preemption.within_queue import EVICTOR, preempting, preemptor_of
from kbatch.engine.session.guarding import attempt, working
from kbatch.engine.session.statement import Operation, Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, unplaced
from kbatch.engine.state.queues import QueueState
from kbatch.engine.state.wanted import Wanted
from kbatch.model.makers import ToCome
from kbatch.resources import add
from kbatch.resources import lacking as short_of


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
    if context.planned is not None:
        context.planned.lift()  # what is planned for a job is not what others were promised; each is told of it below
    lines = yield from lines_of(session)
    coming = _to_come(context)
    for job, _ in coming.values():
        if job.idle:
            lines.setdefault(job.queue, Line(session, session.queue(job.queue))).stand(job)
    searches, decided = Searches(context, EVICTOR), Decided(context)
    session.caches.append(searches.forget)
    for line in sorted(lines.values(), key=lambda line: session.plugins.queue_key(line.queue)):
        queue = line.queue
        gives = any(other.holding for other in queue.record.holders.values())
        while line:
            job = line.next()
            pods = coming.pop(job.key, None)
            if not job.possible:
                continue  # another one's step has found it failing
            if pods is not None:
                clear = partial(_clear, context, queue, job, pods[1], searches)
                yield from decided.keeping(working(session, job, clear, None))
                yield TURN
                continue
            step = partial(preempting, context, queue, job, searches)
            before = before_trying(context, job)
            moved = gives and (yield from decided.keeping(working(session, job, step, False)))
            yield TURN
            if moved:
                line.stand(job)
            elif tells_of_others(context, job, before):
                yield from pass_alike(context, line, job)
    yield from decided.sparing()


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
    if context.planned is not None:
        context.planned.lay(job, waits=True)
    whole = replace(job, waiting=[*job.waiting, *(yield from awaited(session, job, pods))])  # the same sums
    found = yield from _plan_ahead(context, queue, whole, searches)
    if found is None:
        return
    rows = list(whole.nominated.values())
    units = [(other, task) for operation, task, _, other, _ in found.recorded() if operation is Operation.EVICT]
    found.rollback()
    clearing = Statement(session, job)
    for other, task in units:
        clearing.evict(other, task, EVICTOR.name)
    for task, row in rows:
        session.room.pipeline(task.cls, row)
        session.whole_nodes.hold(task, row, 1)
    yield from clearing.commit()


def _plan_ahead(
    context: CycleContext, queue: QueueState, job: JobState, searches: Searches
) -> Generator[Turn, None, Statement | None]:
    session = context.session
    statement = Statement(session, job)
    if (yield from placing(context.rankings, statement, (When.LATER,))):
        return statement
    statement.rollback()
    if not fresh(job) or _reclaims(context, queue, job) or behind(session, job.queue, job.job.outstanding):
        return None
    if job.job.proven < job.priority:
        return None  # what its class is worth will be seen of its pods
    preemptor = preemptor_of(context, job, Wanted(tuple(next_tasks(job, unplaced(job)))), ahead=True)
    goal = Goal(preemptor, None, capability(queue, preemptor.request))
    return (yield from planning(context, EVICTOR, goal, Donors((queue.record,)), searches))


def _reclaims(context: CycleContext, queue: QueueState, job: JobState) -> bool:
    """Whether its queue's share covers all that its groups were promised: what lacks is fetched from other queues."""
    if not context.session.policy.has("reclaim"):
        return False
    promised = add(*(amounts for other, amounts in context.ledger.promises() if other.queue == job.queue))
    return all(
        queue.allocated.get(name, 0) + promised[name] <= queue.deserved.get(name, 0) for name in job.job.outstanding
    )
