"""The pods that are alone in their groups, as candidates for eviction: kept current group by group.

Most candidates are such where a cluster is full of small work. Where such a pod comes among candidates, and what votes
on it depend on, follows from the group alone, so it is worked out once, and not for each action of each cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, NamedTuple

from kbatch.engine.carryover.by_group import ByGroup
from kbatch.model.jobs import Job, QueueRecord
from kbatch.model.tasks import Task


class LonePod(NamedTuple):
    """The only pod of its group.

    Attributes:
        order: its place among candidates. key: what the votes on it depend on.
    """

    task: Task
    order: tuple[Any, ...]
    key: Hashable


class LonePods:
    """Those of all queues, by ballot. Goes from cycle to cycle; whoever asks gets what is now."""

    def __init__(self) -> None:
        self._queues: dict[tuple[str, str], tuple[QueueRecord, ByGroup[LonePod | None]]] = {}

    def following(self, record: QueueRecord, ballot: str, work_out: Callable[[Job], LonePod | None]) -> Iterator[None]:
        """Bring those of a queue up to date, for `of`; group by group.

        What is worked out must depend on the group alone, and on nothing that the cycle has done to it.
        """
        known = self._queues.get((ballot, record.name))
        if known is None or known[0] is not record:
            known = self._queues[ballot, record.name] = record, ByGroup()
        for _ in known[1].follow(record, work_out):
            yield

    def of(self, record: QueueRecord, ballot: str) -> ByGroup[LonePod | None]:
        """Those of a queue, as they were when they were last brought up to date."""
        return self._queues[ballot, record.name][1]

    def keep(self, queues: Collection[str]) -> LonePods:
        """Forget queues that are gone."""
        for ballot, name in [key for key in self._queues if key[1] not in queues]:
            del self._queues[ballot, name]
        return self
