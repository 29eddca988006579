"""Carries out what a cycle has decided, off the decision path: binds at once, plans with evictions step by step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kbatch.api.reasons import BindFailed
from kbatch.engine import Transaction
from kbatch.kube.client import Api
from kbatch.kube.events import EventRecorder
from kbatch.metrics import SchedulerMetrics
from operators.scheduler import FIELD_MANAGER
from operators.scheduler.binder import Binder
from operators.scheduler.cache import Cache
from operators.scheduler.plans import Plans
from operators.scheduler.volumes import VOLUME_SECONDS, Volumes

PARALLELISM: Final = 128
"""Binds on the wire at once, by default (docs/decisions/0045-binds-at-once.md)."""


class Dispatcher:
    """Takes transactions and makes them happen.

    Args:
        api: refuses writes while this process does not lead.
        cache: learns what is under way and what failed.
        parallelism: binds on the wire at once.
        volume_seconds: how long the volumes of one transaction may take to be made.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        metrics: SchedulerMetrics,
        recorder: EventRecorder,
        parallelism: int = PARALLELISM,
        volume_seconds: float = VOLUME_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._metrics = metrics
        self._binder = Binder(
            api,
            cache,
            metrics=metrics,
            recorder=recorder,
            volumes=Volumes(api, cache, field_manager=FIELD_MANAGER, seconds=volume_seconds),
            parallelism=parallelism,
            changed=self._count,
            clock=clock,
        )
        self._plans = Plans(
            api,
            cache,
            metrics=metrics,
            recorder=recorder,
            begin=self._binder.begin,
            changed=self._count,
            clock=clock,
        )
        self._idle = asyncio.Event()
        self._idle.set()
        self._metrics.in_flight.set_function(lambda: self.in_flight)

    @property
    def in_flight(self) -> int:
        """Decisions not carried out yet: binds that wait or are on the wire, and plans; volumes may take minutes."""
        return self._binder.in_flight + self._plans.in_flight

    @property
    def backlog(self) -> int:
        """Binds that wait for one of the parallel places."""
        return self._binder.backlog

    def crowded(self) -> bool:
        """Whether more binds wait than can be sent in the next moment."""
        return self._binder.crowded()

    async def relieved(self) -> None:
        """Return when no more binds wait than can be on the wire."""
        await self._binder.relieved()

    def failure(self, group: str) -> BindFailed | None:
        """Why binds of a group's pods fail again and again; None where they do not."""
        return self._binder.failure(group)

    def paused_until(self) -> float | None:
        """When the next group whose plan failed may plan again, on the monotonic clock; None if none waits."""
        return self._plans.paused_until()

    def parts(self) -> Mapping[str, Callable[[], Iterable[str]]]:
        """By name what a dump says of decisions that are not carried out yet."""
        return {**self._binder.parts(), **self._plans.parts()}

    def submit(self, transaction: Transaction) -> bool:
        """Begin to carry out a transaction; False where its group is left alone because its last plan failed."""
        if transaction.evictions and self._plans.paused(transaction):
            return False
        for one in transaction.binds:
            self._cache.assume(one.pod, one.uid, one.node)
        for victim in transaction.evictions:
            self._cache.evicting(victim.pod, victim.uid)
        before = [(one, self._cache.nominated(one.pod, one.uid)) for one in transaction.nominations]
        for nomination, _ in before:
            self._cache.nominate(nomination.pod, nomination.uid, nomination.node or "")
        if transaction.evictions or transaction.nominations:
            self._plans.begin(transaction, before)
        else:
            self._binder.begin(transaction.binds)
        self._count()
        return True

    async def run(self) -> None:
        """Carry out what is submitted, until cancelled."""
        await self._binder.run()

    async def drain(self, seconds: float) -> bool:
        """Wait until everything submitted is done and the watch has confirmed it; False if that takes too long.

        Who waits for volumes is given back: they may take minutes, and the claims tell a successor where they are made.
        """
        self._binder.give_up_volumes()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
                while self._cache.assumed > self._binder.resting:  # noqa: ASYNC110  (confirmations come one by one through the watch)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True

    def _count(self) -> None:
        if self.in_flight:
            self._idle.clear()
        else:
            self._idle.set()
