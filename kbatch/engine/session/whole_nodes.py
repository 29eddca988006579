"""Whole nodes: where pods of exclusive groups and roles stand, no pod of another group of this scheduler's stands.

Counted is, node by node, what stands there of this scheduler's pods, and of that what is exclusive: with the pods that
terminate for those who would bind now, and without them for those who would wait. Other schedulers' pods do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from kbatch.api.reasons import NotEnoughTasks, Reason
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.session.limits import Limit
from kbatch.engine.state.jobs import JobState
from kbatch.model.cluster import ClusterModel
from kbatch.model.jobs import Job
from kbatch.model.nodes import Column, Mask, NodeTable
from kbatch.model.tasks import Task

_AT_ONCE = 1_000


@dataclass(slots=True)
class _Counts:
    """Pods by row: all, and the exclusive ones."""

    every: Column
    exclusive: Column
    own: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    """By group, for each row how many of each."""

    def add(self, job: str, row: int, exclusive: bool, sign: int) -> None:
        self.every[row] += sign
        self.exclusive[row] += sign * exclusive
        mine = self.own.setdefault(job, {}).setdefault(row, [0, 0])
        mine[0] += sign
        mine[1] += sign * exclusive

    def besides(self, job: str, *, of_all: bool) -> Column:
        """How many pods other groups have by row: all, or the exclusive ones."""
        column = (self.every if of_all else self.exclusive).copy()
        for row, counts in self.own.get(job, {}).items():
            column[row] -= counts[0 if of_all else 1]
        return column

    def others(self, job: str, *, of_all: bool) -> Mask:
        """The rows on which other groups have pods: any, or exclusive ones."""
        found: Mask = self.besides(job, of_all=of_all) > 0
        return found


class WholeNodes(Limit):
    """The limit, and the counts it is made of, which follow the open statement.

    Attributes:
        active: some group asks for whole nodes; else nothing is counted.
        mark: which groups do, and of which roles.
    """

    def __init__(self, model: ClusterModel, table: NodeTable, *, emptied: bool) -> None:
        self._model = model
        self._table = table
        self._now = _Counts(np.zeros(len(table), np.int64), np.zeros(len(table), np.int64))
        self._later = _Counts(np.zeros(len(table), np.int64), np.zeros(len(table), np.int64))
        self._emptied = emptied
        self._gathers = False
        self.active = bool(model.exclusive)
        self.mark: Hashable = tuple([(key, _said(model.jobs[key])) for key in sorted(model.exclusive)])

    def preparing(self) -> Iterator[Turn]:
        """Count what stands, in pieces."""
        if not self.active or self._emptied:
            return
        for number, record in enumerate(self._table.records, start=1):
            row = number - 1
            for task in record.tasks.values():
                if not task.terminal:
                    self._count(self._now, task, row, 1)
                    if not task.terminating:
                        self._count(self._later, task, row, 1)
            if not number % _AT_ONCE:
                yield TURN

    def _count(self, counts: _Counts, task: Task, row: int, sign: int) -> None:
        if not task.job:
            return
        job = self._model.jobs.get(task.job)
        counts.add(task.job, row, job is not None and job.exclusive(task.role), sign)

    def placed(self, task: Task, row: int) -> Callable[[], None]:
        """A statement put a task there."""
        self._count(self._now, task, row, 1)
        self._count(self._later, task, row, 1)

        def undo() -> None:
            self._count(self._now, task, row, -1)
            self._count(self._later, task, row, -1)

        return undo

    def removed(self, task: Task, row: int) -> Callable[[], None]:
        """A statement evicts a task from there, which stays until it has ended, or withdraws its nomination."""
        gone = [self._later] if task.holds else [self._now, self._later]
        for counts in gone:
            self._count(counts, task, row, -1)

        def undo() -> None:
            for counts in gone:
                self._count(counts, task, row, 1)

        return undo

    def hold(self, task: Task, row: int, sign: int) -> None:
        """Room gathers there for a pod (1), or no longer (-1)."""
        if self.active:
            self._count(self._now, task, row, sign)
            self._count(self._later, task, row, sign)

    def rows(self, job: JobState, task: Task, *, waits: bool = False) -> Mask | None:
        """The rows without exclusive pods of others; for an exclusive pod those without any of others."""
        if not self.active:
            return None
        counts = self._later if waits else self._now
        return ~counts.others(job.key, of_all=job.job.exclusive(task.role) and not self._gathers)

    def in_the_way(self, job: JobState, role: str) -> Column | None:
        """By row how many pods must go before one of the role may stand there; None: nobody asks for whole nodes."""
        return self._later.besides(job.key, of_all=job.job.exclusive(role)) if self.active else None

    def gatherable(self, job: JobState) -> Mask | None:
        """The rows without exclusive pods of others: room may gather there, whoever else stands there now."""
        return ~self._later.others(job.key, of_all=False) if self.active else None

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Meanwhile all rows are open to exclusive pods where room may gather for them."""
        self._gathers = True
        try:
            yield
        finally:
            self._gathers = False

    def refusal(self, job: JobState, task: Task) -> Reason:
        """Asked where the rows were not looked at beforehand."""
        return NotEnoughTasks(job.pipelined, job.minimum)


def _said(job: Job) -> Hashable:
    """Of which of its pods the group wants whole nodes."""
    spec = job.group.spec if job.group is not None else None
    return (
        None if spec is None else (spec.exclusive, tuple([sub.name for sub in spec.sub_groups or () if sub.exclusive]))
    )
