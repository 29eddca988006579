"""Failed binds in the log: the first of each kind and group, then how many more there were.

A webhook that denies bindings refuses each attempt at each pod: a line for every one of them would hide all others.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from kbatch.engine import Bind
from kbatch.kube.errors import ApiError

_log = logging.getLogger(__name__)

SUM_SECONDS: Final = 60.0
"""What is counted is said this often."""
FORGET_SECONDS: Final = 600.0
"""What has not failed for so long is said anew when it does."""
LINES: Final = 20
"""So many binds have a line of their own from one sum to the next, however many groups there are."""


class BindFailures:
    """Says which binds failed.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str], float] = {}
        """By kind and group: when it last failed."""
        self._lines = 0
        self._more: Counter[str] = Counter()
        """By kind: failures without a line."""
        self._groups: dict[str, set[str]] = {}
        self._last: dict[str, str] = {}

    async def run(self) -> None:
        """Sum up from time to time, and once more when cancelled."""
        try:
            while True:
                await asyncio.sleep(SUM_SECONDS)
                self.sum_up()
        finally:
            self.sum_up()

    def note(self, one: Bind, group: str, error: Exception) -> None:
        """A bind of a pod of this group failed."""
        kind = _kind(error)
        known = (kind, group) in self._seen
        self._seen[kind, group] = self._clock()
        if not known and self._lines < LINES:
            self._lines += 1
            _log.warning("bind of %s to %s failed: %s", one.pod, one.node, error)
            return
        _log.debug("bind of %s to %s failed: %s", one.pod, one.node, error)
        self._more[kind] += 1
        self._groups.setdefault(kind, set()).add(group)
        self._last[kind] = f"bind of {one.pod} to {one.node} failed: {error}"

    def sum_up(self) -> None:
        """Say what was counted since the last time."""
        for kind, count in self._more.items():
            _log.warning(
                "binds failed again",
                extra={"reason": kind, "count": count, "groups": len(self._groups[kind]), "last": self._last[kind]},
            )
        self._more.clear()
        self._groups.clear()
        self._last.clear()
        self._lines = 0
        late = self._clock() - FORGET_SECONDS
        self._seen = {key: at for key, at in self._seen.items() if at > late}


def _kind(error: Exception) -> str:
    """What failures have in common: not their text, which mostly names the pod."""
    if isinstance(error, ApiError):
        return f"{error.status} {error.reason}".strip()
    return type(error).__name__
