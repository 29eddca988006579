"""The loop in which the scheduler's writers work: some writes side by side, and a pause after one that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from kbatch.kube.backoff import Backoff


class Write(NamedTuple):
    """A write that is due. `carry_out` gives False if the server should be left alone for a moment; never raises."""

    name: str
    carry_out: Coroutine[Any, Any, bool]


class WriteLoop:
    """Begins writes as they become due.

    Args:
        next_write: the next one that is due; None where none is. It is asked again after each `wake`, when a write has
            ended, and after `look_again`.
        at_once: how many may be on the wire now.
        look_again: in how many seconds something may become due by itself; None: not before a `wake`.
        apart: seconds between the beginnings of two writes.
        first_pause: seconds after the first failure; the pause grows with each one that follows.
    """

    def __init__(
        self,
        next_write: Callable[[], Write | None],
        *,
        at_once: Callable[[], int],
        look_again: Callable[[], float | None],
        apart: Callable[[], float] = lambda: 0.0,
        first_pause: float = 0.1,
    ) -> None:
        self._next_write = next_write
        self._at_once = at_once
        self._look_again = look_again
        self._apart = apart
        self._first_pause = first_pause
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Something may be due now."""
        self._news.set()

    async def run(self) -> None:
        """Write, until cancelled; what is on the wire then is cancelled too."""
        backoff = Backoff(first=self._first_pause)
        tasks: set[asyncio.Task[bool]] = set()
        try:
            while True:
                apart = self._apart()
                if self._begin(tasks, 1 if apart else None) and apart:
                    await asyncio.sleep(apart)
                else:
                    await self._wait(tasks)
                done = {task for task in tasks if task.done()}
                tasks -= done
                if any(not task.result() for task in done):
                    await asyncio.sleep(backoff.next())
                elif done:
                    backoff.reset()
        finally:
            for task in tasks:
                task.cancel()

    def _begin(self, tasks: set[asyncio.Task[bool]], at_most: int | None) -> int:
        begun = 0
        while len(tasks) < self._at_once() and begun != at_most:
            write = self._next_write()
            if write is None:
                break
            tasks.add(asyncio.create_task(write.carry_out, name=write.name))
            begun += 1
        return begun

    async def _wait(self, tasks: set[asyncio.Task[bool]]) -> None:
        """Until there may be something to do."""
        self._news.clear()
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({news, *tasks}, timeout=self._look_again(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
