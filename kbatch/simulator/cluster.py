"""The cluster around the engine: API server, controllers and kubelets in virtual time.

It takes in what happens (`advance`) and what the engine decided (`carry_out`), brings both to the objects
(`kbatch.simulator.store`), and lets the controllers answer (`kbatch.simulator.control`). It decides nothing itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec.structs import replace

from kbatch.api import conditions
from kbatch.api.names import (
    GROUP_NAME_ANNOTATION,
    NAMESPACE_NAME_LABEL,
    SUSPENDED_ANNOTATION,
)
from kbatch.api.objects import (
    AnyObject,
    Condition,
    Job,
    Metadata,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    Queue,
    QueueSpec,
    ReplicaSet,
    ResourceQuota,
)
from kbatch.engine.decisions import Bind, Eviction, Nomination, Transaction, Verdict, verdict_conditions
from kbatch.model.events import Delete, Upsert
from kbatch.model.jobs_release import HELD, group_for, group_of, named_group
from kbatch.model.phase import Phase
from kbatch.resources import QuantityError, in_units
from kbatch.simulator import pods as changes
from kbatch.simulator.control import Controllers
from kbatch.simulator.errors import Fault, InputError
from kbatch.simulator.manifests import Declared, Manifests
from kbatch.simulator.names import REFUSE_EVICTION, timestamp
from kbatch.simulator.pods import Owner, owner_of
from kbatch.simulator.records import PodRecord, creation_stamps
from kbatch.simulator.store import Store, uid_of
from kbatch.simulator.timeline import Arrival, Departure, Fail, Finish, Gone, Rested

_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_HOSTNAME: Final = "kubernetes.io/hostname"
_LEFT_PENDING: Final = frozenset({Phase.IN_QUEUE, Phase.RUNNING, Phase.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Effects:
    """What a cycle's decisions came to.

    Attributes:
        enqueued: groups that are InQueue from now on, `namespace/name`, in the order of decision.
        nominations: those that say something new.
        carried_out: the transactions but for those of which an eviction was refused.
        changed: anything at all that another cycle could build on.
    """

    enqueued: tuple[str, ...]
    nominations: tuple[Nomination, ...]
    carried_out: tuple[Transaction, ...]
    changed: bool


class SimulatedCluster:
    """The store, its controllers, and what happens to both.

    Attributes:
        store: all objects, and the model of them.
        arrivals, starts: when each PodGroup came, and when its minimum was first placed, in microseconds after
            the start.
        assumed_queue: nobody declared the default queue.
        placed, awaited: pods bound so far, and pods that the input, or an eviction, wants to be.
        last_event: when something last happened, in microseconds after the start.

    Raises:
        InputError: the input speaks of things that are not there, where a live cluster would refuse it.
    """

    def __init__(self, manifests: Manifests) -> None:
        self.store = Store(manifests.recorded)
        self.store.warnings += manifests.warnings
        self.arrivals: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.assumed_queue = False
        self.placed = 0
        self.awaited = manifests.pods
        self.last_event = 0
        self._controllers = Controllers(self.store)
        self._said: dict[str, tuple[Verdict, tuple[Condition, ...]]] = {}
        """The last verdict on each group that waits, and the conditions that it left."""
        self._in_namespace: dict[str, dict[tuple[str, str], AnyObject]] = defaultdict(dict)
        self._prepare(manifests)

    def _prepare(self, manifests: Manifests) -> None:
        """Set up what every cluster has, and when the input's objects come and go."""
        for obj in _standing(manifests):
            self.store.model.apply(Upsert(obj))
            self.assumed_queue = self.assumed_queue or isinstance(obj, Queue)
        nodes = {declared.obj.metadata.name for declared in manifests.objects if isinstance(declared.obj, Node)}
        for declared in manifests.objects:
            if declared.arrival == declared.departure:
                continue  # gone before anybody could see it
            if isinstance(declared.obj, Pod):
                node = declared.obj.spec.node_name
                if node and node not in nodes:
                    raise InputError([Fault(declared.place, "spec.nodeName", f"there is no Node {node}")])
                self.store.taken.add(f"{declared.obj.metadata.namespace}/{declared.obj.metadata.name}")
                owner = owner_of(declared.obj)
                if owner is not None:
                    self._controllers.adopted[owner] += 1
            if declared.awaits:
                self._controllers.late.wait(declared)
            else:
                self.store.timeline.add(declared.arrival, Arrival(declared))
            if declared.departure is not None:
                self.store.timeline.add(declared.departure, Departure(declared))

    # --- what happens by itself ---------------------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Let all happen that is due by `now`.

        Raises:
            InputError: an object that arrives would be refused by a live cluster.
        """
        arrivals: list[Declared] = []
        for occurrence in self.store.timeline.due(now):
            if not isinstance(occurrence, Rested):
                self.last_event = now
            match occurrence:
                case Arrival(declared=declared):
                    if not declared.awaits or self._controllers.late.comes(declared, now):
                        arrivals.append(declared)
                case Departure(declared=declared):
                    self._depart(declared.obj, now)
                case Finish(pod=key, uid=uid):
                    self._finish(key, uid, now)
                case Fail(pod=key, uid=uid):
                    self._fail(key, uid, now)
                case Gone(pod=key, uid=uid):
                    self._gone(key, uid, now)
                case Rested(group=key):
                    self.store.dirty_groups.add(key)
        if arrivals:
            self._arrive(arrivals, now)
        self._controllers.settle(now)

    def _arrive(self, arrivals: Sequence[Declared], now: int) -> None:
        """Create objects of the input, and the pods that controllers make of them at once."""
        created: list[tuple[AnyObject, Declared | None]] = []
        for declared in arrivals:
            obj = declared.obj
            if (
                isinstance(obj, Job) and obj.spec.suspend and not declared.recorded
            ):  # its pods come with its group, whoever suspended it
                marked = {SUSPENDED_ANNOTATION: HELD, **(obj.metadata.annotations or {})}
                obj = replace(obj, metadata=replace(obj.metadata, annotations=marked))
                obj, made_for_it = self._with_group(obj, arrivals)
                created.extend((group, None) for group in made_for_it)
            created.append((obj, declared))
            if isinstance(obj, Job | ReplicaSet) and not declared.recorded:
                created.extend((pod, None) for pod in self._controllers.add(obj))
        stamps = creation_stamps(now, [obj for obj, _ in created])
        for (obj, from_input), given in zip(created, stamps, strict=True):
            recorded = from_input is not None and from_input.recorded
            stamp = obj.metadata.creation_timestamp or given if recorded else given
            if isinstance(obj, Pod):
                self.store.create_pod(obj, stamp, now, from_input)
                continue
            meta = obj.metadata
            obj = replace(obj, metadata=replace(meta, uid=meta.uid or uid_of(obj), creation_timestamp=stamp))
            if meta.namespace:
                self._in_namespace[meta.namespace][type(obj).__name__, meta.name] = obj
            match obj:
                case PodGroup():
                    key = f"{meta.namespace}/{meta.name}"
                    if recorded and key in self.store.groups:  # changed by its user
                        obj = replace(obj, status=self.store.groups[key].status)
                    self.arrivals.setdefault(key, now)
                    self.store.put_group(obj)
                    continue
                case ResourceQuota() | PodDisruptionBudget():
                    self._controllers.guard(obj)
                case Node():
                    obj = replace(
                        obj, metadata=replace(obj.metadata, labels={_HOSTNAME: meta.name, **(meta.labels or {})})
                    )
                case Namespace():
                    labels = {**(meta.labels or {}), NAMESPACE_NAME_LABEL: meta.name}
                    obj = replace(obj, metadata=replace(obj.metadata, labels=labels))
                case _:
                    pass
            self.store.model.apply(Upsert(obj))

    def _with_group(self, job: Job, arrivals: Sequence[Declared]) -> tuple[Job, list[PodGroup]]:
        """A suspended Job with its pods in the group that it gets for its queue, and that group unless it is there."""
        name = None if named_group(job) else group_of(job, self.store.recorded.scheduler_name)
        if name is None:
            return job, []
        template = job.spec.template
        annotations = {**(template.metadata.annotations or {}), GROUP_NAME_ANNOTATION: name}
        template = replace(template, metadata=replace(template.metadata, annotations=annotations))
        there = {entry.obj.metadata.name for entry in arrivals if isinstance(entry.obj, PodGroup)}
        if name in there or f"{job.metadata.namespace}/{name}" in self.store.groups:
            groups = []
        else:
            owned = replace(job, metadata=replace(job.metadata, uid=job.metadata.uid or uid_of(job)))
            try:
                groups = [msgspec.convert(group_for(owned), PodGroup)]
            except QuantityError:
                groups = []  # the operator makes none either; the pods wait for it
        return replace(job, spec=replace(job.spec, template=template)), groups

    def _depart(self, obj: AnyObject, now: int) -> None:
        """Delete an object of the input, and what goes with it."""
        meta = obj.metadata
        self._in_namespace[meta.namespace].pop((type(obj).__name__, meta.name), None)
        match obj:
            case Pod():
                self.store.remove(f"{meta.namespace}/{meta.name}", now)
                return
            case Job() | ReplicaSet() | PodGroup():
                self._remove_owned(Owner(type(obj).__name__, meta.namespace, meta.name), now)
                if isinstance(obj, PodGroup):
                    self.store.groups.pop(f"{meta.namespace}/{meta.name}", None)
                    self._said.pop(f"{meta.namespace}/{meta.name}", None)
                    self.store.objects.pop(f"{meta.namespace}/{meta.name}", None)
                for other in list(self._in_namespace[meta.namespace].values()):
                    if any(reference.uid == (meta.uid or uid_of(obj)) for reference in other.metadata.owner_references):
                        self._depart(other, now)
            case Node():
                for record in list(self.store.by_node.pop(meta.name, {}).values()):
                    self._lose(record, now)
            case Namespace():
                for other in list(self._in_namespace.pop(meta.name, {}).values()):
                    self._depart(other, now)
                for key in list(self.store.by_namespace[meta.name]):
                    self.store.remove(key, now)
            case ResourceQuota() | PodDisruptionBudget():
                self._controllers.unguard(obj)
            case _:
                pass
        self.store.model.apply(Delete(type(obj), meta.namespace, meta.name))

    def _remove_owned(self, owner: Owner, now: int) -> None:
        self._controllers.drop(owner)
        for key in list(self.store.by_owner.pop(owner, {})):
            self.store.remove(key, now)

    def _lose(self, record: PodRecord, now: int) -> None:
        """The pod's node is deleted under it."""
        if record.ended:
            return
        self.store.forget(record)
        record.lost, record.finished = True, now
        if not record.evicted:
            self._controllers.replace_pod(record, now)

    def _finish(self, key: str, uid: str, now: int) -> None:
        record = self.store.pods.get(key)
        if record is None or record.pod.metadata.uid != uid or record.ended or record.evicted:
            return
        record.pod, record.finished = changes.succeeded(record.pod), now
        self.store.by_node[record.pod.spec.node_name].pop(key, None)
        self.store.tell(record)
        self._controllers.succeeded(record, now)

    def _fail(self, key: str, uid: str, now: int) -> None:
        """The pod fails by itself; its controller makes another one. Of a recorded pod that one is in the input."""
        record = self.store.pods.get(key)
        if record is None or record.pod.metadata.uid != uid or record.ended or record.evicted:
            return
        record.pod, record.finished = changes.failed(record.pod), now
        self.store.by_node[record.pod.spec.node_name].pop(key, None)
        self.store.tell(record)
        if key not in self.store.recorded.ends:
            self._controllers.replace_pod(record, now)

    def _gone(self, key: str, uid: str, now: int) -> None:
        record = self.store.pods.get(key)
        if record is None or record.pod.metadata.uid != uid or not record.here:
            return
        if record.evicted:
            self.store.forget(record)
            record.finished = now
        else:
            self.store.remove(key, now)

    # --- what the engine decides --------------------------------------------------------------------------------------

    def carry_out(self, transactions: Iterable[Transaction], verdicts: Iterable[Verdict], now: int) -> Effects:
        """Do what a cycle decided, and let the controllers answer to it."""
        changed = False
        nominations: list[Nomination] = []
        carried_out: list[Transaction] = []
        for transaction in transactions:
            if self._refused(transaction):
                changed = True
                continue
            carried_out.append(transaction)
            for eviction in transaction.evictions:
                self._evict(eviction, now)
                changed = True
            if transaction.binds:
                queue = self.store.model.jobs[self.store.model.tasks[transaction.binds[0].pod].job].queue
                for bind in transaction.binds:
                    self._bind(bind, queue, now)
                changed = True
            nominations += [nomination for nomination in transaction.nominations if self._nominate(nomination)]
        if changed or nominations:
            self.last_event = now
        before = len(self.store.timeline)
        enqueued: list[str] = []
        withdrawn = False
        for verdict in {verdict.job or verdict.group: verdict for verdict in verdicts}.values():
            stood, stands = self._write(verdict, now)
            if stands and not stood:
                enqueued.append(verdict.group)
            withdrawn = withdrawn or (stood and not stands)
        self._controllers.settle(now)
        grown = len(self.store.timeline) != before
        return Effects(
            tuple(enqueued),
            tuple(nomination for nomination in nominations if nomination.node is not None),
            tuple(carried_out),
            bool(changed or nominations or enqueued or withdrawn or grown),
        )

    def _bind(self, bind: Bind, queue: str, now: int) -> None:
        record = self._decided_on(bind.pod, bind.uid)
        if record.pod.spec.node_name:
            raise RuntimeError(f"the engine bound {bind.pod} twice")
        record.pod, record.bound = changes.running(record.pod, bind.node, now), now
        self.placed += 1
        record.queue = queue
        self.store.by_node[bind.node][record.key] = record
        self.store.run_for(record, now)
        self.store.tell(record)

    def _refused(self, transaction: Transaction) -> bool:
        """Whether the API server refuses to evict a pod: then nothing of the plan happens, as in a live cluster.

        The scheduler is told of each such pod. Asked again, the server would say the same.
        """
        refused = False
        for eviction in transaction.evictions:
            annotations = self._decided_on(eviction.pod, eviction.uid).pod.metadata.annotations or {}
            if REFUSE_EVICTION in annotations:
                why = annotations[REFUSE_EVICTION]
                self.store.model.refuse_eviction(eviction.pod, eviction.uid, None, why)
                refused = True
        return refused

    def _evict(self, eviction: Eviction, now: int) -> None:
        record = self._decided_on(eviction.pod, eviction.uid)
        if record.evicted or not record.pod.spec.node_name:
            raise RuntimeError(f"the engine evicted {eviction.pod}, which is on its way out or nowhere")
        record.evicted = True
        self.awaited += record.owner is not None
        self.store.terminate(record, now)
        self.store.tell(record)
        self._controllers.replace_pod(record, now)

    def _nominate(self, nomination: Nomination) -> bool:
        """Whether that is news."""
        record = self._decided_on(nomination.pod, nomination.uid)
        if record.pod.status.nominated_node_name == (nomination.node or ""):
            return False
        record.pod = changes.nominated(record.pod, nomination.node)
        self.store.tell(record)
        return True

    def restate(self, verdicts: Iterable[Verdict], now: int, *, words: bool = False) -> None:
        """Record how groups stand, where nothing was decided; with `words` only what changes no more than a message."""
        for verdict in verdicts:
            self._write(verdict, now, words=words)

    def _decided_on(self, key: str, uid: str) -> PodRecord:
        record = self.store.pods.get(key)
        if record is None or not record.here or record.pod.metadata.uid != uid:
            raise RuntimeError(f"the engine decided on {key} ({uid}), which does not exist")
        return record

    def _write(self, verdict: Verdict, now: int, *, words: bool = False) -> tuple[bool, bool]:
        """Record a verdict in the group's conditions; whether it was, and is, enqueued. See `restate` for `words`."""
        group = None if verdict.shadow else self.store.groups.get(verdict.group)
        if group is None:
            wanted = verdict_conditions(verdict, 0)
            if verdict.enqueued is None:
                wanted = tuple(condition for condition in wanted if condition.type != conditions.ENQUEUED)
            key = verdict.job or verdict.group
            stood = self.store.shadow_conditions.get(key, ())
            stands = conditions.merge(stood, wanted, timestamp(now))
            if not words or _but_for_words(stands, stood):
                self.store.shadow_conditions[key] = stands
            return False, False
        if verdict.scheduled and not words:
            self.starts.setdefault(verdict.group, now)
        standing = group.status.conditions or ()
        said = self._said.get(verdict.group)
        if said is not None and said[1] is standing and said[0] == verdict:
            enqueued = conditions.let_in(standing)
            return enqueued, enqueued
        merged = conditions.merge(standing, verdict_conditions(verdict, group.metadata.generation), timestamp(now))
        charged = in_units(verdict.charged) if verdict.charged else None
        same = (verdict.attempts, charged) == (group.status.scheduling_attempts, group.status.excess_charged)
        if merged != standing or not same:
            status = replace(
                group.status, conditions=merged, scheduling_attempts=verdict.attempts, excess_charged=charged
            )
            again = same and _but_for_words(merged, standing)
            if words and not again:
                return False, False
            self.store.put_group(replace(group, status=status), words=again)
            self._said[verdict.group] = verdict, merged
        elif verdict.scheduled:
            self._said.pop(verdict.group, None)  # there will hardly be another one
        return conditions.let_in(standing), conditions.let_in(merged)


def _but_for_words(some: Sequence[Condition], others: Sequence[Condition]) -> bool:
    """Whether these conditions differ in their messages at most."""
    return len(some) == len(others) and all(
        one == other or one == replace(other, message=one.message) for one, other in zip(some, others, strict=True)
    )


def _standing(manifests: Manifests) -> Iterator[AnyObject]:
    """What is there although nobody declared it: namespaces, the classes of system pods, the default queue."""
    declared = {(type(entry.obj), entry.obj.metadata.name) for entry in manifests.objects}
    namespaces = {entry.obj.metadata.namespace for entry in manifests.objects} - {""}
    for name in sorted(namespaces):
        if (Namespace, name) not in declared:
            yield Namespace(metadata=Metadata(name=name, labels={NAMESPACE_NAME_LABEL: name}))
    for name, value in _SYSTEM_CLASSES.items():
        if (PriorityClass, name) not in declared:
            yield PriorityClass(metadata=Metadata(name=name), value=value)
    queue = manifests.recorded.default_queue
    if (Queue, queue) not in declared:
        yield Queue(metadata=Metadata(name=queue, creation_timestamp=timestamp(0)), spec=QueueSpec(weight=1))
