"""preempt: inside a queue, what matters more takes the place of what matters less.

First between jobs: a job that lacks its minimum as a whole, one that has it pod by pod. Then inside a job: its waiting
pods take the place of its own pods of lower priority. A group that has just come in queue, and whose pods are yet to be
made, is cleared room of its queue's surplus.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from kbatch.engine.coming import awaited, behind, foreseen, fresh
from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.placement.gang import next_tasks, placing, signature, unplaced
from kbatch.engine.placement.ranking import When
from kbatch.engine.plugin import Claim
from kbatch.engine.preemption.search import Hunts, lacking, next_step, planning
from kbatch.engine.session.statement import Kind, Statement
from kbatch.engine.state.jobs import JobState, QueueState
from kbatch.model.makers import ToCome
from kbatch.resources import add, total
from kbatch.resources import lacking as short_of

if TYPE_CHECKING:
    from kbatch.engine.session.session import Session


def preempt(session: Session) -> Iterator[Transaction | Turn]:
    """Run the action."""
    lines: dict[str, list[tuple[Any, JobState]]] = {}
    for job in session.live():
        if session.due():
            yield TURN
        if not job.idle and job.in_queue and job.possible and not job.nominated:
            lines.setdefault(job.queue, []).append((session.job_key(job), job))
    coming = _to_come(session)
    for job, _ in coming.values():
        if job.idle:
            lines.setdefault(job.queue, []).append((session.job_key(job), job))
    hunts = Hunts(session, "preempt")
    for queue in sorted((session.queue(name) for name in lines), key=session.queue_key):
        line = lines[queue.name]
        heapq.heapify(line)
        gives = any(other.holding for other in queue.record.jobs.values())
        while line:
            job = heapq.heappop(line)[1]
            pods = coming.pop(job.key, None)
            if pods is not None:
                yield from _clear(session, queue, job, pods[1], hunts)
                yield TURN
                continue
            moved = gives and (yield from _step(session, queue, job, hunts))
            yield TURN
            if moved:
                heapq.heappush(line, (session.job_key(job), job))


def _step(
    session: Session, queue: QueueState, job: JobState, hunts: Hunts
) -> Generator[Transaction | Turn, None, bool]:
    """One claim of a job; returns whether room was made for it."""
    step = next_step(session, job)
    if step is None:
        return False
    single, tasks = step
    request = total(task.cls.request for task in tasks)
    lacks = lacking(session, tasks)

    held = dict(job.allocated)
    attempts: list[tuple[Claim, Callable[[], list[JobState]]]] = [
        (Claim(job, tuple(tasks), request, lacks=lacks, held=held), lambda: _rivals(session, queue, job))
    ]
    if single is not None and job.job.holding:
        attempts.append((Claim(job, tuple(tasks), request, intra=True, lacks=lacks, held=held), lambda: [job]))
    for claim, donors in attempts:
        mark = (
            "preempt", job.queue, job.priority, job.key if claim.intra or _ends(job) else "",
            tuple(sorted(held.items())), signature(job, tasks if single is not None else unplaced(job)),
        )  # fmt: skip
        if session.hopeless(mark):
            continue
        found = yield from planning(session, "preempt", claim, donors, single=single, hunts=hunts)
        if found is None:
            session.note_hopeless(mark)
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


def _to_come(session: Session) -> dict[str, tuple[JobState, list[ToCome]]]:
    """Groups whose pods are yet to be made, where the room falls short of what they and others were promised.

    None where no group has just come in queue: only for such a one is anybody to go.
    """
    promises = session.promises() if session.policy.has("enqueue") else ()
    if not any(fresh(job) for job, _ in promises):
        return {}
    if not short_of(add(*(amounts for _, amounts in promises)), session.usable()):
        return {}
    found = {job.key: (job, foreseen(session, job)) for job, _ in promises}
    return {key: (job, pods) for key, (job, pods) in found.items() if pods}


def _clear(
    session: Session, queue: QueueState, job: JobState, pods: list[ToCome], hunts: Hunts
) -> Generator[Transaction | Turn, None, None]:
    """Keep room for pods that are yet to be made, for the rest of the cycle; fetch it from surplus if need be."""
    if session.emptied.hopeless(job):
        return
    existing = job.waiting
    job.waiting = [*existing, *(yield from awaited(session, job, pods))]
    found = yield from _plan_ahead(session, queue, job, hunts)
    if found is not None:
        steps = found.recorded()
        found.rollback()
        found.replay(step for step in steps if step[0] is Kind.EVICT)
        for kind, task, row, _, _ in steps:
            if kind is Kind.NOMINATE:
                session.room.nominate(task.cls, row)
        yield from found.commit()
    job.waiting = existing


def _plan_ahead(
    session: Session, queue: QueueState, job: JobState, hunts: Hunts
) -> Generator[Turn, None, Statement | None]:
    statement = Statement(session, job)
    if (yield from placing(statement, (When.LATER,))):
        return statement
    statement.rollback()
    if not fresh(job) or _reclaims(session, queue, job) or behind(session, job):
        return None
    tasks = next_tasks(job, unplaced(job))
    claim = Claim(
        job, tuple(tasks), total(task.cls.request for task in tasks), lacks=lacking(session, tasks),
        held=dict(job.allocated), ahead=True,
    )  # fmt: skip
    found = yield from planning(
        session, "preempt", claim, lambda: _rivals(session, queue, job), single=None, hunts=hunts
    )
    if found is not None and _over_capability(queue, claim.request):
        found.rollback()
        return None
    return found


def _reclaims(session: Session, queue: QueueState, job: JobState) -> bool:
    """Whether its queue's share covers all that its groups were promised: what lacks is fetched from other queues."""
    if not session.policy.has("reclaim"):
        return False
    promised = add(*(amounts for other, amounts in session.promises() if other.queue == job.queue))
    return all(
        queue.allocated.get(name, 0) + promised[name] <= queue.deserved.get(name, 0) for name in job.job.outstanding
    )


def _ends(job: JobState) -> bool:
    return job.job.group is not None and job.job.group.spec.lifetime_seconds is not None


def _over_capability(queue: QueueState, request: dict[str, int]) -> bool:
    """Whether, with the victims gone and the claim placed, the queue is over its hard cap in what is claimed."""
    capability = queue.record.capability or {}
    return any(queue.allocated.get(name, 0) > capability[name] for name in request if name in capability)
