"""How many more pods a job may place, whatever room there is: asked of the very pods that are placed.

A `Statement` asks every limit of its session before it binds or nominates a task, and nobody else decides. Who counts
beforehand, for tasks that are not placed in the end, saves work by it and must not refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from kbatch.api.reasons import NotEnoughTasks, QueueCapabilityExceeded, Reason
from kbatch.engine.plugin import Plugin
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.model.nodes import Mask
from kbatch.model.tasks import Task
from kbatch.resources import total


class Limit:
    """One limit; by default it limits nothing. It reads the session's sums, which the open statement has changed."""

    keeps_together: ClassVar[bool] = False
    """Whether it is of where a job's pods stand to one another."""

    def headroom(self, job: JobState, task: Task) -> int | None:
        """How many more tasks of this one's class and role the job may place now; None: as many as it likes."""
        return None

    def rows(self, job: JobState, task: Task, *, waits: bool = False) -> Mask | None:
        """The nodes (rows of the table) that the task may be placed on, or (`waits`) wait for; None: all."""
        return None

    def refusal(self, job: JobState, task: Task) -> Reason:
        """Why one more such task may not be placed now; asked where there is no headroom, or a node is refused."""
        raise NotImplementedError


def over_capability(queue: QueueState, tasks: Sequence[Task]) -> Reason | None:
    """Why these pods together would take the queue over its hard cap: the first dimension, by name."""
    capability = queue.record.capability
    if not capability:
        return None
    asked = total(task.cls.request for task in tasks)
    for name in sorted(asked):
        used, hard = queue.allocated.get(name, 0), capability.get(name)
        if hard is not None and asked[name] and used + asked[name] > hard:
            return QueueCapabilityExceeded(queue.name, name, asked[name], 0, used, hard)
    return None


def beyond_capability(queue: QueueState, asked: Mapping[str, int]) -> bool:
    """Whether somebody asks for more than the queue may ever hold: promised room would stand idle for it."""
    return any(asked.get(name, 0) > most for name, most in (queue.record.capability or {}).items())


class Capability(Limit):
    """The hard cap of the job's queue, in each dimension that it names."""

    def __init__(self, queues: Mapping[str, QueueState]) -> None:
        self._queues = queues

    def headroom(self, job: JobState, task: Task) -> int | None:
        """What is left of the cap, counted in requests of the task."""
        queue = self._queues.get(job.queue)
        if queue is None or not queue.record.capability:
            return None
        least: int | None = None
        for name, hard in queue.record.capability.items():
            amount = task.cls.request.get(name, 0)
            if amount:
                more = max(0, (hard - queue.allocated.get(name, 0)) // amount)
                least = more if least is None else min(least, more)
        return least

    def refusal(self, job: JobState, task: Task) -> Reason:
        """The first dimension, by name, in which the task alone would pass the cap."""
        reason = over_capability(self._queues[job.queue], (task,))
        if reason is None:
            raise LookupError(job.queue)  # asked only where there is no headroom
        return reason


class RoleMaximum(Limit):
    """The maxMember of the task's role."""

    def headroom(self, job: JobState, task: Task) -> int | None:
        """How many more pods the role may have."""
        return job.role_headroom(task.role)

    def refusal(self, job: JobState, task: Task) -> Reason:
        """The role has as many as it may, and the minimum needs more: from others, which are not there."""
        return NotEnoughTasks(job.pipelined, job.minimum)


class Together(Limit):
    """The nodes to which those of the job's pods that stand bind the others, as plugins say that keep them together."""

    keeps_together = True

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = plugins

    def rows(self, job: JobState, task: Task, *, waits: bool = False) -> Mask | None:
        """What all of the plugins allow."""
        if job.together is None or not job.strict:
            return None
        found: Mask | None = None
        for plugin in self._plugins:
            allowed = plugin.within(job, task)
            if allowed is not None:
                found = allowed if found is None else found & allowed
        return found

    def refusal(self, job: JobState, task: Task) -> Reason:
        """The first plugin's that has one."""
        for plugin in self._plugins:
            reason = plugin.apart(job, task.role or None, job.minimum, job.pipelined, -1)
            if reason is not None:
                return reason
        return NotEnoughTasks(job.pipelined, job.minimum)


class ByPlugins(Limit):
    """What plugins say of sums beyond capability, such as budgets.

    Args:
        plugins: those that limit anything in this cycle.
        restoring: whether what earlier cycles have decided is being put in its place: that is not judged again.
    """

    def __init__(self, plugins: Sequence[Plugin], restoring: Callable[[], bool]) -> None:
        self._plugins = plugins
        self._restoring = restoring

    def headroom(self, job: JobState, task: Task) -> int | None:
        """The least that any of them leaves."""
        if self._restoring():
            return None
        least: int | None = None
        for plugin in self._plugins:
            found = plugin.headroom(job, task)
            if found is not None:
                least = found if least is None else min(least, found)
        return least

    def refusal(self, job: JobState, task: Task) -> Reason:
        """That of the first plugin that leaves none."""
        for plugin in self._plugins:
            if plugin.headroom(job, task) == 0:
                return plugin.too_much(job, task)
        raise LookupError(job.key)  # asked only where there is no headroom
