"""When a write that failed is tried again, and which of its failures are logged."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from kbatch.kube.backoff import Backoff

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Failing:
    backoff: Backoff
    times: int = 0
    until: float = 0.0


class Retries:
    """By key: a pause that grows with each failure in a row, until a success.

    Args:
        first, longest: bounds of the pauses, in seconds.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        first: float = FIRST_SECONDS,
        longest: float = LONGEST_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first, self._longest = first, longest
        self._clock = clock
        self._failing: dict[str, _Failing] = {}

    def __len__(self) -> int:
        """Keys whose last attempt failed."""
        return len(self._failing)

    def failed(self, key: str) -> int | None:
        """Begin its next pause.

        How often it has failed in a row, where that is to be logged: the 1st, 2nd, 4th, 8th time; else None.
        """
        one = self._failing.get(key)
        if one is None:
            one = self._failing[key] = _Failing(Backoff(self._first, self._longest))
        one.times += 1
        one.until = self._clock() + one.backoff.next()
        return one.times if one.times & (one.times - 1) == 0 else None

    def forget(self, key: str) -> None:
        """It succeeded, or nothing is to be done for it any more: the next pause is a short one again."""
        self._failing.pop(key, None)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all others."""
        self._failing = {key: one for key, one in self._failing.items() if key in keys}

    def left(self, key: str) -> float:
        """Seconds until it may be tried again; 0 if now."""
        one = self._failing.get(key)
        return max(0.0, one.until - self._clock()) if one is not None else 0.0

    def soonest(self) -> float | None:
        """Seconds until the first of all may be tried again; None where none has failed."""
        now = self._clock()
        return min((max(0.0, one.until - now) for one in self._failing.values()), default=None)
