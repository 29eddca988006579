"""How long something that failed is left alone, and which of its failures are logged."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from kbatch.kube.backoff import Backoff

FIRST: Final = 0.2
LONGEST: Final = 30.0
"""Seconds."""
MOST: Final = 10_000


@dataclass(slots=True)
class _Pause:
    backoff: Backoff
    failures: int = 0
    until: float = 0.0


class Pauses:
    """By key: a pause that grows with each failure in a row, until a success.

    Args:
        clock: monotonic, in seconds.
        first, longest: bounds of the pauses, in seconds.
        most: so many keys are remembered; of more than that those whose pause is over are forgotten.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        first: float = FIRST,
        longest: float = LONGEST,
        most: int = MOST,
    ) -> None:
        self._clock = clock
        self._first, self._longest = first, longest
        self._pauses: dict[str, _Pause] = {}
        self._most = self._limit = most

    def __len__(self) -> int:
        """Keys whose last attempt failed, as far as they are remembered."""
        return len(self._pauses)

    def failed(self, key: str, *, for_good: bool = False) -> float:
        """Begin its next pause; how long that is, in seconds. `for_good`: what will hardly succeed waits longest."""
        if len(self._pauses) > self._limit:  # of things that failed once, long ago
            now = self._clock()
            self._pauses = {kept: pause for kept, pause in self._pauses.items() if pause.until > now}
            self._limit = max(self._most, 2 * len(self._pauses))  # else each new one would look at all again
        if key not in self._pauses:
            self._pauses[key] = _Pause(Backoff(self._longest if for_good else self._first, self._longest))
        pause = self._pauses[key]
        wait = pause.backoff.next()
        pause.failures += 1
        pause.until = self._clock() + wait
        return wait

    def to_log(self, key: str) -> int:
        """How often it has failed in a row, where that is to be logged: the 1st, 2nd, 4th, 8th time; else 0."""
        pause = self._pauses.get(key)
        return pause.failures if pause is not None and pause.failures & (pause.failures - 1) == 0 else 0

    def succeeded(self, key: str) -> None:
        """It succeeded, or nothing is to be done for it any more: the next pause is a short one again."""
        if self._pauses:
            self._pauses.pop(key, None)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all others."""
        self._pauses = {key: pause for key, pause in self._pauses.items() if key in keys}

    def paused(self, key: str) -> bool:
        """Whether its pause is not over."""
        pause = self._pauses.get(key)
        return pause is not None and pause.until > self._clock()

    def left(self, key: str) -> float:
        """Seconds until its pause is over; 0 where it is."""
        pause = self._pauses.get(key)
        return max(0.0, pause.until - self._clock()) if pause is not None else 0.0

    def soonest(self) -> float | None:
        """Seconds until the first of all may be tried again, 0 where one may be now; None where none has failed."""
        now = self._clock()
        return min((max(0.0, pause.until - now) for pause in self._pauses.values()), default=None)

    def next_end(self) -> float | None:
        """When the first of all pauses ends, on the clock; None where nothing is paused."""
        now = self._clock()
        return min((pause.until for pause in self._pauses.values() if pause.until > now), default=None)

    def described(self) -> Iterator[str]:
        """What is paused, and for how many seconds more."""
        now = self._clock()
        return (f"{key} for {pause.until - now:.1f} s" for key, pause in self._pauses.items() if pause.until > now)
