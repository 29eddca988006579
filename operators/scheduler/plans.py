"""Carries out plans: transactions that evict pods, nominate others to the room, and may bind some at once.

All evictions are tried with dryRun first, and budgets asked whether they let all of them go: one refusal, and nothing
of the plan happens; the model is told which pods were refused, and the next plan of the group is made without them; the
group is told by an Event who refused. Then nominations are written,
so that a successor of this process knows what the room is for, and which groups their queues lose as wholes, where
that is limited; what cannot be written, and nothing more happens.
Then the victims are evicted, then what could be bound is bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kbatch.api.names import EVICTED_BY_ANNOTATION, EVICTED_FOR_ANNOTATION
from kbatch.api.objects import PodGroup
from kbatch.engine import Bind, Eviction, Nomination, Transaction
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.events import EventRecorder, Regarding
from kbatch.kube.kinds import PODGROUPS, split_key
from kbatch.kube.pauses import Pauses
from kbatch.kube.writes import evict
from kbatch.metrics import SchedulerMetrics
from operators.scheduler.budgets import overdrawn
from operators.scheduler.cache import Cache
from operators.scheduler.evicted_groups import EvictedGroups
from operators.scheduler.nominating import nominate

_log = logging.getLogger(__name__)

EVICTIONS_AT_ONCE: Final = 16
TRIALS_AT_ONCE: Final = 8
"""Dry runs and nominations. A plan has as many of them as evictions; those of later plans must not hold up the
evictions of earlier ones."""

REFUSED_FIRST: Final = 2.0
REFUSED_LONGEST: Final = 60.0
"""A pod whose eviction was refused is no victim for so many seconds, longer each time. Far longer than it takes to try
a plan: else a group whose first choices are all refused would never come to its last."""

_NAMED_PODS: Final = 8
"""So many pods are named in an Event of a group."""

_GONE: Final = frozenset({404, 422})
"""What the server says to a write for a pod that is gone, or replaced by another one of its name."""
_WRITTEN, _POD_GONE, _FAILED = "written", "pod gone", "failed"
"""What came of writing a nomination."""


class Plans:
    """Carries out plans, each in a task of its own.

    Args:
        api: refuses writes while this process does not lead.
        cache: knows already what is under way; learns what was given up.
        begin: binds what could be bound.
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
        begin: Callable[[Sequence[Bind]], None],
        changed: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._cache = cache
        self._metrics = metrics
        self._recorder = recorder
        self._begin = begin
        self._changed = changed
        self._running: set[asyncio.Task[None]] = set()
        self._written = EvictedGroups(api, self._uid_of_queue)
        self._pauses = Pauses(clock)
        """Of groups whose plans failed for no fault of a victim."""
        self._refused = Pauses(clock, first=REFUSED_FIRST, longest=REFUSED_LONGEST)
        """Of pods, by uid."""
        self._evictions = asyncio.Semaphore(EVICTIONS_AT_ONCE)
        self._trials = asyncio.Semaphore(TRIALS_AT_ONCE)

    def _uid_of_queue(self, name: str) -> str:
        record = self._cache.model.queues.get(name)
        return record.queue.metadata.uid if record is not None and record.queue is not None else ""

    @property
    def in_flight(self) -> int:
        """Plans that are not carried out yet."""
        return len(self._running)

    def paused(self, transaction: Transaction) -> bool:
        """Whether a group is left alone for a moment, as its last plan could not be tried, or not be written down."""
        return self._pauses.paused(_whose(transaction))

    def paused_until(self) -> float | None:
        """When the next group whose plan failed may plan again, on the monotonic clock; None if none waits."""
        return self._pauses.next_end()

    def parts(self) -> Mapping[str, Callable[[], Iterable[str]]]:
        """By name what a dump says of plans."""
        return {
            "plans": lambda: (task.get_name() for task in self._running),
            "groups paused": self._pauses.described,
            "victims refused, by uid": self._refused.described,
        }

    def begin(self, transaction: Transaction, before: Sequence[tuple[Nomination, str]]) -> None:
        """Begin to carry out a plan; `before`: with each nomination the pod's last one, or an empty text."""
        task = asyncio.create_task(self._carry_out(transaction, before), name=f"plan {transaction.group}")
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._changed()

    async def _carry_out(self, transaction: Transaction, before: Sequence[tuple[Nomination, str]]) -> None:
        try:
            refusals = await self._refusals(transaction.evictions)
            if not refusals:
                refusals = await overdrawn(self._api, self._cache.model, transaction.evictions)
            if refusals or self._for_nobody(transaction):
                if refusals:
                    victim, error = refusals[0]
                    self._metrics.evictions.labels(victim.action, "refused").inc()
                    _log.info("plan for %s given up: %s cannot be evicted: %s", transaction.group, victim.pod, error)
                    self._refuse(transaction, refusals)
                self._give_up(transaction, before)
                return
            written = await asyncio.gather(*(self._nominate(nomination, old) for nomination, old in before))
            wanted = [answer for (one, _), answer in zip(before, written, strict=True) if one.node]
            if transaction.evictions and _FAILED in written:
                self._pauses.failed(_whose(transaction))
                await self._undo(transaction, before, "its nominations cannot be written")
                return
            if transaction.evictions and wanted and set(wanted) == {_POD_GONE}:
                await self._undo(transaction, before, "the pods for which it evicts are gone")
                return
            if not await self._written.write(transaction.evicted):
                self._pauses.failed(_whose(transaction))
                await self._undo(transaction, before, "what its queues count cannot be written")
                return
            await self._evict_all(transaction)
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

    async def _undo(self, transaction: Transaction, before: Sequence[tuple[Nomination, str]], why: str) -> None:
        """`_give_up`, of a plan whose nominations may be written."""
        _log.info("plan for %s given up: %s", transaction.group, why)
        self._give_up(transaction, before)
        # All of them: one whose answer was lost may have been written.
        await asyncio.gather(*(self._write(Nomination(one.pod, one.uid, old or None)) for one, old in before))

    def _give_up(self, transaction: Transaction, before: Sequence[tuple[Nomination, str]]) -> None:
        """Take a plan back of which nothing has happened to any victim."""
        self._take_back(transaction)
        for nomination, old in before:
            self._cache.nominate(nomination.pod, nomination.uid, old)

    def _take_back(self, transaction: Transaction) -> None:
        """Nothing of the plan is under way any more; a victim that was evicted all the same, the watch will show."""
        for one in transaction.binds:
            self._cache.forget(one.pod, one.uid)
        for victim in transaction.evictions:
            self._cache.not_evicting(victim.pod, victim.uid)

    # --- evictions ----------------------------------------------------------------------------------------------------

    async def _refusals(self, victims: Sequence[Eviction]) -> list[tuple[Eviction, KubeError]]:
        """The victims, in order, that could not be evicted, and why."""
        answers = await asyncio.gather(*(self._try_eviction(victim, dry_run=True) for victim in victims))
        return [(victim, error) for victim, error in zip(victims, answers, strict=True) if error]

    def _refuse(self, transaction: Transaction, refusals: Sequence[tuple[Eviction, KubeError]]) -> None:
        """Tell the model which pods are no victims for a while.

        Where the answer says nothing of the pod (the server, or a webhook of it, is in trouble, or did not answer) all
        others would most likely be answered alike: then the group waits before it plans again.
        """
        for victim, error in refusals:
            if isinstance(error, ApiError):
                seconds = self._refused.failed(victim.uid)
                self._cache.refuse_eviction(victim.pod, victim.uid, seconds, str(error))
        self._tell_refusal(transaction, *refusals[0])
        if not all(isinstance(error, ApiError) and error.of_this_object for _, error in refusals):
            self._pauses.failed(_whose(transaction))

    async def _evict_all(self, transaction: Transaction) -> None:
        homes = {victim.pod: self._cache.group_of(victim.pod) for victim in transaction.evictions}
        errors = await asyncio.gather(*(self._evict(victim) for victim in transaction.evictions))
        answers = list(zip(transaction.evictions, errors, strict=True))
        self._tell_groups([victim for victim, error in answers if error is None], homes)
        refusals = [(victim, error) for victim, error in answers if error is not None]
        if refusals:
            self._refuse(transaction, refusals)
        else:
            self._pauses.succeeded(_whose(transaction))

    async def _evict(self, victim: Eviction) -> KubeError | None:
        error = await self._try_eviction(victim, dry_run=False)
        if error is None:
            self._metrics.evictions.labels(victim.action, "ok").inc()
            self._refused.succeeded(victim.uid)
            return None
        self._metrics.evictions.labels(victim.action, "refused").inc()
        _log.warning("eviction of %s for %s: %s", victim.pod, victim.beneficiary or "nobody", error)
        self._cache.not_evicting(victim.pod, victim.uid)
        return error

    async def _try_eviction(self, victim: Eviction, *, dry_run: bool) -> KubeError | None:
        namespace, name = split_key(victim.pod)
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

    def _tell_refusal(self, transaction: Transaction, victim: Eviction, error: KubeError) -> None:
        """Say on the group for whom a pod was to go who kept it: a budget, a webhook, the server's own trouble."""
        group = self._cache.groups.get(_whose(transaction))
        if group is not None:
            causes = [cause.message for cause in error.causes if cause.message] if isinstance(error, ApiError) else []
            note = f"{victim.pod} cannot be evicted by {victim.action}: {'; '.join((str(error), *causes))}"
            self._recorder.warning(_regarding(group), "EvictionRefused", "Evicting", note)

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

    # --- nominations --------------------------------------------------------------------------------------------------

    async def _nominate(self, nomination: Nomination, old: str) -> str:
        """What came of writing it: `_WRITTEN`, `_POD_GONE`, which needs no nomination, or `_FAILED`."""
        error = await self._write(nomination)
        if error is None:
            return _WRITTEN
        self._cache.nominate(nomination.pod, nomination.uid, old)
        return _POD_GONE if isinstance(error, ApiError) and error.status in _GONE else _FAILED

    async def _write(self, nomination: Nomination) -> KubeError | None:
        async with self._trials:
            return await nominate(self._api, nomination, self._metrics)


def _whose(transaction: Transaction) -> str:
    return transaction.job or transaction.group


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
