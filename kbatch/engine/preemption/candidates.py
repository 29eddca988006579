"""What could be evicted for a preemptor: the candidates, pods and groups, and who of them goes before whom."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kbatch.engine.plugin import Unit
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.shrinking import cost_of, turn_of
from kbatch.model.jobs import Job, QueueRecord
from kbatch.model.tasks import Task
from kbatch.resources import add

Cost: TypeAlias = tuple[Any, ...]
"""What a set of units costs, or a lower bound of it; see `kbatch.engine.preemption.search`."""


@dataclass(eq=False, slots=True)
class Candidate:
    """A possible unit: one task, or (None) whatever its group still holds.

    Attributes:
        model: the group. state_of: says how the session sees it, by its key; few candidates are looked at so closely.
        order: its place among its like, of one rank; see `order_of`.
        kind: tasks of one kind get the same votes.
        row: of the node on which the task stands.
    """

    model: Job
    state_of: Callable[[str], JobState]
    task: Task | None
    order: tuple[Any, ...]
    kind: int
    row: int = -1

    @property
    def job(self) -> JobState:
        """The group as the session sees it."""
        return self.state_of(self.model.key)

    def unit(self) -> Unit | None:
        """The unit as it is now; None where nothing of it is left."""
        if self.task is not None:
            return None if self.task.key in self.job.evicted else single(self.job, self.task)
        return whole(self.job)


@dataclass(frozen=True, slots=True)
class Donors:
    """Whose pods may go: those of all groups of some queues, the preemptor's own left out; or (`only`) of one group."""

    queues: tuple[QueueRecord, ...] = ()
    only: JobState | None = None


def order_of(unit: Unit) -> tuple[Any, ...]:
    """Who goes before whom, of one tier: by the job's priority, the pod alone, its priority, the pod with which no
    group ends, what is lost, the role furthest above its minimum, the latest; see `kbatch.engine.state.shrinking`.
    """
    job = unit.job
    if unit.whole:
        return job.priority, True, unit.priority, True, *cost_of(job, *unit.tasks)
    return order_of_pod(job, unit.tasks[0])


def order_of_pod(job: JobState, task: Task) -> tuple[Any, ...]:
    """The same of one pod alone."""
    return job.priority, False, task.priority, *turn_of(job, task)


def may_give(job: Job) -> bool:
    """Whether anything of the group could be a candidate in this cycle, whoever asks: a quick no, without votes.

    A gang that has no pod beyond its minimum, and is not to go as a whole, gives nothing. One of which the time decides
    is looked at in earnest.
    """
    if job.disruption == "Never" or not job.holding:
        return False
    if not job.gang or job.disruption == "Whole" or job.holding + job.succeeded + len(job.waiting) > job.minimum:
        return True
    spec = job.group.spec if job.group is not None else None
    return spec is not None and (spec.lifetime_seconds is not None or spec.min_runtime_seconds > 0)


def single(job: JobState, task: Task) -> Unit:
    """One pod."""
    return Unit(job, (task,), whole=False, request=task.cls.request)


def whole(job: JobState) -> Unit | None:
    """All that its group holds; None where that is nothing, or a bind under way would outlast it."""
    tasks = tuple(task for task in holding(job) if task.key not in job.evicted)
    if not tasks or job.placed or any(task.holds and task.assumed for task in job.job.tasks.values()):
        return None
    return Unit(job, tasks, whole=True, request=add(*(task.cls.request for task in tasks)))


def holding(job: JobState) -> list[Task]:
    """Its pods that could be evicted at all, by key: on a node for sure, not leaving yet."""
    found = [task for task in job.job.tasks.values() if task.holds and not task.assumed]
    found.sort(key=lambda task: task.key)
    return found


def rows_of(candidate: Candidate, row_of: Mapping[str, int]) -> Iterable[int]:
    """The rows on which something of it stands."""
    if candidate.task is not None:
        return (candidate.row,) if candidate.row >= 0 else ()
    job = candidate.job
    rows = {row_of.get(task.node, -1) for task in holding(job) if task.key not in job.evicted}
    return sorted(row for row in rows if row >= 0)
