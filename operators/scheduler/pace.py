"""How often a group's status may be rewritten while it waits.

In a busy cluster why a group waits is another thing in each cycle, in numbers or in kind. Where it stands (in queue or
not, scheduled or not) is written at once, always. A reason that changed is written at once as long as the group had few
writes in the last hour, a message that changed after a while, and the second time after a long while.
`kbatch explain` says at any time how it is now.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final

from operators.scheduler.status_diff import Difference

HOUR: Final = 3600.0
WRITES_AN_HOUR: Final = 3
"""Besides those that say that a group's standing changed, which count."""

MESSAGE_SECONDS: Final = 5.0
"""A message alone is not rewritten sooner than this after the group's first write of the hour,"""
LATER_MESSAGE_SECONDS: Final = 1800.0
"""and not sooner than this after the next ones."""

START_SECONDS: Final = 30.0
"""When a group is to start is not rewritten sooner than this after it was written."""


class Pace:
    """Remembers when groups were written.

    Args:
        message_seconds: see `MESSAGE_SECONDS`.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, message_seconds: float = MESSAGE_SECONDS
    ) -> None:
        self._clock = clock
        self._message_seconds = message_seconds
        self._writes: dict[str, tuple[float, ...]] = {}
        """By group: when it was last written, the latest first."""
        self._started: dict[str, float] = {}
        """When it was last written when a group is to start."""

    def __len__(self) -> int:
        """Groups of which anything is remembered."""
        return len(self._writes.keys() | self._started.keys())

    def wrote(self, key: str, what: Difference) -> None:
        """The group is written now, because so much had changed."""
        if what is not Difference.START:
            self._writes[key] = (self._clock(), *self._writes.get(key, ()))[:WRITES_AN_HOUR]

    def wrote_start(self, key: str) -> None:
        """When the group is to start is written now."""
        self._started[key] = self._clock()

    def start_rests(self, key: str) -> bool:
        """Whether when the group is to start was written a moment ago."""
        at = self._started.get(key)
        return at is not None and self._clock() - at < START_SECONDS

    def due(self, key: str, what: Difference) -> float:
        """From when on a change of this kind may be written, by the clock."""
        now = self._clock()
        if what is Difference.START:
            return self._started.get(key, now - START_SECONDS) + START_SECONDS
        writes = [at for at in self._writes.get(key, ()) if now - at < HOUR]
        if what is Difference.STATUS or not writes:
            return now
        if len(writes) >= WRITES_AN_HOUR:
            return writes[WRITES_AN_HOUR - 1] + HOUR
        if what is Difference.REASON:
            return now
        return writes[0] + (self._message_seconds if len(writes) == 1 else LATER_MESSAGE_SECONDS)

    def keep(self, present: Collection[str]) -> None:
        """Forget all other groups."""
        self._writes = {key: at for key, at in self._writes.items() if key in present}
        self._started = {key: at for key, at in self._started.items() if key in present}
