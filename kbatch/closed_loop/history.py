"""What happened in the time of a decision log: which objects came, changed and went, and the lives of pods.

Instants are in microseconds since the epoch. Whatever is first seen in a cycle counts as happened at that cycle's time,
and what a cycle decides as done at it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kbatch.api.conditions import ENQUEUED, is_true
from kbatch.api.names import IN_QUEUE_GATE, SUB_GROUP_LABEL
from kbatch.api.objects import (
    AnyObject,
    Job,
    Node,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    Queue,
    ReplicaSet,
    ResourceQuota,
)
from kbatch.decisions.records import (
    IN_MILLISECONDS,
    Cycle,
    LogError,
    Mark,
    PolicyText,
    in_microseconds,
    read_delta,
)
from kbatch.decisions.replay import Counted, begin, cycles_of
from kbatch.engine import Bind, Eviction, Nomination
from kbatch.model.events import Unreadable, Upsert
from kbatch.model.image import Image
from kbatch.simulator.pods import group_of, owner_of

_OVER: Final = frozenset({"Succeeded", "Failed"})
_STATUS_IS_OURS: Final = (PodGroup, Queue, ResourceQuota, PodDisruptionBudget)
"""Kinds whose status is written by those whom the simulator imitates."""

Key = tuple[type[AnyObject], str, str]
"""Type, namespace and name."""


@dataclass(eq=False, slots=True)
class Life:
    """A pod from its creation to its end.

    Attributes:
        pod: as it came. Gates of others than kbatch keep it from coming.
        came: when it did.
        standing: it was there when the log began; `ran`: it had a node then; `leaving`: it was on its way out then.
        ungated: when it lost kbatch's gate, if it had it.
        entered: when its group had entered its queue, if it had before the pod came, or lost the gate.
        promised: since when room was kept for it. bound: when it got its node. node: the one that it was seen on.
        ended: when it was over, for whatever reason; None: not in the log. gone: when it was deleted.
        phase: Succeeded or Failed; empty where it was deleted before it was either.
        evicted: when the scheduler decided to evict it. lost: its node went away under it.
        successor: the pod that came in its place.
        replaces: it is such a one itself.
    """

    pod: Pod
    came: int
    standing: bool = False
    ran: bool = False
    leaving: bool = False
    entered: int | None = None
    ungated: int | None = None
    promised: int | None = None
    bound: int | None = None
    node: str = ""
    ended: int | None = None
    gone: int | None = None
    phase: str = ""
    evicted: int | None = None
    lost: bool = False
    successor: Life | None = None
    replaces: bool = False

    @property
    def last(self) -> Life:
        """The last one of those that came in its place; itself where none did."""
        found = self
        while found.successor is not None:
            found = found.successor
        return found


@dataclass(eq=False, slots=True)
class Stay:
    """An object other than a pod: how it looked from which instant on, and when it was deleted."""

    versions: list[tuple[int, AnyObject]]
    gone: int | None = None


@dataclass(slots=True)
class History:
    """A whole log, as far as it could be read.

    Attributes:
        policy: the one in force when it began.
        instants: when its cycles were.
        lives: of pods, in the order of their coming. stays: of other objects.
        started: by group (`namespace/name`) when it was first said to be placed.
        damage: why the rest of the log cannot be read; empty where it could.
    """

    policy: PolicyText
    scheduler_name: str
    default_queue: str
    instants: list[int] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    started: dict[str, int] = field(default_factory=dict)
    damage: str = ""

    @property
    def begin(self) -> int:
        """The time of the first cycle."""
        return self.instants[0]

    @property
    def end(self) -> int:
        """The time of the last cycle."""
        return self.instants[-1]


class _Transaction(msgspec.Struct):
    binds: tuple[Bind, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()


class _Verdict(msgspec.Struct):
    group: str
    scheduled: bool
    enqueued: bool | None = None


class _Decision(msgspec.Struct):
    """What is needed of a decision."""

    transaction: _Transaction | None = None
    verdict: _Verdict | None = None


_decisions: Final = msgspec.json.Decoder(_Decision)


def read_history(lines: Iterable[bytes]) -> History:
    """Read a log, as far as it can be.

    Raises:
        LogError: its beginning, or the first cycle, cannot be read, or there is no cycle.
    """
    source = Counted(lines)
    with source.located():
        start, image, _ = begin(source)
    reading = _Reading(History(start.policy, start.scheduler_name, start.default_queue))
    try:
        with source.located():
            for cycle in cycles_of(source):
                if start.format == IN_MILLISECONDS:
                    cycle = in_microseconds(cycle)
                reading.now = cycle.now
                if not reading.history.instants:
                    reading.begin(image)
                reading.cycle(cycle)
    except LogError as error:
        if not reading.history.instants:
            raise
        reading.history.damage = str(error)
    if not reading.history.instants:
        raise LogError("the log has no cycle")
    return reading.history


@dataclass(slots=True)
class _Reading:
    history: History
    now: int = 0
    decided: tuple[msgspec.Raw, ...] = ()
    here: dict[str, Life] = field(default_factory=dict)
    stays: dict[Key, Stay] = field(default_factory=dict)
    entered: dict[str, int] = field(default_factory=dict)
    unreplaced: dict[tuple[str, str, str], list[Life]] = field(default_factory=lambda: defaultdict(list))

    def begin(self, image: Image) -> None:
        """What stood when the log began."""
        for obj in image.objects:
            self.put(obj)
        for bind in image.assumed:
            self.bound(bind.pod, bind.uid, bind.node)
        leaving = {victim.uid for victim in image.evicting}
        for life in self.history.lives:
            meta = life.pod.metadata
            life.standing, life.ran = True, life.bound is not None
            life.leaving = meta.uid in leaving or meta.deletion_timestamp is not None

    def cycle(self, cycle: Cycle) -> None:
        """What one more line tells."""
        self.history.instants.append(cycle.now)
        for record in cycle.deltas:
            delta = read_delta(record)
            if isinstance(delta, Upsert):
                self.put(delta.obj)
            elif isinstance(delta, Mark):
                self._told(delta)
            elif isinstance(delta, Unreadable) or delta.kind is not Pod:
                self._remove((delta.kind, delta.namespace, delta.name))
            else:
                self._pod_gone(f"{delta.namespace}/{delta.name}")
        if not cycle.same:
            self.decided = cycle.decisions
        for raw in self.decided:
            try:
                decision = _decisions.decode(raw)
            except msgspec.MsgspecError as error:
                raise LogError(f"no decision of a decision log: {error}") from None
            if decision.transaction is not None:
                for bind in decision.transaction.binds:
                    self.bound(bind.pod, bind.uid)
                for eviction in decision.transaction.evictions:
                    self.evicted(eviction.pod, eviction.uid)
                for nomination in decision.transaction.nominations:
                    self._nominated(nomination)
            elif decision.verdict is not None:
                self._verdict(decision.verdict)

    def _verdict(self, verdict: _Verdict) -> None:
        if verdict.scheduled:
            self.history.started.setdefault(verdict.group, self.now)
        if verdict.enqueued:
            self.entered.setdefault(verdict.group, self.now)
        elif verdict.enqueued is not None:
            self.entered.pop(verdict.group, None)

    # --- objects ------------------------------------------------------------------------------------------------------

    def put(self, obj: AnyObject) -> None:
        """An object is there, and looks like this."""
        if isinstance(obj, Pod):
            self._put_pod(obj)
            return
        key = type(obj), obj.metadata.namespace, obj.metadata.name
        stay = self.stays.get(key)
        if stay is None or stay.versions[0][1].metadata.uid != obj.metadata.uid:
            if stay is not None:
                stay.gone = self.now
            stay = self.stays[key] = Stay([(self.now, obj)])
            self.history.stays.append(stay)
            if isinstance(obj, PodGroup) and is_true(obj.status.conditions or (), ENQUEUED):
                self.entered.setdefault(f"{key[1]}/{key[2]}", self.now)
        elif not isinstance(obj, Job | ReplicaSet) and _wanted(obj) != _wanted(stay.versions[-1][1]):
            if stay.versions[-1][0] == self.now:
                stay.versions.pop()
            stay.versions.append((self.now, obj))

    def _remove(self, key: Key) -> None:
        stay = self.stays.pop(key, None)
        if stay is not None:
            stay.gone = self.now
        if key[0] is PodGroup:
            self.entered.pop(f"{key[1]}/{key[2]}", None)
        elif key[0] is Node:
            for life in self.here.values():
                life.lost = life.lost or (life.node == key[2] and life.ended is None)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _put_pod(self, pod: Pod) -> None:
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        life = self.here.get(key)
        if life is not None and life.pod.metadata.uid != pod.metadata.uid:
            self._pod_gone(key)
            life = None
        node, gates = pod.spec.node_name, {gate.name for gate in pod.spec.scheduling_gates or ()}
        if life is None:
            if pod.status.phase in _OVER or gates - {IN_QUEUE_GATE}:
                return
            life = self.here[key] = self._comes(pod)
        if life.pod.spec.scheduling_gates and not gates and life.ungated is None:
            life.ungated, life.entered = self.now, self.entered.get(group_of(pod))
        if node and life.bound is None:
            life.bound = self.now
        if node and not life.node:
            life.node = node
        if pod.status.phase in _OVER and life.ended is None:
            life.ended, life.phase = self.now, pod.status.phase
            if life.evicted is None and life.phase == "Failed" and made_by_group(pod):
                self.unreplaced[_place(pod)].append(life)

    def _comes(self, pod: Pod) -> Life:
        entered = None if pod.spec.scheduling_gates else self.entered.get(group_of(pod))
        life = Life(pod, self.now, entered=entered)
        before = self.unreplaced[_place(pod)]
        if before:
            same = (at for at, other in enumerate(before) if other.pod.metadata.name == pod.metadata.name)
            before.pop(next(same, 0)).successor = life
            life.replaces = True
        self.history.lives.append(life)
        return life

    def _pod_gone(self, key: str) -> None:
        life = self.here.pop(key, None)
        if life is None:
            return
        life.gone = self.now
        if life.ended is not None:
            return
        life.ended = self.now
        withdrawn = life.bound is None and owner_of(life.pod) is not None
        if life.evicted is None and (life.lost or withdrawn):
            self.unreplaced[_place(life.pod)].append(life)

    def _told(self, mark: Mark) -> None:
        """A bind or an eviction that was taken back, or begun elsewhere."""
        life = self._of(mark.pod, mark.uid)
        if life is None:
            return
        if mark.what in {"forget", "refuse_bind"}:
            if not life.node:
                life.bound = None
        elif mark.what in {"not_evicting", "refuse_eviction"}:
            life.evicted = None
            waiting = self.unreplaced[_place(life.pod)]
            if life in waiting:
                waiting.remove(life)

    def bound(self, key: str, uid: str, node: str = "") -> None:
        """It is decided to bind the pod; to a `node` where that is on its way already."""
        life = self._of(key, uid)
        if life is not None and life.bound is None:
            life.bound, life.node = self.now, node

    def _nominated(self, nomination: Nomination) -> None:
        life = self._of(nomination.pod, nomination.uid)
        if life is not None and nomination.node is None:
            life.promised = None
        elif life is not None and life.promised is None:
            life.promised = self.now

    def evicted(self, key: str, uid: str) -> None:
        """It is decided to evict the pod."""
        life = self._of(key, uid)
        if life is not None and life.evicted is None:
            life.evicted = self.now
            self.unreplaced[_place(life.pod)].append(life)  # another may come before it has left

    def _of(self, key: str, uid: str) -> Life | None:
        life = self.here.get(key)
        return life if life is not None and life.pod.metadata.uid == uid else None


def made_by_group(pod: Pod) -> bool:
    """Whether kbatch made the pod, of a template of its group."""
    owner = owner_of(pod)
    return owner is not None and owner.kind == "PodGroup"


def _place(pod: Pod) -> tuple[str, str, str]:
    """What a pod and those that come in its place have in common."""
    owner = owner_of(pod)
    role = (pod.metadata.labels or {}).get(SUB_GROUP_LABEL, "")
    if owner is None:
        return pod.metadata.namespace, pod.metadata.name, role
    return pod.metadata.namespace, f"{owner.kind}/{owner.name}/{group_of(pod)}", role


def _wanted(obj: AnyObject) -> Any:
    """What somebody wants of the object, or says of it, without what follows of it by itself."""
    status = () if isinstance(obj, _STATUS_IS_OURS) else getattr(obj, "status", None)
    rest = [getattr(obj, name) for name in obj.__struct_fields__ if name not in {"metadata", "status"}]
    meta = obj.metadata
    return meta.labels, meta.annotations, rest, status
