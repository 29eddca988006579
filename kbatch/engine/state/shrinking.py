"""Giving back what was grown: in which order the pods of a group go one by one.

The pods go that are above a minimum before those with which a group ends. Of an elastic group, one of more than one pod
or with roles, the pod goes next whose role is furthest above its minimum then. A group never gives a pod before those
that come ahead of it in this, so its turn among groups comes with the dearest of these; of groups from which as much is
lost, that comes first of which a role is furthest above its minimum. All is worked out from how the group stood when
the cycle began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task

Turn: TypeAlias = tuple[Any, ...]
"""When a pod goes, among pods of equal priority of it and of its group: smaller is earlier. See `turn_of`."""

_PIECE: Final = 200
"""Pods that take about a millisecond."""


_BACKWARDS: Final = bytes(255 - byte for byte in range(256))


def backwards(name: str) -> bytes:
    """What orders names the other way round: the later name comes first."""
    # No character of a name becomes the byte at the end: of two names that begin alike the longer one comes first.
    return name.encode("utf-8", "surrogatepass").translate(_BACKWARDS) + b"\xff"


def cost_of(job: JobState, *tasks: Task, above: int = 0) -> Turn:
    """What is lost with the pods, how far `above` its minimum their role is, then the latest of them: that which came
    last to its node, else the last created.

    Nothing counts as lost where nobody in the cluster says when work was saved.
    """
    started, created, name = _since(tasks[0]) if len(tasks) == 1 else max(map(_since, tasks))
    lost = job.lost_work.of(job.job, tasks) if job.lost_work is not None else 0
    return lost, -above, -started, -created, backwards(name)


def turn_of(job: JobState, task: Task) -> Turn:
    """Whether the group ends with the pod, then the dearest cost of those of the group that go up to it, and its place
    among them.
    """
    if _ends_with_any(job):
        return True, *cost_of(job, task), 0
    if job.turns is None:
        for _ in working_out(job):
            pass
    found = job.turns.get(task.key) if job.turns is not None else None
    return found if found is not None else (False, *cost_of(job, task), 0)


def working_out(job: JobState) -> Iterator[None]:
    """Work out `turns`, in pieces of about a millisecond; nothing where that is done."""
    model, work = job.job, job.lost_work
    if job.turns is not None or _ends_with_any(job):
        return
    # Who has come last goes first; sorting is stable.
    tasks = sorted([task for task in model.tasks.values() if task.holds and not task.assumed], key=_since, reverse=True)
    yield
    if work is not None:
        lost: dict[str, int] = {}
        for task in tasks:
            lost[task.key] = work.of(model, (task,))
            if not len(lost) % _PIECE:
                yield
        tasks.sort(key=lambda task: lost[task.key])
    above, found = _above(job), dict[str, Turn]()
    if work is None and not model.roles and len({task.priority for task in tasks}) == 1:
        top = above[""]  # nothing but the pods' age tells them apart, and each costs more than the one before
        for at, task in enumerate(tasks):
            more = at - top if model.gang else -top
            found[task.key] = False, 0, more, -task.started, -task.created, backwards(task.key), at
            if not at % _PIECE:
                yield
        if not model.gang:
            found[tasks[-1].key] = True, *cost_of(job, tasks[-1]), 0
        job.turns = found
        return
    by_priority: dict[int, dict[str, deque[Task]]] = {}
    for task in tasks:
        lines = by_priority.setdefault(task.priority, {})
        lines.setdefault(task.role if model.roles else "", deque()).append(task)
    yield
    for _, lines in sorted(by_priority.items()):
        dearest: Turn = ()
        alone = len(lines) == 1  # then each costs more than the one before
        while lines:
            role = next(iter(lines)) if len(lines) == 1 else _furthest(job, above, lines)
            task = lines[role].popleft()
            if not lines[role]:
                del lines[role]
            cost = cost_of(job, task, above=above[role])
            dearest = cost if alone else max(dearest, cost)
            last = not model.gang and len(found) == len(tasks) - 1
            found[task.key] = (True, *cost_of(job, task), 0) if last else (False, *dearest, len(found))
            above[role] -= model.gang
            if not len(found) % _PIECE:
                yield
    job.turns = found


def _ends_with_any(job: JobState) -> bool:
    """Whether the group ends with whichever of its pods goes: there is only one."""
    return not job.job.gang and job.job.holding == 1


def _since(task: Task) -> tuple[int, int, str]:
    return task.started, task.created, task.key


def _above(job: JobState) -> dict[str, int]:
    """How many pods each role has above its minimum; where there is neither minimum nor role each pod counts as one."""
    model = job.job
    if not model.gang:
        return {"": 1}
    if not model.roles:
        return {"": model.holding + model.succeeded - model.minimum}
    least = {role.name: role.min_member for role in model.roles}
    return {role: count - least.get(role, 0) for role, count in model.placed_by_role().items()}


def _furthest(job: JobState, above: Mapping[str, int], lines: Mapping[str, Sequence[Task]]) -> str:
    """The role that is furthest above its minimum; of several that of which the next pod is the cheapest."""
    return min(lines, key=lambda role: (-above[role], cost_of(job, lines[role][0])))
