"""Groups whose pods have all ended, and whose controller makes no more: over after a time.

Of Jobs it is known when they stop. Any other controller (a ReplicaSet, an operator of a training framework) may always
make more, and says nowhere that it will not. So a group of such pods counts as left when nothing came for a time: given
up, where some have failed; done, where all that are there have succeeded (the others were cleaned up).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from operators.podgroup.member_index import Member, Stage

GIVE_UP_SECONDS: Final = 300.0

_ENDED: Final = frozenset({Stage.SUCCEEDED, Stage.FAILED})


class Abandoned:
    """Remembers since when no group of such pods has changed, by what this process saw: clocks need not agree.

    Args:
        seconds: for so long a controller may take to make another pod.
    """

    def __init__(self, seconds: float = GIVE_UP_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: dict[str, tuple[frozenset[str], float]] = {}

    def __len__(self) -> int:
        """Groups of which anything is remembered."""
        return len(self._since)

    def forget(self, key: str) -> None:
        """The group is gone."""
        self._since.pop(key, None)

    def left(self, key: str, members: Iterable[Member]) -> float | None:
        """For how many seconds more a controller may still make pods; None: some pod has not ended, or there is none.

        Not more than 0: nobody makes any more.
        """
        pods = list(members)
        if not pods or any(one.stage not in _ENDED for one in pods):
            self.forget(key)
            return None
        seen = frozenset(one.uid for one in pods)
        before, since = self._since.get(key, (seen, self._clock()))
        if not seen <= before:  # pods that are cleaned up bring nothing new
            since = self._clock()
        self._since[key] = seen, since
        return self._seconds - (self._clock() - since)
