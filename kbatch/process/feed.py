"""Informers, read side by side into one receiver, with what health and metrics want to know of them."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kbatch.kube.informer import Batch, Informer
from kbatch.metrics import WatchMetrics
from kbatch.model.events import Unreadable

_log = logging.getLogger(__name__)

ARRIVING_SECONDS: Final = 0.1
"""What a watch has missed comes at once when it is open again."""

_LOOK_SECONDS: Final = 0.02

Receiver = Callable[[Batch], None]


class Feed:
    """Runs informers until it is cancelled. `receive` is called in the event loop with each batch and must not wait."""

    def __init__(self, informers: Sequence[Informer[Any]], receive: Receiver, metrics: WatchMetrics) -> None:
        self._informers: Final = tuple(informers)
        self._receive = receive
        self._metrics = metrics
        self.synced = asyncio.Event()
        """Set once every first list has been received whole."""
        self._whole: set[str] = set()
        for informer in self._informers:
            metrics.age.labels(informer.kind.plural).set_function(functools.partial(_age, informer))

    async def run(self) -> None:
        """Read for ever."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(self._read(informer), name=f"informer {informer.kind.plural}")

    def unsynced(self) -> str | None:
        """Which kinds were not listed whole yet, or None."""
        missing = [informer.kind.plural for informer in self._informers if informer.kind.plural not in self._whole]
        return f"waiting for the first list of {', '.join(missing)}" if missing else None

    async def watching(self, seconds: float) -> bool:
        """Return when every kind is watched, or was for a moment meanwhile; False if that takes too long.

        While a watch is cut, its kind is known as it was before. Where one had to be waited for, what it has missed
        has arrived when this returns.
        """
        cut = [informer for informer in self._informers if not informer.watching]
        if not cut:
            return True
        try:
            async with asyncio.timeout(seconds):
                while cut:
                    await asyncio.sleep(_LOOK_SECONDS)
                    cut = [informer for informer in cut if not informer.watching]
        except TimeoutError:
            return False
        await asyncio.sleep(ARRIVING_SECONDS)
        return True

    def stale(self) -> str | None:
        """Which kinds nothing was heard of for too long, or None; a kind that was never listed is not stale."""
        silent = [
            informer.kind.plural
            for informer in self._informers
            if informer.kind.plural in self._whole and informer.stale()
        ]
        return f"nothing was heard of {', '.join(silent)} for too long" if silent else None

    async def _read(self, informer: Informer[Any]) -> None:
        kind = informer.kind.plural
        events = self._metrics.events.labels(kind)
        relists = self._metrics.relists.labels(kind)
        unreadable = self._metrics.unreadable.labels(kind)
        counted = 0
        async for batch in informer:
            events.inc(len(batch.events))
            for event in batch.events:
                if isinstance(event, Unreadable):
                    unreadable.inc()
                    _log.warning("%s %s/%s cannot be read: %s", kind, event.namespace, event.name, event.why)
            self._receive(batch)
            if informer.relists > counted:
                relists.inc(informer.relists - counted)
                counted = informer.relists
            if batch.complete and kind not in self._whole:
                self._whole.add(kind)
                if len(self._whole) == len(self._informers):
                    self.synced.set()


def _age(informer: Informer[Any]) -> float:
    return 0.0 if informer.last_activity is None else time.monotonic() - informer.last_activity
