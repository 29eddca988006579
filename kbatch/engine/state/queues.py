"""Queues as a session sees them: the snapshot's sums, and what the session has decided on top.

Only the engine changes them, through a `Statement`; plugins read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kbatch.model.jobs import QueueRecord
from kbatch.resources import Resources


@dataclass(eq=False, slots=True)
class QueueState:
    """One queue. `allocated` is what it holds and is nominated to, with the open statement; victims no longer count.

    `ending` is what of it groups with a lifetime have; `charged` what these take of the excessBudget, in millionths of
    a resource-minute.
    """

    record: QueueRecord
    deserved: Resources
    allocated: Resources
    ending: Resources = field(default_factory=dict)
    charged: int = 0
    _beyond: frozenset[str] | None = None

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.record.name

    @property
    def weight(self) -> int:
        """Its weight."""
        return self.record.weight

    @property
    def beyond(self) -> frozenset[str]:
        """The dimensions of which it holds more than it deserves."""
        found = self._beyond
        if found is None:
            deserved = self.deserved
            found = frozenset([name for name, held in self.allocated.items() if held > deserved.get(name, 0)])
            self._beyond = found
        return found

    def add(self, request: Mapping[str, int], number: int = 1, *, ends: bool = False) -> None:
        """Count so many pods of this request; no longer count them, if below 0. `ends`: of a group with a lifetime."""
        allocated = self.allocated
        self._beyond = None
        for name, amount in request.items():
            allocated[name] = allocated.get(name, 0) + number * amount
        if ends:
            ending = self.ending
            for name, amount in request.items():
                ending[name] = ending.get(name, 0) + number * amount

    def may_lose(self, lost: Mapping[str, int], lacks: frozenset[str], gained: Mapping[str, int]) -> bool:
        """Whether a unit that holds `lost` may go to another queue, by shares: this one is above its deserved share in
        a dimension that the other lacks, and falls below it by no more than the other gains.
        """
        for name in lacks:
            above = self.allocated.get(name, 0) - self.deserved.get(name, 0)
            if above > 0 and lost.get(name, 0) > 0:
                below = lost[name] - above
                if below <= gained.get(name, 0):
                    return True
        return False
