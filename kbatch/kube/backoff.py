"""Growing waits between attempts, with jitter: many clients that lost the same server must not return as one."""

from __future__ import annotations

import random
from collections.abc import Callable


class Backoff:
    """Waits in seconds: about `first`, then each `factor` times as long, up to `limit`, less up to half at random.

    `reset` after a success. `draw` gives a number in [0, 1) and is there for tests.
    """

    def __init__(
        self, first: float = 0.1, limit: float = 5.0, factor: float = 2.0, draw: Callable[[], float] = random.random
    ) -> None:
        self._first = first
        self._limit = limit
        self._factor = factor
        self._draw = draw
        self._next = first

    def next(self) -> float:
        """How long to wait now; the next wait will be longer."""
        wait = self._next * (0.5 + self._draw() / 2)
        self._next = min(self._limit, self._next * self._factor)
        return wait

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._next = self._first
