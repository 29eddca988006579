"""Member pods: made from the roles' templates when their group is in queue, and let go of kbatch's scheduling gate.

What is to be done follows from the group and its pods (`kbatch.model.members`). What was sent and not yet seen through
the watch is remembered for a moment, so that nothing is sent twice. Only the number of members that failed and were
made again is kept, as an annotation of the group, written before such a pod is deleted: a crash forgets none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from kbatch.api.names import (
    API_VERSION,
    GROUP_NAME_ANNOTATION,
    IN_QUEUE_GATE,
    REPLACED_ANNOTATION,
    SUB_GROUP_LABEL,
)
from kbatch.api.objects import PodGroup, SubGroup
from kbatch.kube.client import Api
from kbatch.kube.decoding import decoder
from kbatch.kube.errors import ApiError
from kbatch.kube.kinds import PODGROUPS, PODS, key_of
from kbatch.kube.writes import create, delete, json_patch, merge_patch, strategic_patch
from kbatch.model.members import Plan, State, plan, sizes
from kbatch.model.phase import Phase
from kbatch.model.templates import TemplateError, member_name, render_member
from operators.podgroup.reconcile import ADMITTED, Stalled, number, retries_left
from operators.podgroup.tell import Teller
from operators.podgroup.world import Member, Stage, World

_log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "kbatch-podgroup"
PARALLEL: Final = 32
"""Writes for pods on the wire at one time, of all groups together."""
AT_ONCE: Final = 200
"""Pods of one group that are made before it is looked at again."""

_UNSEEN_SECONDS: Final = 10.0
_STALE_SECONDS: Final = 2.0
_REST_SECONDS: Final = 60.0
_STALLED_SECONDS: Final = 30.0
_LONGEST_BACKOFF: Final = 300.0

_STATES: Final = {
    Stage.PENDING: State.WAITING,
    Stage.BOUND: State.PLACED,
    Stage.RUNNING: State.PLACED,
    Stage.SUCCEEDED: State.SUCCEEDED,
    Stage.FAILED: State.FAILED,
    Stage.LEAVING: State.LEAVING,
}


class _Sent(Enum):
    """What was asked of the API server for a pod."""

    CREATE = auto()
    DELETE = auto()
    CHANGE = auto()


@dataclass(slots=True)
class _Memory:
    """What is remembered of one group; nothing that a new process could not do without.

    Attributes:
        created: members that were asked for and may not be seen yet.
        present: members that waited or had nodes when it was last looked at, and their roles.
        resting: roles that do not grow, and until when.
        failed: failed members, and since when that is known.
        stale_since: when pods without gates were first seen to claim that they have one.
        tried: whether anything was made since the process started.
        stalled, generation, stalled_until: what stands in the way, for which generation, and when to try again.
        stalls: how often something stood in the way.
    """

    uid: str
    created: set[str] = field(default_factory=set)
    present: dict[str, str] = field(default_factory=dict)
    resting: dict[str, float] = field(default_factory=dict)
    failed: dict[str, float] = field(default_factory=dict)
    stale_since: float | None = None
    tried: bool = False
    stalled: Stalled | None = None
    stalls: int = 0
    generation: int = 0
    stalled_until: float = 0.0


class Members:
    """Makes, ungates and deletes member pods.

    Args:
        backoff: seconds until a member that failed is made again; doubles with each of the group.
    """

    def __init__(
        self,
        api: Api,
        world: World,
        teller: Teller,
        *,
        backoff: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._world = world
        self._teller = teller
        self._backoff = backoff
        self._clock = clock
        self._sent: dict[str, tuple[_Sent, float]] = {}
        self._groups: dict[str, _Memory] = {}
        self._wire = asyncio.Semaphore(PARALLEL)

    def heard(self, pod: str, *, gone: bool) -> None:
        """The watch told of a pod: what was sent for it has had its effect."""
        sent = self._sent.get(pod)
        if sent is not None and (gone or sent[0] is not _Sent.DELETE):
            del self._sent[pod]

    def forget(self, key: str) -> None:
        """The group is gone."""
        self._groups.pop(key, None)

    def stalled(self, key: str, group: PodGroup) -> tuple[bool, Stalled | None]:
        """Whether making members was tried since this process started, and what stood in the way, if anything."""
        memory = self._groups.get(key)
        if memory is None or memory.uid != group.metadata.uid or not memory.tried:
            return False, None
        return True, memory.stalled

    async def keep(self, key: str, group: PodGroup, phase: Phase) -> tuple[int, float | None]:
        """Bring the group's pods in line; how many writes that took, and in how many seconds to look again.

        Raises:
            KubeError: a write failed; what it was for is asked for again.
        """
        members = self._world.named_members(key)
        templated = any(role.template is not None for role in group.spec.sub_groups or ())
        if not templated and not (phase in ADMITTED and any(one.gate >= 0 or one.stale for one in members.values())):
            return 0, None
        memory = self._groups.get(key)
        if memory is None or memory.uid != group.metadata.uid:
            memory = self._groups[key] = _Memory(group.metadata.uid)
        waits: list[float] = []
        changes = self._ungate(members, memory, waits) if phase in ADMITTED else []
        stalls, waiting = memory.stalls, memory.stalled is not None
        if templated:
            changes += await self._make(key, group, phase, memory, members, waits)
        if changes:
            waits.append(_UNSEEN_SECONDS)
        results = await asyncio.gather(*changes, return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        if errors:
            raise errors[0]
        if templated and phase in ADMITTED and memory.stalls == stalls and (changes or not waiting):
            memory.tried, memory.stalled = True, None
        return len(changes), min(waits, default=None)

    # --- gates --------------------------------------------------------------------------------------------------------

    def _ungate(
        self, members: Mapping[str, Member], memory: _Memory, waits: list[float]
    ) -> list[Coroutine[Any, Any, None]]:
        changes: list[Coroutine[Any, Any, None]] = []
        stale = {key: one for key, one in members.items() if one.stale and one.stage is Stage.PENDING}
        for key, one in members.items():
            if one.gate >= 0 and one.stage is Stage.PENDING and not self._unseen(key):
                changes.append(self._remove_gate(key, one))
        now = self._clock()
        if not stale:
            memory.stale_since = None
        elif memory.stale_since is None:
            memory.stale_since = now  # a bind writes the condition anew: only what stays is worth a write
            waits.append(_STALE_SECONDS)
        elif now - memory.stale_since < _STALE_SECONDS:
            waits.append(memory.stale_since + _STALE_SECONDS - now)
        else:
            changes += [self._remove_condition(key, one) for key, one in stale.items() if not self._unseen(key)]
        return changes

    async def _remove_gate(self, key: str, member: Member) -> None:
        place = f"/spec/schedulingGates/{member.gate}"
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": member.uid},
            {"op": "test", "path": f"{place}/name", "value": IN_QUEUE_GATE},
            {"op": "remove", "path": place},
        ]
        namespace, _, name = key.partition("/")
        await self._write(
            key,
            _Sent.CHANGE,
            lambda: json_patch(
                self._api, PODS, namespace=namespace, name=name, operations=operations, field_manager=FIELD_MANAGER
            ),
            over=(404, 409, 422),
        )

    async def _remove_condition(self, key: str, member: Member) -> None:
        """The API server leaves SchedulingGated standing when the last gate is gone; it is no longer true."""
        change = {
            "metadata": {"uid": member.uid},
            "status": {"conditions": [{"$patch": "delete", "type": "PodScheduled"}]},
        }
        namespace, _, name = key.partition("/")
        await self._write(
            key,
            _Sent.CHANGE,
            lambda: strategic_patch(
                self._api,
                PODS,
                namespace=namespace,
                name=name,
                patch=change,
                subresource="status",
                field_manager=FIELD_MANAGER,
            ),
            over=(404, 409),
        )

    # --- templates ----------------------------------------------------------------------------------------------------

    async def _make(
        self,
        key: str,
        group: PodGroup,
        phase: Phase,
        memory: _Memory,
        members: Mapping[str, Member],
        waits: list[float],
    ) -> list[Coroutine[Any, Any, None]]:
        now = self._clock()
        namespace = group.metadata.namespace
        own = {pod.partition("/")[2]: one for pod, one in members.items() if one.controller == group.metadata.uid}
        made = self._made(group, memory, own)
        self._notice(memory, own, made, now, namespace)
        replaced, left = number(group, REPLACED_ANNOTATION, 0), retries_left(group)
        delay = min(_LONGEST_BACKOFF, self._backoff * 2.0 ** min(replaced, 20))
        wanted = plan(
            group.metadata.name,
            group.spec,
            made,
            phase,
            retries=left,
            due=[name for name, since in memory.failed.items() if now - since >= delay],
            disrupted=[name for name, one in own.items() if one.disrupted],
            resting=[role for role, until in memory.resting.items() if until > now],
            at_most=AT_ONCE + 1,
        )
        waits += [until - now for until in memory.resting.values() if until > now]
        if left and phase in ADMITTED:
            waits += [since + delay - now for since in memory.failed.values() if since + delay > now]
        if wanted.retried:
            await self._count(group, replaced + wanted.retried)
        for name in wanted.remove:
            memory.present.pop(name, None)
        changes: list[Coroutine[Any, Any, None]] = [
            self._delete(key_of(namespace, name), own[name].uid) for name in wanted.remove if name in own
        ]
        return changes + self._create(key, group, wanted, memory, waits)

    def _made(self, group: PodGroup, memory: _Memory, own: Mapping[str, Member]) -> dict[str, State]:
        """The group's pods as they are, or will be when what was sent has had its effect."""
        made = {name: _STATES[one.stage] for name, one in own.items()}
        namespace = group.metadata.namespace
        for name in own:
            if self._unseen(key_of(namespace, name)) is _Sent.DELETE:
                made[name] = State.LEAVING
        for name in tuple(memory.created):
            if self._unseen(key_of(namespace, name)) is _Sent.CREATE:
                made.setdefault(name, State.WAITING)
            else:
                memory.created.discard(name)
        return made

    def _notice(
        self, memory: _Memory, own: Mapping[str, Member], made: Mapping[str, State], now: float, namespace: str
    ) -> None:
        """Remember since when members have failed, and let roles rest that others have taken members from."""
        failed = {name for name, state in made.items() if state is State.FAILED}
        memory.failed = {name: memory.failed.get(name, now) for name in failed}
        memory.resting = {role: until for role, until in memory.resting.items() if until > now}
        for name, role in memory.present.items():
            state = made.get(name)
            if (state is None or state is State.LEAVING) and self._unseen(key_of(namespace, name)) is not _Sent.DELETE:
                memory.resting[role] = now + _REST_SECONDS
        memory.present = {name: one.role for name, one in own.items() if made[name] in {State.WAITING, State.PLACED}}

    def _create(
        self, key: str, group: PodGroup, wanted: Plan, memory: _Memory, waits: list[float]
    ) -> list[Coroutine[Any, Any, None]]:
        now = self._clock()
        if not wanted.create:
            return []
        again_in = memory.stalled_until - now
        if memory.stalled is not None and memory.generation == group.metadata.generation and again_in > 0:
            waits.append(again_in)
            return []
        if len(wanted.create) > AT_ONCE:
            waits.append(0.0)
        roles = {role.name: role for role in group.spec.sub_groups or ()}
        counts = {size.role: size for size in sizes(group.spec)}
        changes: list[Coroutine[Any, Any, None]] = []
        try:
            for role, index in wanted.create[:AT_ONCE]:
                manifest = manifest_of(group, roles[role], index, counts[role].most, self._world.scheduler_name)
                surplus = index >= counts[role].base
                changes.append(self._post(key, group, role, manifest, memory, surplus=surplus))
        except TemplateError as error:
            self._stall(memory, group, "TemplateError", f"subGroups {role!r}: {error}")
            waits.append(_STALLED_SECONDS)
            for change in changes:
                change.close()
            return []
        return changes

    async def _post(
        self, key: str, group: PodGroup, role: str, manifest: Mapping[str, Any], memory: _Memory, *, surplus: bool
    ) -> None:
        name = manifest["metadata"]["name"]
        pod = key_of(group.metadata.namespace, name)
        memory.created.add(name)
        self._sent[pod] = (_Sent.CREATE, self._clock() + _UNSEEN_SECONDS)
        try:
            async with self._wire:
                await create(self._api, PODS, manifest, field_manager=FIELD_MANAGER)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                known = self._world.named_members(key).get(pod)
                if known is None:  # a pod of that name which is not the group's
                    self._stall(memory, group, "PodNameTaken", f"pod {name} exists and does not belong to the group")
                return
            self._sent.pop(pod, None)
            if error.status == 422 or (error.status == 400):
                self._stall(memory, group, "PodRefused", f"pod {name}: {error.message}")
                return
            if error.status == 403 and surplus:
                memory.resting[role] = self._clock() + _REST_SECONDS
                return
            if error.status == 403:
                self._teller.trouble(group, "PodRefused", f"pod {name}: {error.message}")
            raise
        except BaseException:
            self._sent.pop(pod, None)
            raise

    def _stall(self, memory: _Memory, group: PodGroup, reason: str, message: str) -> None:
        memory.stalls += 1
        if memory.stalled is None or memory.stalled.reason != reason:
            self._teller.trouble(group, reason, message)
        memory.tried, memory.stalled = True, Stalled(reason, message[:1024])
        memory.generation = group.metadata.generation
        memory.stalled_until = self._clock() + _STALLED_SECONDS

    async def _delete(self, pod: str, uid: str) -> None:
        if self._unseen(pod):
            return
        namespace, _, name = pod.partition("/")
        await self._write(
            pod,
            _Sent.DELETE,
            lambda: delete(self._api, PODS, namespace=namespace, name=name, uid=uid, propagation="Background"),
            over=(404, 409),
        )

    async def _count(self, group: PodGroup, replaced: int) -> None:
        change = {
            "metadata": {
                "resourceVersion": group.metadata.resource_version,
                "annotations": {REPLACED_ANNOTATION: str(replaced)},
            }
        }
        answer = await merge_patch(
            self._api,
            PODGROUPS,
            namespace=group.metadata.namespace,
            name=group.metadata.name,
            patch=change,
            field_manager=FIELD_MANAGER,
        )
        self._world.put_group(decoder(PodGroup).decode(answer))

    # --- what was sent ------------------------------------------------------------------------------------------------

    def _unseen(self, pod: str) -> _Sent | None:
        sent = self._sent.get(pod)
        if sent is None:
            return None
        if sent[1] < self._clock():
            del self._sent[pod]
            return None
        return sent[0]

    async def _write(
        self, pod: str, what: _Sent, send: Callable[[], Awaitable[object]], *, over: Iterable[int]
    ) -> None:
        """Send something for a pod; statuses in `over` mean that there is nothing left to do."""
        self._sent[pod] = (what, self._clock() + _UNSEEN_SECONDS)
        try:
            async with self._wire:
                await send()
        except ApiError as error:
            if error.status not in over:
                self._sent.pop(pod, None)
                raise
            if what is _Sent.DELETE and error.status == 409:
                self._sent.pop(pod, None)
        except BaseException:
            self._sent.pop(pod, None)
            raise


def manifest_of(group: PodGroup, role: SubGroup, index: int, size: int, scheduler_name: str) -> dict[str, Any]:
    """The member pod of that number, in a role of `size`.

    Raises:
        TemplateError: the role's template cannot be rendered.
    """
    metadata = group.metadata
    name = member_name(metadata.name, role.name, index)
    rendered = render_member(
        role.template or {},
        group=metadata.name,
        role=role.name,
        index=index,
        size=size,
        peers=_peers(metadata.name, role.name, size) if "peers" in repr(role.template) else (),
        namespace=metadata.namespace,
    )
    given = rendered.get("metadata") or {}
    spec = dict(rendered.get("spec") or {})
    spec["schedulerName"] = scheduler_name
    if group.spec.priority_class_name:
        spec.setdefault("priorityClassName", group.spec.priority_class_name)
    if spec.get("subdomain"):
        spec.setdefault("hostname", name)  # or the DNS knows no host of that name
    return {
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": {**(given.get("labels") or {}), SUB_GROUP_LABEL: role.name},
            "annotations": {**(given.get("annotations") or {}), GROUP_NAME_ANNOTATION: metadata.name},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "PodGroup",
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": spec,
    }


@lru_cache(maxsize=32)
def _peers(group: str, role: str, size: int) -> tuple[str, ...]:
    return tuple(member_name(group, role, index) for index in range(size))
