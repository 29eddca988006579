"""Carries out what a cycle has decided, off the decision path.

Binds go out in parallel, so many at a time; a pod counts on its node from the decision on, until the watch confirms it
or the bind has failed for certain. Of a plan with evictions all are tried with dryRun first: one refusal, and nothing
of the plan happens. Then nominations are written, so that a successor of this process knows what the room is for, then
the victims are evicted, then what could be bound is bound. Pods whose volumes are not made yet wait for them first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from kbatch.api.names import EVICTED_BY_ANNOTATION, EVICTED_FOR_ANNOTATION
from kbatch.api.objects import PodGroup
from kbatch.api.reasons import BindFailed
from kbatch.engine import Bind, Eviction, Nomination, Transaction
from kbatch.kube.backoff import Backoff
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, CredentialsError, KubeError, NotLeadingError
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.kinds import PODGROUPS, PODS
from kbatch.kube.writes import bind, evict, get, merge_patch
from kbatch.metrics import SchedulerMetrics
from operators.scheduler.cache import Cache
from operators.scheduler.volumes import VOLUME_SECONDS, VolumeError, Volumes

_log = logging.getLogger(__name__)

EVICTIONS_AT_ONCE: Final = 16
TRIALS_AT_ONCE: Final = 8
"""Dry runs and nominations. A plan has as many of them as evictions; those of later plans must not hold up the
evictions of earlier ones."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
_NAMED_PODS: Final = 8
"""So many pods are named in an Event of a group."""
_MOST_PAUSES: Final = 10_000
FIELD_MANAGER: Final = "kbatch-scheduler"


LASTING_SECONDS: Final = 2.0
"""A bind that fails for longer is worth a word on its group; most that fail succeed a moment later."""


@dataclass(slots=True)
class _Failing:
    """A pod whose binds have failed since a moment of the monotonic clock, and why the last one did."""

    one: Bind
    since: float
    failures: int
    why: str


@dataclass(slots=True)
class _Pause:
    """How long something that failed is left alone."""

    backoff: Backoff
    until: float = 0.0


class Dispatcher:
    """Takes transactions and makes them happen.

    Args:
        api: refuses writes while this process does not lead.
        cache: learns what is under way and what failed.
        parallelism: binds on the wire at once.
        volume_seconds: how long the volumes of one transaction may take to be made.
    """

    def __init__(
        self,
        api: Api,
        cache: Cache,
        *,
        metrics: SchedulerMetrics,
        recorder: EventRecorder,
        parallelism: int = 64,
        volume_seconds: float = VOLUME_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._cache = cache
        self._metrics = metrics
        self._ok = metrics.binds.labels("ok")
        self._recorder = recorder
        self._clock = clock
        self._queue: deque[Bind] = deque()
        self._resting: deque[asyncio.Future[None]] = deque()
        """Workers that have nothing to do."""
        self._parallelism = parallelism
        self._binding = 0
        self._plans: set[asyncio.Task[None]] = set()
        self._volumes = Volumes(api, cache, field_manager=FIELD_MANAGER, seconds=volume_seconds)
        self._providing: set[asyncio.Task[None]] = set()
        self._evictions = asyncio.Semaphore(EVICTIONS_AT_ONCE)
        self._trials = asyncio.Semaphore(TRIALS_AT_ONCE)
        self._failing: dict[str, _Failing] = {}
        self._pauses: dict[str, _Pause] = {}
        self._most_pauses = _MOST_PAUSES
        self._timers: dict[asyncio.TimerHandle, int] = {}
        """Until when pods whose bind failed keep their room, and how many they are."""
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def in_flight(self) -> int:
        """Decisions not carried out yet: binds that wait or are on the wire, and plans; volumes may take minutes."""
        return len(self._queue) + self._binding + len(self._plans) + len(self._providing)

    @property
    def backlog(self) -> int:
        """Binds that wait for one of the parallel places."""
        return len(self._queue)

    def crowded(self) -> bool:
        """Whether more binds wait than can be sent in the next moment."""
        return len(self._queue) > 2 * self._parallelism

    def failure(self, group: str) -> BindFailed | None:
        """Why binds of a group's pods fail again and again; None where they do not."""
        job = self._cache.model.jobs.get(group) if self._failing else None
        if job is None:
            return None
        late = self._clock() - LASTING_SECONDS
        for pod in job.tasks if len(job.tasks) < len(self._failing) else self._failing:
            found, task = self._failing.get(pod), job.tasks.get(pod)
            if found is not None and task is not None and found.since <= late and task.uid == found.one.uid:
                return BindFailed(pod, found.one.node, found.failures, found.why)
        return None

    def paused_until(self) -> float | None:
        """When the next group whose plan was refused may plan again, on the monotonic clock; None if none waits."""
        now = self._clock()
        waiting = [pause.until for key, pause in self._pauses.items() if key.startswith("plan ") and pause.until > now]
        return min(waiting, default=None)

    def submit(self, transaction: Transaction) -> bool:
        """Begin to carry out a transaction; False where its group is left alone because its last plan was refused."""
        if transaction.evictions:
            pause = self._pauses.get(f"plan {transaction.job or transaction.group}")
            if pause is not None and pause.until > self._clock():
                return False
        for one in transaction.binds:
            self._cache.assume(one.pod, one.uid, one.node)
        for victim in transaction.evictions:
            self._cache.evicting(victim.pod, victim.uid)
        before = [(one, self._cache.nominated(one.pod, one.uid)) for one in transaction.nominations]
        for nomination, _ in before:
            self._cache.nominate(nomination.pod, nomination.uid, nomination.node or "")
        if transaction.evictions or transaction.nominations:
            task = asyncio.create_task(self._plan(transaction, before), name=f"plan {transaction.group}")
            self._plans.add(task)
            task.add_done_callback(self._plan_ended)
        else:
            self._begin(transaction.binds)
        self._count()
        return True

    async def run(self) -> None:
        """Bind what is submitted, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._parallelism):
                group.create_task(self._worker(), name=f"bind {number}")

    async def drain(self, seconds: float) -> bool:
        """Wait until everything submitted is done and the watch has confirmed it; False if that takes too long.

        Who waits for volumes is given back: they may take minutes, and the claims tell a successor where they are made.
        """
        for task in self._providing:
            task.cancel()
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
                while self._cache.assumed > sum(self._timers.values()):  # noqa: ASYNC110  (confirmations come one by one through the watch)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return False
        return True

    # --- binds --------------------------------------------------------------------------------------------------------

    def _begin(self, binds: Sequence[Bind]) -> None:
        """Bind, once all the pods have their volumes."""
        if self._volumes.missing(binds):
            task = asyncio.create_task(self._provide(binds), name=f"volumes {binds[0].pod}")
            self._providing.add(task)
            task.add_done_callback(self._provided)
        else:
            self._enqueue(binds)

    async def _provide(self, binds: Sequence[Bind]) -> None:
        try:
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
            self._enqueue(binds)

    def _provided(self, task: asyncio.Task[None]) -> None:
        self._providing.discard(task)
        self._count()

    def _enqueue(self, binds: Sequence[Bind]) -> None:
        if binds:
            self._queue.extend(binds)
            for _ in range(min(len(binds), len(self._resting))):  # one worker for each, not all of them for one bind
                rest = self._resting.popleft()
                if not rest.done():
                    rest.set_result(None)
            self._count()

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
            one = self._queue.popleft()
            self._binding += 1
            try:
                await self._bind(one)
            except Exception:  # noqa: BLE001 - one bind that goes wrong must not end the worker
                _log.exception("bind of %s to %s", one.pod, one.node)
                self._release_later(one)
            finally:
                self._binding -= 1
                self._count()

    async def _bind(self, one: Bind) -> None:
        there = self._cache.model.nodes.get(one.node)
        if there is None or there.node is None:  # the server would take the bind, and nobody would run the pod
            _log.info("node %s went before %s was bound to it", one.node, one.pod)
            self._metrics.binds.labels("failed").inc()
            self._cache.forget(one.pod, one.uid)
            return
        namespace, name = _split(one.pod)
        began = self._clock()
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
        namespace, name = _split(one.pod)
        note = f"assigned {one.pod} to {one.node}"
        self._recorder.remark(Regarding("v1", "Pod", namespace, name, one.uid), "Scheduled", "Binding", note)
        created = self._cache.created(one.pod)
        if created is not None:
            self._metrics.pod_seconds.observe(max(0.0, time.time() - created / 1000))

    def _forgive(self, one: Bind) -> None:
        """A bind needs no further attempt."""
        if self._pauses or self._failing:
            self._pauses.pop(f"bind {one.pod}", None)
            self._failing.pop(one.pod, None)

    async def _settle(self, one: Bind, error: KubeError) -> None:
        """A bind was refused, or its answer was lost: find out what is true.

        Where the pod is gone, or stands on some node already, the watch will tell and the model follows it. Only a pod
        that is still there and still without a node is given back, after a pause.
        """
        namespace, name = _split(one.pod)
        backoff = Backoff(first=FIRST_PAUSE)
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
            except msgspec.DecodeError:
                self._metrics.binds.labels("failed").inc()
                return
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
            if isinstance(error, ApiError) and error.namespace_ends:
                self._pauses.setdefault(f"bind {one.pod}", _Pause(Backoff(LONGEST_PAUSE, LONGEST_PAUSE)))
            self._release_later(one)

    def _failed(self, one: Bind, error: Exception) -> None:
        namespace, name = _split(one.pod)
        self._metrics.binds.labels("failed").inc()
        if len(self._failing) > 10_000:  # of pods that are gone, long ago
            self._failing.clear()
        found = self._failing.setdefault(one.pod, _Failing(one, self._clock(), 0, ""))
        if found.one.uid != one.uid:
            found.since, found.failures = self._clock(), 0
        found.one, found.failures, found.why = one, found.failures + 1, str(error)
        _log.warning("bind of %s to %s failed: %s", one.pod, one.node, error)
        regarding = Regarding("v1", "Pod", namespace, name, one.uid)
        self._recorder.warning(regarding, "BindFailed", "Binding", f"bind to node {one.node} failed: {error}")

    def _release_later(self, *binds: Bind) -> None:
        """Give pods back together after a pause that grows: until then their room stays their own."""

        def release() -> None:
            del self._timers[handle]
            for one in binds:
                self._cache.forget(one.pod, one.uid)

        seconds = max(self._pause(f"bind {one.pod}") for one in binds)
        handle = asyncio.get_running_loop().call_later(seconds, release)
        self._timers[handle] = len(binds)

    def _pause(self, key: str) -> float:
        if len(self._pauses) > self._most_pauses:  # of things that failed once, long ago
            now = self._clock()
            self._pauses = {kept: pause for kept, pause in self._pauses.items() if pause.until > now}
            self._most_pauses = max(_MOST_PAUSES, 2 * len(self._pauses))  # else each new one would look at all again
        pause = self._pauses.setdefault(key, _Pause(Backoff(FIRST_PAUSE, LONGEST_PAUSE)))
        wait = pause.backoff.next()
        pause.until = self._clock() + wait
        return wait

    # --- plans --------------------------------------------------------------------------------------------------------

    async def _plan(self, transaction: Transaction, before: Sequence[tuple[Nomination, str]]) -> None:
        try:
            refusal = await self._refusal(transaction.evictions)
            if refusal is not None or self._for_nobody(transaction):
                if refusal is not None:
                    victim, error = refusal
                    self._metrics.evictions.labels(victim.action, "refused").inc()
                    _log.info("plan for %s given up: %s cannot be evicted: %s", transaction.group, victim.pod, error)
                    self._pause(f"plan {transaction.job or transaction.group}")
                self._take_back(transaction)
                for nomination, old in before:
                    self._cache.nominate(nomination.pod, nomination.uid, old)
                return
            await asyncio.gather(*(self._nominate(nomination, old) for nomination, old in before))
            homes = {victim.pod: self._cache.group_of(victim.pod) for victim in transaction.evictions}
            evicted = await asyncio.gather(*(self._evict(victim) for victim in transaction.evictions))
            self._tell_groups([one for one, done in zip(transaction.evictions, evicted, strict=True) if done], homes)
            if all(evicted):
                self._pauses.pop(f"plan {transaction.job or transaction.group}", None)
            else:
                self._pause(f"plan {transaction.job or transaction.group}")
            self._begin(transaction.binds)
        except Exception:  # noqa: BLE001 - what is left of the plan must be taken back, whatever went wrong
            _log.exception("plan for %s", transaction.group)
            self._take_back(transaction)

    def _for_nobody(self, transaction: Transaction) -> bool:
        """Whether all for whom pods are to be evicted have gone, or found another place, while that was tried."""
        if not transaction.evictions:
            return False
        tasks = self._cache.model.tasks
        pods = [(tasks.get(one.pod), one.uid) for one in transaction.nominations if one.node]
        waiting = [task for task, uid in pods if task is not None and task.uid == uid and not task.node]
        return bool(pods) and not waiting

    def _take_back(self, transaction: Transaction) -> None:
        """Nothing of the plan is under way any more; a victim that was evicted all the same, the watch will show."""
        for one in transaction.binds:
            self._cache.forget(one.pod, one.uid)
        for victim in transaction.evictions:
            self._cache.not_evicting(victim.pod, victim.uid)

    def _plan_ended(self, task: asyncio.Task[None]) -> None:
        self._plans.discard(task)
        self._count()

    async def _refusal(self, victims: Sequence[Eviction]) -> tuple[Eviction, KubeError] | None:
        """The first victim, in order, whose eviction the server would refuse, and why; None if it would take all."""
        answers = await asyncio.gather(*(self._try_eviction(victim, dry_run=True) for victim in victims))
        return next(((victim, error) for victim, error in zip(victims, answers, strict=True) if error), None)

    async def _evict(self, victim: Eviction) -> bool:
        error = await self._try_eviction(victim, dry_run=False)
        if error is None:
            self._metrics.evictions.labels(victim.action, "ok").inc()
            return True
        self._metrics.evictions.labels(victim.action, "refused").inc()
        _log.warning("eviction of %s for %s: %s", victim.pod, victim.beneficiary or "nobody", error)
        self._cache.not_evicting(victim.pod, victim.uid)
        return False

    async def _try_eviction(self, victim: Eviction, *, dry_run: bool) -> KubeError | None:
        namespace, name = _split(victim.pod)
        why = {EVICTED_BY_ANNOTATION: victim.action}
        if victim.beneficiary:
            why[EVICTED_FOR_ANNOTATION] = victim.beneficiary
        try:
            async with self._trials if dry_run else self._evictions:
                await evict(self._api, namespace=namespace, name=name, uid=victim.uid, dry_run=dry_run, annotations=why)
        except ApiError as error:
            return None if error.status == 404 else error  # whoever is gone needs no eviction
        except KubeError as error:
            # Where no answer came the watch will tell whether it happened; asked for again, it does no harm.
            return error
        if not dry_run:
            whom = f" for {victim.beneficiary}" if victim.beneficiary else ""
            note = f"evicted from node {victim.node} by {victim.action}{whom}"
            self._recorder.normal(Regarding("v1", "Pod", namespace, name, victim.uid), "Evicted", "Evicting", note)
        return None

    def _tell_groups(self, victims: Sequence[Eviction], homes: Mapping[str, PodGroup | None]) -> None:
        """One Event for each group that lost pods to a plan, and one for the group that they make room for."""
        lost: dict[str, list[Eviction]] = {}
        for victim in victims:
            home = homes.get(victim.pod)
            if home is not None:
                lost.setdefault(f"{home.metadata.namespace}/{home.metadata.name}", []).append(victim)
        for key, pods in lost.items():
            group = self._cache.groups.get(key)
            if group is not None:
                for whom, how, of in _sides(pods):
                    note = f"{_pods(of)} evicted by {how}{f' for {whom}' if whom else ''}"
                    self._recorder.normal(_regarding(group), "Evicted", "Evicting", note)
        for whom, how, of in _sides(victims):
            beneficiary = self._cache.groups.get(whom)
            if beneficiary is not None:
                note = f"{_pods(of)} evicted by {how} to make room"
                self._recorder.normal(_regarding(beneficiary), "VictimsEvicted", "Evicting", note)

    async def _nominate(self, nomination: Nomination, old: str) -> None:
        namespace, name = _split(nomination.pod)
        patch = {"metadata": {"uid": nomination.uid}, "status": {"nominatedNodeName": nomination.node}}
        try:
            async with self._trials:
                await merge_patch(
                    self._api,
                    PODS,
                    namespace=namespace,
                    name=name,
                    patch=patch,
                    subresource="status",
                    field_manager=FIELD_MANAGER,
                )
        except KubeError as error:
            self._metrics.nominations.labels("failed").inc()
            if not isinstance(error, ApiError) or error.status != 404:
                _log.warning("nomination of %s to %s: %s", nomination.pod, nomination.node, error)
            self._cache.nominate(nomination.pod, nomination.uid, old)
        else:
            self._metrics.nominations.labels("written" if nomination.node else "withdrawn").inc()

    def _count(self) -> None:
        pending = self.in_flight
        self._metrics.in_flight.set(pending)
        if pending:
            self._idle.clear()
        else:
            self._idle.set()


def _sides(victims: Sequence[Eviction]) -> list[tuple[str, str, list[str]]]:
    """For whom, by which action, which pods."""
    found: dict[tuple[str, str], list[str]] = {}
    for victim in victims:
        found.setdefault((victim.beneficiary or "", victim.action), []).append(victim.pod)
    return [(whom, how, pods) for (whom, how), pods in found.items()]


def _pods(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _NAMED_PODS} more" if len(keys) > _NAMED_PODS else ""
    return f"{len(keys)} pod{'s' if len(keys) > 1 else ''} ({', '.join(keys[:_NAMED_PODS])}{more})"


def _regarding(group: PodGroup) -> Regarding:
    metadata = group.metadata
    return Regarding(PODGROUPS.api_version, PODGROUPS.name, metadata.namespace, metadata.name, metadata.uid)


def _split(key: str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name
