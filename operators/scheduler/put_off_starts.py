"""Groups whose start has moved by so small a part of the wait that it is not written yet: as the wait gets shorter it
will be, though nothing else changes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from kbatch.api.objects import EstimatedStart, timestamp_us
from kbatch.engine import StartEstimate
from operators.scheduler.status_diff import START_MOVED, START_PART, start_moved

_STALE: Final = 50
"""So many more entries than groups are in the heap before it is made anew, and as many again as there are groups."""


class PutOffStarts:
    """These groups, in the order of the instants from which on their starts count: one look at the first is enough."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[int, EstimatedStart | None, StartEstimate | None]] = {}
        self._order: list[tuple[int, str]] = []
        """A heap of the same, and of some that are out of date."""

    def __len__(self) -> int:
        return len(self._groups)

    def look(self, key: str, standing: EstimatedStart | None, estimate: StartEstimate | None) -> None:
        """The group's status says this of its start, and it is estimated to be that now: keep it if it is put off."""
        at = _counts_after(standing, estimate)
        if at is None:
            self.discard(key)
            return
        known = self._groups.get(key)
        self._groups[key] = at, standing, estimate
        if known is None or known[0] != at:
            heapq.heappush(self._order, (at, key))
            self._tidy()

    def discard(self, key: str) -> None:
        """Nothing of the group is put off."""
        if self._groups.pop(key, None) is not None:
            self._tidy()

    def due(self) -> Iterator[str]:
        """Take those that are put off no longer."""
        while self._order:
            at, key = self._order[0]
            known = self._groups.get(key)
            current = known is not None and known[0] == at
            if known is not None and current:
                # The rule itself, not the instant: whoever is taken is written, by one and the same clock.
                if not start_moved(known[1], known[2]):
                    return
                del self._groups[key]
            heapq.heappop(self._order)
            if current:
                yield key

    def _tidy(self) -> None:
        if len(self._order) > 2 * len(self._groups) + _STALE:
            self._order = [(at, key) for key, (at, _, _) in self._groups.items()]
            heapq.heapify(self._order)


def _counts_after(standing: EstimatedStart | None, estimate: StartEstimate | None) -> int | None:
    """The instant (microseconds) after which a start is worth a write that is not worth it now; None where there is no
    such instant.
    """
    if standing is None or estimate is None or estimate.time is None or start_moved(standing, estimate):
        return None
    pairs = ((standing.time, estimate.time), (standing.latest, estimate.latest))
    moved = max(abs((timestamp_us(said) or 0) - now) for said, now in pairs if now is not None)
    return estimate.time - START_PART * moved if moved > START_MOVED else None
