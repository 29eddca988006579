"""Giving back what was grown: in which order the pods of a group go one by one.

The pods go that are above a minimum before those with which a group ends. Of an elastic group, one of more than one pod
or with roles, the pod goes next whose role is furthest above its minimum then. A group never gives a pod before those
that come ahead of it in this, so its turn among groups comes with the dearest of these; of groups from which as much is
lost, that comes first of which a role is furthest above its minimum. All is worked out from how the group stood when
the cycle began.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import total_ordering
from typing import Any, TypeAlias

from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task

Turn: TypeAlias = tuple[Any, ...]
"""When a pod goes, among pods of equal priority of it and of its group: smaller is earlier. See `turn_of`."""


@total_ordering
class Last:
    """A name by which the later one in order comes first."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Last) and self.name == other.name

    def __lt__(self, other: Last) -> bool:
        return self.name > other.name

    def __hash__(self) -> int:
        return hash(self.name)


def cost_of(job: JobState, *tasks: Task, above: int = 0) -> Turn:
    """What is lost with the pods, how far `above` its minimum their role is, then the latest of them: that which came
    last to its node, else the last created.

    Nothing counts as lost where nobody in the cluster says when work was saved.
    """
    started, created, name = max((task.started, task.created, task.key) for task in tasks)
    lost = job.lost_work.of(job.job, tasks) if job.lost_work is not None else 0
    return lost, -above, -started, -created, Last(name)


def turn_of(job: JobState, task: Task) -> Turn:
    """Whether the group ends with the pod, then the dearest cost of those of the group that go up to it, and its place
    among them.
    """
    if not job.job.gang and job.job.holding == 1:
        return True, *cost_of(job, task), 0
    if job.turns is None:
        job.turns = _by_role(job) if job.job.gang else _one_by_one(job)
    found = job.turns.get(task.key)
    return found if found is not None else (False, *cost_of(job, task), 0)


def _standing(job: JobState) -> list[Task]:
    """Those that could go at all."""
    return [task for task in job.job.tasks.values() if task.holds and not task.assumed]


def _one_by_one(job: JobState) -> Mapping[str, Turn]:
    """Of a group of minimum 1: it ends with the last of them, and the others are alike."""
    costs = sorted((task.priority, cost_of(job, task, above=1), task.key) for task in _standing(job))
    last = len(costs) - 1
    return {key: (at == last, *cost, 0) for at, (_, cost, key) in enumerate(costs)}


def _by_role(job: JobState) -> Mapping[str, Turn]:
    """Of an elastic group: those of the lowest priority first, each from the role furthest above its minimum."""
    model = job.job
    above = {"": model.holding + model.succeeded - model.minimum}
    if model.roles:
        least = {role.name: role.min_member for role in model.roles}
        above = {role: count - least.get(role, 0) for role, count in model.placed_by_role().items()}
    by_priority: dict[int, dict[str, list[tuple[Turn, str]]]] = {}
    for task in _standing(job):
        lines = by_priority.setdefault(task.priority, {})
        lines.setdefault(task.role if model.roles else "", []).append((cost_of(job, task), task.key))
    found: dict[str, Turn] = {}
    for _, lines in sorted(by_priority.items()):
        for line in lines.values():
            line.sort(reverse=True)
        dearest: Turn = ()
        while lines:
            role = min(lines, key=lambda each: (-above[each], lines[each][-1]))
            (lost, _, *latest), key = lines[role].pop()
            if not lines[role]:
                del lines[role]
            dearest = max(dearest, (lost, -above[role], *latest))
            found[key] = False, *dearest, len(found)
            above[role] -= 1
    return found
