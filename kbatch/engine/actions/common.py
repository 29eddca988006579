"""What several actions need: the queue loop, and the check of a queue's capability."""

from __future__ import annotations

from kbatch.api.reasons import QueueCapabilityExceeded, Reason
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
