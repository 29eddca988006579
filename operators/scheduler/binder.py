"""Binds pods in parallel, so many at a time, each exactly once, however its answer is lost.

Where many wait, those of groups of higher priority go first, and each is looked at once more before it is sent: its
pod may be gone by then, its node cordoned, or its room taken by others' pods.

A pod counts on its node from the decision on, until the watch confirms it or the bind has failed for certain: then its
room stays its own for a pause that grows, and the pod waits again. Where the server refused this very bind, the
model is told that this node is not for this pod for a while longer, so that it is tried on others. Pods whose volumes
are not made yet wait for them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kbatch.api.objects import Node
from kbatch.api.reasons import BindFailed
from kbatch.engine import Bind, Nomination
from kbatch.kube.backoff import Backoff
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, CredentialsError, KubeError, NotLeadingError
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.kinds import PODS, split_key
from kbatch.kube.pauses import FIRST, Pauses
from kbatch.kube.writes import bind, get
from kbatch.metrics import SchedulerMetrics
from kbatch.times import SECOND
from operators.scheduler.bind_failures import BindFailures
from operators.scheduler.cache import Cache
from operators.scheduler.last_look import Waiting, overtaken
from operators.scheduler.nominating import nominate
from operators.scheduler.volumes import VolumeError, Volumes

_log = logging.getLogger(__name__)

LASTING_SECONDS: Final = 2.0
"""A bind that fails for longer is worth a word on its group; most that fail succeed a moment later."""

REFUSED_TIMES: Final = 4
REFUSED_LONGEST: Final = 60.0
"""A node that refused a pod is left out for it for so many times its pause, but no more seconds than this."""

NOMINATIONS_AT_ONCE: Final = 8

_MOST_FAILING: Final = 10_000


@dataclass(slots=True)
class _Failing:
    """A pod whose binds have failed since a moment of the monotonic clock, and why the last one did."""

    one: Bind
    since: float
    failures: int
    why: str


class Binder:
    """Carries out binds, and gives back what could not be bound.

    Args:
        api: refuses writes while this process does not lead.
        cache: learns what failed.
        parallelism: binds on the wire at once.
        volumes: makes those that pods wait for.
        changed: called when `in_flight` may have changed.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        metrics: SchedulerMetrics,
        recorder: EventRecorder,
        volumes: Volumes,
        parallelism: int,
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._cache = cache
        self._metrics = metrics
        self._ok = metrics.binds.labels("ok")
        self._recorder = recorder
        self._volumes = volumes
        self._changed = changed
        self._clock = clock
        self._queue: list[tuple[int, int, Waiting]] = []
        """A heap by rank; equals go in the order in which they came."""
        self._numbers = itertools.count()
        self._resting: deque[asyncio.Future[None]] = deque()
        """Workers that have nothing to do."""
        self._relief: asyncio.Future[None] | None = None
        """Somebody waits until few binds wait."""
        self._parallelism = parallelism
        self._binding = 0
        self._providing: set[asyncio.Task[None]] = set()
        self._failing: dict[str, _Failing] = {}
        self._pauses = Pauses(clock)
        self._failures = BindFailures(clock)
        self._timers: dict[asyncio.TimerHandle, int] = {}
        """Until when pods whose bind failed keep their room, and how many they are."""

    @property
    def in_flight(self) -> int:
        """Binds that wait or are on the wire, and pods that wait together for volumes; those may take minutes."""
        return len(self._queue) + self._binding + len(self._providing)

    @property
    def backlog(self) -> int:
        """Binds that wait for one of the parallel places."""
        return len(self._queue)

    @property
    def resting(self) -> int:
        """Pods whose bind failed and that keep their room for a pause."""
        return sum(self._timers.values())

    def crowded(self) -> bool:
        """Whether more binds wait than can be sent in the next moment."""
        return len(self._queue) > 2 * self._parallelism

    async def relieved(self) -> None:
        """Return when no more binds wait than can be on the wire. One waits for it at a time."""
        if len(self._queue) > self._parallelism:
            self._relief = asyncio.get_running_loop().create_future()
            await self._relief

    def failure(self, group: str) -> BindFailed | None:
        """Why binds of a group's pods fail again and again; None where they do not."""
        job = self._cache.model.members.get(group) if self._failing else None
        if job is None:
            return None
        late = self._clock() - LASTING_SECONDS
        for pod in job.tasks if len(job.tasks) < len(self._failing) else self._failing:
            found, task = self._failing.get(pod), job.tasks.get(pod)
            if found is not None and task is not None and found.since <= late and task.uid == found.one.uid:
                return BindFailed(pod, found.one.node, found.failures, found.why)
        return None

    def parts(self) -> Mapping[str, Callable[[], Iterable[str]]]:
        """By name what a dump says of binds."""
        return {
            "binds waiting": lambda: (f"{each.one.pod}={each.one.node}" for _, _, each in self._queue),
            "binds failing": lambda: (
                f"{found.one.pod}={found.one.node} {found.failures} times: {found.why}"
                for found in self._failing.values()
            ),
            "volumes being made": lambda: (task.get_name() for task in self._providing),
            "pods paused": self._pauses.described,
        }

    async def run(self) -> None:
        """Bind what is begun, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._failures.run(), name="failed binds")
            for number in range(self._parallelism):
                group.create_task(self._worker(), name=f"bind {number}")

    def begin(self, binds: Sequence[Bind]) -> None:
        """Bind pods, once all of them have their volumes."""
        if not binds:
            return
        rank = -max(self._cache.priority_of(one.pod) for one in binds)
        look = self._cache.ahead.looks
        waiting = [Waiting(rank, one, self._node(one.node), look) for one in binds]
        if self._volumes.missing(binds):
            task = asyncio.create_task(self._provide(waiting), name=f"volumes {binds[0].pod}")
            self._providing.add(task)
            task.add_done_callback(self._provided)
        else:
            self._enqueue(waiting)

    def give_up_volumes(self) -> None:
        """Give back who waits for volumes; the claims tell a successor where they are made."""
        for task in self._providing:
            task.cancel()

    async def _provide(self, waiting: Sequence[Waiting]) -> None:
        binds = [each.one for each in waiting]
        try:
            await self._nominate(binds)
            await self._volumes.provide(binds)
        except VolumeError as error:
            if not error.gone:
                self._failed(error.one, error)
            self._release_later(*binds)
        except (NotLeadingError, asyncio.CancelledError):
            for one in binds:
                self._cache.forget(one.pod, one.uid)
        except Exception:  # noqa: BLE001 - the room must be given back, whatever went wrong
            _log.exception("volumes of %s", binds[0].pod)
            self._release_later(*binds)
        else:
            self._enqueue(waiting)

    async def _nominate(self, binds: Sequence[Bind]) -> None:
        """Say where pods are to go whose volumes may take minutes: others count on it, a successor above all.

        Where that cannot be written they are bound all the same.
        """
        told = [one for one in binds if self._cache.nominated(one.pod, one.uid) != one.node]
        for start in range(0, len(told), NOMINATIONS_AT_ONCE):
            part = told[start : start + NOMINATIONS_AT_ONCE]
            await asyncio.gather(
                *(nominate(self._api, Nomination(one.pod, one.uid, one.node), self._metrics) for one in part)
            )

    def _provided(self, task: asyncio.Task[None]) -> None:
        self._providing.discard(task)
        self._changed()

    def _enqueue(self, waiting: Sequence[Waiting]) -> None:
        now = self._clock()
        for each in waiting:
            each.since = now
            heapq.heappush(self._queue, (each.rank, next(self._numbers), each))
        for _ in range(min(len(waiting), len(self._resting))):  # one worker for each, not all of them for one bind
            rest = self._resting.popleft()
            if not rest.done():
                rest.set_result(None)
        self._changed()

    async def _worker(self) -> None:
        while True:
            while not self._queue:
                rest: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._resting.append(rest)
                try:
                    await rest
                except asyncio.CancelledError:
                    if rest in self._resting:
                        self._resting.remove(rest)
                    raise
            waiting = heapq.heappop(self._queue)[-1]
            if self._relief is not None and len(self._queue) <= self._parallelism:
                if not self._relief.done():
                    self._relief.set_result(None)
                self._relief = None
            one = waiting.one
            self._binding += 1
            try:
                await self._bind(waiting)
            except Exception:  # noqa: BLE001 - one bind that goes wrong must not end the worker
                _log.exception("bind of %s to %s", one.pod, one.node)
                self._release_later(one)
            finally:
                self._binding -= 1
                self._changed()

    def _node(self, name: str) -> Node | None:
        """The node as the cycle knew it."""
        record = self._cache.model.nodes.get(name)
        return record.node if record is not None else None

    async def _bind(self, waiting: Waiting) -> None:
        one = waiting.one
        why = overtaken(self._cache, waiting)
        if why is not None:
            _log.info("%s before %s was bound to node %s", why, one.pod, one.node)
            self._metrics.binds.labels("failed").inc()
            self._cache.forget(one.pod, one.uid)
            return
        namespace, name = split_key(one.pod)
        began = self._clock()
        self._metrics.bind_queue_seconds.observe(began - waiting.since)
        try:
            try:
                await bind(self._api, namespace=namespace, name=name, uid=one.uid, node=one.node)
            finally:
                self._metrics.bind_seconds.observe(self._clock() - began)
        except NotLeadingError:
            self._cache.forget(one.pod, one.uid)
            return
        except CredentialsError as error:  # so it was not carried out
            self._failed(one, error)
            self._release_later(one)
        except KubeError as error:
            await self._settle(one, error)
        else:
            self._bound(one)

    def _bound(self, one: Bind) -> None:
        self._forgive(one)
        self._ok.inc()
        namespace, name = split_key(one.pod)
        note = f"assigned {one.pod} to {one.node}"
        dropped = self._recorder.remark(Regarding("v1", "Pod", namespace, name, one.uid), "Scheduled", "Binding", note)
        if dropped:
            self._metrics.events_dropped.inc(dropped)
        created = self._cache.created(one.pod)
        if created is not None:
            self._metrics.pod_seconds.observe(max(0.0, time.time() - created / SECOND))

    def _forgive(self, one: Bind) -> None:
        """A bind needs no further attempt."""
        self._pauses.succeeded(one.pod)
        if self._failing:
            self._failing.pop(one.pod, None)

    async def _settle(self, one: Bind, error: KubeError) -> None:
        """A bind was refused, or its answer was lost: find out what is true.

        Where the pod is gone, or stands on some node already, the watch will tell and the model follows it. Only a pod
        that is still there and still without a node is given back, after a pause.
        """
        namespace, name = split_key(one.pod)
        backoff = Backoff(first=FIRST)
        while True:
            try:
                pod = await get(self._api, PODS, namespace=namespace, name=name)
                break
            except ApiError as refused:
                if refused.status == 404:
                    self._forgive(one)
                    self._metrics.binds.labels("gone").inc()
                    return
                _log.warning("reading %s after a failed bind: %s", one.pod, refused)
            except KubeError as lost:
                _log.info("reading %s after a failed bind: %s", one.pod, lost)
            except msgspec.DecodeError as unread:
                # Where it is the pod that cannot be read, its watch says so too, and it is known no more.
                task = self._cache.model.tasks.get(one.pod)
                if task is None or task.uid != one.uid:
                    self._metrics.binds.labels("failed").inc()
                    return
                _log.warning("reading %s after a failed bind: %s", one.pod, unread)
            await asyncio.sleep(backoff.next())
        if pod.metadata.uid != one.uid:
            self._forgive(one)
            self._metrics.binds.labels("gone").inc()
        elif pod.spec.node_name == one.node:
            self._bound(one)
        elif pod.spec.node_name:
            _log.warning("%s was bound to %s by somebody else", one.pod, pod.spec.node_name)
            self._forgive(one)
            self._metrics.binds.labels("conflict").inc()
        else:
            self._failed(one, error)
            ends = isinstance(error, ApiError) and error.namespace_ends
            of_this_node = isinstance(error, ApiError) and error.of_this_object and not ends
            self._release_later(one, for_good=ends, refused=str(error) if of_this_node else "")

    def _failed(self, one: Bind, error: Exception) -> None:
        namespace, name = split_key(one.pod)
        self._metrics.binds.labels("failed").inc()
        if len(self._failing) > _MOST_FAILING:  # of pods that are gone, long ago
            self._failing.clear()
        found = self._failing.setdefault(one.pod, _Failing(one, self._clock(), 0, ""))
        if found.one.uid != one.uid:
            found.since, found.failures = self._clock(), 0
        found.one, found.failures, found.why = one, found.failures + 1, str(error)
        task = self._cache.model.tasks.get(one.pod)
        self._failures.note(one, task.job if task is not None else "", error)
        regarding = Regarding("v1", "Pod", namespace, name, one.uid)
        self._recorder.warning(regarding, "BindFailed", "Binding", f"bind to node {one.node} failed: {error}")

    def _release_later(self, *binds: Bind, for_good: bool = False, refused: str = "") -> None:
        """Give pods back together after a pause that grows: until then their room stays their own.

        `refused`: why their nodes are not for them for some time after that.
        """

        def release() -> None:
            del self._timers[handle]
            for one in binds:
                if refused:
                    lasts = min(REFUSED_TIMES * seconds, REFUSED_LONGEST)
                    self._cache.refuse_bind(one.pod, one.uid, one.node, lasts, refused)
                self._cache.forget(one.pod, one.uid)

        seconds = max(self._pauses.failed(one.pod, for_good=for_good) for one in binds)
        handle = asyncio.get_running_loop().call_later(seconds, release)
        self._timers[handle] = len(binds)
