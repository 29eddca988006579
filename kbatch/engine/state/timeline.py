"""When room is expected: for each node the instants at which what stands or terminates there should be gone.

A pod that terminates gives its room back at the end of its grace, or sooner where it is expected to end before that.
One that is still there well after its grace is stuck (its node does not answer, a finalizer holds it): nobody knows
when it goes, so its room is expected no more, and nobody is told to wait for it. See
docs/decisions/0021-one-ledger-of-reservations.md. Until then it is expected a tenth of that time later, and then
another tenth.

A pod that runs gives its room back when it is expected to end (`kbatch.model.expected`). Who may take the place of its
group has it besides when the group's lifetime is over. Where nobody knows a pod's end, nothing is expected of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from kbatch.model.expected import Expected
from kbatch.model.jobs import Job
from kbatch.model.nodes import NodeTable
from kbatch.model.tasks import Task
from kbatch.resources import PODS
from kbatch.times import SECOND

_STEPS = 10
_GRACE = 30 * SECOND
"""What Kubernetes leaves a pod to end that does not say how long it needs."""


class Release(NamedTuple):
    """A pod is expected to give back its room on a row at an instant, in microseconds since the epoch.

    Releases of different pods compare by instant, then row, then the pod's key.
    """

    at: int
    row: int
    key: str
    task: Task


def released(at: int, row: int, key: str, task: Task) -> Release:
    """One of them. They are made for each decision, and it is quicker so than by the class itself."""
    return tuple.__new__(Release, (at, row, key, task))


def releases(table: NodeTable, tasks: Iterable[Task], expected: Expected) -> tuple[Release, ...]:
    """Of each of the pods that stands on a node, and of which it is known, when it ends."""
    found: list[Release] = []
    for task in tasks:
        row = table.row.get(task.node, -1) if task.holds else -1
        if row >= 0 and table.open.item(row):
            end = expected.end(task)
            if end is not None:
                found.append(released(end, row, task.key, task))
    return tuple(found)


def lifetime_end(job: Job) -> int | None:
    """When the group will have outlived its lifetimeSeconds, in microseconds; None: never, or it does not run."""
    if job.group is None or job.group.spec.lifetime_seconds is None or job.started is None:
        return None
    return job.started + job.group.spec.lifetime_seconds * SECOND


def min_runtime_end(job: Job) -> int | None:
    """Until when its minRuntimeSeconds keep the group from being evicted, in microseconds; None: they do not."""
    if job.group is None or not job.group.spec.min_runtime_seconds or job.started is None:
        return None
    return job.started + job.group.spec.min_runtime_seconds * SECOND


def releases_by_lifetime(table: NodeTable, job: Job, now: int) -> Iterator[Release]:
    """The pods of a group that are gone, if they are evicted when it has outlived its lifetime: after their grace. Who
    is never to be disrupted goes by no lifetime, and nobody goes before its minRuntimeSeconds are over.
    """
    until = lifetime_end(job)
    if until is None or job.disruption == "Never":
        return
    until = max(until, min_runtime_end(job) or until)
    for task in job.tasks.values():
        row = table.row.get(task.node, -1) if task.holds else -1
        if row >= 0 and table.open[row]:
            grace = task.pod.spec.termination_grace_period_seconds
            yield released(max(until, now) + (_GRACE if grace is None else grace * SECOND), row, task.key, task)


class Timeline:
    """The terminating pods of a snapshot, by node.

    Args:
        table: the nodes.
        now: of the snapshot, in microseconds since the epoch.
        grace: how long after the end of a pod's grace (microseconds) its room is still expected.
    """

    def __init__(self, table: NodeTable, now: int, grace: int) -> None:
        self._table = table
        self._now = now
        self._grace = grace
        releasing = table.releasing.get(PODS)
        rows = np.flatnonzero(releasing).tolist() if releasing is not None else []
        self._terminating: dict[int, list[Task]] = {
            row: [task for task in table.records[row].tasks.values() if task.terminating] for row in rows
        }

    def latest(self, rows: Iterable[int]) -> int | None:
        """When the last pod that terminates on these rows should be gone at the latest, `grace` included.

        None: nobody knows as yet, as an eviction has not been answered. Now, where nothing terminates there.
        """
        found = self._now
        for row in rows:
            for task in self._terminating.get(row, ()):
                if task.release_at is None:
                    return None
                found = max(found, task.release_at + self._grace)
        return found

    def departures(self, expected: Expected) -> Iterator[Release]:
        """Of each of the terminating pods whose room is expected, and of which it is known, when it is gone: after now.

        Not of those whose eviction has not been answered; nor of those that are late, whose room is expected all the
        same where somebody waits for others on the row too.
        """
        step = max(1, self._grace // _STEPS)
        for row, tasks in self._terminating.items():
            for task in tasks:
                at = task.release_at
                if at is None or self._late(task) or not self._table.open[row]:
                    continue
                if at <= self._now:
                    at = min(at + ((self._now - at) // step + 1) * step, at + self._grace)
                known = expected.end(task)
                yield released(at if known is None else min(at, known), row, task.key, task)

    def stuck(self) -> Iterator[tuple[int, Task]]:
        """The pods whose room is expected no more, with their rows; in the order of rows, then of names."""
        for row, tasks in self._terminating.items():
            late = [task for task in tasks if self._late(task)]
            for task in sorted(late, key=lambda task: task.key):
                yield row, task

    def _late(self, task: Task) -> bool:
        return task.release_at is not None and task.release_at + self._grace <= self._now

    def next_stuck(self) -> int | None:
        """The first instant after now at which a pod will be stuck that is not yet."""
        return min(
            (
                task.release_at + self._grace
                for tasks in self._terminating.values()
                for task in tasks
                if task.release_at is not None and not self._late(task)
            ),
            default=None,
        )
