"""How often a group's status may be rewritten while it waits.

In a busy cluster why a group waits is another thing in each cycle, in numbers or in kind. Where it stands (in queue or
not, scheduled or not), and what is said of a new generation of its spec, is written at once, always. A reason that
changed is written at once too, but for a group whose reason changed again and again: then once in half an hour. A
message that changed is written after a while, and the second time after a long while. `kbatch explain` says at any time
how it is now. Groups go by their uid: what was written of one says nothing of the next one of its name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from operators.scheduler.status_diff import Difference

WRITES_AT_ONCE: Final = 3
"""Of a group that was not written for long, with those that say that its standing changed,"""
REST_SECONDS: Final = 1800.0
"""and then one in so many seconds. So a group that waits has no more than four writes in its first hour."""

MESSAGE_SECONDS: Final = 5.0
"""A message alone is not rewritten sooner than this after the group's first write, `REST_SECONDS` after the next."""

START_SECONDS: Final = 30.0
"""When a group is to start is not rewritten sooner than this after it was written."""


class _Writes(NamedTuple):
    """A group's writes so far.

    Attributes:
        last: when it was written last.
        rested: when it counts as not written for long, if it is left alone until then: each write puts that off by
            `REST_SECONDS`.
    """

    last: float
    rested: float


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
        self._writes: dict[str, _Writes] = {}
        self._started: dict[str, float] = {}
        """When it was last written when a group is to start."""

    def __len__(self) -> int:
        """Groups of which anything is remembered."""
        return len(self._writes) + sum(uid not in self._writes for uid in self._started)

    def wrote(self, uid: str, what: Difference) -> None:
        """The group is written now, because so much had changed."""
        if what is Difference.START:
            return
        now, before = self._clock(), self._writes.get(uid)
        rested = now if before is None else max(before.rested, now)
        self._writes[uid] = _Writes(now, min(rested, now + (WRITES_AT_ONCE - 1) * REST_SECONDS) + REST_SECONDS)

    def wrote_start(self, uid: str) -> None:
        """When the group is to start is written now."""
        self._started[uid] = self._clock()

    def start_rests(self, uid: str) -> bool:
        """Whether when the group is to start was written a moment ago."""
        at = self._started.get(uid)
        return at is not None and self._clock() - at < START_SECONDS

    def due(self, uid: str, what: Difference) -> float:
        """From when on a change of this kind may be written, by the clock."""
        now = self._clock()
        if what is Difference.START:
            return self._started.get(uid, now - START_SECONDS) + START_SECONDS
        writes = self._writes.get(uid)
        if what is Difference.STATUS or writes is None or writes.rested <= now:
            return now
        allowed = writes.rested - (WRITES_AT_ONCE - 1) * REST_SECONDS
        if what is Difference.REASON:
            return max(now, allowed)
        only = writes.rested <= writes.last + REST_SECONDS
        return max(allowed, writes.last + (self._message_seconds if only else REST_SECONDS))

    def keep(self, present: Collection[str]) -> None:
        """Forget all other groups."""
        self._writes = {uid: at for uid, at in self._writes.items() if uid in present}
        self._started = {uid: at for uid, at in self._started.items() if uid in present}
