"""Informers, read side by side into one receiver, with what health and metrics want to know of them."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec

from kbatch.kube.backoff import Backoff
from kbatch.kube.client import Api
from kbatch.kube.errors import KubeError
from kbatch.kube.informer import Batch, Informer, RestoredError
from kbatch.kube.kinds import AnyKind
from kbatch.kube.lists import current_version
from kbatch.metrics import WatchMetrics
from kbatch.model.events import Unreadable
from kbatch.process.health import Health
from kbatch.process.run import ProcessError

_log = logging.getLogger(__name__)

ARRIVING_SECONDS: Final = 0.1
"""What a watch has missed comes at once when it is open again; what was written a moment ago has come by then."""

SAYING_SECONDS: Final = 5.0
"""What is waited for so long is said, and again when it has taken twice as long."""

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
        """Read for ever.

        Raises:
            ProcessError: the cluster was restored from a backup. Whoever knows what came after the backup was made must
                not act on it any more; a process that begins anew knows nothing of it.
        """
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

    async def caught_up(self, api: Api, kinds: Collection[AnyKind]) -> None:
        """Return when all is received that the server knew of these kinds when this was called, however long it takes.

        A watch tells of changes alone, and of a quiet kind nothing for up to a minute: where it has not come as far as
        it should in a moment, the kind is listed anew.
        """
        wanted = {kind.plural for kind in kinds}
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                if informer.kind.plural in wanted:
                    group.create_task(_catch_up(api, informer), name=f"catching up with {informer.kind.plural}")

    def tell(self, health: Health) -> None:
        """Add the check `watches`: while it fails the process does not do its work.

        It is alive all the same: a restart would not make a silent server speak, but have it list everything to all
        replicas of all processes at once, when it is just coming back.
        """
        health.ready("watches", self.stale)

    def stale(self) -> str | None:
        """Which kinds nothing was heard of for too long, or None; a kind that was never listed is not stale."""
        silent = [
            informer.kind.plural
            for informer in self._informers
            if informer.kind.plural in self._whole and informer.stale()
        ]
        return f"nothing was heard of {', '.join(silent)} for too long" if silent else None

    async def _read(self, informer: Informer[Any]) -> None:
        try:
            await self._take(informer)
        except RestoredError as error:
            raise ProcessError(f"{error}; all is to be read anew") from error

    async def _take(self, informer: Informer[Any]) -> None:
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


async def _catch_up(api: Api, informer: Informer[Any]) -> None:
    version = await _version_now(api, informer.kind)
    began, said = time.monotonic(), SAYING_SECONDS
    listing = False
    while informer.reached < version:
        await asyncio.sleep(_LOOK_SECONDS)
        waited = time.monotonic() - began
        if waited >= ARRIVING_SECONDS and not listing:
            listing = True
            informer.list_anew()
        if waited >= said:
            said = 2 * waited
            _log.warning("waiting for %.0f s for all that the server knew of %s", waited, informer.kind.plural)


async def _version_now(api: Api, kind: AnyKind) -> int:
    backoff = Backoff()
    while True:
        try:
            return await current_version(api, kind)
        except (KubeError, msgspec.DecodeError) as error:
            _log.warning("asking for the version of %s: %s", kind.plural, error)
        await asyncio.sleep(backoff.next())


def _age(informer: Informer[Any]) -> float:
    return 0.0 if informer.last_activity is None else time.monotonic() - informer.last_activity
