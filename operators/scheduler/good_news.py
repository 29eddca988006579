"""What is well, and may be said later: that groups are scheduled, while binds of others wait.

Such a write takes the API server as long as two or three binds do, and whoever still waits for a place cares more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from typing import Final, Generic, TypeVar

T = TypeVar("T")

CONTRADICTED_SECONDS: Final = 2.5
"""While binds wait, that a group is scheduled is said so long after it is, where its status says that it is not."""

NEWS_SECONDS: Final = 10.0
"""And so long after it where its status says nothing as yet: that may be missing for a while, but is not untrue."""


class GoodNews(Generic[T]):
    """What is to be said of groups, and since when it is true (seconds of one clock, in whose order it is put)."""

    def __init__(self) -> None:
        self._contradicted: OrderedDict[str, tuple[T, float]] = OrderedDict()
        self._new: OrderedDict[str, tuple[T, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._contradicted) + len(self._new)

    def __contains__(self, key: str) -> bool:
        return key in self._contradicted or key in self._new

    def put(self, key: str, news: T, since: float, *, contradicted: bool) -> None:
        """Say it when its time has come; `contradicted`: the group's status says something else."""
        (self._contradicted if contradicted else self._new)[key] = news, since

    def discard(self, key: str) -> None:
        """It is not so any more, or something newer is."""
        self._contradicted.pop(key, None)
        self._new.pop(key, None)

    def due(self, now: float, *, hold: bool, busy: Container[str]) -> tuple[str, T, float] | None:
        """Take what is to be said now, with its key and since when it is true; None where nothing is.

        `hold`: whether it may wait; `busy`: groups of which nothing can be said right now.
        """
        for some, seconds in ((self._contradicted, CONTRADICTED_SECONDS), (self._new, NEWS_SECONDS)):
            for key, (news, since) in some.items():
                if hold and since > now - seconds:  # and so are all that follow
                    break
                if key not in busy:
                    del some[key]
                    return key, news, since
        return None

    def take_all(self) -> dict[str, T]:
        """Take everything, by key."""
        found = {key: news for some in (self._contradicted, self._new) for key, (news, _) in some.items()}
        self._contradicted.clear()
        self._new.clear()
        return found
