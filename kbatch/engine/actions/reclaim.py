"""reclaim: a queue below its deserved share takes back what others hold beyond theirs.

The receiver ends at most at its share; donors give only what is above theirs. Where idle or releasing room serves, it
is set aside for the job until the action ends, so that nobody is evicted in its stead; allocate then gives it out in
order.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from typing import Any, Final

from kbatch.api.reasons import GangExceedsReclaimableShare
from kbatch.engine.actions.base import Action
from kbatch.engine.actions.common import over_capability
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Transaction, Turn
from kbatch.engine.placement.gang import place_minimum
from kbatch.engine.placement.ranking import When
from kbatch.engine.plugin import Preemptor
from kbatch.engine.preemption.search import Evictor, Searches, lacking, next_step, planning
from kbatch.engine.session.guarding import key_of, working
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import signature, unplaced
from kbatch.engine.state.queues import QueueState
from kbatch.resources import total

_EVICTOR: Final = Evictor("reclaim", "reclaimable")


class Reclaim(Action):
    """The action."""

    name = "reclaim"
    victims = "reclaimable"
    example = "proportion"

    def run(self, context: CycleContext) -> Iterator[Step]:
        """Run the action."""
        return _run(context)


def _run(context: CycleContext) -> Iterator[Transaction | Turn]:
    """Run the action."""
    session = context.session
    if not any(_gives(queue, queue.deserved) for queue in session.queues.values()):
        return
    lines: dict[str, list[tuple[Any, JobState]]] = {}
    for job in session.live():
        if session.due():
            yield TURN
        queue = session.queues.get(job.queue)
        if not job.idle and queue is not None and job.in_queue and job.possible and not job.nominated:
            key = key_of(session, job)
            if key is not None:
                lines.setdefault(job.queue, []).append((key, job))
    heap = []
    for name, line in lines.items():
        heapq.heapify(line)
        heap.append((session.queue_key(session.queue(name)), name))
    heapq.heapify(heap)
    aside: list[Statement] = []
    searches = Searches(context, _EVICTOR)
    session.caches.append(searches.known.clear)
    while heap:
        _, name = heap[0]
        line = lines[name]
        job = heapq.heappop(line)[1]
        if job.possible:
            step = partial(_step, context, session.queue(name), job, aside, searches)
            moved = yield from working(session, job, step, False)
            yield TURN
            key = key_of(session, job) if moved and job.possible else None
            if key is not None:
                heapq.heappush(line, (key, job))
        if not job.possible:
            _give_back(aside, job)
        if line:
            heapq.heapreplace(heap, (session.queue_key(session.queue(name)), name))
        else:
            heapq.heappop(heap)
    for statement in reversed(aside):
        statement.rollback()
    session.commits += len(aside)


def _give_back(aside: list[Statement], job: JobState) -> None:
    """Nothing is set aside any more for a job that failed."""
    for statement in reversed(aside):
        if statement.job is job:
            statement.rollback()
    aside[:] = [statement for statement in aside if statement.job is not job]


def _step(
    context: CycleContext, queue: QueueState, job: JobState, aside: list[Statement], searches: Searches
) -> Generator[Transaction | Turn, None, bool]:
    """One preemptor of a job; returns whether room was found for it."""
    session = context.session
    step = next_step(context, job)
    if step is None:
        return False
    single, tasks = step
    request = total(task.cls.request for task in tasks)
    if over_capability(queue, tasks) is not None:
        return False
    known = single is None and context.unschedulable.known(signature(job, unplaced(job)), unplaced(job))
    statement = Statement(session, job)
    if known:
        fits = False
    elif single is None:
        fits = place_minimum(context.rankings, statement, (When.NOW, When.LATER))
    else:
        rows = context.rankings.of(single.cls, When.LATER).choose(1)
        fits = bool(rows)
        if rows:
            statement.pipeline(single, rows[0])
    if fits:
        aside.append(statement)
        session.commits += 1  # what was in vain without it need not be so beside it
        return True
    statement.rollback()
    if single is not None and (job.bound < job.minimum or job.job.roles) and any(each.job is job for each in aside):
        return False  # its minimum is not decided yet: nobody is evicted for what stands on it
    exceeds = _exceeds(session, queue, request)
    if exceeds is not None:
        if single is None:
            session.refuse(job, exceeds)
        return False
    preemptor = Preemptor(job, tuple(tasks), request, lacks=lacking(context, tasks), held=dict(job.allocated))
    if not any(_gives(other, preemptor.lacks) for other in session.queues.values() if other is not queue):
        return False
    mark = ("reclaim", job.queue, signature(job, tasks if single is not None else unplaced(job)), single is not None)
    if context.unschedulable.hopeless(mark):
        return False
    found = yield from planning(
        context, _EVICTOR, preemptor, lambda: _donors(session, queue, preemptor), single=single, searches=searches
    )  # fmt: skip
    if found is None:
        context.unschedulable.note_hopeless(mark)
        return False
    yield from found.commit()
    return True


def _exceeds(session: Session, queue: QueueState, request: dict[str, int]) -> GangExceedsReclaimableShare | None:
    """In which dimension the preemptor would take its queue past its share."""
    for name in sorted(request):
        deserved = queue.deserved.get(name)
        if deserved is not None and request[name] and queue.allocated.get(name, 0) + request[name] > deserved:
            return GangExceedsReclaimableShare(
                queue.name, name, request[name], queue.allocated.get(name, 0), deserved, session.idle(name)
            )
    return None


def _gives(queue: QueueState, dimensions: Iterable[str]) -> bool:
    """Whether the queue holds more than it deserves in one of these dimensions, and may be asked for it."""
    return queue.record.reclaimable and any(
        queue.allocated.get(name, 0) > queue.deserved.get(name, 0) for name in dimensions
    )


def _donors(session: Session, receiver: QueueState, preemptor: Preemptor) -> list[JobState]:
    """The jobs of reclaimable queues that are above their share in a dimension that the preemptor lacks."""
    found: list[JobState] = []
    for queue in session.queues.values():
        if queue is receiver:
            continue
        if _gives(queue, preemptor.lacks):
            found.extend(session.job(key) for key, job in queue.record.jobs.items() if job.holding)
    return found
