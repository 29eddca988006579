"""Growing beyond the minimum: how far a group and its roles have grown, and which of their pods is the next.

The *growth* of a group, or of a role, is what it may have above its minimum. Who has the smallest part of it is
next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task

_FINE: Final = 64
"""More bits than two numbers of pods can have: distinct parts stay distinct as integers."""


def part_of_growth(job: JobState) -> int:
    """The part of the group's growth that is placed or nominated, as an integer of the same order; 0 up to its minimum.

    What plugins see as equal is ordered by this.
    """
    above = job.pipelined - job.minimum
    return _part(above, _most(job)[None] - job.minimum) if above > 0 else 0


def part_of_role(job: JobState, role: str) -> int:
    """The same of one of its roles; pods of a name that is no role's have the minimum 0."""
    least = next((known.min_member for known in job.job.roles if known.name == role), 0)
    above = job.role_count(role) - least
    return _part(above, _most(job).get(role, 0) - least) if above > 0 else 0


class Growing:
    """The pods of a group that wait to be placed above its minimum, the next one first.

    They go by task order. Of those that are equal in it, the next is one of the role of which the smallest part of its
    growth is placed; of one role, and of roles that are equal in this too, the oldest.

    Args:
        job: the group. What it places while this is in use counts.
        tasks: its pods, in task order.
        rank: what plugins say of a pod's order.
    """

    def __init__(self, job: JobState, tasks: Iterable[Task], rank: Callable[[Task], tuple[Any, ...]]) -> None:
        self._job = job
        self._rank = rank
        self._lines: dict[str, list[Task]] = {}
        for task in tasks:
            self._lines.setdefault(task.role if job.job.roles else "", []).append(task)
        for line in self._lines.values():
            line.reverse()

    def __iter__(self) -> Iterator[Task]:
        """Take one after the other."""
        while self._lines:
            yield self._next()

    def back(self, task: Task) -> None:
        """The task was not placed after all, and is the next of its role."""
        self._lines.setdefault(task.role if self._job.job.roles else "", []).append(task)

    def _next(self) -> Task:
        role = next(iter(self._lines)) if len(self._lines) == 1 else min(self._lines, key=self._key)
        line = self._lines[role]
        task = line.pop()
        if not line:
            del self._lines[role]
        return task

    def _key(self, role: str) -> tuple[Any, ...]:
        task = self._lines[role][-1]
        return self._rank(task), part_of_role(self._job, role), task.created, task.key


def _part(above: int, growth: int) -> int:
    return (above << _FINE) // max(1, growth)


def _most(job: JobState) -> Mapping[str | None, int]:
    """By role the most pods that there may be, under None of the whole group: the maxMember of each role; where there
    is none, the pods that exist.
    """
    if job.most is None:
        model = job.job
        if not model.roles:
            job.most = {None: model.holding + model.succeeded + len(model.waiting)}
        else:
            there = model.placed_by_role()
            for task in model.waiting:
                there[task.role] = there.get(task.role, 0) + 1
            found: dict[str | None, int] = dict(there.items())
            for role in model.roles:
                exist = max(role.min_member, there.get(role.name, 0))
                found[role.name] = exist if role.max_member is None else role.max_member
            found[None] = sum(found.values())
            job.most = found
    return job.most
