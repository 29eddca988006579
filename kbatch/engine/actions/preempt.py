"""preempt: inside a queue, what matters more takes the place of what matters less.

First between jobs: a job that lacks its minimum as a whole, one that has it pod by pod. Then inside a job: its waiting
pods take the place of its own pods of lower priority. A group that has just come in queue, and whose pods are yet to be
made, is cleared room of its queue's surplus.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Final

from kbatch.engine.actions.base import Action
from kbatch.engine.coming import awaited, behind, foreseen, fresh
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Transaction, Turn
from kbatch.engine.demand import ToCome
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import When
from kbatch.engine.plugin import Preemptor
from kbatch.engine.preemption.search import Evictor, Searches, lacking, next_step, planning
from kbatch.engine.session.guarding import attempt, key_of, working
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Operation, Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, signature, unplaced
from kbatch.engine.state.queues import QueueState
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
    lines: dict[str, list[tuple[Any, JobState]]] = {}
    for job in session.live():
        if session.due():
            yield TURN
        if not job.idle and job.in_queue and job.possible and not job.nominated:
            _stand(session, lines, job)
    coming = _to_come(context)
    for job, _ in coming.values():
        if job.idle:
            _stand(session, lines, job)
    searches = Searches(context, _EVICTOR)
    session.caches.append(searches.known.clear)
    for queue in sorted((session.queue(name) for name in lines), key=session.queue_key):
        line = lines[queue.name]
        heapq.heapify(line)
        gives = any(other.holding for other in queue.record.jobs.values())
        while line:
            job = heapq.heappop(line)[1]
            pods = coming.pop(job.key, None)
            if not job.possible:
                continue  # another one's step has found it failing
            if pods is not None:
                yield from working(session, job, partial(_clear, context, queue, job, pods[1], searches), None)
                yield TURN
                continue
            moved = gives and (yield from working(session, job, partial(_step, context, queue, job, searches), False))
            yield TURN
            key = key_of(session, job) if moved and job.possible else None
            if key is not None:
                heapq.heappush(line, (key, job))


def _stand(session: Session, lines: dict[str, list[tuple[Any, JobState]]], job: JobState) -> None:
    """Put the job into the line of its queue."""
    key = key_of(session, job)
    if key is not None:
        lines.setdefault(job.queue, []).append((key, job))


def _step(
    context: CycleContext, queue: QueueState, job: JobState, searches: Searches
) -> Generator[Transaction | Turn, None, bool]:
    """One preemptor of a job; returns whether room was made for it."""
    session = context.session
    step = next_step(context, job)
    if step is None:
        return False
    single, tasks = step
    request = total(task.cls.request for task in tasks)
    lacks = lacking(context, tasks)

    held = dict(job.allocated)
    attempts: list[tuple[Preemptor, Callable[[], list[JobState]]]] = [
        (Preemptor(job, tuple(tasks), request, lacks=lacks, held=held), lambda: _rivals(session, queue, job))
    ]
    if single is not None and job.job.holding:
        attempts.append((Preemptor(job, tuple(tasks), request, intra=True, lacks=lacks, held=held), lambda: [job]))
    for preemptor, donors in attempts:
        mark = (
            "preempt", job.queue, job.priority, job.key if preemptor.intra or _ends(job) else "",
            tuple(sorted(held.items())), signature(job, tasks if single is not None else unplaced(job)),
        )  # fmt: skip
        if context.unschedulable.hopeless(mark):
            continue
        found = yield from planning(context, _EVICTOR, preemptor, donors, single=single, searches=searches)
        if found is None:
            context.unschedulable.note_hopeless(mark)
            continue
        if _over_capability(queue, request):
            found.rollback()
            continue
        yield from found.commit()
        return True
    return False


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
    session = context.session
    existing = job.waiting
    job.waiting = [*existing, *awaited(session, job, pods)]
    try:
        found = yield from _plan_ahead(context, queue, job, searches)
        if found is not None:
            steps = found.recorded()
            found.rollback()
            found.replay(step for step in steps if step[0] is Operation.EVICT)
            for operation, task, row, _, _ in steps:
                if operation is Operation.PIPELINE:
                    session.room.pipeline(task.cls, row)
            yield from found.commit()
    finally:
        job.waiting = existing


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
    tasks = next_tasks(job, unplaced(job))
    preemptor = Preemptor(
        job, tuple(tasks), total(task.cls.request for task in tasks), lacks=lacking(context, tasks),
        held=dict(job.allocated), ahead=True,
    )  # fmt: skip
    found = yield from planning(
        context, _EVICTOR, preemptor, lambda: _rivals(session, queue, job), single=None, searches=searches
    )
    if found is not None and _over_capability(queue, preemptor.request):
        found.rollback()
        return None
    return found


def _reclaims(context: CycleContext, queue: QueueState, job: JobState) -> bool:
    """Whether its queue's share covers all that its groups were promised: what lacks is fetched from other queues."""
    if not context.session.policy.has("reclaim"):
        return False
    promised = add(*(amounts for other, amounts in context.ledger.promises() if other.queue == job.queue))
    return all(
        queue.allocated.get(name, 0) + promised[name] <= queue.deserved.get(name, 0) for name in job.job.outstanding
    )


def _ends(job: JobState) -> bool:
    return job.job.group is not None and job.job.group.spec.lifetime_seconds is not None


def _over_capability(queue: QueueState, request: dict[str, int]) -> bool:
    """Whether, with the victims gone and the preemptor placed, the queue is over its hard cap in what is claimed."""
    capability = queue.record.capability or {}
    return any(queue.allocated.get(name, 0) > capability[name] for name in request if name in capability)
