"""What a job wants next, and what room it lacks for that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kbatch.engine.context import CycleContext
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, unplaced
from kbatch.model.tasks import Task
from kbatch.resources import Resources, total


@dataclass(frozen=True, slots=True)
class Wanted:
    """A step of a job: the tasks of its minimum, or (`single`) one task above it."""

    tasks: tuple[Task, ...]
    single: Task | None = None

    @property
    def request(self) -> Resources:
        """What its tasks ask for together."""
        return total(task.cls.request for task in self.tasks)


def next_steps(context: CycleContext, job: JobState) -> Iterator[Wanted]:
    """What the job wants next: its minimum; above that one task of each class and role, in order: any may be next.

    Nothing that even nodes without this scheduler's pods would not hold.
    """
    if job.missing():
        if context.session.valid(job) is not None or context.feasibility.hopeless(job):
            return
        tasks = [task for task in unplaced(job) if context.feasibility.most(task.cls)]
        following = next_tasks(job, [task for task in tasks if not job.full(task.role)])
        if len(following) >= job.missing():
            yield Wanted(tuple(following))
        return
    seen: set[tuple[int, str, bool]] = set()
    for task in unplaced(job):
        kind = task.cls.id, task.role, task.never_preempts
        if kind in seen or task.cls.best_effort:
            continue
        seen.add(kind)
        if not job.full(task.role) and context.feasibility.most(task.cls):
            yield Wanted((task,), task)


def lacking(context: CycleContext, tasks: Sequence[Task]) -> frozenset[str]:
    """The dimensions in which there is no room for these tasks, each looked at by itself; if none, all they ask for."""
    counts: dict[int, list[Task]] = {}
    for task in tasks:
        counts.setdefault(task.cls.id, []).append(task)
    short: set[str] = set()
    asked: set[str] = set()
    for run in counts.values():
        cls = run[0].cls
        allowed = context.rankings.static(cls)[0]
        context.session.room.ensure(cls)
        for name, amount in cls.request.items():
            if amount <= 0:
                continue
            asked.add(name)
            free = context.session.room.future[name]
            fitting = int(np.minimum(free[allowed & (free > 0)] // amount, len(run)).sum())
            if fitting < len(run):
                short.add(name)
    return frozenset(short or asked)
