"""The oldest of a queue's groups that wait, kept current from what changes."""

from __future__ import annotations

import heapq

Age = tuple[int, str]
"""When a group was created (any unit), and its key."""


class Ages:
    """The groups of one queue that wait for something, by age."""

    def __init__(self) -> None:
        self._ages: dict[str, Age] = {}
        self._heap: list[Age] = []

    def put(self, age: Age) -> None:
        """The group of this key waits; only its latest age counts."""
        if self._ages.get(age[1]) != age:
            self._ages[age[1]] = age
            heapq.heappush(self._heap, age)
            self._shrink()

    def drop(self, key: str) -> None:
        """The group does not wait any more."""
        self._ages.pop(key, None)

    def oldest(self) -> Age | None:
        """The oldest that waits; None: nobody does."""
        heap = self._heap
        while heap and self._ages.get(heap[0][1]) != heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _shrink(self) -> None:
        """Leave out those that are gone: young ones lie deep in the heap, and nobody may ever ask for the oldest."""
        if len(self._heap) > 2 * len(self._ages) + 64:
            self._heap = sorted(self._ages.values())
