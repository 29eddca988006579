"""Rows in the order of what room on them costs at least: most of them put in order once, the others as they come."""

from __future__ import annotations

import heapq

from kbatch.engine.preemption.candidate_index import Bounds
from kbatch.engine.preemption.candidates import Cost


class Frontier:
    """Rows that are still to be tried, each with a bound; of equal bounds the first row comes first."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._at = 0
        self._moved: dict[int, Cost | None] = {}
        """Rows that have left their place in `bounds`: by what they stand now, None where they were taken out."""
        self._heap: list[tuple[Cost, int]] = []
        self._head: tuple[Cost, int] | None = None
        """The first of those in `bounds`, as far as it is known."""

    def push(self, bound: Cost, row: int) -> None:
        """From now on the row stands by this bound."""
        if row not in self._moved or self._moved[row] != bound:
            self._moved[row] = bound
            heapq.heappush(self._heap, (bound, row))

    @property
    def head(self) -> tuple[Cost, int] | None:
        """The first row, with its bound; None: there are no more."""
        bounds, moved, heap = self._bounds, self._moved, self._heap
        if self._head is None or self._head[1] in moved:
            while self._at < len(bounds.rows) and bounds.rows[self._at] in moved:
                self._at += 1
            self._head = (bounds.cost(self._at), bounds.rows[self._at]) if self._at < len(bounds.rows) else None
        while heap and moved[heap[0][1]] != heap[0][0]:
            heapq.heappop(heap)  # it stands elsewhere by now
        if heap and (self._head is None or heap[0] < self._head):
            return heap[0]
        return self._head

    def take(self, row: int) -> None:
        """The row is tried."""
        self._moved[row] = None
