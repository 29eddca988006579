"""What is lost when a pod is evicted: the work since it was last saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kbatch.model.annotations import checkpoint_said
from kbatch.model.jobs import Job
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import CPU, MEMORY, Resources

_FINE: Final = 32


class LostWork:
    """Time since the last checkpoint, times what the pods hold, at one instant.

    What a pod holds counts in parts of the cluster, the sum over cpu, memory and extended resources, in 2^-32. The time
    (microseconds) is since its own annotation, else its group's, and never longer than it has stood on its node; where
    neither says anything that can be read, it is just that.
    """

    def __init__(self, now: int, total: Resources) -> None:
        self._now = now
        self._total = {name: most for name, most in total.items() if most and (name in {CPU, MEMORY} or "/" in name)}
        self._parts: dict[int, int] = {}

    def of(self, job: Job, tasks: Iterable[Task]) -> int:
        """What is lost with these pods of the group."""
        saved = checkpoint_said(job.group.metadata) if job.group is not None else None
        lost = 0
        for task in tasks:
            own = checkpoint_said(task.pod.metadata)
            since = max(task.started, own if own is not None else saved if saved is not None else task.started)
            lost += max(0, self._now - since) * self._part(task.cls)
        return lost

    def _part(self, cls: TaskClass) -> int:
        found = self._parts.get(cls.id)
        if found is None:
            found = self._parts[cls.id] = _part(cls.request, self._total)
        return found


def _part(request: Mapping[str, int], total: Mapping[str, int]) -> int:
    return sum((amount << _FINE) // total[name] for name, amount in request.items() if name in total)
