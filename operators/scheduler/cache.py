"""The scheduler's picture of the cluster: the model, fed by informers and by what was just decided.

A cycle reads the model while it runs and must not see it change. So everything that would change it meanwhile is kept
in order and done when the cycle lets go. The order matters: a bind is assumed before the watch confirms it, and taken
back, if it failed, after whatever the watch said in between. What comes in a crowd at other times, as a list does, is
kept too and done in pieces, between which the event loop has its turns; a cycle waits for the last of them.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from kbatch.api import conditions
from kbatch.api.objects import AnyObject, Condition, Pod, PodGroup, RawQuantity
from kbatch.kube.informer import Batch
from kbatch.kube.kinds import key_of
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Event, Unreadable, Upsert, left_out
from kbatch.process.applying import apply
from kbatch.times import SECOND
from operators.scheduler.ahead import Ahead
from operators.scheduler.quiet import is_quiet, known_of, says_the_same

_AT_ONCE: Final = 50
"""So many events take a millisecond or two."""

ReportUnreadable = Callable[[Unreadable], None]


class Cache:
    """The `ClusterModel` and the way into it.

    Attributes:
        model: read it only inside `held`, or without awaiting anything in between.
        groups: the PodGroups as they are known now, by key; never behind what this process itself has written.
        unreadable: the objects that are left out, by type and key.
        ahead: what is known of nodes that the model is told of later, and of pods that others bound.
        changed: set when something came that a decision may wait for.
        stirred: whether anything else came since the last cycle (see `quiet`).
        report_unreadable: called with each of them, again with each change of one.
        listeners: each is called with a batch once the model knows it; must not wait.
    """

    def __init__(
        self,
        model: ClusterModel,
        report_unreadable: ReportUnreadable = lambda _: None,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.model = model
        self.ahead = Ahead(model)
        self._wall = wall
        self.groups: dict[str, PodGroup] = {}
        self.unreadable: dict[tuple[type[AnyObject], str], Unreadable] = {}
        self.changed = asyncio.Event()
        self.stirred = False
        self.listeners: list[Callable[[tuple[Event, ...]], None]] = []
        self.report_unreadable = report_unreadable
        self._held = False
        self._later: deque[tuple[Callable[[], None], int]] = deque()
        """What waits for the end of a cycle, or its turn in a crowd, with how many events it is."""
        self._turn: asyncio.Handle | None = None
        """While no cycle goes on: the next piece of that."""
        self._decided: dict[str, _Decided] = {}
        """By group what was decided and the API server does not say yet."""
        self._leaving: dict[str, str] = {}
        """Pods of which the eviction is decided, with their uids, until they are gone; known here at once, in the model
        after the cycle."""
        self._written: dict[str, int] = {}
        """By group: the version of our own last write, until the watch has caught up with it."""

    @contextmanager
    def held(self) -> Iterator[ClusterModel]:
        """Keep the model as it is until the end of the block.

        Raises:
            RuntimeError: it is held already.
        """
        if self._held:
            raise RuntimeError("the model is held already: two cycles at once")
        for _ in self.catching_up():
            pass
        self._held = True
        self.ahead.look()
        try:
            yield self.model
        finally:
            for _ in self.catching_up():
                pass
            self._held = False

    async def caught_up(self) -> None:
        """Return when nothing of a crowd waits for its turn any more."""
        while self._later and not self._held:  # noqa: ASYNC110  (each piece takes its turn in the event loop)
            await asyncio.sleep(0)

    def catching_up(self) -> Iterator[None]:
        """Do in order what has waited for the cycle to be done with the model, in pieces of a few milliseconds.

        What comes between two pieces waits its turn. What is not done at the end of `held` is done there.
        """
        done = 0
        while self._later:
            action, events = self._later.popleft()
            action()
            done += events
            if done >= _AT_ONCE:
                done = 0
                yield
        self.ahead.caught_up()

    def _take_turns(self) -> None:
        """Do what waits piece by piece from now on, unless a cycle does it when it lets go."""
        if self._later and not self._held and self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._piece)

    def _piece(self) -> None:
        self._turn = None
        if not self._held:
            next(self.catching_up(), None)
            self._take_turns()

    # --- what the API server says -------------------------------------------------------------------------------------

    def receive(self, batch: Batch) -> None:
        """Take over a batch of an informer."""
        lags = self._lags or len(batch.events) > _AT_ONCE
        self.ahead.heard(batch.events, lags=lags)
        if not lags:
            if batch.events:
                self._receive(batch.events)
            return
        for start in range(0, len(batch.events), _AT_ONCE):
            part = batch.events[start : start + _AT_ONCE]
            self._later.append((functools.partial(self._receive, part), len(part)))
        self._take_turns()

    def observed(self, group: PodGroup) -> None:
        """A write of this process was answered with the object as it is now: it is known before the watch tells."""
        key = key_of(group.metadata.namespace, group.metadata.name)
        known = self.groups.get(key)
        if known is None or known.metadata.uid != group.metadata.uid or _version(known) > _version(group):
            return
        self.groups[key] = group
        self._written[key] = _version(group)
        self._do(functools.partial(self._apply_group, key))

    def _apply_group(self, key: str) -> None:
        """Tell the model of a group as it is known when its turn comes: gone, perhaps, or another than it was."""
        group = self.groups.get(key)
        if group is None:
            return
        before = known_of(self.model, Upsert(group))
        self._apply(Upsert(group))
        if not says_the_same(before, known_of(self.model, Upsert(group))):
            self.changed.set()

    def _receive(self, events: tuple[Event, ...]) -> None:
        matters, generation = False, self.model.generation
        for event in events:
            if not self._overtaken(event) and self._apply(event):
                matters = True
            if self._leaving and isinstance(event, Delete) and event.kind is Pod:
                self._leaving.pop(key_of(event.namespace, event.name), None)
        for listen in self.listeners:
            listen(events)
        if self.model.generation != generation:
            self.stirred = True
        if matters:
            self.changed.set()

    def _overtaken(self, event: Event) -> bool:
        """Whether a watch tells of a PodGroup as it was before our own write, or as that left it; keeps `groups`."""
        if isinstance(event, Upsert):
            group = event.obj
            if not isinstance(group, PodGroup):
                return False
            key = key_of(group.metadata.namespace, group.metadata.name)
            floor = self._written.get(key)
            if floor is not None and self.groups[key].metadata.uid == group.metadata.uid:
                if _version(group) < floor:
                    return True
                if group.metadata.resource_version == self.groups[key].metadata.resource_version:
                    del self._written[key]
                    return True
            self._written.pop(key, None)
            self.groups[key] = group
        elif event.kind is PodGroup:
            key = key_of(event.namespace, event.name)
            self._written.pop(key, None)
            self._decided.pop(key, None)
            self.groups.pop(key, None)
        return False

    def _apply(self, event: Event) -> bool:
        """Tell the model. Whether a decision may wait for it."""
        if isinstance(event, Upsert) and isinstance(event.obj, PodGroup):
            event = Upsert(self._as_decided(event.obj))
        before, generation = known_of(self.model, event), self.model.generation
        if not apply(self.model, event, self._note):
            return True
        if isinstance(event, Unreadable):
            self._note(event)
        elif isinstance(event, Delete):
            self.unreadable.pop((event.kind, key_of(event.namespace, event.name)), None)
        elif self.model.unreadable or self.unreadable:
            meta = event.obj.metadata
            key = type(event.obj), key_of(meta.namespace, meta.name)
            why = self.model.unreadable.get(key)
            if why is not None:
                self._note(left_out(event.obj, why))
            else:
                self.unreadable.pop(key, None)
        return self.model.generation != generation and not is_quiet(before, known_of(self.model, event))

    def _note(self, one: Unreadable) -> None:
        self.unreadable[one.kind, key_of(one.namespace, one.name)] = one
        self.report_unreadable(one)

    # --- what this process does ---------------------------------------------------------------------------------------

    def assume(self, pod: str, uid: str, node: str) -> None:
        """A bind is under way: the pod holds its room on the node."""
        if self._lags:
            self.ahead.assumed(pod, uid, node)
        self._do(functools.partial(self.model.assume, pod, uid, node))

    def forget(self, pod: str, uid: str) -> None:
        """The bind failed: the pod waits again."""
        if self._lags:
            self.ahead.forgot(pod, uid)
        self._do(functools.partial(self.model.forget, pod, uid))
        self.changed.set()

    def evicting(self, pod: str, uid: str) -> None:
        """An eviction is under way: the room is being released."""
        self._leaving[pod] = uid
        self._do(functools.partial(self.model.evicting, pod, uid))

    def not_evicting(self, pod: str, uid: str) -> None:
        """The eviction was refused: the pod stays."""
        if self._leaving.get(pod) == uid:
            del self._leaving[pod]
        self._do(functools.partial(self.model.not_evicting, pod, uid))
        self.changed.set()

    def refuse_eviction(self, pod: str, uid: str, seconds: float, why: str) -> None:
        """The API server refused to evict the pod: for so long it is no victim."""
        self._do(functools.partial(self.model.refuse_eviction, pod, uid, self._in(seconds), why))
        self.changed.set()

    def refuse_bind(self, pod: str, uid: str, node: str, seconds: float, why: str) -> None:
        """The API server refused to bind the pod to the node: for so long it is placed on others."""
        self._do(functools.partial(self.model.refuse_bind, pod, uid, node, self._in(seconds), why))
        self.changed.set()

    def _in(self, seconds: float) -> int:
        """The instant in so many seconds, in microseconds since the epoch."""
        return int((self._wall() + seconds) * SECOND)

    def decided(
        self, key: str, uid: str, wanted: Sequence[Condition], attempts: int, charged: RawQuantity | None = None
    ) -> None:
        """What a group's conditions, attempts and charge will be counts from now on.

        Else the next cycle would give away the place of a group that was let in, and look again, until the write is
        answered, at one that has all its pods.
        """
        group = self.groups.get(key)
        if group is None or group.metadata.uid != uid:
            return
        known = self._decided.get(key)
        same = known is not None and known.uid == uid
        if known is not None and same and known.numbers == (attempts, charged) and known.agrees(wanted):
            return
        if known is not None or not _says(group, wanted, (attempts, charged)):
            before = known.conditions if known is not None and same else group.status.conditions or ()
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            types = {one.type for one in wanted}
            merged = conditions.of_types(conditions.merge(before, wanted, now), types)
            numbers = known.numbers if known is not None and same else _numbers(group)
            if numbers != (attempts, charged) or (conditions.let_in(before) and not conditions.let_in(merged)):
                self.changed.set()  # what it gives back may be what another waits for
            self._decided[key] = _Decided(uid, merged, (attempts, charged))
            self._do(functools.partial(self._apply_group, key))

    def _as_decided(self, group: PodGroup) -> PodGroup:
        """The group as it will be when what was decided is written."""
        key = key_of(group.metadata.namespace, group.metadata.name)
        decided = self._decided.get(key)
        if decided is None:
            return group
        if decided.uid != group.metadata.uid or _says(group, decided.conditions, decided.numbers):
            del self._decided[key]
            return group
        wanted, (attempts, charged) = decided.conditions, decided.numbers
        types = {one.type for one in wanted}
        others = tuple(one for one in group.status.conditions or () if one.type not in types)
        status = msgspec.structs.replace(
            group.status, conditions=(*others, *wanted), scheduling_attempts=attempts, excess_charged=charged
        )
        return msgspec.structs.replace(group, status=status)

    def nominate(self, pod: str, uid: str, node: str) -> None:
        """A nomination (of no node, if empty) is under way: it counts from now on."""
        self._do(functools.partial(self._nominate, pod, uid, node))

    def _nominate(self, pod: str, uid: str, node: str) -> None:
        task = self.model.tasks.get(pod)
        if task is not None and task.uid == uid and task.pod.status.nominated_node_name != node:
            status = msgspec.structs.replace(task.pod.status, nominated_node_name=node)
            self._apply(Upsert(msgspec.structs.replace(task.pod, status=status)))

    def nominated(self, pod: str, uid: str) -> str:
        """The node that the pod is nominated to, as far as is known; empty for none."""
        task = self.model.tasks.get(pod)
        return task.pod.status.nominated_node_name if task is not None and task.uid == uid else ""

    def group_of(self, pod: str) -> PodGroup | None:
        """The PodGroup that the pod belongs to."""
        task = self.model.tasks.get(pod)
        return self.groups.get(task.job) if task is not None else None

    def priority_of(self, pod: str) -> int:
        """The priority of the pod's group, as far as that is known; 0 for a pod that is not."""
        task = self.model.tasks.get(pod)
        if task is None:
            return 0
        job = self.model.members.get(task.job)
        return job.priority if job is not None else task.priority

    def created(self, pod: str) -> int | None:
        """When the pod was created, in microseconds since the epoch."""
        task = self.model.tasks.get(pod)
        return task.created if task is not None else None

    def under_way(self, group: str) -> bool:
        """Whether no watch has confirmed yet that a group's minimum is bound."""
        job = self.model.members.get(group)
        # Decisions of a cycle that has not ended yet are not even assumed.
        return job is not None and not job.confirmed()

    def leaving(self, group: str) -> bool:
        """Whether a group's minimum is placed as yet, and pods of it are about to be evicted."""
        job = self.model.members.get(group) if self._leaving else None
        return job is not None and any(key in self._leaving for key in job.tasks) and self.whole(group)

    def whole(self, group: str) -> bool:
        """Whether a group's minimum is placed, as the API server has it: without what is decided and not done."""
        job = self.model.members.get(group)
        if job is None:
            return False
        placed = sum(
            task.succeeded
            or (bool(task.node) and not task.assumed and not task.terminal and not task.pod.metadata.deletion_timestamp)
            for task in job.tasks.values()
        )
        return placed + sum(job.gone.values()) >= job.minimum

    @property
    def evictions(self) -> Collection[str]:
        """The pods of which the eviction is decided and which are not gone."""
        return self._leaving.keys()

    @property
    def unwritten(self) -> Collection[str]:
        """The groups of which something is decided that the API server does not say yet."""
        return self._decided.keys()

    @property
    def assumed(self) -> int:
        """Binds that no watch has confirmed yet."""
        return sum(task.assumed for task in self.model.tasks.values())

    @property
    def _lags(self) -> bool:
        """Whether the model is told of things later."""
        return self._held or bool(self._later)

    def _do(self, action: Callable[[], None]) -> None:
        if self._lags:
            self._later.append((action, 1))
        else:
            action()


class _Decided(NamedTuple):
    """What was decided of a group: of that with this uid its conditions, its attempts and its charge."""

    uid: str
    conditions: tuple[Condition, ...]
    numbers: tuple[int, RawQuantity | None]

    def agrees(self, wanted: Sequence[Condition]) -> bool:
        """Whether these conditions have the same statuses."""
        return _statuses(self.conditions) == _statuses(wanted)


def _says(group: PodGroup, wanted: Sequence[Condition], numbers: tuple[int, RawQuantity | None]) -> bool:
    standing = _statuses(group.status.conditions or ())
    same = all(standing.get(one.type) == one.status for one in wanted)
    if any(one.type == conditions.ENQUEUED and one.status == conditions.TRUE for one in wanted):
        same = same and conditions.let_in(group.status.conditions)
    return same and numbers == _numbers(group)


def _numbers(group: PodGroup) -> tuple[int, RawQuantity | None]:
    return group.status.scheduling_attempts, group.status.excess_charged


def _statuses(found: Sequence[Condition]) -> dict[str, str]:
    return {one.type: one.status for one in found}


def _version(group: PodGroup) -> int:
    """Versions of one kind can be compared as numbers; one that is no number (never seen) counts as the oldest."""
    text = group.metadata.resource_version
    return int(text) if text.isdecimal() else 0
