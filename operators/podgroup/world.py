"""What the podgroup operator has seen: groups, their member pods, the Jobs that make them.

Events come in any order and any number of times; each says which groups it touches. Of a pod only what a group's status
depends on is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kbatch.api.names import GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import Job, Pod, PodGroup
from kbatch.kube.kinds import key_of
from kbatch.model.events import Delete, Event, Unreadable, Upsert
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


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a group: its role (empty for none), stage, request, and the uid of its controller (empty for none)."""

    role: str
    stage: Stage
    request: Resources
    controller: str = ""


@dataclass(frozen=True, slots=True)
class Maker:
    """A Job that makes members. `ended`: it makes no more; `failed`: because it gave up."""

    uid: str
    ended: bool
    failed: bool


class World:
    """All that was seen, by `namespace/name`."""

    def __init__(self) -> None:
        self.groups: dict[str, PodGroup] = {}
        self._pods: dict[str, tuple[str, Member]] = {}
        self._members: dict[str, dict[str, Member]] = {}
        self._jobs: dict[str, tuple[str | None, Maker]] = {}
        self._makers: dict[str, dict[str, Maker]] = {}
        self._by_uid: dict[str, Maker] = {}
        self._owned: dict[str, set[str]] = {}  # uid of an owner -> keys of its groups

    def members(self, group: str) -> Iterable[Member]:
        """The pods that name the group."""
        return self._members.get(group, {}).values()

    def makers(self, group: str) -> Iterable[Maker]:
        """The Jobs whose template names the group."""
        return self._makers.get(group, {}).values()

    def maker(self, uid: str) -> Maker | None:
        """The Job with this uid, if there is one."""
        return self._by_uid.get(uid)

    def apply(self, event: Event) -> set[str]:
        """Take in what happened; the keys of the groups that it touches."""
        match event:
            case Upsert(obj=Pod() as pod):
                return self._pod(pod)
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
        if known is not None and older(group.metadata.resource_version, known.metadata.resource_version):
            return set()
        if known is not None:
            self.drop_group(key)
        self.groups[key] = group
        for owner in group.metadata.owner_references:
            self._owned.setdefault(owner.uid, set()).add(key)
        return {key}

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

    def keep_groups(self, present: set[str], version: str) -> set[str]:
        """Forget the groups that a list of this version did not hold, but for those made after it."""
        absent = [
            key
            for key, group in self.groups.items()
            if key not in present and not older(version, group.metadata.resource_version)
        ]
        for key in absent:
            self.drop_group(key)
        return set(absent)

    # --- pods and Jobs ------------------------------------------------------------------------------------------------

    def _pod(self, pod: Pod) -> set[str]:
        metadata = pod.metadata
        key = key_of(metadata.namespace, metadata.name)
        touched = self._forget_pod(key)
        name = (metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
        if not name:
            return touched
        group = key_of(metadata.namespace, name)
        member = _member(pod)
        self._pods[key] = (group, member)
        self._members.setdefault(group, {})[key] = member
        return touched | {group}

    def _forget_pod(self, key: str) -> set[str]:
        known = self._pods.pop(key, None)
        if known is None:
            return set()
        group = known[0]
        members = self._members[group]
        del members[key]
        if not members:
            del self._members[group]
        return {group}

    def _job(self, job: Job) -> set[str]:
        metadata = job.metadata
        key = key_of(metadata.namespace, metadata.name)
        touched = self._forget_job(key)
        name = (job.spec.template.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
        held = {condition.type for condition in job.status.conditions or () if condition.status == "True"}
        maker = Maker(metadata.uid, ended=bool(held & {"Complete", "Failed"}), failed="Failed" in held)
        group = key_of(metadata.namespace, name) if name else None
        self._jobs[key] = (group, maker)
        self._by_uid[maker.uid] = maker
        touched |= self._owned.get(maker.uid, set())
        if group is None:
            return touched
        self._makers.setdefault(group, {})[key] = maker
        return touched | {group}

    def _forget_job(self, key: str) -> set[str]:
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
            return self._forget_job(key)
        return self.drop_group(key) if kind is PodGroup else set()


def older(version: str, than: str) -> bool:
    """Whether a resourceVersion is older than another; False where they cannot be compared."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


def _member(pod: Pod) -> Member:
    try:
        request = effective_request(pod.spec)
    except QuantityError as error:  # the pod still counts; only what it holds is unknown
        _log.warning("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
        request = {}
    controller = next((owner.uid for owner in pod.metadata.owner_references if owner.controller), "")
    return Member((pod.metadata.labels or {}).get(SUB_GROUP_LABEL, ""), _stage(pod), request, controller)


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
