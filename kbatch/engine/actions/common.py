"""What several actions need: the queue loop, and the check of a queue's capability."""

from __future__ import annotations

from kbatch.api.reasons import QueueCapabilityExceeded, Reason
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.model.tasks import Task


def over_capability(queue: QueueState, tasks: list[Task]) -> Reason | None:
    """Why these pods would take the queue over its hard cap."""
    capability = queue.record.capability
    if not capability:
        return None
    asked: dict[str, int] = {}
    for task in tasks:
        for name, amount in task.cls.request.items():
            asked[name] = asked.get(name, 0) + amount
    for name in sorted(asked):
        hard = capability.get(name)
        if hard is not None and asked[name] and queue.allocated.get(name, 0) + asked[name] > hard:
            return QueueCapabilityExceeded(queue.name, name, asked[name], 0, queue.allocated.get(name, 0), hard)
    return None


def awaits_capability(session: Session, job: JobState) -> bool:
    """Whether the nominated pods of the job have to wait until others of its queue are gone: with both there, the
    queue would hold more than its hard cap.
    """
    queue = session.queues.get(job.queue)
    if queue is None or not queue.record.capability:
        return False
    asked = {name for task, _ in job.nominated.values() for name in task.cls.request}
    leaving: dict[str, int] = {}
    for other in queue.record.jobs.values():
        if other.terminating:
            for task in other.tasks.values():
                if task.terminating and task.node and not task.terminal:
                    for name, amount in task.cls.request.items():
                        leaving[name] = leaving.get(name, 0) + amount
    return any(
        leaving.get(name, 0) and queue.allocated.get(name, 0) + leaving[name] > hard
        for name, hard in queue.record.capability.items() if name in asked
    )  # fmt: skip
