"""Keys that want work: each at most once in the queue, never worked on twice at a time, not too often.

Whoever learns that an object may have changed adds its key; many hints in a short time become one piece of work. A key
that is added while it is being worked on comes again afterwards, so no change is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Final

_STALE: Final = 1024
"""So many entries of wishes that were overtaken by earlier ones may stand there, besides as many as keys wait. Such an
entry goes by itself only when its time has come: that of a key that is to be looked at in a week, in a week."""


class WorkQueue:
    """A queue of keys for any number of workers in one event loop.

    Args:
        gap: seconds that lie at least between two times that the same key is handed out. The first hint after a rest
            is served at once; what follows it within the gap is served together.
        clock: monotonic seconds.
    """

    def __init__(self, *, gap: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._gap = gap
        self._clock = clock
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._active: set[str] = set()
        self._again: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._sequence = count()
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()

    def __len__(self) -> int:
        """Keys that wait or are being worked on."""
        return len(self._due) + len(self._active)

    def add(self, key: str, delay: float = 0.0) -> None:
        """Want work on the key in `delay` seconds; an earlier wish for the same key stands."""
        due = self._clock() + delay
        if key in self._active:
            self._again[key] = min(due, self._again.get(key, due))
        else:
            self._push(key, due)

    async def get(self) -> str:
        """The next key that is due; it is this caller's until `done`."""
        async with self._turn:
            while True:
                self._changed.clear()
                wait = self._next()
                if isinstance(wait, str):
                    return wait
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()

    def done(self, key: str, again_in: float | None = None) -> None:
        """The work on the key has ended; `again_in` seconds from now it is wanted again, if set."""
        self._active.discard(key)
        wishes = [self._again.pop(key)] if key in self._again else []
        if again_in is not None:
            wishes.append(self._clock() + again_in)
        if wishes:
            self._push(key, min(wishes))
        if len(self._last) > 1024 + 2 * len(self):
            horizon = self._clock() - self._gap
            self._last = {known: at for known, at in self._last.items() if at > horizon}

    def _push(self, key: str, due: float) -> None:
        if key in self._last:
            due = max(due, self._last[key] + self._gap)
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._sequence), key))
        if len(self._heap) > _STALE + 2 * len(self._due):
            self._heap = [each for each in self._heap if self._due.get(each[2]) == each[0]]
            heapq.heapify(self._heap)
        self._changed.set()

    def _next(self) -> str | float | None:
        """A key that is due, else the seconds until one is, else None."""
        while self._heap:
            due, _, key = self._heap[0]
            if self._due.get(key) != due:  # overtaken by an earlier wish
                heapq.heappop(self._heap)
                continue
            now = self._clock()
            if due > now:
                return due - now
            heapq.heappop(self._heap)
            del self._due[key]
            self._active.add(key)
            self._last[key] = now
            return key
        return None
