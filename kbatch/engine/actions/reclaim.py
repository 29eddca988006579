"""reclaim: a queue below its deserved share takes back what others hold beyond theirs.

The receiver ends at most at its share; donors give only what is above theirs. Where idle or releasing room serves, it
is set aside for the job until the action ends, so that nobody is evicted in its stead; allocate then gives it out in
order.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kbatch.api.reasons import GangExceedsReclaimableShare
from kbatch.engine.actions.allocate import over_capability
from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.placement.gang import place_minimum, signature, unplaced
from kbatch.engine.placement.ranking import When
from kbatch.engine.plugin import Claim
from kbatch.engine.preemption.search import Hunts, lacking, next_step, planning
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState, QueueState
from kbatch.resources import total

if TYPE_CHECKING:
    from kbatch.engine.session.session import Session


def reclaim(session: Session) -> Iterator[Transaction | Turn]:
    """Run the action."""
    if not any(_gives(queue, queue.deserved) for queue in session.queues.values()):
        return
    lines: dict[str, list[tuple[Any, JobState]]] = {}
    for job in session.live():
        if session.due():
            yield TURN
        queue = session.queues.get(job.queue)
        if not job.idle and queue is not None and job.in_queue and job.possible and not job.nominated:
            lines.setdefault(job.queue, []).append((session.job_key(job), job))
    heap = []
    for name, line in lines.items():
        heapq.heapify(line)
        heap.append((session.queue_key(session.queue(name)), name))
    heapq.heapify(heap)
    aside: list[Statement] = []
    hunts = Hunts(session, "reclaim")
    while heap:
        _, name = heap[0]
        line = lines[name]
        job = heapq.heappop(line)[1]
        moved = yield from _step(session, session.queue(name), job, aside, hunts)
        yield TURN
        if moved:
            heapq.heappush(line, (session.job_key(job), job))
        if line:
            heapq.heapreplace(heap, (session.queue_key(session.queue(name)), name))
        else:
            heapq.heappop(heap)
    for statement in reversed(aside):
        statement.rollback()
    session.commits += len(aside)


def _step(
    session: Session, queue: QueueState, job: JobState, aside: list[Statement], hunts: Hunts
) -> Generator[Transaction | Turn, None, bool]:
    """One claim of a job; returns whether room was found for it."""
    step = next_step(session, job)
    if step is None:
        return False
    single, tasks = step
    request = total(task.cls.request for task in tasks)
    if over_capability(queue, tasks) is not None:
        return False
    known = single is None and session.failures.known(signature(job, unplaced(job)), unplaced(job))
    statement = Statement(session, job)
    if known:
        fits = False
    elif single is None:
        fits = place_minimum(statement, (When.NOW, When.LATER))
    else:
        rows = session.placement.fit(single.cls, When.LATER).choose(1)
        fits = bool(rows)
        if rows:
            statement.nominate(single, rows[0])
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
    claim = Claim(job, tuple(tasks), request, lacks=lacking(session, tasks), held=dict(job.allocated))
    if not any(_gives(other, claim.lacks) for other in session.queues.values() if other is not queue):
        return False
    mark = ("reclaim", job.queue, signature(job, tasks if single is not None else unplaced(job)), single is not None)
    if session.hopeless(mark):
        return False
    found = yield from planning(
        session, "reclaim", claim, lambda: _donors(session, queue, claim), single=single, hunts=hunts
    )  # fmt: skip
    if found is None:
        session.note_hopeless(mark)
        return False
    yield from found.commit()
    return True


def _exceeds(session: Session, queue: QueueState, request: dict[str, int]) -> GangExceedsReclaimableShare | None:
    """In which dimension the claim would take its queue past its share."""
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


def _donors(session: Session, receiver: QueueState, claim: Claim) -> list[JobState]:
    """The jobs of reclaimable queues that are above their share in a dimension that the claim lacks."""
    found: list[JobState] = []
    for queue in session.queues.values():
        if queue is receiver:
            continue
        if _gives(queue, claim.lacks):
            found.extend(session.job(key) for key, job in queue.record.jobs.items() if job.holding)
    return found
