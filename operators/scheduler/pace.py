"""How often a group's status may be rewritten while it waits.

In a busy cluster why a group waits is another thing in each cycle, in numbers or in kind. Where it stands (in queue or
not, scheduled or not), and what is said of a new generation of its spec, is written at once, always. A reason that
changed is written at once too, but for a group whose reason changed again and again: then once it has held for a
while, since one that comes and goes is no news, but one that stays is what its user has to know. The first change after
a group was placed and is so no longer is always written at once: a gang that has lost a pod lacks one until that is
made anew, and then lacks room for it. A message that changed is written after a while, and the second time after a long
while. Groups go by their uid: what was written of one says nothing of the next one of its name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable
from typing import Final, NamedTuple, TypeAlias

from operators.scheduler.status_diff import Difference

WRITES_AT_ONCE: Final = 3
"""Of a group that was not written for long, with those that say that its standing changed,"""
REST_SECONDS: Final = 1800.0
"""and then one in so many seconds. So a group that waits has no more than four writes in its first hour,"""
HOLDS: Final = (60.0, 600.0, REST_SECONDS)
"""but for reasons that hold: after that many writes a reason is written when it was the present one for so long, the
next one when it was for longer. So the status names a reason that is over for a minute, or for ten, or for half an hour
where reasons that each hold for minutes follow upon each other."""

MESSAGE_SECONDS: Final = 5.0
"""A message alone is not rewritten sooner than this after the group's first write, `REST_SECONDS` after the next."""

START_SECONDS: Final = 30.0
"""When a group is to start is not rewritten sooner than this after it was written."""

Said: TypeAlias = Hashable
"""A group's conditions without their words and times."""


class _Writes(NamedTuple):
    """A group's writes so far.

    Attributes:
        last: when it was written last.
        rested: when it counts as not written for long, if it is left alone until then: each write puts that off by
            `REST_SECONDS`.
        held: how many of them were reasons that were written because they held.
        fell: the last one said that it is not placed any more.
    """

    last: float
    rested: float
    held: int = 0
    fell: bool = False

    @property
    def allowed(self) -> float:
        """From when on one of the writes at once is left."""
        return self.rested - (WRITES_AT_ONCE - 1) * REST_SECONDS


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
        self._reasons: dict[str, tuple[Said, float]] = {}
        """What is to be said of a group that was written, and since when."""

    def __len__(self) -> int:
        """Groups of which anything is remembered."""
        return len(self._writes) + sum(uid not in self._writes for uid in self._started)

    def saw(self, uid: str, said: Said) -> None:
        """This is to be said of the group now."""
        before = self._reasons.get(uid)
        if uid in self._writes and (before is None or before[0] != said):
            self._reasons[uid] = said, self._clock()

    def wrote(self, uid: str, what: Difference, *, fell: bool = False) -> None:
        """The group is written now, because so much had changed; `fell`: it was placed, and is so no longer."""
        if what is Difference.START:
            return
        now, before = self._clock(), self._writes.get(uid)
        rested, held = now, 0
        if before is not None and before.rested > now:
            rested = before.rested
            held = before.held + (what is Difference.REASON and before.allowed > now and not before.fell)
        until = min(rested, now + (WRITES_AT_ONCE - 1) * REST_SECONDS) + REST_SECONDS
        self._writes[uid] = _Writes(now, until, held, fell)

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
        if what is Difference.REASON and writes.fell:
            return now
        if what is Difference.REASON:
            _, since = self._reasons.get(uid, (None, now))
            return max(now, min(writes.allowed, since + HOLDS[min(writes.held, len(HOLDS) - 1)]))
        only = writes.rested <= writes.last + REST_SECONDS
        return max(writes.allowed, writes.last + (self._message_seconds if only else REST_SECONDS))

    def keep(self, present: Collection[str]) -> None:
        """Forget all other groups."""
        self._writes = {uid: at for uid, at in self._writes.items() if uid in present}
        self._started = {uid: at for uid, at in self._started.items() if uid in present}
        self._reasons = {uid: said for uid, said in self._reasons.items() if uid in present}
