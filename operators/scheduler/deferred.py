"""Status that is well and may be written later: that groups are scheduled, while binds of others wait.

Such a write takes the API server as long as two or three binds do, and whoever still waits for a place cares more.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Container
from typing import Final, Generic, TypeVar

T = TypeVar("T")


class Rank(enum.Enum):
    """What is deferred, in the order in which it is written; the value: by how many seconds, while binds wait."""

    GANG = 1.5
    """That a gang is scheduled: told within 2.5 s of its last bind, whatever else goes on."""
    CONTRADICTED = 2.5
    """That a group of one pod is scheduled whose status says that it is not."""
    SINGLE = 8.0
    """The same where its status says nothing as yet: that may be missing for a while, but is not untrue."""


LATE_SECONDS: Final = 0.3
"""So long after its time what is said of a gang is late."""


class DeferredStatusQueue(Generic[T]):
    """What is to be written of groups, and since when it is true (seconds of one clock, in whose order it is put)."""

    def __init__(self) -> None:
        self._ranks: dict[Rank, OrderedDict[str, tuple[T, float]]] = {rank: OrderedDict() for rank in Rank}

    def __len__(self) -> int:
        return sum(map(len, self._ranks.values()))

    def __contains__(self, key: str) -> bool:
        return any(key in some for some in self._ranks.values())

    def put(self, key: str, status: T, since: float, rank: Rank) -> None:
        """Write it when its time has come."""
        self._ranks[rank][key] = status, since

    def discard(self, key: str) -> None:
        """It is not so any more, or something newer is."""
        for some in self._ranks.values():
            some.pop(key, None)

    def due(self, now: float, *, hold: bool, busy: Container[str]) -> tuple[str, T, float] | None:
        """Take what is to be written now, with its key and since when it is true; None where nothing is.

        `hold`: whether it may wait; `busy`: groups of which nothing can be written right now.
        """
        for rank in Rank:
            found = self._due(rank, now, hold=hold, busy=busy)
            if found is not None:
                return found
        return None

    def due_gang(self, now: float, busy: Container[str]) -> tuple[str, T, float] | None:
        """The same of gangs alone, whose time has come although binds wait."""
        return self._due(Rank.GANG, now, hold=True, busy=busy)

    def late(self, now: float) -> bool:
        """Whether a gang's status should have been written by now."""
        first = next(iter(self._ranks[Rank.GANG].values()), None)
        return first is not None and first[1] + Rank.GANG.value + LATE_SECONDS <= now

    def take_all(self) -> dict[str, T]:
        """Take everything, by key."""
        found = {key: status for some in self._ranks.values() for key, (status, _) in some.items()}
        for some in self._ranks.values():
            some.clear()
        return found

    def _due(self, rank: Rank, now: float, *, hold: bool, busy: Container[str]) -> tuple[str, T, float] | None:
        some = self._ranks[rank]
        for key, (status, since) in some.items():
            if hold and since > now - rank.value:  # and so are all that follow
                return None
            if key not in busy:
                del some[key]
                return key, status, since
        return None
