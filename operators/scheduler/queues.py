"""Writes down what queues have used, by server-side apply: `flow`, `fairShare` and `excessCharged` of their status.

Not more often than every 30 seconds, and at the end: who leads next reads it, so that no more than that is forgotten.
Nothing is written of a queue of which nothing has changed. What stands of a queue of which nothing is said any more, as
`flow` is not configured now, is taken away.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from kbatch.api.objects import QueueFlow, QueueStatus, RawQuantity
from kbatch.engine import QueueStanding
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import QUEUES
from kbatch.kube.writes import apply_status
from kbatch.metrics import FlowMetrics
from kbatch.model.usage import Anchor, spelled_out
from kbatch.resources import MILLION, in_units
from kbatch.times import SECOND
from operators.scheduler import FIELD_MANAGER
from operators.scheduler.cache import Cache
from operators.scheduler.write_loop import Write, WriteLoop

_log = logging.getLogger(__name__)

APART_SECONDS: Final = 30.0
_PARALLEL: Final = 8


class Said(NamedTuple):
    """What a queue's status says, or should."""

    flow: QueueFlow | None
    fair_share: RawQuantity | None
    charged: RawQuantity | None


_NOTHING: Final = Said(None, None, None)


class QueueWriter:
    """Takes what cycles say of queues; writes what differs from what stands there.

    Args:
        api: refuses writes while this process does not lead.
        cache: knows the queues as they are.
        apart: seconds between two rounds of writes.
        wall: the time, for metrics.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        metrics: FlowMetrics,
        *,
        apart: float = APART_SECONDS,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._cache = cache
        self._metrics = metrics
        self._apart = apart
        self._wall = wall
        self._clock = clock
        self._uids: dict[str, str] = {}
        self._stands: dict[str, Said] = {}
        self._wanted: dict[str, Said] = {}
        self._standings: dict[str, QueueStanding] = {}
        self._round: deque[str] = deque()
        self._writing = 0
        self._next_round = clock()
        self._loop = WriteLoop(self._next, at_once=lambda: _PARALLEL, look_again=self._left)

    def take(self, standings: Mapping[str, QueueStanding]) -> None:
        """What a cycle said of the queues; called while the model may be read."""
        for name in self._standings.keys() - standings.keys():
            self._metrics.forget(name)
        records = self._cache.model.queues
        queues = {name: record.queue for name, record in records.items() if record.queue is not None}
        for name in self._wanted.keys() - queues.keys():
            del self._wanted[name], self._stands[name], self._uids[name]
        for name, queue in queues.items():
            standing = standings.get(name)
            if self._uids.get(name) != queue.metadata.uid:
                self._uids[name], self._stands[name] = queue.metadata.uid, _stands(queue.status)
            self._wanted[name] = wanted = _wanted(standing) if standing is not None else _NOTHING
            if wanted != self._stands[name]:
                self._loop.wake()
            if standing is not None:
                self._show(name, standing, queue.spec.excess_budget)
        self._standings = {name: standing for name, standing in standings.items() if name in queues}

    async def run(self) -> None:
        """Write, until cancelled."""
        await self._loop.run()

    async def drain(self, seconds: float) -> bool:
        """Have all that differs written now; whether that was done in time. While it runs."""
        self._next_round = self._clock()
        self._loop.wake()
        try:
            async with asyncio.timeout(seconds):
                while self._changed() or self._round or self._writing:  # noqa: ASYNC110  (the last write ends whenever the server answers)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True

    def _changed(self) -> list[str]:
        return [name for name, wanted in self._wanted.items() if wanted != self._stands[name]]

    def _left(self) -> float | None:
        """Seconds until the next round; None while one is written, or nothing is to be."""
        return None if self._writing or not self._changed() else max(0.0, self._next_round - self._clock())

    def _next(self) -> Write | None:
        """The next of a round, which is whatever differs when it begins; what fails waits for the next round."""
        if not self._round and not self._writing and self._clock() >= self._next_round:
            self._round.extend(self._changed())
            if self._round:
                self._next_round = self._clock() + self._apart
        if not self._round:
            return None
        name = self._round.popleft()
        self._writing += 1
        return Write(f"queue {name}", self._write(name))

    async def _write(self, name: str) -> bool:
        """Write one; False if the server should be left alone for a moment."""
        try:
            return await self._applied(name)
        except Exception:  # noqa: BLE001 - one queue's status must not end the writing of all
            _log.exception("Queue %s", name)
            return False
        finally:
            self._writing -= 1

    async def _applied(self, name: str) -> bool:
        wanted, uid = self._wanted.get(name), self._uids.get(name)
        if wanted is None:
            return True
        try:
            await apply_status(self._api, QUEUES, manifest(name, wanted), FIELD_MANAGER, force=True)
        except KubeError as error:
            gone = isinstance(error, ApiError) and error.status == 404
            self._metrics.writes.labels("gone" if gone else "failed").inc()
            if not gone:
                _log.warning("Queue %s: %s", name, error)
                return False
        else:
            self._metrics.writes.labels("ok").inc()
        if self._uids.get(name) == uid:
            self._stands[name] = wanted
        return True

    def _show(self, name: str, standing: QueueStanding, budget: int | None) -> None:
        """Bring the metrics in line; a flow fades also while nothing happens."""
        metrics = self._metrics
        flow = standing.flow or Anchor()
        if budget is None:
            metrics.budget.remove_by_labels({"queue": name})
        else:
            metrics.budget.labels(name).set(60 * budget)
        if self._standings.get(name) == standing:
            return
        metrics.flow.labels(name).set_function(partial(self._flow, flow, standing.half_life))
        metrics.usage.labels(name).set(flow.usage / MILLION)
        metrics.fair_share.labels(name).set(standing.fair_share / MILLION)
        metrics.charged.labels(name).set(60 * standing.charged / MILLION)

    def _flow(self, flow: Anchor, half_life: int) -> float:
        return flow.at(int(self._wall() * SECOND), half_life)[0] / MILLION


def manifest(name: str, said: Said) -> dict[str, Any]:
    """All that this manager owns of a queue's status."""
    status: dict[str, Any] = {}
    if said.flow is not None:
        status["flow"] = spelled_out(said.flow)
    if said.fair_share is not None:
        status["fairShare"] = said.fair_share
    if said.charged is not None:
        status["excessCharged"] = said.charged
    return {"metadata": {"name": name}, "status": status}


def _wanted(standing: QueueStanding) -> Said:
    return Said(
        standing.flow.written() if standing.flow is not None else None,
        in_units(standing.fair_share),
        in_units(standing.charged) if standing.charged else None,
    )


def _stands(status: QueueStatus) -> Said:
    return Said(status.flow, status.fair_share, status.excess_charged)
