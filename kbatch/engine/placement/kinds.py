"""The pods of a gang by kind, and how many of each its minimum takes: what the placement and its search work with.

A *kind* is a class and a role: its pods are interchangeable. They are placed in the order of hardness: first the kinds
that the fewest nodes could ever take, and of these the largest, measured by the dimension in which it needs the largest
part of a node. What is easy to place finds room beside what is hard, and not the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kbatch.engine.placement.ranking import NodeRankings
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import shortfalls, unplaced
from kbatch.model.tasks import Task, TaskClass


@dataclass(eq=False, slots=True)
class Kind:
    """Waiting pods of one class and role, in the order of tasks.

    Attributes:
        cls, role: what they have in common.
        tasks: those that are not placed yet; the next to be placed comes first.
    """

    cls: TaskClass
    role: str
    tasks: list[Task]


def kinds_of(job: JobState) -> list[Kind]:
    """The job's unplaced tasks by kind, in the order of their first tasks."""
    found: dict[tuple[int, str], Kind] = {}
    for task in unplaced(job):
        mark = (task.cls.id, task.role)
        kind = found.get(mark)
        if kind is None:
            found[mark] = Kind(task.cls, task.role, [task])
        else:
            kind.tasks.append(task)
    return list(found.values())


def counts_of(job: JobState) -> Sequence[tuple[TaskClass, str, int]]:
    """How many of the job's tasks are unplaced, by class and role, in the order of `kinds_of`."""
    known = job.known
    if known.counts is None:
        known.counts = _counts_of(job)
    return known.counts


def _counts_of(job: JobState) -> list[tuple[TaskClass, str, int]]:
    return [
        (cls, role, count) for (cls, role), count in counted([(task.cls, task.role) for task in unplaced(job)]).items()
    ]


def counted(pairs: Sequence[tuple[TaskClass, str]]) -> dict[tuple[TaskClass, str], int]:
    """How many tasks are of each class and role, in the order of the first of each; `pairs`: those of each task."""
    if len(pairs) == 1 or (pairs and pairs.count(pairs[0]) == len(pairs)):  # nearly always: they are alike
        return {pairs[0]: len(pairs)}
    found: dict[tuple[TaskClass, str], int] = {}
    for pair in pairs:
        found[pair] = found.get(pair, 0) + 1
    return found


def hardest_first(rankings: NodeRankings, statement: Statement, kinds: Sequence[Kind]) -> list[Kind]:
    """The kinds in the order in which they are placed; of equals, the first in the order of tasks.

    For who wants whole nodes, only those count on which no other group stands.
    """
    if len(kinds) < 2:
        return list(kinds)
    job, whole = statement.job, statement.session.whole_nodes

    def hardness(kind: Kind) -> tuple[int, int]:
        able, part = rankings.hardness(kind.cls)
        rows = whole.rows(job, kind.tasks[0], waits=True) if kind.tasks else None
        if rows is not None:
            able = min(able, int(np.count_nonzero(rows & rankings.allowed(kind.cls))))
        return able, part

    return sorted(kinds, key=hardness)


def easiest_first(rankings: NodeRankings, job: JobState) -> list[Task]:
    """The job's unplaced tasks, the kinds in reversed order: with these the minimum would be had soonest, so what it
    lacks is said of them.
    """
    kinds = kinds_of(job)
    if len(kinds) > 1:
        kinds.sort(key=lambda kind: rankings.hardness(kind.cls), reverse=True)
    return [task for kind in kinds for task in kind.tasks]


@dataclass(slots=True)
class Wanted:
    """What a minimum still lacks: of each role its own, and of any role the rest."""

    by_role: dict[str, int]
    rest: int

    def of(self, role: str) -> int:
        """How many more of a role the minimum can use."""
        return self.by_role.get(role, 0) + self.rest

    def take(self, role: str, count: int) -> None:
        """So many of a role are accounted for."""
        own = min(count, self.by_role.get(role, 0))
        if own:
            self.by_role[role] -= own
        self.rest -= count - own


def wanted_of(job: JobState) -> Wanted:
    """What the job's minimum still lacks."""
    by_role: dict[str, int] = {}
    rest = 0
    for role, count in shortfalls(job):
        if role is None:
            rest = count
        else:
            by_role[role] = count
    return Wanted(by_role, rest)


def chosen(statement: Statement, kinds: Sequence[Kind], most: Mapping[int, int] | None = None) -> list[int]:
    """How many of each kind the minimum takes, the first in the order given: each role's own, then the rest.

    Not more than the limits leave of a kind by itself, nor than `most` says of a class (by its id).
    """
    job = statement.job
    wanted = wanted_of(job)
    taken = [0] * len(kinds)
    spare = {role.name: job.role_headroom(role.name) for role in job.job.roles}
    left: list[int] = []
    for kind in kinds:
        count = len(kind.tasks)
        headroom = statement.headroom(kind.tasks[0]) if count else 0
        if headroom is not None:
            count = min(count, headroom)
        left.append(count if most is None else min(count, most[kind.cls.id]))

    def take(at: int, count: int) -> int:
        role = kinds[at].role
        room = spare.get(role)
        count = min(count, left[at]) if room is None else min(count, left[at], room)
        if room is not None:
            spare[role] = room - count
        taken[at] += count
        left[at] -= count
        return count

    for at, kind in enumerate(kinds):
        own = wanted.by_role.get(kind.role, 0)
        if own:
            wanted.by_role[kind.role] -= take(at, own)
    for at in range(len(kinds)):
        if wanted.rest:
            wanted.rest -= take(at, wanted.rest)
    return taken
