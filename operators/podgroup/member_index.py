"""What the podgroup operator has seen: groups, their member pods, the Jobs that make them.

Events come in any order and any number of times; each says which groups it touches. Of a pod only what a group's status
depends on is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from kbatch.api.names import (
    DEFAULT_SCHEDULER_NAME,
    FINISHED_FINALIZER,
    GROUP_NAME_ANNOTATION,
    IN_QUEUE_GATE,
    SUB_GROUP_LABEL,
    SUSPENDED_ANNOTATION,
)
from kbatch.api.objects import Job, Pod, PodGroup
from kbatch.kube.kinds import key_of
from kbatch.kube.lists import older
from kbatch.model.bad_nodes import failed_on
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from kbatch.model.jobs_release import ended, group_of, names_queue, passed_by
from kbatch.model.made_for import is_former, made_for
from kbatch.model.phase import OVER
from kbatch.model.requests import effective_request
from kbatch.resources import QuantityError, Resources

_log = logging.getLogger(__name__)


class Stage(Enum):
    """Where a member is in its life."""

    PENDING = "without a node"
    BOUND = "with a node, not yet running"
    RUNNING = "running"
    SUCCEEDED = "ended well"
    FAILED = "ended badly"
    LEAVING = "being deleted"

    __hash__ = object.__hash__  # each is there once; that of enumerations is computed from the name, in Python


class Member(msgspec.Struct, frozen=True, gc=False):
    """A pod of a group. A struct, as one is made, and compared with the one before, for each change of each pod.

    Attributes:
        role: its role, empty for none.
        stage: where in its life it is.
        request: what it asks of a node.
        controller: the uid of its controller, empty for none. made: the same if it is a PodGroup, else empty.
        uid: its own.
        gate: the place of kbatch's gate among its scheduling gates, -1 for none.
        stale: no gate is left, but its condition still says that there is one.
        disrupted: others ended it: an eviction, a drained node.
        failed_on: the node on which it failed by itself, empty for any other.
        finalizer: the place of kbatch's among its finalizers, -1 for none.
        lost: it is being deleted, and nobody will say any more how it ended.
    """

    role: str
    stage: Stage
    request: Resources
    controller: str = ""
    uid: str = ""
    gate: int = -1
    stale: bool = False
    disrupted: bool = False
    failed_on: str = ""
    finalizer: int = -1
    lost: bool = False
    made: str = ""

    @property
    def ordinary(self) -> bool:
        """Whether nothing is to be done about it, wherever it stands: it waits for a node, starts or runs."""
        return self.stage in _ORDINARY and self.gate < 0 and self.finalizer < 0 and not (self.stale or self.disrupted)


_ORDINARY: Final = frozenset({Stage.PENDING, Stage.BOUND, Stage.RUNNING})


@dataclass(frozen=True, slots=True)
class Maker:
    """A Job that makes members. `ended`: it makes no more; `failed`: because it gave up. `succeeded`: how many of its
    pods have, those included that are gone; `role`: theirs.

    `job` is all of it, kept only where kbatch may resume or suspend it, or make its group.
    """

    uid: str
    ended: bool
    failed: bool
    name: str = ""
    job: Job | None = None
    succeeded: int = 0
    role: str = ""


class MemberIndex:
    """All that was seen, by `namespace/name`; of Jobs and pods those that `scheduler_name` schedules."""

    def __init__(self, scheduler_name: str = DEFAULT_SCHEDULER_NAME) -> None:
        self.scheduler_name = scheduler_name
        self.groups: dict[str, PodGroup] = {}
        self._pods: dict[str, tuple[str, Member]] = {}
        self._members: dict[str, dict[str, Member]] = {}
        self._former: dict[str, dict[str, Member]] = {}
        self._strays: dict[str, dict[str, Member]] = {}
        self._jobs: dict[str, tuple[str | None, Maker]] = {}
        self._makers: dict[str, dict[str, Maker]] = {}
        self._by_uid: dict[str, Maker] = {}
        self._ended: dict[str, dict[str, Maker]] = {}
        self.missed: dict[str, str] = {}
        """The Jobs that went past their queue, each with its uid."""
        self._owned: dict[str, set[str]] = {}  # uid of an owner -> keys of its groups

    def members(self, group: str) -> Iterable[Member]:
        """The pods that name the group; those that were made for one that had its name before it are none of its."""
        return self._members.get(group, {}).values()

    def named_members(self, group: str) -> Mapping[str, Member]:
        """The same by `namespace/name`."""
        return self._members.get(group, {})

    def former(self, group: str) -> Mapping[str, Member]:
        """The pods that name the group, but were made for one that had its name before it."""
        return self._former.get(group, {})

    def strays(self, group: str) -> Mapping[str, Member]:
        """The pods that were made for the group, name none any more, and have kbatch's finalizer."""
        return self._strays.get(group, {})

    def makers(self, group: str) -> Iterable[Maker]:
        """The Jobs whose template names the group, or for which it is made."""
        return self._makers.get(group, {}).values()

    def ended_makers(self, group: str) -> Iterable[Maker]:
        """Those that ended and are gone, until the group's own end is written, or another Job names it: of a Job with
        `ttlSecondsAfterFinished: 0` nothing else says how it ended.
        """
        return self._ended.get(group, {}).values()

    def maker(self, uid: str) -> Maker | None:
        """The Job with this uid, if there is one."""
        return self._by_uid.get(uid)

    def apply(self, event: Event) -> set[str]:
        """Take in what happened; the keys of the groups that it touches."""
        match event:
            case Upsert(obj=Pod() as pod):
                return self.put_pod(pod)[0]
            case Upsert(obj=Job() as job):
                return self._job(job)
            case Upsert(obj=PodGroup() as group):
                return self.put_group(group)
            case (
                Delete(kind=kind, namespace=namespace, name=name)
                | Unreadable(kind=kind, namespace=namespace, name=name)
            ):
                return self._gone(kind, key_of(namespace, name))
        return set()

    # --- groups -------------------------------------------------------------------------------------------------------

    def put_group(self, group: PodGroup) -> set[str]:
        """Take a version of a group, unless a newer one is known."""
        key = key_of(group.metadata.namespace, group.metadata.name)
        known = self.groups.get(key)
        if known is not None:
            if older(group.metadata.resource_version, known.metadata.resource_version):
                return set()
            self.drop_group(key)
        self.groups[key] = group
        anew = known is None or known.metadata.uid != group.metadata.uid
        if anew:
            self._sort(key, group.metadata.uid)
        if anew or group.status.phase in OVER:
            self._ended.pop(key, None)
        for owner in group.metadata.owner_references:
            self._owned.setdefault(owner.uid, set()).add(key)
        return {key}

    def answered(self, group: PodGroup) -> None:
        """Take what a write of ours answered, unless the group is gone by now, or newer."""
        known = self.groups.get(key_of(group.metadata.namespace, group.metadata.name))
        if known is not None and known.metadata.uid == group.metadata.uid:
            self.put_group(group)

    def drop_group(self, key: str, uid: str | None = None) -> set[str]:
        """Forget a group; only the one with this uid, where given."""
        known = self.groups.get(key)
        if known is None or (uid is not None and known.metadata.uid != uid):
            return set()
        del self.groups[key]
        for owner in known.metadata.owner_references:
            owned = self._owned.get(owner.uid, set())
            owned.discard(key)
            if not owned:
                self._owned.pop(owner.uid, None)
        return {key}

    def _sort(self, key: str, uid: str) -> None:
        """The group of this uid has the name from now on: which of the pods that name it are its members?"""
        pods = {**self._members.pop(key, {}), **self._former.pop(key, {})}
        for pod, member in pods.items():
            among = self._former if is_former(member.made, uid) else self._members
            among.setdefault(key, {})[pod] = member

    # --- pods and Jobs ------------------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod) -> tuple[set[str], bool]:
        """Take a version of a pod: the keys of the groups that it touches, none where nothing changed that is kept of
        it; and whether their phases and numbers are all that may follow from it.
        """
        metadata = pod.metadata
        key = key_of(metadata.namespace, metadata.name)
        name, among = (metadata.annotations or {}).get(GROUP_NAME_ANNOTATION), self._members
        if not name and FINISHED_FINALIZER in metadata.finalizers:
            name, among = _owner_of(pod), self._strays
        if not name:
            return self._forget_pod(key), False
        group = key_of(metadata.namespace, name)
        member = _member(pod)
        if member.made and among is self._members:
            now = self.groups.get(group)
            if now is not None and is_former(member.made, now.metadata.uid):
                among = self._former
        known = self._pods.get(key)
        if known == (group, member):
            held = among.get(group)
            if held is not None and key in held:
                return set(), True
        touched = self._forget_pod(key)
        self._pods[key] = (group, member)
        among.setdefault(group, {})[key] = member
        touched.add(group)
        return touched, member.ordinary and (known is None or (known[0] == group and known[1].ordinary))

    def _forget_pod(self, key: str) -> set[str]:
        known = self._pods.pop(key, None)
        if known is None:
            return set()
        group = known[0]
        among = self._members
        if key not in among.get(group, _NO_MEMBERS):
            among = self._former if key in self._former.get(group, _NO_MEMBERS) else self._strays
        members = among[group]
        del members[key]
        if not members:
            del among[group]
        return {group}

    def put_job(self, job: Job) -> set[str]:
        """Take what a write of ours answered, unless the Job is gone or newer by now."""
        known = self._jobs.get(key_of(job.metadata.namespace, job.metadata.name))
        return set() if known is None or known[1].uid != job.metadata.uid else self._job(job)

    def _job(self, job: Job) -> set[str]:
        metadata = job.metadata
        key = key_of(metadata.namespace, metadata.name)
        known = self._jobs.get(key)
        before = known[1].job if known is not None and known[1].uid == metadata.uid else None
        if before is not None and older(metadata.resource_version, before.metadata.resource_version):
            return set()
        touched = self._forget_job(key)
        name = group_of(job, self.scheduler_name)
        failed = any(one.type == "Failed" and one.status == "True" for one in job.status.conditions or ())
        ours = SUSPENDED_ANNOTATION in (metadata.annotations or {}) or names_queue(job)
        maker = Maker(
            metadata.uid,
            ended=ended(job),
            failed=failed,
            name=metadata.name,
            job=job if ours else None,
            succeeded=job.status.succeeded,
            role=(job.spec.template.metadata.labels or {}).get(SUB_GROUP_LABEL, ""),
        )
        group = key_of(metadata.namespace, name) if name else None
        if passed_by(job):
            self.missed[key] = metadata.uid
        self._jobs[key] = (group, maker)
        self._by_uid[maker.uid] = maker
        touched |= self._owned.get(maker.uid, set())
        if group is None:
            return touched
        if known is None or known[1].uid != metadata.uid:
            self._ended.pop(group, None)
        self._makers.setdefault(group, {})[key] = maker
        return touched | {group}

    def _forget_job(self, key: str) -> set[str]:
        self.missed.pop(key, None)
        known = self._jobs.pop(key, None)
        if known is None:
            return set()
        group, maker = known
        self._by_uid.pop(maker.uid, None)
        if group is None:
            return set()
        makers = self._makers[group]
        del makers[key]
        if not makers:
            del self._makers[group]
        return {group}

    def _gone(self, kind: type, key: str) -> set[str]:
        if kind is Pod:
            return self._forget_pod(key)
        if kind is Job:
            self._note_end(key)
            return self._forget_job(key)
        if kind is PodGroup:
            self._ended.pop(key, None)
            return self.drop_group(key)
        return set()

    def _note_end(self, key: str) -> None:
        """A Job is deleted: remember how it ended, if it has and its group has not."""
        name, maker = self._jobs.get(key, (None, None))
        group = self.groups.get(name) if name is not None else None
        if name is None or maker is None or group is None:
            return
        if maker.ended and group.status.phase not in OVER:
            self._ended.setdefault(name, {})[maker.uid] = maker


def _member(pod: Pod) -> Member:
    try:
        request = effective_request(pod.spec)
    except QuantityError as error:  # the pod still counts; only what it holds is unknown
        _log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
        request = {}
    metadata = pod.metadata
    controller = ""
    for owner in metadata.owner_references:
        if owner.controller:
            controller = owner.uid
            break
    gates = [gate.name for gate in pod.spec.scheduling_gates] if pod.spec.scheduling_gates else ()
    stale = disrupted = False
    for one in pod.status.conditions or ():  # a loop and no `any`: this is made for each change of each pod
        if one.type == "PodScheduled":
            stale = one.reason == "SchedulingGated" and not gates
        elif one.type == "DisruptionTarget":
            disrupted = one.status == "True"
    finalizers = metadata.finalizers
    return Member(
        role=(metadata.labels or _NOTHING).get(SUB_GROUP_LABEL, ""),
        stage=_stage(pod),
        request=request,
        controller=controller,
        uid=metadata.uid,
        gate=gates.index(IN_QUEUE_GATE) if IN_QUEUE_GATE in gates else -1,
        stale=stale,
        disrupted=disrupted,
        failed_on=failed_on(pod),
        finalizer=finalizers.index(FINISHED_FINALIZER) if FINISHED_FINALIZER in finalizers else -1,
        lost=metadata.deletion_timestamp is not None and _ends_unseen(pod),
        made=made_for(pod) if controller else "",
    )


_NOTHING: Final[Mapping[str, str]] = {}
_NO_MEMBERS: Final[Mapping[str, Member]] = {}


def _owner_of(pod: Pod) -> str:
    """The name of the PodGroup that a pod was made for; empty: none was."""
    return next((one.name for one in pod.metadata.owner_references if one.controller and one.kind == "PodGroup"), "")


def _ends_unseen(pod: Pod) -> bool:
    """Whether no kubelet will end it: it has ended, has no node, or its time to end is over."""
    ended = pod.status.phase in {"Succeeded", "Failed"} or not pod.spec.node_name
    return ended or pod.metadata.deletion_grace_period_seconds == 0


def _stage(pod: Pod) -> Stage:
    if pod.status.phase == "Succeeded":
        return Stage.SUCCEEDED
    if pod.metadata.deletion_timestamp is not None:
        return Stage.LEAVING  # an evicted pod is Failed for a moment too, but it did not fail by itself
    if pod.status.phase == "Failed":
        return Stage.FAILED
    if pod.status.phase == "Running":
        return Stage.RUNNING
    return Stage.BOUND if pod.spec.node_name else Stage.PENDING
