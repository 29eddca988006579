"""Kubernetes Events, as an aside: never waited for, never in the way.

What is told twice is one Event with a count. A queue of bounded length holds what is still to be written; when it is
full, the newest Event is dropped and counted, because losing a remark is better than holding up a decision. What waits
when the process ends is written as fast as that goes for a moment; the rest is counted too.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

from kbatch.kube.client import MERGE, Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import EVENTS

_log = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

_NOTE_BYTES: Final = 1024
_REASON_LENGTH: Final = 128
_LEAVE_SECONDS: Final = 2.0
_AT_ONCE_IN_THE_END: Final = 8
_QUIET_SECONDS: Final = 1.0
_REMARKS_A_SECOND: Final = 20.0
_REMARKS_A_SECOND_WHEN_QUIET: Final = 100.0
_FEW_REMARKS: Final = 20
_HELD_BACK_SECONDS: Final = 10.0
"""Where more remarks than a few wait, none is written while more keep coming, but for those that are so old: whoever
tells so much is busy, and the server with it."""
_OLD_REMARK_SECONDS: Final = 300.0
"""Where more remarks come than are written, those that have waited for so long give way: somebody wants to hear of what
happened just now. So it takes as long until no more wait than before, however many come."""


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


@dataclass(slots=True, eq=False)
class _Told:
    """One Event: how often it was told, and what of that the server knows."""

    regarding: Regarding
    type: str
    reason: str
    action: str
    note: str
    first: str
    last: str
    touched: float
    count: int = 1
    name: str = field(default="")
    written: int = 0
    due: float = 0.0
    queued: bool = False


class EventRecorder(AbstractAsyncContextManager["EventRecorder"]):
    """Writes Events (`events.k8s.io/v1`) in the background while its context is open.

    Args:
        api: where to write them.
        controller: who reports, for example `kbatch-scheduler`.
        instance: which of its replicas.
        capacity: how many may wait to be written.
        rate: Events written in a second, at most.
        repeat_seconds: a repetition is written this long after the last write, at the earliest.
        memory: how many different Events are remembered, to count repetitions; none that was not told for
            `memory_seconds`: one of an object that is long gone is never told again.
        remarks: how many remarks may wait to be written.
    """

    def __init__(
        self,
        api: Api,
        *,
        controller: str,
        instance: str,
        capacity: int = 1000,
        rate: float = 50.0,
        repeat_seconds: float = 30.0,
        memory: int = 4096,
        memory_seconds: float = 600.0,
        remarks: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dropped = 0
        """Events that were never sent: too many waited, or they still did when the process ended."""
        self.failed = 0
        """Events that the server did not take."""
        self.written = 0
        self._api = api
        self._controller = controller
        self._instance = instance[:128]
        self._capacity = capacity
        self._gap = 1.0 / rate
        self._repeat = repeat_seconds
        self._memory = memory
        self._memory_seconds = memory_seconds
        self._clock = clock
        self._told: OrderedDict[tuple[Regarding, str, str, str, str], _Told] = OrderedDict()
        self._queue: asyncio.Queue[_Told] = asyncio.Queue()
        self._later: dict[_Told, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._remarks: deque[tuple[Regarding, str, str, str, float]] = deque()
        self._most_remarks = remarks
        self._remarked = asyncio.Event()
        self._last_remark = 0.0
        self._on_the_wire = 0
        self._settled = asyncio.Event()
        self._settled.set()

    @property
    def waiting(self) -> int:
        """How many Events and remarks are still to be written."""
        return self._queue.qsize() + len(self._later) + len(self._remarks)

    @property
    def remembered(self) -> int:
        """How many different Events are remembered."""
        return len(self._told)

    def normal(self, regarding: Regarding, reason: str, action: str, note: str, *, share: float = 1.0) -> bool:
        """Tell that something went as it should."""
        return self.tell(regarding, NORMAL, reason, action, note, share=share)

    def warning(self, regarding: Regarding, reason: str, action: str, note: str, *, share: float = 1.0) -> bool:
        """Tell that something needs somebody's attention."""
        return self.tell(regarding, WARNING, reason, action, note, share=share)

    def tell(
        self, regarding: Regarding, type_: str, reason: str, action: str, note: str, *, share: float = 1.0
    ) -> bool:
        """Note an Event; returns at once: False where it is dropped because too many wait.

        `reason` and `action` are words in CamelCase, `note` a sentence, cut to 1,024 bytes. The same Event told again
        is counted, and written again no sooner than `repeat_seconds` later. With a `share` below 1, others are left
        the rest of the queue: this Event is dropped once that part of it is full.
        """
        note = note.encode()[:_NOTE_BYTES].decode(errors="ignore")
        reason, action = reason[:_REASON_LENGTH], action[:_REASON_LENGTH]
        key = (regarding, type_, reason, action, note)
        now = self._clock()
        told = self._told.get(key)
        if told is None:
            if not self.has_room(share):
                self.dropped += 1
                return False
            stamp = _stamp()
            told = self._told[key] = _Told(regarding, type_, reason, action, note, stamp, stamp, now)
            if len(self._told) > self._memory:
                self._told.popitem(last=False)
        else:
            self._told.move_to_end(key)
            told.count += 1
            told.last, told.touched = _stamp(), now
        self._forget_before(now - self._memory_seconds)
        if not told.queued:
            told.queued = True
            if told.due <= now:
                self._queue.put_nowait(told)
            else:
                self._put_later(told, told.due - now)
        return True

    def has_room(self, share: float = 1.0) -> bool:
        """Whether an Event with that `share` would not be dropped now."""
        return self._queue.qsize() < share * self._capacity

    def _forget_before(self, horizon: float) -> None:
        """Forget what was told last before then; the longest ago stands first."""
        while self._told:
            key, oldest = next(iter(self._told.items()))
            if oldest.touched >= horizon:
                return
            del self._told[key]

    def remark(self, regarding: Regarding, reason: str, action: str, note: str) -> int:
        """Tell something once that many objects tell (each pod, that it has a node); how many remarks are dropped: this
        one where too many wait, and before it those that have waited for five minutes.

        Returns at once and costs little. Remarks are written when no other Event waits: while more of them keep coming
        slowly, and of a crowd those alone that are ten seconds old; faster afterwards.
        """
        now, dropped = time.time(), 0
        while self._remarks and self._remarks[0][-1] < now - _OLD_REMARK_SECONDS:
            self._remarks.popleft()
            dropped += 1
        if len(self._remarks) < self._most_remarks:
            self._last_remark = self._clock()
            self._remarks.append((regarding, reason, action, note, now))
            self._remarked.set()
        else:
            dropped += 1
        self.dropped += dropped
        return dropped

    def _put_later(self, told: _Told, delay: float) -> None:
        def put() -> None:
            del self._later[told]
            if self.has_room():
                self._queue.put_nowait(told)
            else:
                told.queued = False
                self.dropped += 1

        self._later[told] = asyncio.get_running_loop().call_later(delay, put)

    async def flush(self, seconds: float) -> int:
        """Write what waits, remarks and repetitions too, as fast as that goes; how much is left after so long."""
        for told, handle in self._later.items():
            handle.cancel()
            self._queue.put_nowait(told)
        self._later.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self._write_all() for _ in range(_AT_ONCE_IN_THE_END)))
                await self._settled.wait()
        return self.waiting

    async def _write_all(self) -> None:
        while self._queue.qsize():
            await self._write_queued(self._queue.get_nowait())
        while self._remarks:
            await self._write_remark(self._remarks.popleft())

    async def __aenter__(self) -> Self:
        self._tasks = [
            asyncio.create_task(self._run(), name="events"),
            asyncio.create_task(self._run_remarks(), name="remarks"),
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write what waits, for two seconds at most, count the rest, and stop."""
        if self._tasks:
            left = await self.flush(_LEAVE_SECONDS)
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            self._tasks = []
            if left:
                self.dropped += left
                _log.warning("%d Events are left unwritten", left)

    async def _run(self) -> None:
        while True:
            await self._write_queued(await self._queue.get())
            await asyncio.sleep(self._gap)

    async def _write_queued(self, told: _Told) -> None:
        told.queued = False
        told.due = self._clock() + self._repeat
        await self._attempt(told)

    async def _run_remarks(self) -> None:
        while True:
            while not self._remarks:
                self._remarked.clear()
                await self._remarked.wait()
            quiet = self._clock() - self._last_remark > _QUIET_SECONDS
            await asyncio.sleep(1 / (_REMARKS_A_SECOND_WHEN_QUIET if quiet else _REMARKS_A_SECOND))
            if self._queue.qsize() or (not quiet and self._held_back()):
                continue
            if self._remarks:
                await self._write_remark(self._remarks.popleft())

    def _held_back(self) -> bool:
        """Whether the remarks that wait are a crowd, and even the first of them is new."""
        return len(self._remarks) > _FEW_REMARKS and time.time() - self._remarks[0][-1] < _HELD_BACK_SECONDS

    async def _write_remark(self, remark: tuple[Regarding, str, str, str, float]) -> None:
        regarding, reason, action, note, at = remark
        stamp = _stamp(at)  # not when it was told: most may never be written
        await self._attempt(_Told(regarding, NORMAL, reason, action, note, stamp, stamp, 0.0))

    async def _attempt(self, told: _Told) -> None:
        """Write an Event, and count what became of it."""
        self._on_the_wire += 1
        self._settled.clear()
        try:
            await self._write(told)
            self.written += 1
        except KubeError as error:
            self.failed += 1
            _log.debug("event %s for %s: %s", told.reason, told.regarding.name, error)
        except asyncio.CancelledError:
            self.dropped += 1
            raise
        except Exception:  # noqa: BLE001 - one Event must not end the writing of all
            self.failed += 1
            _log.exception("event %s for %s", told.reason, told.regarding.name)
        finally:
            self._on_the_wire -= 1
            if not self._on_the_wire:
                self._settled.set()

    async def _write(self, told: _Told) -> None:
        # Events of cluster-scoped objects live in the namespace "default", as everybody's do.
        namespace = told.regarding.namespace or "default"
        count = told.count
        if told.written:
            patch = {"series": {"count": count, "lastObservedTime": told.last}}
            try:
                await self._api.request(
                    "PATCH", EVENTS.path(namespace, told.name), body=patch, content_type=MERGE, attempts=2
                )
            except ApiError as error:
                if error.status != 404:  # after its hour the server drops an Event: write a new one
                    raise
                told.written = 0
        if not told.written:
            told.name = f"{told.regarding.name[:200]}.{uuid.uuid4().hex[:16]}"
            await self._api.request("POST", EVENTS.path(namespace), body=self._body(told, namespace), attempts=2)
        told.written = count

    def _body(self, told: _Told, namespace: str) -> dict[str, Any]:
        about = told.regarding
        regarding = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            regarding["namespace"] = about.namespace
        body: dict[str, Any] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.name,
            "metadata": {"name": told.name, "namespace": namespace},
            "eventTime": told.first,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "type": told.type,
            "reason": told.reason,
            "action": told.action,
            "note": told.note,
            "regarding": regarding,
        }
        if told.count > 1:
            body["series"] = {"count": told.count, "lastObservedTime": told.last}
        return body


def _stamp(at: float | None = None) -> str:
    """An instant (seconds since the epoch; now if not given) as a MicroTime."""
    when = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
