"""When room is expected: for each node the instants at which what terminates there should be gone.

A pod that terminates gives its room back at the end of its grace. One that is still there well after that is stuck (its
node does not answer, a finalizer holds it): nobody knows when it goes, so its room is expected no more, and nobody is
told to wait for it. See docs/decisions/0021-one-ledger-of-reservations.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from kbatch.model.nodes import NodeTable
from kbatch.model.tasks import Task
from kbatch.resources import PODS


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
