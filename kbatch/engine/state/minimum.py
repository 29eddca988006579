"""What a job's minimum still lacks, and which of its tasks would make it up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import Resources, scale, total


def unplaced(job: JobState) -> list[Task]:
    """Its waiting tasks that the session has neither bound nor nominated, in task order."""
    if not job.placed and not job.nominated:
        return job.waiting
    return [task for task in job.waiting if task.key not in job.placed and task.key not in job.nominated]


def shortfalls(job: JobState) -> Sequence[tuple[str | None, int]]:
    """What must still be placed: for each role its missing minimum, then (None) the rest of the group's, from any."""
    known = job.known
    if known.shortfalls is None:
        known.shortfalls = _shortfalls(job)
    return known.shortfalls


def _shortfalls(job: JobState) -> list[tuple[str | None, int]]:
    if not job.job.roles:
        more = job.missing()
        return [(None, more)] if more else []
    wanted: list[tuple[str | None, int]] = []
    for role in job.job.roles:
        more = role.min_member - job.by_role.get(role.name, 0)
        if more > 0:
            wanted.append((role.name, more))
    rest = job.minimum - job.pipelined - sum(count for _, count in wanted)
    if rest > 0:
        wanted.append((None, rest))
    return wanted


def signature(job: JobState, tasks: Sequence[Task]) -> tuple[object, ...]:
    """What decides whether the minimum fits given nodes: tasks by class and role in order, what is wanted, and how many
    more of each role there may be.
    """
    known = job.known
    if tasks is not known.waiting:
        return _signature(job, tasks)
    if known.signature is None:
        known.signature = _signature(job, tasks)
    return known.signature


def _signature(job: JobState, tasks: Sequence[Task]) -> tuple[object, ...]:
    if len(tasks) == 1:
        return (((tasks[0].cls.id, tasks[0].role), 1),), *wanted_beside(job)
    runs = tuple([(key, len(list(run))) for key, run in groupby([(task.cls.id, task.role) for task in tasks])])
    return runs, *wanted_beside(job)


def likeness(job: JobState) -> tuple[object, ...]:
    """What tells a group that wants a single pod, and has none yet, from others of its queue: whoever is alike in it
    finds the same room, and the same victims, age and length aside. `()`: it is no such group.
    """
    if len(job.waiting) != 1:
        return ()
    known = job.known
    if known.likeness is None:
        known.likeness = _likeness(job)
    return known.likeness


def _likeness(job: JobState) -> tuple[object, ...]:
    model = job.job
    group = model.group
    if group is None or job.gated or model.minimum != 1 or model.roles or job.pipelined:
        return ()
    if job.ends or job.evicted or job.together is not None or model.wants_whole_nodes or model.to_come:
        return ()
    task = job.waiting[0]
    return (
        task.cls.id, task.role, task.priority, task.never_preempts, model.priority, model.proven, model.disruption,
        group.spec.min_runtime_seconds,
    )  # fmt: skip


def wanted_beside(job: JobState) -> tuple[object, ...]:
    """All of `signature` but the tasks: what is wanted of them, and where they may stand."""
    roles = job.job.roles
    return (
        tuple(shortfalls(job)),
        tuple([(role.name, job.role_headroom(role.name)) for role in roles]) if roles else (),
        _kept_together(job),
        job.key if job.job.wants_whole_nodes else "",
    )


def _kept_together(job: JobState) -> object:
    """What decides besides where its pods may stand together."""
    if job.together is None:
        return None
    roles = [None] if not job.job.roles else [role.name for role in job.job.roles]
    return job.together, tuple(tuple(sorted(set(job.standing(role)))) for role in roles)


def next_tasks(job: JobState, tasks: Sequence[Task]) -> list[Task]:
    """The tasks that the minimum would take if all fitted, for sums; no more of a role than it may have."""
    if not job.job.roles:
        return list(tasks[: job.missing()])
    found: list[Task] = []
    used: set[str] = set()
    spare = {role.name: job.role_headroom(role.name) for role in job.job.roles}
    for role, count in shortfalls(job):
        taken = 0
        for task in tasks:
            if taken == count:
                break
            left = spare.get(task.role)
            if (role is None or task.role == role) and left != 0 and task.key not in used:
                found.append(task)
                used.add(task.key)
                if left is not None:
                    spare[task.role] = left - 1
                taken += 1
    return found


def no_choice(job: JobState, tasks: Sequence[Task]) -> bool:
    """Whether the minimum takes the same classes in the same numbers, whichever of these tasks it takes."""
    return len(tasks) <= job.missing() or len({task.cls.id for task in tasks}) == 1


def request_of(tasks: Sequence[Task]) -> Resources:
    """What these tasks ask for together; not to be changed."""
    if len(tasks) == 1:
        return tasks[0].cls.request
    counts: dict[TaskClass, int] = {}
    for task in tasks:
        counts[task.cls] = counts.get(task.cls, 0) + 1
    return total(scale(cls.request, count) for cls, count in counts.items())


def next_request(job: JobState) -> Resources:
    """What its next step asks for, if all fits: what its minimum lacks, or one pod more."""
    if job.missing():
        return request_of(next_tasks(job, unplaced(job)))
    for task in job.waiting:
        if task.key not in job.placed and task.key not in job.nominated:
            return task.cls.request
    return {}
