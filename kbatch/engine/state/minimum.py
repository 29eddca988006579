"""What a job's minimum still lacks, and which of its tasks would make it up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task


def unplaced(job: JobState) -> list[Task]:
    """Its waiting tasks that the session has neither bound nor nominated, in task order."""
    if not job.placed and not job.nominated:
        return job.waiting
    return [task for task in job.waiting if task.key not in job.placed and task.key not in job.nominated]


def shortfalls(job: JobState) -> list[tuple[str | None, int]]:
    """What must still be placed: for each role its missing minimum, then (None) the rest of the group's, from any."""
    wanted: list[tuple[str | None, int]] = []
    for role in job.job.roles:
        more = role.min_member - job.by_role.get(role.name, 0)
        if more > 0:
            wanted.append((role.name, more))
    rest = job.minimum - job.pipelined - sum(count for _, count in wanted)
    if rest > 0:
        wanted.append((None, rest))
    return wanted


def signature(job: JobState, tasks: Sequence[Task]) -> object:
    """What decides whether the minimum fits given nodes: tasks by class and role in order, and what is wanted."""
    runs = [(key, sum(1 for _ in run)) for key, run in groupby((task.cls.id, task.role) for task in tasks)]
    caps = tuple((role.name, role.max_member) for role in job.job.roles)
    return tuple(runs), tuple(shortfalls(job)), caps


def next_tasks(job: JobState, tasks: Sequence[Task]) -> list[Task]:
    """The tasks that the minimum would take if all fitted, for sums; in order."""
    found: list[Task] = []
    used: set[str] = set()
    for role, count in shortfalls(job):
        taken = 0
        for task in tasks:
            if taken == count:
                break
            if (role is None or task.role == role) and task.key not in used:
                found.append(task)
                used.add(task.key)
                taken += 1
    return found
