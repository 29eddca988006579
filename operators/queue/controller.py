"""The work of the queue operator: keep the model, and write what changed of each Queue's status."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from kbatch.api.objects import Queue, ResourceQuota
from kbatch.kube.backoff import Backoff
from kbatch.kube.client import Api
from kbatch.kube.decoding import decoder
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.informer import Batch
from kbatch.kube.kinds import QUEUES
from kbatch.kube.pauses import Pauses
from kbatch.kube.writes import apply_status, create
from kbatch.metrics import QueueMetrics, ReconcileMetrics
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Event, Upsert
from kbatch.process.applying import apply
from kbatch.resources import CPU, Resources
from kbatch.times import SECOND
from operators.queue import FIELD_MANAGER, RETRY_LONGEST, RETRY_SECONDS
from operators.queue.status import GroupCounts, Report, manifest, reports, same

_log = logging.getLogger(__name__)

GAP_SECONDS: Final = 1.0
"""Between two rounds: a thousand pods that start are a few writes for each queue. After a rest it is told at once."""
TURN_SECONDS: Final = 0.01
"""After how long the event loop gets a turn while shares are divided."""
_PARALLEL: Final = 8


class Controller:
    """Keeps the status of all Queues.

    Args:
        api: for writes; refuses them while this process does not lead.
        model: kept up to date here, by `receive`.
        shares, work: metrics.
        retry: seconds after which a round that raised, or a write that failed, is tried again; longer with each
            failure in a row.
    """

    def __init__(
        self,
        api: Api,
        model: ClusterModel,
        shares: QueueMetrics,
        work: ReconcileMetrics,
        *,
        retry: float = RETRY_SECONDS,
    ) -> None:
        self.model = model
        self._api = api
        self._shares = shares
        self._work = work
        self._dirty = asyncio.Event()
        self._shown: dict[str, set[str]] = {}
        self._offered: frozenset[str] = frozenset()
        """The resources that nodes have: of these series stay when nobody asks for them."""
        self._counts = GroupCounts()
        self._held: list[Event] | None = None
        self._retry = retry
        self._pauses = Pauses(first=retry, longest=RETRY_LONGEST)

    def receive(self, batch: Batch) -> None:
        """Take in what an informer saw: at once, or as soon as the shares are divided that are being divided.

        Quotas change with each pod and say nothing about shares.
        """
        events = [event for event in batch.events if not _is_quota(event)]
        if self._held is not None:
            self._held += events
        else:
            self._apply(events)
        if events:
            self._dirty.set()

    def hint(self) -> None:
        """Something about Queues may have changed: look again."""
        self._dirty.set()

    async def ensure_queue(self, name: str) -> None:
        """Create the Queue, unless there is one by that name: that one is left as it is.

        Raises:
            KubeError: it could not be created for another reason.
        """
        try:
            await create(
                self._api, QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1}}, field_manager=FIELD_MANAGER
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        else:
            _log.info("made the Queue %s", name)

    async def run(self) -> None:
        """Report for ever: a round when something changed or is to be tried again, at most one in each gap.

        One that raises is tried again after a pause, which grows while they do.
        """
        backoff = Backoff(self._retry, RETRY_LONGEST)
        raised = 0
        self._dirty.set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._soonest()):
                    await self._dirty.wait()
            self._dirty.clear()
            started = time.monotonic()
            try:
                await self.round()
            except Exception:  # noqa: BLE001 - whatever an object holds, the process goes on
                raised += 1
                self._work.reconciles.labels("failed").inc()
                _log.exception("no status of a Queue could be worked out, %d times in a row", raised)
                self._dirty.set()
                await asyncio.sleep(backoff.next())
                continue
            raised = 0
            backoff.reset()
            self._work.seconds.observe(time.monotonic() - started)
            await asyncio.sleep(GAP_SECONDS)

    def _soonest(self) -> float | None:
        """After how many seconds something is to be looked at although nothing has changed; None: never."""
        found = self._pauses.soonest()
        stuck = self.model.next_stuck
        if stuck is None:
            return found
        left = max(0.0, stuck / SECOND - time.time())
        return left if found is None else min(left, found)

    async def round(self) -> int:
        """Compare every Queue once and write what differs; how many writes failed.

        A Queue whose last write failed is left alone until its pause is over.
        """
        found = await self._reports()
        self._show(found)
        self._pauses.keep(found)
        changed: list[tuple[Queue, Report]] = []
        for name, report in found.items():
            record = self.model.queues.get(name)  # events that waited meanwhile may have taken it away
            queue = record.queue if record is not None else None
            if queue is None or queue.metadata.deletion_timestamp is not None:
                self._pauses.succeeded(name)
            elif same(queue.status, report.status(queue.status)):
                self._pauses.succeeded(name)
                self._work.reconciles.labels("unchanged").inc()
            elif not self._pauses.paused(name):
                changed.append((queue, report))
        limit = asyncio.Semaphore(_PARALLEL)
        results = await asyncio.gather(*(self._write(limit, queue, report) for queue, report in changed))
        return results.count(False)

    async def _reports(self) -> dict[str, Report]:
        """What is to be said of each Queue. The event loop has its turns; events wait until it is found."""
        self._held = []
        try:
            began = time.perf_counter()
            self.model.lapse(int(time.time() * SECOND))
            for _ in itertools.chain(self.model.refreshing(), self.model.dividing()):
                if time.perf_counter() - began > TURN_SECONDS:
                    await asyncio.sleep(0)
                    began = time.perf_counter()
            self._offered = frozenset(self.model.capacity)
            return reports(self.model, self._counts)
        finally:
            held, self._held = self._held, None
            self._apply(held)

    def _apply(self, events: Sequence[Event]) -> None:
        for event in events:
            apply(self.model, event)

    async def _write(self, limit: asyncio.Semaphore, queue: Queue, report: Report) -> bool:
        """Write one status; whether there is nothing left to do for it."""
        name = queue.metadata.name
        async with limit:
            try:
                answer = await apply_status(
                    self._api,
                    QUEUES,
                    {"metadata": {"name": name}, "status": manifest(report.status(queue.status, _now()))},
                    FIELD_MANAGER,
                    force=True,
                )
                written = decoder(Queue).decode(answer)
            except (KubeError, msgspec.DecodeError) as error:
                gone = isinstance(error, ApiError) and error.status == 404
                self._work.writes.labels("Queue", "gone" if gone else "failed").inc()
                self._work.reconciles.labels("gone" if gone else "failed").inc()
                if gone:
                    self._pauses.succeeded(name)
                    return True
                self._pauses.failed(name)
                if times := self._pauses.to_log(name):
                    _log.warning("status of Queue %s, failure %d in a row: %s", name, times, error)
                return False
        self._pauses.succeeded(name)
        self._work.writes.labels("Queue", "ok").inc()
        self._work.reconciles.labels("written").inc()
        known = self.model.queues.get(name)
        if known is not None and known.queue is queue:  # else the watch was faster, and knows better
            self._apply([Upsert(written)])
        return True

    def _show(self, found: dict[str, Report]) -> None:
        """Bring the metrics in line: amounts in cores and base units; what is gone is no longer shown."""
        for name in self._shown.keys() - found.keys():
            self._shares.forget(name)
            del self._shown[name]
        for name, report in found.items():
            dimensions = report.deserved.keys() | report.allocated.keys() | report.requested.keys()
            before = self._shown.get(name, set())
            shown = self._shown[name] = {*dimensions, *(before & self._offered)}
            for dimension in before - shown:  # nobody asks for it any more, and no node has it
                self._shares.forget(name, dimension)
            for gauge, vector in (
                (self._shares.deserved, report.deserved),
                (self._shares.allocated, report.allocated),
                (self._shares.requested, report.requested),
            ):
                for dimension in shown:
                    gauge.labels(name, dimension).set(_amount(vector, dimension))
            self._shares.share.labels(name).set(float(report.share))
            for phase, count in report.groups.items():
                self._shares.groups.labels(name, phase).set(count)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_quota(event: Event) -> bool:
    return (type(event.obj) if isinstance(event, Upsert) else event.kind) is ResourceQuota


def _amount(vector: Resources, dimension: str) -> float:
    amount = vector.get(dimension, 0)
    return amount / 1000 if dimension == CPU else float(amount)
