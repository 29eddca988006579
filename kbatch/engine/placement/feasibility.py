"""The nodes as they would be without this scheduler's pods: whether a group could run there at all, and what it lacks.

Only what a node itself decides counts (room, labels, taints, conditions, reachable volumes), not other pods: those are
gone. The columns are made once for a session, and every trial is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.placement.shortage import shortage
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.node_resources import NodeResources
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import Resources, scale, total

_Counts: TypeAlias = "dict[tuple[TaskClass, str], int]"
"""How many pods, by class and role."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How much of a group's minimum the emptied nodes take; `short`, `fitting` and `counts` are about the others.

    Attributes:
        needed, placeable: pods; those that have succeeded count in both.
        short, missing: the dimension that is short for what is left, and by how much; "" and 0 where none is.
        fitting, counts: nodes that take one more of what is left beside the placeable, and the others by reason.
        role: of the first pod that is left.
    """

    needed: int
    placeable: int
    short: str = ""
    missing: int = 0
    fitting: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    role: str = ""

    @property
    def fits(self) -> bool:
        """Whether all that is needed can be placed."""
        return self.placeable >= self.needed


class Feasibility:
    """One session's emptied nodes."""

    def __init__(self, session: Session, before: Mapping[object, Trial]) -> None:
        self._session = session
        table = session.nodes
        self._room = NodeResources(table)
        usable = table.open & table.ready & ~table.cordoned
        # Capacity leaves out nodes that take nothing new; pods that tolerate this go there nonetheless.
        self._capacity = {
            name: np.where(usable, capacity, table.allocatable[name]) for name, capacity in table.capacity.items()
        }
        for name, column in self._capacity.items():
            self._room.idle[name] = column.copy()
            self._room.releasing[name] = np.zeros(len(column), np.int64)
            self._room.future[name] = column.copy()
        self._rankings = NodeRankings(self._room, session.predicates, (), session.policy.fingerprint, alone=True)
        self._most: dict[int, int] = {}
        self._trials: dict[object, Trial] = {}
        self._before = before
        self._hopeless: dict[object, bool] = {}

    def close(self) -> None:
        """Let go of what holds this."""
        self._rankings.close()

    def forget(self) -> None:
        """Work the rankings out anew: an error may have left them half made."""
        self._rankings.close()

    def hopeless(self, job: JobState) -> bool:
        """Whether no arrangement could hold the group's minimum; cheap, and only ever true where that is proved.

        Each class by itself must have room for its part; where all pods are needed, their sum must fit the cluster too.
        """
        counts = _count(job)
        mark = _content(job, counts)
        found = self._hopeless.get(mark)
        if found is None:
            found = self._hopeless[mark] = self._cannot(job, counts)
        return found

    def _cannot(self, job: JobState, counts: _Counts) -> bool:
        wanted, there = job.minimum - job.job.succeeded, sum(counts.values())
        if there < wanted:
            return False  # not all pods are there
        for role in job.job.roles:
            least = role.min_member - _succeeded(job, role.name)
            if least > self._at_most({pair: count for pair, count in counts.items() if pair[1] == role.name}):
                return True
        if self._at_most(counts) < wanted:
            return True
        if there == wanted:
            asked = total(scale(cls.request, count) for (cls, _), count in counts.items())
            return any(amount > self._sum(name) for name, amount in asked.items())
        return False

    def _sum(self, name: str) -> int:
        column = self._capacity.get(name)
        return int(column[self._session.nodes.open].sum()) if column is not None else 0

    def _at_most(self, counts: _Counts) -> int:
        """At most this many of the pods have room, were each class alone."""
        by_class: dict[TaskClass, int] = {}
        for (cls, _), count in counts.items():
            by_class[cls] = by_class.get(cls, 0) + count
        return sum(min(count, self.most(cls)) for cls, count in by_class.items())

    def most(self, cls: TaskClass) -> int:
        """How many pods of a class the emptied nodes hold, were there no others."""
        found = self._most.get(cls.id)
        if found is None:
            fitting = np.where(self._rankings.allowed(cls), np.int64(1 << 32), np.int64(0))
            for name, amount in cls.needs:
                column = self._capacity.get(name)
                fitting = np.minimum(fitting, column // amount) if column is not None else np.zeros_like(fitting)
            found = self._most[cls.id] = int(fitting.sum())
        return found

    def holds_like(self, request: Resources, count: int) -> bool:
        """Whether this many such pods have room, whatever else they demand: for pods that are to come."""
        fitting = np.full(len(self._session.nodes), np.int64(count))
        for name, amount in request.items():
            if amount > 0:
                column = self._capacity.get(name)
                fitting = np.minimum(fitting, column // amount) if column is not None else np.zeros_like(fitting)
        return int(fitting.sum()) >= count

    def lacks_for_one(self, request: Resources) -> tuple[str, int]:
        """The dimension in which no node is large enough for one such pod, and by how much; "" and 0: none."""
        for name in sorted(request):
            column = self._capacity.get(name)
            largest = int(column.max(initial=0)) if column is not None else 0
            if request[name] > largest:
                return name, request[name] - largest
        return "", 0

    def mark(self, job: JobState) -> object:
        """What the answers about a group depend on, but for the nodes."""
        return _content(job, _count(job))

    def attempt(self, job: JobState) -> Trial:
        """Place the group's minimum, the smallest pods that make it up, the largest of them first."""
        mark = _content(job, _count(job))
        found = self._trials.get(mark) or self._before.get(mark)
        if found is None:
            found = self._attempt(job, _minimum_of(job))
        self._trials[mark] = found
        return found

    @property
    def trials(self) -> dict[object, Trial]:
        """The trials made or asked for in this session, for the next while the capacity of the nodes stays as it is."""
        return self._trials

    def _attempt(self, job: JobState, tasks: list[Task]) -> Trial:
        room = self._room
        tasks.sort(key=_size, reverse=True)
        done: list[tuple[TaskClass, int]] = []
        try:
            return self._place(job, tasks, done)
        finally:
            for cls, row in reversed(done):
                room.allocate(cls, row, -1)

    def _place(self, job: JobState, tasks: list[Task], done: list[tuple[TaskClass, int]]) -> Trial:
        """Place the tasks in order, noting each in `done`."""
        room, rankings = self._room, self._rankings
        left: list[Task] = []
        at = 0
        while at < len(tasks):
            cls, end = tasks[at].cls, at
            while end < len(tasks) and tasks[end].cls is cls:
                end += 1
            while at < end:
                rows = rankings.of(cls, When.NOW).choose(end - at)
                if not rows:
                    break
                for row in rows:
                    room.allocate(cls, row)
                    done.append((cls, row))
                at += len(rows)
            left.extend(tasks[at:end])
            at = end
        lacking = job.minimum - job.job.succeeded - len(tasks)  # pods that do not exist
        found = Trial(job.minimum, job.job.succeeded + len(done) + max(0, lacking))
        if left:
            short, missing = shortage(self._session.nodes, room, left)
            fitting, counts = rankings.histogram(left[0].cls)
            found = Trial(found.needed, found.placeable, short, missing, fitting, counts, left[0].role)
        return found


def _count(job: JobState) -> _Counts:
    """Its pods that have not ended, by class and role."""
    counts: _Counts = {}
    for task in job.job.tasks.values():
        if not (task.terminal or task.terminating):
            pair = task.cls, task.role
            counts[pair] = counts.get(pair, 0) + 1
    return counts


def _content(job: JobState, counts: _Counts) -> object:
    """What a trial depends on, but for the nodes."""
    roles = tuple((role.name, role.min_member - _succeeded(job, role.name)) for role in job.job.roles)
    pods = sorted((cls.id, role, count) for (cls, role), count in counts.items())
    return tuple(pods), roles, job.minimum, job.job.succeeded


def _succeeded(job: JobState, role: str) -> int:
    if not job.job.succeeded:
        return 0
    return sum(1 for task in job.job.tasks.values() if task.succeeded and task.role == role)


def _minimum_of(job: JobState) -> list[Task]:
    """The smallest tasks that make up the minimum and each role's."""
    tasks = [task for task in job.job.tasks.values() if not (task.terminal or task.terminating)]
    tasks.sort(key=lambda task: (_size(task), task.key))
    found: list[Task] = []
    taken: set[str] = set()
    wanted = [(role.name, role.min_member - _succeeded(job, role.name)) for role in job.job.roles]
    for name, count in wanted:
        for task in [task for task in tasks if task.role == name][: max(0, count)]:
            found.append(task)
            taken.add(task.key)
    rest = job.minimum - job.job.succeeded - len(found)
    found.extend([task for task in tasks if task.key not in taken][: max(0, rest)])
    return found


def _size(task: Task) -> tuple[object, ...]:
    """An order of size over classes: by what is asked, dimension by dimension."""
    return (*(amount for _, amount in sorted(task.cls.request.items())), task.cls.id)
