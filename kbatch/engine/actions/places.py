"""The places in queue of groups for which there is no room: they come in by their age, and their start is planned."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final, TypeAlias

import numpy as np

from kbatch.engine.carryover.backlog import Backlog, Index
from kbatch.model.jobs import Job
from kbatch.model.nodes import Mask

Order: TypeAlias = tuple[int, int, str]
_MOST: Final = 2**63 - 1
_LAST: Final[Order] = (_MOST, _MOST, "")
"""Behind every group."""


def order_of(job: Job, *, ranks: bool) -> Order:
    """A group's place in its queue: first come, first served, of equal priority where that counts (`ranks`)."""
    return -job.priority if ranks else 0, job.created, job.key


class Places:
    """The places of one cycle.

    Of its own queue those alone keep a group from a place that come before it, where starts are planned (`in_order`):
    else who came in queue for room that another took since would start before one who waits for longer.

    Args:
        depth: so many there are.
        ranks: of a queue the higher priority comes first, of equal priority who came first; else who came first.
    """

    def __init__(self, depth: int, *, ranks: bool, in_order: bool) -> None:
        self.depth: Final = depth
        self._ranks = ranks
        self._in_order = in_order
        self._taken = 0
        self._of: dict[str, list[Order]] = {}
        """By queue who has one, in order."""

    def left(self, job: Job) -> bool:
        """Whether there is one for the group."""
        limit = self._limit(job.queue)
        return limit is not None and order_of(job, ranks=self._ranks) < limit

    def take(self, job: Job) -> None:
        """The group has one."""
        self._taken += 1
        if self._in_order:
            insort(self._of.setdefault(job.queue, []), order_of(job, ranks=self._ranks))

    def left_for(self, backlog: Backlog, rows: Index) -> Mask:
        """`left`, of the groups in these rows."""
        limits = [self._limit(name) if name is not None else None for name in backlog.queues]
        if all(limit is None for limit in limits):
            return np.zeros(len(rows), np.bool_)
        if all(limit is _LAST for limit in limits):
            return np.ones(len(rows), np.bool_)
        rank = np.array([limit[0] if limit is not None else -_MOST for limit in limits], np.int64)[backlog.queue[rows]]
        age = np.array([limit[1] if limit is not None else 0 for limit in limits], np.int64)[backlog.queue[rows]]
        own = -backlog.priority[rows] if self._ranks else np.zeros(len(rows), np.int64)
        created = backlog.created[rows]
        found: Mask = (own < rank) | ((own == rank) & (created < age))
        for at in np.flatnonzero((own == rank) & (created == age)).tolist():  # of one second; their keys decide
            found[at] = self.left(backlog.entry(int(rows[at])).job)
        return found

    def first_left(self, backlog: Backlog, queue: str, rows: Index) -> Index:
        """Of these rows of one queue, which stand in its order, those of the groups for which there is one: the first
        ones.
        """
        limit = self._limit(queue)
        if limit is None:
            return rows[:0]
        if limit is _LAST:
            return rows
        return rows[: bisect_left(rows, limit, key=lambda row: backlog.order(int(row), ranks=self._ranks))]

    def any_left(self) -> bool:
        """Whether there is one for any group, be it the first of its queue."""
        return self._taken < self.depth or any(self._limit(queue) is not None for queue in self._of)

    def _limit(self, queue: str) -> Order | None:
        """There is one for the groups of the queue that come before this; None: for none."""
        own = self._of.get(queue, ())
        most = self.depth - (self._taken - len(own))
        if most > len(own):
            return _LAST
        return own[most - 1] if most > 0 and own else None
