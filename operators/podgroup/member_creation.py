"""Member pods made from the roles' templates, made again when they are gone, and taken back.

What is to be done follows from the group and its pods (`kbatch.model.members`). Only the number of members that failed
and were made again is kept, as an annotation of the group, written before such a pod is deleted: a crash forgets none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kbatch.api.names import REPLACED_ANNOTATION, REPLACED_OF_ANNOTATION
from kbatch.api.objects import PodGroup
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError
from kbatch.kube.kinds import PODS, key_of, split_key
from kbatch.kube.writes import create, delete
from kbatch.model.finished import finished_of
from kbatch.model.members import REST_SECONDS, Plan, State, plan
from kbatch.model.phase import ADMITTED, Phase
from kbatch.process.offload import Offload, rendering_budget
from operators.podgroup import FIELD_MANAGER
from operators.podgroup.event_notes import Teller
from operators.podgroup.groups import patch_group
from operators.podgroup.manifest import Manifest, manifests_of
from operators.podgroup.member_index import Member, MemberIndex, Stage
from operators.podgroup.podwrites import PodWrites, Sent, all_of
from operators.podgroup.reconcile import Stalled, replaced, retries_left

AT_ONCE: Final = 200
"""Pods of one group that are made before it is looked at again."""

_STALLED_SECONDS: Final = 30.0
_LONGEST_BACKOFF: Final = 300.0
_FORBIDDEN_SECONDS: Final = 1.0
"""The first pause after a member was forbidden: a quota may only be counted late. It doubles each time."""

_STATES: Final = {
    Stage.PENDING: State.WAITING,
    Stage.BOUND: State.PLACED,
    Stage.RUNNING: State.PLACED,
    Stage.SUCCEEDED: State.SUCCEEDED,
    Stage.FAILED: State.FAILED,
    Stage.LEAVING: State.LEAVING,
}


@dataclass(slots=True)
class _Memory:
    """What is remembered of one group; nothing that a new process could not do without.

    Attributes:
        created: members that were asked for and may not be seen yet.
        present: members that waited or had nodes when it was last looked at, and their roles.
        resting: roles that do not grow, and until when.
        failed: failed members, and since when that is known.
        tried: whether anything was made since the process started. complete: nothing is left to be made.
        stalled, generation, stalled_until: what stands in the way, for which generation, and when to try again.
        stalls: how often something stood in the way.
        pause: seconds for which nothing is tried if a member is forbidden now.
    """

    uid: str
    created: set[str] = field(default_factory=set)
    present: dict[str, str] = field(default_factory=dict)
    resting: dict[str, float] = field(default_factory=dict)
    failed: dict[str, float] = field(default_factory=dict)
    tried: bool = False
    complete: bool = False
    stalled: Stalled | None = None
    stalls: int = 0
    generation: int = 0
    stalled_until: float = 0.0
    pause: float = _FORBIDDEN_SECONDS


class Making:
    """Makes and deletes the members of groups with templates; remembers of each a little, until `forget`.

    Args:
        backoff: seconds until a member that failed is made again; doubles with each of the group.
    """

    def __init__(
        self,
        api: Api,
        index: MemberIndex,
        teller: Teller,
        writes: PodWrites,
        *,
        backoff: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._index = index
        self._teller = teller
        self._writes = writes
        self._backoff = backoff
        self._clock = clock
        self._offload = Offload("templates")
        self._groups: dict[str, _Memory] = {}

    def __len__(self) -> int:
        """Groups of which anything is remembered."""
        return len(self._groups)

    def forget(self, key: str) -> None:
        """The group is gone."""
        self._groups.pop(key, None)

    def stalled(self, key: str, group: PodGroup) -> tuple[bool, Stalled | None]:
        """Whether making members was tried since this process started, and what stood in the way, if anything."""
        memory = self._groups.get(key)
        if memory is None or memory.uid != group.metadata.uid or not memory.tried:
            return False, None
        return True, memory.stalled

    async def keep(
        self, key: str, group: PodGroup, phase: Phase, members: Mapping[str, Member], waits: list[float]
    ) -> int:
        """Make and delete what the plan says; how many writes. `waits`: seconds after which to look again.

        Raises:
            KubeError: a write failed; what it was for is asked for again.
        """
        memory = self._groups.get(key)
        if memory is None or memory.uid != group.metadata.uid:
            memory = self._groups[key] = _Memory(group.metadata.uid)
        stalls, waiting = memory.stalls, memory.stalled is not None
        changed = await all_of(await self._changes(key, group, phase, memory, members, waits))
        if memory.stalls != stalls:
            waits.append(max(0.0, memory.stalled_until - self._clock()))
        elif phase in ADMITTED and (changed or not waiting or memory.complete):
            memory.tried, memory.stalled = True, None
            if waiting:
                waits.append(0.0)  # the others, which were not tried
        return changed

    async def _changes(
        self,
        key: str,
        group: PodGroup,
        phase: Phase,
        memory: _Memory,
        members: Mapping[str, Member],
        waits: list[float],
    ) -> list[Coroutine[Any, Any, object]]:
        now = self._clock()
        namespace = group.metadata.namespace
        own = {split_key(pod)[1]: one for pod, one in members.items() if one.controller == group.metadata.uid}
        made = self._made(group, memory, own)
        self._notice(memory, own, made, now, namespace)
        before, left = replaced(group), retries_left(group)
        delay = min(_LONGEST_BACKOFF, self._backoff * 2.0 ** min(before, 20))
        wanted = plan(
            group.metadata.name,
            group.spec,
            made,
            phase,
            retries=left,
            due=[name for name, since in memory.failed.items() if now - since >= delay],
            disrupted=[name for name, one in own.items() if one.disrupted],
            resting=[role for role, until in memory.resting.items() if until > now],
            finished=finished_of(group.status.finished),
            at_most=AT_ONCE + 1,
        )
        waits += [until - now for until in memory.resting.values() if until > now]
        if left and phase in ADMITTED:
            waits += [since + delay - now for since in memory.failed.values() if since + delay > now]
        memory.complete = not wanted.create
        if wanted.retried:
            told = {REPLACED_ANNOTATION: str(before + wanted.retried), REPLACED_OF_ANNOTATION: group.metadata.uid}
            await patch_group(self._api, self._index, group, annotations=told)
        for name in wanted.remove:
            memory.present.pop(name, None)
        removals: list[Coroutine[Any, Any, object]] = [
            self._delete(key_of(namespace, name), own[name].uid) for name in wanted.remove if name in own
        ]
        return removals + await self._create(key, group, wanted, memory, waits)

    def _made(self, group: PodGroup, memory: _Memory, own: Mapping[str, Member]) -> dict[str, State]:
        """The group's pods as they are, or will be when what was sent has had its effect."""
        made = {name: _STATES[one.stage] for name, one in own.items()}
        namespace = group.metadata.namespace
        for name in own:
            if self._writes.unseen(key_of(namespace, name)) is Sent.DELETE:
                made[name] = State.LEAVING
        for name in tuple(memory.created):
            if self._writes.unseen(key_of(namespace, name)) is Sent.CREATE:
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
            taken = state is None or state is State.LEAVING
            if taken and self._writes.unseen(key_of(namespace, name)) is not Sent.DELETE:
                memory.resting[role] = now + REST_SECONDS
        memory.present = {name: one.role for name, one in own.items() if made[name] in {State.WAITING, State.PLACED}}

    async def _create(
        self, key: str, group: PodGroup, wanted: Plan, memory: _Memory, waits: list[float]
    ) -> list[Coroutine[Any, Any, object]]:
        now = self._clock()
        if not wanted.create:
            return []
        again_in = memory.stalled_until - now
        known = memory.stalled is not None and memory.generation == group.metadata.generation
        if known and again_in > 0:
            waits.append(again_in)
            return []
        memory.pause = min(_LONGEST_BACKOFF, 2 * memory.pause) if known else _FORBIDDEN_SECONDS
        made = await self._offload.run(
            group.metadata.namespace,
            lambda: manifests_of(group, wanted.create[:AT_ONCE], self._index.scheduler_name, budget=rendering_budget()),
        )
        if made.error:
            self._stall(memory, group, "TemplateError", made.error)
            return []
        members = made.members[:1] if known else made.members  # what stood in the way may still do
        if len(members) < len(wanted.create) and not known:
            waits.append(0.0)
        return [self._post(key, group, one, memory, memory.stalls) for one in members]

    async def _post(self, key: str, group: PodGroup, member: Manifest, memory: _Memory, stalls: int) -> None:
        """Make one member, unless something stood in the way of another since there were so many `stalls`."""
        name = member.manifest["metadata"]["name"]
        pod = key_of(group.metadata.namespace, name)
        memory.created.add(name)
        asked = False

        async def ask() -> None:
            nonlocal asked
            if memory.stalls == stalls:  # else what stands in the way of another stands in its way too
                asked = True
                await create(self._api, PODS, member.manifest, field_manager=FIELD_MANAGER, strict=True)

        error = await self._writes.send(pod, Sent.CREATE, ask, over=(400, 403, 409, 422))
        if not asked:
            self._writes.forget(pod)
        if error is None:
            return
        if error.reason == "AlreadyExists":
            there = pod in self._index.named_members(key) or pod in self._index.former(key)  # the latter soon goes
            if not there:  # a pod of that name which is not the group's
                self._stall(memory, group, "PodNameTaken", f"pod {name} exists and does not belong to the group")
            return
        self._writes.forget(pod)
        if error.status in {400, 422}:
            self._stall(memory, group, "PodRefused", f"pod {name}: {error.message}")
            return
        if error.status == 403:
            if member.surplus:
                memory.resting[member.role] = self._clock() + REST_SECONDS
                return
            self._stall(memory, group, "PodRefused", f"pod {name}: {error.message}", seconds=memory.pause)
            return
        raise error

    def _stall(
        self, memory: _Memory, group: PodGroup, reason: str, message: str, *, seconds: float = _STALLED_SECONDS
    ) -> None:
        memory.stalls += 1
        if memory.stalled is None or memory.stalled.reason != reason:
            self._teller.trouble(group, reason, message)
        memory.tried, memory.stalled = True, Stalled(reason, message[:1024])
        memory.generation = group.metadata.generation
        memory.stalled_until = self._clock() + seconds

    async def _delete(self, pod: str, uid: str) -> ApiError | None:
        if self._writes.unseen(pod) in {Sent.CREATE, Sent.DELETE}:
            return None
        namespace, name = split_key(pod)
        return await self._writes.send(
            pod,
            Sent.DELETE,
            lambda: delete(self._api, PODS, namespace=namespace, name=name, uid=uid, propagation="Background"),
            over=(404, 409),
        )
