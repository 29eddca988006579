"""How long something that failed is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    until: float = 0.0


class Pauses:
    """By key: a pause that grows with each failure, until a success.

    Args:
        clock: monotonic, in seconds.
        first, longest: bounds of the pauses, in seconds.
        most: so many keys are remembered; of more than that those whose pause is over are forgotten.
    """

    def __init__(
        self, clock: Callable[[], float], *, first: float = FIRST, longest: float = LONGEST, most: int = MOST
    ) -> None:
        self._clock = clock
        self._first, self._longest = first, longest
        self._pauses: dict[str, _Pause] = {}
        self._most = self._limit = most

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
        pause.until = self._clock() + wait
        return wait

    def succeeded(self, key: str) -> None:
        """The next pause is a short one again."""
        if self._pauses:
            self._pauses.pop(key, None)

    def paused(self, key: str) -> bool:
        """Whether its pause is not over."""
        pause = self._pauses.get(key)
        return pause is not None and pause.until > self._clock()

    def described(self) -> Iterator[str]:
        """What is paused, and for how many seconds more."""
        now = self._clock()
        return (f"{key} for {pause.until - now:.1f} s" for key, pause in self._pauses.items() if pause.until > now)

    def next_end(self) -> float | None:
        """When the first of all pauses ends, on the clock; None where nothing is paused."""
        now = self._clock()
        return min((pause.until for pause in self._pauses.values() if pause.until > now), default=None)
