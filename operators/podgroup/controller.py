"""The work of the podgroup operator: bring each group's status in line with what was seen, and write only changes."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

import msgspec

from kbatch.api.names import DEFAULT_SCHEDULER_NAME
from kbatch.api.objects import Job, Pod, PodGroup
from kbatch.kube.client import Api
from kbatch.kube.decoding import decoder
from kbatch.kube.errors import ApiError, KubeError, NotLeadingError
from kbatch.kube.informer import Batch
from kbatch.kube.kinds import PODGROUPS, AnyKind, key_of, split_key
from kbatch.kube.lists import older
from kbatch.kube.writes import apply_status
from kbatch.metrics import ReconcileMetrics
from kbatch.model.bad_nodes import avoided
from kbatch.model.events import Delete, Event, Upsert
from kbatch.model.phase import ADMITTED, OVER, Phase, derive
from kbatch.process.workqueue import WorkQueue
from operators.podgroup import FIELD_MANAGER
from operators.podgroup.abandoned import GIVE_UP_SECONDS, Abandoned
from operators.podgroup.ended import Ended
from operators.podgroup.event_notes import Nobody, Recorder, Teller
from operators.podgroup.jobs import Jobs
from operators.podgroup.member_index import MemberIndex
from operators.podgroup.members import Members
from operators.podgroup.objects import NONE, Objects
from operators.podgroup.patience import Patience
from operators.podgroup.reconcile import OwnStatus, facts, observe, reconcile, standing, unknown_controllers, withdrawn

_log = logging.getLogger(__name__)

GAP_SECONDS: Final = 0.2
"""One group's status is written at most this often: a gang that starts is a few writes, not one for each pod."""
GATHER_SECONDS: Final = 0.4
"""Until a group is looked at of which only a pod was made, bound or started, or the scheduler has said something.
Nothing is to be done then but to say so, and more comes in a moment. It counts from when it was heard: see `Patience`.
"""
HEARD_SECONDS: Final = 1.0
"""Until a group is looked at of which was heard only that something happened: what, is seen by then."""
_FIRST_RETRY: Final = 0.5
_LAST_RETRY: Final = 30.0


def utc_now() -> str:
    """The time as conditions carry it."""
    return _text_of(int(time.time()))


@lru_cache(maxsize=2)  # asked for at each look at a group
def _text_of(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Controller:
    """Keeps the status of all PodGroups.

    Args:
        api: for reads and writes; refuses writes while this process does not lead.
        metrics: what it did.
        scheduler_name: of the pods that are ours.
        recorder: of Events; None tells nobody.
        member_backoff: seconds until a member that failed is made again from its template.
        lift_gates: whether pods are let go of kbatch's scheduling gate; without the right to, they are not.
        object_kinds: kinds of the objects that groups may have besides pods; see `Objects`.
        patience: how long changes of a status are gathered; by default not at all.
        gather: seconds that changes of pods and groups are gathered which nothing but a status is to follow.
        give_up_after: seconds after which a group whose pods all ended counts as given up by controllers that are no
            Jobs.
        within: whether a namespace is looked after.
        now: the time for conditions.
    """

    def __init__(
        self,
        api: Api,
        metrics: ReconcileMetrics,
        *,
        scheduler_name: str = DEFAULT_SCHEDULER_NAME,
        recorder: Recorder | None = None,
        member_backoff: float = 10.0,
        lift_gates: bool = True,
        object_kinds: Mapping[tuple[str, str], AnyKind] | None = None,
        patience: Patience | None = None,
        gather: float = 0.0,
        give_up_after: float = GIVE_UP_SECONDS,
        within: Callable[[str], bool] = lambda _: True,
        now: Callable[[], str] = utc_now,
    ) -> None:
        self.index = MemberIndex(scheduler_name)
        self.queue = WorkQueue(gap=GAP_SECONDS)
        self._api = api
        self._metrics = metrics
        self._now = now
        self._teller = Teller(recorder or Nobody(), now())
        self._jobs = Jobs(api, self.index, self._teller)
        self._objects = Objects(api, self._teller, object_kinds or {})
        self._members = Members(api, self.index, self._teller, backoff=member_backoff, lift_gates=lift_gates)
        self._failures: dict[str, int] = {}
        self._patience = Patience() if patience is None else patience
        self._gather = gather
        self._abandoned = Abandoned(give_up_after)
        self._ended = Ended(api)
        self._keeps_finished = True
        """Whether the API server keeps `status.finished`: one with the CRDs of an older release refuses it, or drops
        it. One of several may know new CRDs a moment later than the others, so what stands is left."""
        self._within = within
        metrics.backlog.set_function(lambda: len(self.queue))

    # --- what happened ------------------------------------------------------------------------------------------------

    def receive(self, batch: Batch) -> None:
        """Take in what an informer saw."""
        for event in batch.events:
            self.hint(event)

    def hint(self, event: Event) -> None:
        """Take in one event and want work on what it touches; of namespaces that are not looked after, none."""
        if isinstance(event, Upsert):
            if isinstance(event.obj, Pod):
                self._hint_pod(event.obj)
                return
            if not self._within(event.obj.metadata.namespace):
                return
        elif not self._within(event.namespace):
            return
        elif event.kind is Pod:
            self._members.heard(key_of(event.namespace, event.name), gone=isinstance(event, Delete))
        for key in self.index.apply(event):
            if isinstance(event, Upsert) and isinstance(event.obj, PodGroup) and self._only_told(key, event.obj):
                self._look_soon(key)
            else:
                self.queue.add(key)
        self._tell_missed(event)

    def _only_told(self, key: str, group: PodGroup) -> bool:
        """Whether nothing is done for the group, whatever is said of it, but to say its phase and numbers."""
        return (
            group.metadata.deletion_timestamp is None
            and not (group.spec.objects or group.status.objects or self._makes_pods(key, group))
            and all(one.ordinary for one in self.index.members(key))
        )

    def _look_soon(self, key: str) -> None:
        self._patience.heard(key)
        self.queue.add(key, self._gather)

    def _hint_pod(self, pod: Pod) -> None:
        """The same of a pod, of which there are more events than of anything else."""
        metadata = pod.metadata
        if not self._within(metadata.namespace):
            return
        awaited = self._members.heard(key_of(metadata.namespace, metadata.name), gone=False)
        touched, ordinary = self.index.put_pod(pod)
        for key in touched:
            if ordinary and not awaited:
                self._look_soon(key)
            else:
                self.queue.add(key)

    def _tell_missed(self, event: Event) -> None:
        if isinstance(event, Upsert):
            if isinstance(event.obj, Job):
                key = key_of(event.obj.metadata.namespace, event.obj.metadata.name)
                self._teller.missed(key, event.obj if key in self.index.missed else None)
        elif event.kind is Job:
            self._teller.missed(key_of(event.namespace, event.name), None)

    def hear(self, key: str, version: str) -> None:
        """Something happened to a group, which has this version now. Unless an informer told of it, look at it soon."""
        if not self._within(split_key(key)[0]):
            return
        known = self.index.groups.get(key)
        if known is None or older(known.metadata.resource_version, version):
            self.queue.add(key, HEARD_SECONDS)

    def resync(self) -> None:
        """Want work on each group: what is written is compared with what should be, though nothing happened."""
        self._keeps_finished = True  # the CRDs may be new by now
        for key in self.index.groups:
            self.queue.add(key)

    # --- the work -----------------------------------------------------------------------------------------------------

    async def run(self, workers: int) -> None:
        """Work for ever."""
        async with asyncio.TaskGroup() as group:
            for number in range(workers):
                group.create_task(self._work(), name=f"podgroup worker {number}")

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            again_in: float | None = None
            started = time.monotonic()
            try:
                result = await self.reconcile(key)
                self._failures.pop(key, None)
            except NotLeadingError:
                result = "failed"  # the process is about to end; the next leader does it
            except Exception as error:  # noqa: BLE001 - one group must not stop the others
                result = "failed"
                again_in = self._failed(key, error)
            finally:
                self.queue.done(key, again_in)
            self._metrics.reconciles.labels(result).inc()
            self._metrics.seconds.observe(time.monotonic() - started)

    def _failed(self, key: str, error: Exception) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        wait = min(_LAST_RETRY, _FIRST_RETRY * 2.0 ** (failures - 1))
        if isinstance(error, KubeError | msgspec.DecodeError):
            _log.warning("PodGroup %s: %s; again in %g s", key, error, wait)
        else:
            _log.error("PodGroup %s: again in %g s", key, wait, exc_info=error)
        return wait

    async def reconcile(self, key: str) -> str:
        """Bring one group in line: its status, then what follows from it; `gone`, `unchanged` or `written`.

        Raises:
            KubeError: a write failed.
        """
        group = self.index.groups.get(key)
        if group is None:
            self._forget(key)
            await self._members.let_end(key, None)
            if await self._jobs.make_group(key):
                return "written"
            again = self._jobs.groupless(key)
            if again is not None:
                self.queue.add(key, again)
            return "gone"
        self._jobs.found(key)
        if group.metadata.deletion_timestamp is not None:
            await self._members.let_end(key, None)
            return "gone"
        tried, stalled = self._members.stalled(key, group)
        waits: list[float] = []
        observed = observe(self.index, group, abandoned=self._is_abandoned(key, group, waits))
        # The objects first: the status says which exist, and no pod comes before them.
        kept = NONE
        if group.spec.objects or group.status.objects:
            kept = await self._objects.keep(key, group, derive(facts(group, observed)))
        observed = dataclasses.replace(
            observed,
            tried=tried
            or (kept.tried and (kept.stalled is not None or not _templated(group)))
            or _makes_nothing(group),
            stalled=kept.stalled or stalled,
            objects=kept.objects,
        )
        wanted = reconcile(group, observed, self._now())
        if not self._keeps_finished:
            wanted = _as_kept(wanted, group)
        result = "unchanged"
        if wanted == standing(group.status):
            self._patience.forget(key)
        elif (left := self._patience.left(key, group, observed, wanted, makes_pods=self._makes_pods(key, group))) > 0:
            self.queue.add(key, left)
        else:
            result = await self._write(key, group, wanted)
            self._patience.forget(key)
        if result == "gone":
            self._forget(key)
            return result
        if kept.error is not None:
            raise kept.error
        # The status first: whoever watches a group sees that it is in queue before its first pod comes.
        phase = Phase(wanted.phase)
        self._teller.waits(group, phase, list(self.index.makers(key)), waits)
        known = self.index.groups.get(key, group)
        if known.metadata.uid != group.metadata.uid:  # made anew meanwhile: what was found is of the one before
            self.queue.add(key)
            return result
        group = known
        admitted = phase in ADMITTED and kept.ready
        changed = await self._jobs.keep(key, group, admitted=admitted, withdrawn=withdrawn(group, phase))
        await self._members.let_end(key, group, keeps=self._keeps_finished)
        if phase in OVER and await self._ended.remove(key, group, observed, waits):
            return "written"
        made, later = 0, None
        if kept.ready or phase is not Phase.IN_QUEUE:
            made, later = await self._members.keep(key, group, phase)
        again = min((wait for wait in (kept.again, later, *waits) if wait is not None), default=None)
        if self._members.stalled(key, group) != (tried, stalled):
            again = 0.0  # the status should say so
        if again is not None:
            self.queue.add(key, again)
        return "written" if changed or made else result

    def remembered(self) -> int:
        """How many groups and pods anything is remembered of besides what stands in `index`; none when all are gone."""
        return (
            len(self._members)
            + len(self._jobs)
            + len(self._objects)
            + len(self._teller)
            + len(self._patience)
            + len(self._abandoned)
            + len(self._ended)
            + len(self._failures)
            + len(self.queue)
        )

    def _forget(self, key: str) -> None:
        self._members.forget(key)
        self._objects.forget(key)
        self._teller.forget(key)
        self._patience.forget(key)
        self._abandoned.forget(key)
        self._ended.forget(key)

    def _is_abandoned(self, key: str, group: PodGroup, waits: list[float]) -> bool:
        """Whether its pods' controllers have given it up; `waits`: seconds after which to ask again."""
        if group.status.phase in OVER or not unknown_controllers(self.index, group):
            self._abandoned.forget(key)
            return False
        left = self._abandoned.left(key, self.index.members(key))
        if left is not None and left > 0:
            waits.append(left)
        return left is not None and left <= 0

    def _makes_pods(self, key: str, group: PodGroup) -> bool:
        return any(self.index.makers(key)) or _templated(group)

    async def _write(self, key: str, group: PodGroup, wanted: OwnStatus) -> str:
        metadata = {"namespace": group.metadata.namespace, "name": group.metadata.name}
        if wanted.phase in OVER or wanted.finished or wanted.node_failures:
            # No later look takes these back, should this be another group of the name by now. A uid would be no
            # precondition for the status of a custom resource.
            metadata["resourceVersion"] = group.metadata.resource_version
        try:
            answer = await apply_status(
                self._api, PODGROUPS, {"metadata": metadata, "status": wanted.manifest()}, FIELD_MANAGER, force=True
            )
        except ApiError as error:
            self._metrics.writes.labels("PodGroup", _result(error)).inc()
            if error.status == 404:
                self.index.drop_group(key, group.metadata.uid)
                return "gone"
            without = _as_kept(wanted, group)
            if without != wanted and error.lacks(".status.finished"):
                self._not_kept()
                return await self._write(key, group, without)
            raise
        self._metrics.writes.labels("PodGroup", "ok").inc()
        # Known at once, not only when the watch tells: else the next pod's event would compare with the old status.
        answered = decoder(PodGroup).decode(answer)
        self.index.answered(answered)
        if wanted.finished and not answered.status.finished:
            self._not_kept()
            self.queue.add(key)
        limit = group.spec.bad_node_limit
        for node in sorted(avoided(wanted.node_failures, limit) - avoided(group.status.node_failures or (), limit)):
            self._teller.bad_node(group, node)
        if wanted.phase != group.status.phase:
            self._teller.phase(group, group.status.phase, Phase(wanted.phase), list(self.index.makers(key)))
        return "written"

    def _not_kept(self) -> None:
        self._keeps_finished = False
        _log.error(
            "the CRD of PodGroups is of an older release and has no status.finished: members that ended well run "
            "again if their pods go; apply the CRDs of this release (looked at again with the next resync)"
        )


def _as_kept(wanted: OwnStatus, group: PodGroup) -> OwnStatus:
    """The same with the members that ended well as they stand."""
    return dataclasses.replace(wanted, finished=group.status.finished or ())


def _makes_nothing(group: PodGroup) -> bool:
    """Whether neither members nor objects are made of it: nothing stands in the way any more."""
    return not (_templated(group) or group.spec.objects)


def _templated(group: PodGroup) -> bool:
    return any(role.template for role in group.spec.sub_groups or ())


def _result(error: ApiError) -> str:
    return {404: "gone", 409: "conflict"}.get(error.status, "failed")
