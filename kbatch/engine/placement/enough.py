"""A quick no: whether a group's minimum could find room at all, by counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kbatch.engine.placement.kinds import counts_of
from kbatch.engine.placement.ranking import NodeRankings
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import shortfalls
from kbatch.model.tasks import TaskClass

FEW: Final = 1
"""So few pods are as quickly placed as it is counted whether there could be room for them."""


def could_fit(rankings: NodeRankings, job: JobState) -> bool:
    """Whether there may be room, now or once what terminates is gone, for what the job's minimum lacks.

    Each class of its pods is counted as though it had the nodes to itself, and no other pod mattered to it: False is
    sure, and costs far less than to place what fits. First as though all room were that of one node: that costs less
    still, and tells mostly where nearly all is taken.
    """
    counts = counts_of(job)
    return would_do(rankings.in_sum, counts, job) and would_do(rankings.most, counts, job)


def would_do(most: Callable[[TaskClass], int], counts: Sequence[tuple[TaskClass, str, int]], job: JobState) -> bool:
    """Whether so many pods of each class at most would make up the minimum."""
    placeable: dict[str, int] = {}
    for cls, role, count in counts:
        placeable[role] = placeable.get(role, 0) + min(count, most(cls))
    if any(role is not None and placeable.get(role, 0) < count for role, count in shortfalls(job)):
        return False
    return sum(placeable.values()) >= job.missing()
