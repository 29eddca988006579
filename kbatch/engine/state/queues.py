"""Queues as a session sees them: the snapshot's sums, and what the session has decided on top.

Only the engine changes them, through a `Statement`; plugins read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kbatch.model.jobs import QueueRecord
from kbatch.resources import Resources


@dataclass(eq=False, slots=True)
class QueueState:
    """One queue. `allocated` is what it holds and is nominated to, with the open statement; victims no longer count."""

    record: QueueRecord
    deserved: Resources
    allocated: Resources

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.record.name

    @property
    def weight(self) -> int:
        """Its weight."""
        return self.record.weight

    def add(self, request: Mapping[str, int], number: int = 1) -> None:
        """Count so many pods of this request; no longer count them, if below 0."""
        allocated = self.allocated
        for name, amount in request.items():
            allocated[name] = allocated.get(name, 0) + number * amount
