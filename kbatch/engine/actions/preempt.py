"""preempt: inside a queue, what matters more takes the place of what matters less.

First between jobs: a job that lacks its minimum as a whole, one that has it pod by pod. Then inside a job: its waiting
pods take the place of its own pods of lower priority.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

from kbatch.engine.boundary import TURN, Transaction, Turn
from kbatch.engine.planning import signature, unplaced
from kbatch.engine.plugin import Claim
from kbatch.engine.state import JobState, QueueState
from kbatch.engine.victims import Hunts, lacking, next_step, plan
from kbatch.resources import total

if TYPE_CHECKING:
    from kbatch.engine.session import Session


def preempt(session: Session) -> Iterator[Transaction | Turn]:
    """Run the action."""
    lines: dict[str, list[tuple[Any, JobState]]] = {}
    for job in session.live():
        if session.due():
            yield TURN
        if not job.idle and job.in_queue and job.possible and not job.nominated:
            lines.setdefault(job.queue, []).append((session.job_key(job), job))
    hunts: Hunts = {}
    for queue in sorted((session.queue(name) for name in lines), key=session.queue_key):
        line = lines[queue.name]
        heapq.heapify(line)
        while line:
            job = heapq.heappop(line)[1]
            moved = yield from _step(session, queue, job, hunts)
            yield TURN
            if moved:
                heapq.heappush(line, (session.job_key(job), job))


def _step(session: Session, queue: QueueState, job: JobState, hunts: Hunts) -> Generator[Transaction, None, bool]:
    """One claim of a job; returns whether room was made for it."""
    step = next_step(session, job)
    if step is None:
        return False
    single, tasks = step
    request = total(task.cls.request for task in tasks)
    lacks = lacking(session, tasks)

    def rivals() -> list[JobState]:
        return [session.job(key) for key, other in queue.record.jobs.items() if other.holding and key != job.key]

    held = dict(job.allocated)
    attempts: list[tuple[Claim, Callable[[], list[JobState]]]] = [
        (Claim(job, tuple(tasks), request, lacks=lacks, held=held), rivals)
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
        found = plan(session, "preempt", claim, donors, single=single, hunts=hunts)
        if found is None:
            session.note_hopeless(mark)
            continue
        if _over_capability(queue, request):
            found.rollback()
            continue
        yield from found.commit()
        return True
    return False


def _ends(job: JobState) -> bool:
    return job.job.group is not None and job.job.group.spec.lifetime_seconds is not None


def _over_capability(queue: QueueState, request: dict[str, int]) -> bool:
    """Whether, with the victims gone and the claim placed, the queue is over its hard cap in what is claimed."""
    capability = queue.record.capability or {}
    return any(queue.allocated.get(name, 0) > capability[name] for name in request if name in capability)
