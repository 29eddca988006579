"""The cluster around the engine: API server, controllers and kubelets in virtual time.

It takes in what happens (`advance`) and what the engine decided (`carry_out`), keeps the objects, and tells the
`ClusterModel` of every change by the same events that a watch would bring. It decides nothing itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from kbatch.api import conditions
from kbatch.api.names import DEFAULT_QUEUE
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
from kbatch.engine.boundary import Bind, Eviction, Nomination, Transaction, Verdict, verdict_conditions
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.model.phase import Phase
from kbatch.simulator import pods as changes
from kbatch.simulator.controllers import (
    Maker,
    maker_of_job,
    maker_of_replica_set,
    with_allowance,
    with_usage,
)
from kbatch.simulator.errors import Fault, InputError
from kbatch.simulator.groups import ending, phase_of
from kbatch.simulator.manifests import Declared, Manifests, seconds
from kbatch.simulator.members import MemberError, has_templates, planned
from kbatch.simulator.names import DEFAULT_TERMINATION_MS, DURATION, TERMINATION, timestamp
from kbatch.simulator.pods import Owner, owner_of
from kbatch.simulator.records import PodRecord, creation_stamps
from kbatch.simulator.timeline import Arrival, Departure, Finish, Gone, Timeline

_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_HOSTNAME: Final = "kubernetes.io/hostname"
_NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
_LEFT_PENDING: Final = frozenset({Phase.IN_QUEUE, Phase.RUNNING, Phase.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Effects:
    """What a cycle's decisions came to.

    Attributes:
        enqueued: groups that are InQueue from now on, `namespace/name`, in the order of decision.
        nominations: those that say something new.
        changed: anything at all that another cycle could build on.
    """

    enqueued: tuple[str, ...]
    nominations: tuple[Nomination, ...]
    changed: bool


class SimulatedCluster:
    """All objects of the simulation, and the model of them that the engine decides on.

    Attributes:
        model: fed with every change.
        timeline: what is still to happen by itself.
        pods: all pods that exist, and the evicted or lost ones that did, by key.
        departed: pods that were deleted, for the sums over the whole run.
        groups: the PodGroups that exist, by key.
        shadow_conditions: what the engine said of groups that have no object, by their key in the model.
        arrivals, starts: when each PodGroup came, and when its minimum was first placed, in ms after the start.
        assumed_queue: nobody declared the queue `default`.
        last_event: when something last happened, in ms after the start.
        warnings: what goes otherwise than the input seems to mean.

    Raises:
        InputError: the input speaks of things that are not there, where a live cluster would refuse it.
    """

    def __init__(self, manifests: Manifests) -> None:
        self.model = ClusterModel()
        self.timeline = Timeline()
        self.pods: dict[str, PodRecord] = {}
        self.departed: list[PodRecord] = []
        self.groups: dict[str, PodGroup] = {}
        self.shadow_conditions: dict[str, tuple[Condition, ...]] = {}
        self.arrivals: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.assumed_queue = False
        self.last_event = 0
        self.warnings: list[str] = list(manifests.warnings)
        self._by_node: dict[str, dict[str, PodRecord]] = defaultdict(dict)
        self._by_owner: dict[Owner, dict[str, PodRecord]] = defaultdict(dict)
        self._by_namespace: dict[str, dict[str, PodRecord]] = defaultdict(dict)
        self._makers: dict[Owner, Maker] = {}
        self._makers_of_group: dict[str, list[Maker]] = defaultdict(list)
        self._suspended: dict[Owner, Job] = {}
        self._quotas: dict[str, dict[str, ResourceQuota]] = defaultdict(dict)
        self._budgets: dict[str, dict[str, PodDisruptionBudget]] = defaultdict(dict)
        self._replaced: dict[str, int] = defaultdict(int)
        self._adopted: dict[Owner, int] = defaultdict(int)
        self._taken: set[str] = set()
        self._uids: dict[str, int] = defaultdict(int)
        self._dirty_groups: set[str] = set()
        self._dirty_namespaces: set[str] = set()
        self._prepare(manifests)

    def _prepare(self, manifests: Manifests) -> None:
        """Set up what every cluster has, and when the input's objects come and go."""
        for obj in _standing(manifests):
            self.model.apply(Upsert(obj))
            self.assumed_queue = self.assumed_queue or isinstance(obj, Queue)
        nodes = {declared.obj.metadata.name for declared in manifests.objects if isinstance(declared.obj, Node)}
        for declared in manifests.objects:
            if isinstance(declared.obj, Pod):
                node = declared.obj.spec.node_name
                if node and node not in nodes:
                    raise InputError([Fault(declared.place, "spec.nodeName", f"there is no Node {node}")])
                self._taken.add(f"{declared.obj.metadata.namespace}/{declared.obj.metadata.name}")
                owner = owner_of(declared.obj)
                if owner is not None:
                    self._adopted[owner] += 1
            self.timeline.add(declared.arrival, Arrival(declared))
            if declared.departure is not None:
                self.timeline.add(declared.departure, Departure(declared))

    # --- what happens by itself ---------------------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Let all happen that is due by `now`.

        Raises:
            InputError: an object that arrives would be refused by a live cluster.
        """
        arrivals: list[Declared] = []
        for occurrence in self.timeline.due(now):
            self.last_event = now
            match occurrence:
                case Arrival(declared=declared):
                    arrivals.append(declared)
                case Departure(declared=declared):
                    self._depart(declared.obj, now)
                case Finish(pod=key, uid=uid):
                    self._finish(key, uid, now)
                case Gone(pod=key, uid=uid):
                    self._gone(key, uid, now)
        if arrivals:
            self._arrive(arrivals, now)
        self._settle(now)

    def _arrive(self, arrivals: Sequence[Declared], now: int) -> None:
        """Create objects of the input, and the pods that controllers make of them at once."""
        created: list[tuple[AnyObject, Declared | None]] = []
        for declared in arrivals:
            created.append((declared.obj, declared))
            if isinstance(declared.obj, Job | ReplicaSet):
                created.extend((pod, None) for pod in self._made_of(declared.obj))
        stamps = creation_stamps(now, [obj for obj, _ in created])
        for (obj, from_input), stamp in zip(created, stamps, strict=True):
            if isinstance(obj, Pod):
                self._take_pod(obj, stamp, now, from_input)
                continue
            meta = obj.metadata
            obj = replace(obj, metadata=replace(meta, uid=meta.uid or _uid(obj), creation_timestamp=stamp))
            match obj:
                case PodGroup():
                    self.arrivals[f"{meta.namespace}/{meta.name}"] = now
                    self._put_group(obj)
                    continue
                case ResourceQuota():
                    self._quotas[meta.namespace][meta.name] = obj
                    self._dirty_namespaces.add(meta.namespace)
                case PodDisruptionBudget():
                    self._budgets[meta.namespace][meta.name] = obj
                    self._dirty_namespaces.add(meta.namespace)
                case Node():
                    obj = replace(
                        obj, metadata=replace(obj.metadata, labels={_HOSTNAME: meta.name, **(meta.labels or {})})
                    )
                case Namespace():
                    labels = {**(meta.labels or {}), _NAMESPACE_NAME: meta.name}
                    obj = replace(obj, metadata=replace(obj.metadata, labels=labels))
                case _:
                    pass
            self.model.apply(Upsert(obj))

    def _made_of(self, obj: Job | ReplicaSet) -> list[Pod]:
        """Set the controller of an object to work; the pods that it makes at once."""
        obj = replace(obj, metadata=replace(obj.metadata, uid=obj.metadata.uid or _uid(obj)))
        if isinstance(obj, Job):
            maker = maker_of_job(obj)
            if maker.suspended:
                self._suspended[maker.owner] = obj
        else:
            maker = maker_of_replica_set(obj)
        maker.alive = self._adopted[maker.owner]
        self._makers[maker.owner] = maker
        if maker.group:
            self._makers_of_group[maker.group].append(maker)
            self._dirty_groups.add(maker.group)
        return maker.make(self._taken)

    def _take_pod(self, pod: Pod, stamp: str, now: int, declared: Declared | None, base: str = "") -> None:
        """A pod is created, by the input or by a controller."""
        uid = _uid(pod)
        self._uids[uid] += 1
        pod = changes.created(pod, uid if self._uids[uid] == 1 else f"{uid}.{self._uids[uid]}", stamp)
        admitted = self._admit(pod)
        if admitted is None:
            self._refuse(pod, declared)
            return
        record = PodRecord(admitted, now, owner_of(pod), base or pod.metadata.name)
        self.pods[record.key] = record
        self._taken.add(record.key)
        self._by_namespace[pod.metadata.namespace][record.key] = record
        if record.owner is not None:
            self._by_owner[record.owner][record.key] = record
        node = pod.spec.node_name
        if pod.status.phase not in {"Succeeded", "Failed"}:
            if node:
                record.pod = changes.running(record.pod, node, now)
                self._by_node[node][record.key] = record
                self._run_for(record, now)
            else:
                record.pod = changes.waiting(record.pod)
            if pod.metadata.deletion_timestamp is not None:
                self._terminate(record, now)
        self._tell(record)

    def _admit(self, pod: Pod) -> Pod | None:
        """The pod with its priority looked up; None where it names a class that is not there."""
        if pod.spec.priority is not None:
            return pod
        found = self.model.priority_class(pod.spec.priority_class_name)
        if found is None:
            return None if pod.spec.priority_class_name else changes.with_priority(pod, 0, None)
        return changes.with_priority(pod, found.value, found.preemption_policy)

    def _refuse(self, pod: Pod, declared: Declared | None) -> None:
        name = pod.spec.priority_class_name
        if declared is not None:
            raise InputError([Fault(declared.place, "spec.priorityClassName", f"there is no PriorityClass {name}")])
        owner = owner_of(pod)
        warning = f"{owner.kind if owner else 'Pod'} {pod.metadata.namespace}/{owner.name if owner else ''}: "
        warning += f"its pods are refused, there is no PriorityClass {name}"
        if warning not in self.warnings:
            self.warnings.append(warning)

    def _depart(self, obj: AnyObject, now: int) -> None:
        """Delete an object of the input, and what goes with it."""
        meta = obj.metadata
        match obj:
            case Pod():
                self._remove(f"{meta.namespace}/{meta.name}", now)
                return
            case Job() | ReplicaSet() | PodGroup():
                self._remove_owned(Owner(type(obj).__name__, meta.namespace, meta.name), now)
                if isinstance(obj, PodGroup):
                    self.groups.pop(f"{meta.namespace}/{meta.name}", None)
            case Node():
                for record in list(self._by_node.pop(meta.name, {}).values()):
                    self._lose(record, now)
            case Namespace():
                for key in list(self._by_namespace[meta.name]):
                    self._remove(key, now)
            case ResourceQuota():
                self._quotas[meta.namespace].pop(meta.name, None)
            case PodDisruptionBudget():
                self._budgets[meta.namespace].pop(meta.name, None)
            case _:
                pass
        self.model.apply(Delete(type(obj), meta.namespace, meta.name))

    def _remove_owned(self, owner: Owner, now: int) -> None:
        maker = self._makers.pop(owner, None)
        if maker is not None and maker.group:
            self._makers_of_group[maker.group].remove(maker)
        for key in list(self._by_owner.pop(owner, {})):
            self._remove(key, now)

    def _remove(self, key: str, now: int) -> None:
        """A pod is deleted by its user or with its owner, at once."""
        record = self.pods.get(key)
        if record is None or not record.here:
            return
        self._forget(record)
        if record.evicted:
            record.finished = now
            return
        del self.pods[key]
        self.departed.append(record)

    def _lose(self, record: PodRecord, now: int) -> None:
        """The pod's node is deleted under it."""
        if record.ended:
            return
        self._forget(record)
        record.lost, record.finished = True, now
        if not record.evicted:
            self._replace(record, now)

    def _finish(self, key: str, uid: str, now: int) -> None:
        record = self.pods.get(key)
        if record is None or record.pod.metadata.uid != uid or record.ended or record.evicted:
            return
        record.pod, record.finished = changes.succeeded(record.pod), now
        self._by_node[record.pod.spec.node_name].pop(key, None)
        self._tell(record)
        maker = self._makers.get(record.owner) if record.owner is not None else None
        if maker is not None:
            maker.alive -= 1
            maker.succeeded += 1
            self._create(maker.make(self._taken), now)

    def _gone(self, key: str, uid: str, now: int) -> None:
        record = self.pods.get(key)
        if record is None or record.pod.metadata.uid != uid or record.ended:
            return
        if record.evicted:
            self._forget(record)
            record.finished = now
        else:
            self._remove(key, now)

    def _forget(self, record: PodRecord) -> None:
        """The pod does not exist any more."""
        meta = record.pod.metadata
        record.here = False
        self._by_namespace[meta.namespace].pop(record.key, None)
        if record.pod.spec.node_name:
            self._by_node[record.pod.spec.node_name].pop(record.key, None)
        if record.owner is not None:
            self._by_owner[record.owner].pop(record.key, None)
        self.model.apply(Delete(Pod, meta.namespace, meta.name))
        self._touched(record)

    # --- what the engine decides --------------------------------------------------------------------------------------

    def carry_out(self, transactions: Iterable[Transaction], verdicts: Iterable[Verdict], now: int) -> Effects:
        """Do what a cycle decided, and let the controllers answer to it."""
        changed = False
        nominations: list[Nomination] = []
        for transaction in transactions:
            for eviction in transaction.evictions:
                self._evict(eviction, now)
                changed = True
            for bind in transaction.binds:
                self._bind(bind, now)
                changed = True
            nominations += [nomination for nomination in transaction.nominations if self._nominate(nomination)]
        if changed or nominations:
            self.last_event = now
        before = len(self.timeline)
        enqueued: list[str] = []
        withdrawn = False
        for verdict in {verdict.job or verdict.group: verdict for verdict in verdicts}.values():
            stood, stands = self._write(verdict, now)
            if stands and not stood:
                enqueued.append(verdict.group)
            withdrawn = withdrawn or (stood and not stands)
        self._settle(now)
        grown = len(self.timeline) != before
        return Effects(
            tuple(enqueued),
            tuple(nomination for nomination in nominations if nomination.node is not None),
            bool(changed or nominations or enqueued or withdrawn or grown),
        )

    def _bind(self, bind: Bind, now: int) -> None:
        record = self._decided_on(bind.pod, bind.uid)
        if record.pod.spec.node_name:
            raise RuntimeError(f"the engine bound {bind.pod} twice")
        task = self.model.tasks[bind.pod]
        job = self.model.jobs[task.job]
        record.pod, record.bound = changes.running(record.pod, bind.node, now), now
        record.job, record.queue = job.key, job.queue
        self._by_node[bind.node][record.key] = record
        self._run_for(record, now)
        self._tell(record)

    def _evict(self, eviction: Eviction, now: int) -> None:
        record = self._decided_on(eviction.pod, eviction.uid)
        if record.evicted or not record.pod.spec.node_name:
            raise RuntimeError(f"the engine evicted {eviction.pod}, which is on its way out or nowhere")
        record.evicted = True
        self._terminate(record, now)
        self._tell(record)
        self._replace(record, now)

    def _nominate(self, nomination: Nomination) -> bool:
        """Whether that is news."""
        record = self._decided_on(nomination.pod, nomination.uid)
        if record.pod.status.nominated_node_name == (nomination.node or ""):
            return False
        record.pod = changes.nominated(record.pod, nomination.node)
        self._tell(record)
        return True

    def _decided_on(self, key: str, uid: str) -> PodRecord:
        record = self.pods.get(key)
        if record is None or not record.here or record.pod.metadata.uid != uid:
            raise RuntimeError(f"the engine decided on {key} ({uid}), which does not exist")
        return record

    def _write(self, verdict: Verdict, now: int) -> tuple[bool, bool]:
        """Record a verdict in the group's conditions; whether it was, and is, enqueued."""
        group = None if verdict.shadow else self.groups.get(verdict.group)
        if group is None:
            wanted = verdict_conditions(verdict, 0)
            if verdict.enqueued is None:
                wanted = tuple(condition for condition in wanted if condition.type != conditions.ENQUEUED)
            key = verdict.job or verdict.group
            self.shadow_conditions[key] = conditions.merge(self.shadow_conditions.get(key, ()), wanted, timestamp(now))
            return False, False
        if verdict.scheduled:
            self.starts.setdefault(verdict.group, now)
        standing = group.status.conditions or ()
        merged = conditions.merge(standing, verdict_conditions(verdict, group.metadata.generation), timestamp(now))
        if merged != standing or verdict.attempts != group.status.scheduling_attempts:
            status = replace(group.status, conditions=merged, scheduling_attempts=verdict.attempts)
            self._put_group(replace(group, status=status))
        return conditions.is_true(standing, conditions.ENQUEUED), conditions.is_true(merged, conditions.ENQUEUED)

    # --- controllers --------------------------------------------------------------------------------------------------

    def _settle(self, now: int) -> None:
        """Let controllers answer to what changed, until they have nothing more to do."""
        while self._dirty_groups:
            dirty, self._dirty_groups = sorted(self._dirty_groups), set()
            for key in dirty:
                group = self.groups.get(key)
                if group is not None:
                    self._derive(key, group, now)
        dirty, self._dirty_namespaces = sorted(self._dirty_namespaces), set()
        for namespace in dirty:
            self._count(namespace)

    def _derive(self, key: str, group: PodGroup, now: int) -> None:
        """The podgroup operator's part: the phase, and the members that wait for it."""
        job = self.model.jobs[key]
        standing = group.status.conditions or ()
        phase = phase_of(job, standing, group.status.phase)
        merged = conditions.merge(standing, ending(job, phase, standing), timestamp(now))
        if phase.value != group.status.phase or merged != standing:
            derived = replace(group, status=replace(group.status, phase=phase.value, conditions=merged))
            self.groups[key] = derived
            self.model.apply(Upsert(derived))
        for maker in self._makers_of_group.get(key, ()):
            if phase in _LEFT_PENDING and maker.waits:
                maker.waits = False
                self._suspend(maker.owner, suspend=False)
                self._create(maker.make(self._taken), now)
            elif phase is Phase.PENDING and maker.suspended and not maker.waits:
                self._hold(maker)
        if has_templates(group):
            self._make_members(group, phase, now)

    def _make_members(self, group: PodGroup, phase: Phase, now: int) -> None:
        """Members of roles with templates come and go with the phase."""
        owner = Owner("PodGroup", group.metadata.namespace, group.metadata.name)
        try:
            pods, surplus = planned(group, self._by_owner[owner].values(), phase)
        except MemberError as error:
            warning = f"PodGroup {owner.namespace}/{owner.name}: no pods are made: {error}"
            if warning not in self.warnings:
                self.warnings.append(warning)
            return
        for record in surplus:
            self._withdraw(record)
        self._create(pods, now)

    def _hold(self, maker: Maker) -> None:
        """A Job that kbatch let go is suspended again: its group was sent back, and none of its pods has a node."""
        records = list(self._by_owner[maker.owner].values())
        if any(record.pod.spec.node_name for record in records):
            return
        for record in records:
            self._withdraw(record)
        maker.withdraw(len(records))
        self._suspend(maker.owner, suspend=True)

    def _withdraw(self, record: PodRecord) -> None:
        """A pod that never had a node is deleted by its controller; its name is free again."""
        self._forget(record)
        del self.pods[record.key]
        self._taken.discard(record.key)

    def _suspend(self, owner: Owner, *, suspend: bool) -> None:
        job = self._suspended.get(owner)
        if job is not None:
            self.model.apply(Upsert(replace(job, spec=replace(job.spec, suspend=suspend))))

    def _count(self, namespace: str) -> None:
        """Quota and disruption controllers: what is used of the namespace, and what may be evicted of it."""
        quotas, budgets = self._quotas.get(namespace), self._budgets.get(namespace)
        if not quotas and not budgets:
            return
        pods = [record.pod for record in self._by_namespace[namespace].values()]
        for name, quota in (quotas or {}).items():
            counted = with_usage(quota, pods)
            (quotas or {})[name] = counted
            self.model.apply(Upsert(counted))
        for name, budget in (budgets or {}).items():
            allowed = with_allowance(budget, pods)
            (budgets or {})[name] = allowed
            self.model.apply(Upsert(allowed))

    def _replace(self, record: PodRecord, now: int) -> None:
        """The pod's controller makes another one in its place, if it has a controller that still exists."""
        if record.owner is None:
            return
        base = f"{record.pod.metadata.namespace}/{record.base}"
        while True:
            self._replaced[base] += 1
            name = f"{record.base}-r{self._replaced[base]}"
            if f"{record.pod.metadata.namespace}/{name}" not in self._taken:
                break
        self._create([changes.replacement(record.pod, name)], now, base=record.base)

    def _create(self, pods: Sequence[Pod], now: int, base: str = "") -> None:
        """Controllers create pods."""
        for pod, stamp in zip(pods, creation_stamps(now, pods), strict=True):
            self._take_pod(pod, stamp, now, None, base)

    # --- small change -------------------------------------------------------------------------------------------------

    def _run_for(self, record: PodRecord, now: int) -> None:
        duration = seconds(record.pod.metadata, DURATION)
        if duration is not None:
            self.timeline.add(now + duration, Finish(record.key, record.pod.metadata.uid))

    def _terminate(self, record: PodRecord, now: int) -> None:
        grace = seconds(record.pod.metadata, TERMINATION)
        grace = DEFAULT_TERMINATION_MS if grace is None else grace
        record.pod = changes.terminating(record.pod, now + grace, grace)
        self.timeline.add(now + grace, Gone(record.key, record.pod.metadata.uid))

    def _tell(self, record: PodRecord) -> None:
        self.model.apply(Upsert(record.pod))
        self._touched(record)

    def _touched(self, record: PodRecord) -> None:
        self._dirty_namespaces.add(record.pod.metadata.namespace)
        if record.group:
            self._dirty_groups.add(record.group)

    def _put_group(self, group: PodGroup) -> None:
        key = f"{group.metadata.namespace}/{group.metadata.name}"
        self.groups[key] = group
        self._dirty_groups.add(key)
        self.model.apply(Upsert(group))

    def allocated(self) -> dict[str, int]:
        """What all queues hold together, by resource."""
        total: dict[str, int] = {}
        for record in self.model.queues.values():
            for name, amount in record.allocated.items():
                total[name] = total.get(name, 0) + amount
        return total


def _uid(obj: AnyObject) -> str:
    """A uid that equal input makes equal."""
    meta = obj.metadata
    return ".".join(part for part in (type(obj).__name__.lower(), meta.namespace, meta.name) if part)


def _standing(manifests: Manifests) -> Iterator[AnyObject]:
    """What is there although nobody declared it: namespaces, the classes of system pods, the queue `default`."""
    declared = {(type(entry.obj), entry.obj.metadata.name) for entry in manifests.objects}
    namespaces = {entry.obj.metadata.namespace for entry in manifests.objects} - {""}
    for name in sorted(namespaces):
        if (Namespace, name) not in declared:
            yield Namespace(metadata=Metadata(name=name, labels={_NAMESPACE_NAME: name}))
    for name, value in _SYSTEM_CLASSES.items():
        if (PriorityClass, name) not in declared:
            yield PriorityClass(metadata=Metadata(name=name), value=value)
    if (Queue, DEFAULT_QUEUE) not in declared:
        yield Queue(metadata=Metadata(name=DEFAULT_QUEUE, creation_timestamp=timestamp(0)), spec=QueueSpec(weight=1))
