"""What is going to happen, in order: the virtual clock's queue."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final, TypeAlias

from kbatch.api.objects import Namespace, Node, PriorityClass, Queue
from kbatch.simulator.manifests import Declared


@dataclass(frozen=True, slots=True)
class Arrival:
    """An object of the input is created."""

    declared: Declared


@dataclass(frozen=True, slots=True)
class Departure:
    """An object of the input is deleted."""

    declared: Declared


@dataclass(frozen=True, slots=True)
class Finish:
    """A pod has run for its duration."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class Fail:
    """A pod fails on a bad node."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A terminating pod has ended and leaves its node."""

    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class Rested:
    """Roles of a group may grow again that others have taken members from. That is nothing that happens to anybody."""

    group: str


Occurrence: TypeAlias = Arrival | Departure | Finish | Fail | Gone | Rested

_ENDS: Final = 0
_LEAVES: Final = 1
_COMES: Final = 2
_FIRST: Final = (PriorityClass, Namespace, Queue, Node)
"""What others refer to comes before them, of all that comes at one instant."""


class Timeline:
    """Occurrences by their time, in microseconds after the start.

    Of one instant: ends, deletions, then creations, in order.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, Occurrence]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, time: int, occurrence: Occurrence) -> None:
        """Something happens at `time`."""
        kind, order = _ENDS, 0
        if isinstance(occurrence, Departure):
            kind, order = _LEAVES, occurrence.declared.order
        elif isinstance(occurrence, Arrival):
            obj = occurrence.declared.obj
            kind, order = _COMES + (not isinstance(obj, _FIRST)), occurrence.declared.order
        self._count += 1
        heapq.heappush(self._heap, (time, kind, order, self._count, occurrence))

    @property
    def next_time(self) -> int | None:
        """When the next thing happens; None when nothing is left."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> list[Occurrence]:
        """Take out all that happens until `now`, in order."""
        found: list[Occurrence] = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[4])
        return found
