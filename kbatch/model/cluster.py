"""The cluster as one model, fed by events: what the scheduler decides on and the queue operator reports from.

`apply` is the only way in for what the API server says; `assume` and `evicting` hold what this process has decided and
the API server has not confirmed. Events are cheap (one dictionary operation per dimension of a pod); sums over a group
are worked out again by the first reader after a change (`refresh`), so their cost follows what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kbatch.api.names import (
    DEFAULT_QUEUE,
    DEFAULT_SCHEDULER_NAME,
    GROUP_MIN_MEMBER_ANNOTATION,
    GROUP_NAME_ANNOTATION,
    QUEUE_LABEL,
    SUB_GROUP_LABEL,
)
from kbatch.api.objects import (
    AnyObject,
    CsiNode,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
    StorageClass,
    timestamp_ms,
)
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from kbatch.model.jobs import Job, QueueRecord
from kbatch.model.nodes import NodeRecord, NodeTable, read_allocatable
from kbatch.model.shares import Claim, water_fill
from kbatch.model.tasks import ClassTable, Task, started_ms
from kbatch.model.volumes import selected_node, usable
from kbatch.resources import PODS, QuantityError, Resources

_STATIC_KINDS: Final = (PersistentVolume, PersistentVolumeClaim, StorageClass, CsiNode, Namespace)
"""Kinds that predicates read besides pods and nodes: a change of one invalidates what was worked out per class."""


class ClusterModel:
    """Everything known of one cluster.

    Attributes:
        generation: moves with every change of anything; equal generations mean an equal cluster.
        room_generation: moves whenever a pod that found no node before might find one now: something left a node, a
            node came or changed, a nomination ended. While it stands still, room only shrinks.
        unreadable: why objects were left out, by type and key.
        objects: the other kinds, by type and key, as they are.
    """

    def __init__(self, scheduler_name: str = DEFAULT_SCHEDULER_NAME, default_queue: str = DEFAULT_QUEUE) -> None:
        self.scheduler_name = scheduler_name
        self.default_queue = default_queue
        self.generation = 0
        self.room_generation = 0
        self.unreadable: dict[tuple[type[AnyObject], str], str] = {}
        self.objects: dict[type[AnyObject], dict[str, AnyObject]] = {}
        self.classes = ClassTable()
        self._tasks: dict[str, Task] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._jobs: dict[str, Job] = {}
        self._queues: dict[str, QueueRecord] = {}
        self._assumed: dict[str, tuple[str, str]] = {}
        self._evicting: dict[str, str] = {}
        self._table = NodeTable()
        self._capacity: Resources = {}
        self._node_capacity: dict[str, Resources] = {}
        self._dirty_nodes: dict[str, NodeRecord] = {}
        self._dirty_jobs: dict[str, Job] = {}
        self._live: dict[str, Job] = {}
        self._nodes_changed = True
        self._class_generation = 0
        self._deserved: tuple[int, dict[str, Resources]] | None = None
        self._upserts: dict[type[Any], Callable[[Any], None]] = {
            Pod: self._upsert_pod,
            Node: self._upsert_node,
            PodGroup: self._upsert_group,
            Queue: self._upsert_queue,
        }

    # --- views --------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Pods by key, of all schedulers."""
        return self._tasks

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        """Nodes by name, also those of which only pods are known."""
        return self._nodes

    @property
    def jobs(self) -> Mapping[str, Job]:
        """Groups by key, sums up to date."""
        self.refresh()
        return self._jobs

    @property
    def queues(self) -> Mapping[str, QueueRecord]:
        """Queues by name, sums up to date; also such as are only named by groups (`queue` is None)."""
        self.refresh()
        return self._queues

    @property
    def live(self) -> Mapping[str, Job]:
        """The groups that are not settled."""
        self.refresh()
        return self._live

    @property
    def table(self) -> NodeTable:
        """The nodes as columns, up to date."""
        self.refresh()
        return self._table

    @property
    def capacity(self) -> Resources:
        """What schedulable nodes hold, less what foreign pods use; `pods` left out."""
        self.refresh()
        return {name: amount for name, amount in self._capacity.items() if amount > 0 and name != PODS}

    def claims(self) -> list[Claim]:
        """What the existing queues bring to the division, in the order of names."""
        self.refresh()
        oldest: dict[str, int] = {}
        for job in self._live.values():
            if job.waiting or job.outstanding:
                oldest[job.queue] = min(oldest.get(job.queue, job.created), job.created)
        return [
            Claim(
                name,
                record.weight,
                record.request if record.open else record.allocated,
                record.capability,
                record.allocated,
                oldest.get(name) if record.open else None,
            )
            for name, record in sorted(self._queues.items())
            if record.queue is not None
        ]

    def deserved(self) -> dict[str, Resources]:
        """The deserved share of each existing queue: the division that scheduler and queue operator both go by."""
        if self._deserved is None or self._deserved[0] != self.generation:
            self._deserved = (self.generation, water_fill(self.capacity, self.claims()))
        return self._deserved[1]

    # --- events -------------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Take over one event, in place. An object whose amounts cannot be read is treated as `Unreadable`."""
        if isinstance(event, Upsert):
            obj = event.obj
            key = key_of(obj)
            try:
                handler = self._upserts.get(type(obj))
                if handler is not None:
                    handler(obj)
                else:
                    self._upsert_other(obj, key)
            except QuantityError as error:
                node_name = obj.spec.node_name if isinstance(obj, Pod) else ""
                meta = obj.metadata
                self._unreadable(Unreadable(type(obj), meta.namespace, meta.name, meta.uid, node_name, str(error)))
            else:
                if self.unreadable:
                    self.unreadable.pop((type(obj), key), None)
        elif isinstance(event, Delete):
            key = f"{event.namespace}/{event.name}" if event.namespace else event.name
            self.unreadable.pop((event.kind, key), None)
            self._remove(event.kind, key)
        else:
            self._unreadable(event)

    def assume(self, pod_key: str, uid: str, node: str) -> None:
        """A bind of this pod to this node is under way: it holds its room from now on."""
        task = self._tasks.get(pod_key)
        if task is None or task.uid != uid or task.node:
            return
        self._assumed[pod_key] = (uid, node)
        self._replace(task, task.pod)

    def forget(self, pod_key: str, uid: str) -> None:
        """The bind failed: the pod waits again."""
        if self._assumed.get(pod_key, ("", ""))[0] == uid:
            del self._assumed[pod_key]
            self._again(pod_key)

    def evicting(self, pod_key: str, uid: str) -> None:
        """The eviction of this pod is under way: its room is being released."""
        task = self._tasks.get(pod_key)
        if task is not None and task.uid == uid and not task.terminating:
            self._evicting[pod_key] = uid
            self._again(pod_key)

    def not_evicting(self, pod_key: str, uid: str) -> None:
        """The eviction was refused: the pod stays."""
        if self._evicting.get(pod_key) == uid:
            del self._evicting[pod_key]
            self._again(pod_key)

    # --- what no object says ------------------------------------------------------------------------------------------

    def marks(self) -> tuple[Mapping[str, tuple[str, str]], Mapping[str, str]]:
        """Binds under way (uid and node by pod) and evictions under way (uid by pod)."""
        return self._assumed, self._evicting

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _again(self, key: str) -> None:
        task = self._tasks.get(key)
        if task is not None:
            self._replace(task, task.pod)

    def _upsert_pod(self, pod: Pod) -> None:
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        old = self._tasks.get(key)
        if old is not None and old.pod == pod:
            return
        assumed = self._assumed.get(key)
        if assumed is not None and (assumed[0] != pod.metadata.uid or pod.spec.node_name):
            del self._assumed[key]
        evicting = self._evicting.get(key)
        if evicting is not None and (evicting != pod.metadata.uid or pod.metadata.deletion_timestamp is not None):
            del self._evicting[key]
        self._replace(old, pod)
        self._reopen(key)

    def _replace(self, old: Task | None, pod: Pod) -> None:
        """Put a task made of `pod` in the place of `old`."""
        task = self._task(pod)
        if old is not None:
            self._take_out(old, task)
        self._tasks[task.key] = task
        if task.job:
            job = self._job_of(task, pod)
            job.tasks[task.key] = task
            self._touch(job)
        if task.node and not task.terminal:
            record = self._record(task.node)
            record.count(task, 1)
            self._dirty_nodes[task.node] = record
        self.generation += 1

    def _task(self, pod: Pod) -> Task:
        meta, spec, status = pod.metadata, pod.spec, pod.status
        key = f"{meta.namespace}/{meta.name}"
        task = Task(key, meta.uid, pod, self.classes.classify(pod))
        task.created = timestamp_ms(meta.creation_timestamp) or 0
        task.node = spec.node_name
        if not task.node and key in self._assumed:
            task.node = self._assumed[key][1]
            task.assumed = True
        phase = status.phase
        task.succeeded = phase == "Succeeded"
        task.terminal = task.succeeded or phase == "Failed"
        task.running = phase == "Running"
        if meta.deletion_timestamp is not None:
            task.terminating = not task.terminal
            task.release_at = timestamp_ms(meta.deletion_timestamp)
        elif key in self._evicting:
            task.terminating = not task.terminal
        task.gated = bool(spec.scheduling_gates)
        task.priority, task.never_preempts = self._priority(pod)
        if spec.scheduler_name == self.scheduler_name:
            task.job = self._job_key(pod)
            task.role = (meta.labels or {}).get(SUB_GROUP_LABEL, "")
            if not task.node and not task.terminal:
                task.nominated = status.nominated_node_name
        if task.node:
            task.started = started_ms(pod) or task.created
        return task

    def _take_out(self, task: Task, successor: Task | None) -> None:
        """Undo what a task counts for; `successor` is the same pod as it is from now on, if it stays."""
        if task.node and not task.terminal:
            record = self._nodes[task.node]
            record.count(task, -1)
            self._dirty_nodes[task.node] = record
            stays = successor is not None and successor.node == task.node and not successor.terminal
            if (
                not stays
                or (successor is not None and successor.cls is not task.cls)
                or (successor is not None and successor.terminating and not task.terminating)
            ):
                self.room_generation += 1
            self._forget_record(record)
        elif task.nominated and (successor is None or successor.nominated != task.nominated):
            self.room_generation += 1
        if task.job:
            job = self._jobs[task.job]
            job.tasks.pop(task.key, None)
            self._touch(job)
            if successor is None or successor.job != task.job:
                self._drop_if_empty(job)
        if self.classes.coupled:
            self.room_generation += 1  # a pod that leaves or changes may have stood in another one's way anywhere

    def _reopen(self, key: str) -> bool:
        """The pod is known again: nodes that it closed open. Whether there were any."""
        closed = [record for record in self._closed() if key in record.closed_by]
        for record in closed:
            record.closed_by.discard(key)
            self._node_touched(record)
            self._forget_record(record)
        return bool(closed)

    def _closed(self) -> list[NodeRecord]:
        return [record for record in self._nodes.values() if record.closed_by] if self._any_closed else []

    _any_closed = False

    def _unreadable(self, event: Unreadable) -> None:
        key = f"{event.namespace}/{event.name}" if event.namespace else event.name
        old = self._tasks.get(key) if event.kind is Pod else None
        node_name = event.node_name or (old.node if old is not None else "")
        self._remove(event.kind, key)
        self.unreadable[event.kind, key] = event.why
        if event.kind is Pod and node_name:
            record = self._record(node_name)
            record.closed_by.add(key)
            self._any_closed = True
            self._node_touched(record)
        self.generation += 1

    def _remove(self, kind: type[AnyObject], key: str) -> None:
        if kind is Pod:
            task = self._tasks.pop(key, None)
            self._assumed.pop(key, None)
            self._evicting.pop(key, None)
            closed = self._reopen(key)
            if task is not None:
                self._take_out(task, None)
            elif not closed:
                return
        elif kind is Node:
            record = self._nodes.get(key)
            if record is None or record.node is None:
                return
            record.node, record.allocatable = None, {}
            self._node_touched(record)
            self._forget_record(record)
        elif kind is PodGroup:
            job = self._jobs.get(key)
            if job is not None and job.group is not None:
                job.read(None)
                self._leave(job)
                self._touch(job)
                self._drop_if_empty(job)
        elif kind is Queue:
            queue = self._queues.get(key)
            if queue is not None and queue.queue is not None:
                queue.queue = None
                self._touch_queue(queue)
                if not queue.jobs:
                    del self._queues[key]
        elif self.objects.get(kind, {}).pop(key, None) is not None:
            self._other_changed(kind)
        else:
            return
        self.generation += 1

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _record(self, name: str) -> NodeRecord:
        record = self._nodes.get(name)
        if record is None:
            record = self._nodes[name] = NodeRecord(name)
        return record

    def _forget_record(self, record: NodeRecord) -> None:
        if record.node is None and not record.tasks and not record.closed_by:
            self._nodes.pop(record.name, None)

    def _upsert_node(self, node: Node) -> None:
        allocatable = read_allocatable(node)
        record = self._record(node.metadata.name)
        old = record.node
        same = old is not None and _node_content(old) == _node_content(node) and record.allocatable == allocatable
        record.node, record.allocatable = node, allocatable
        if not same:
            self._node_touched(record)

    def _node_touched(self, record: NodeRecord) -> None:
        """Something but the use of a node changed."""
        self._nodes_changed = True
        self._dirty_nodes[record.name] = record
        self.room_generation += 1
        self.generation += 1

    # --- groups and queues --------------------------------------------------------------------------------------------

    def _job_key(self, pod: Pod) -> str:
        meta = pod.metadata
        group = (meta.annotations or {}).get(GROUP_NAME_ANNOTATION)
        if group:
            return f"{meta.namespace}/{group}"
        for owner in meta.owner_references:
            if owner.controller:
                return f"{meta.namespace}/{owner.name}#{owner.uid}"
        return f"{meta.namespace}/{meta.name}#{meta.uid}"

    def _job_of(self, task: Task, pod: Pod) -> Job:
        job = self._jobs.get(task.job)
        if job is None:
            shadow = not (pod.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
            job = self._jobs[task.job] = Job(task.job, task.job.partition("#")[0], pod.metadata.namespace, shadow)
        return job

    def _drop_if_empty(self, job: Job) -> None:
        if not job.tasks and job.group is None:
            self._jobs.pop(job.key, None)
            self._dirty_jobs.pop(job.key, None)
            self._live.pop(job.key, None)
            self._leave(job)

    def _enter(self, job: Job, name: str) -> None:
        if job.queue != name:
            self._leave(job)
            job.queue = name
            queue = self._queues.get(name)
            if queue is None:
                queue = self._queues[name] = QueueRecord(name)
            queue.jobs[job.key] = job

    def _leave(self, job: Job) -> None:
        if not job.queue:
            return
        queue = self._queues[job.queue]
        if job.counted is not None:
            queue.count(job.counted[1], job.counted[2], -1)
            job.counted = None
        queue.jobs.pop(job.key, None)
        if not queue.jobs and queue.queue is None:
            del self._queues[job.queue]
        job.queue = ""

    def _upsert_group(self, group: PodGroup) -> None:
        meta = group.metadata
        key = f"{meta.namespace}/{meta.name}"
        job = self._jobs.get(key)
        if job is not None and job.group == group:
            return
        if job is None:
            job = Job(key, key, meta.namespace, shadow=False)
            job.read(group)
            self._jobs[key] = job
        else:
            job.read(group)
        job.created = timestamp_ms(meta.creation_timestamp) or 0
        self._enter(job, group.spec.queue or self.default_queue)
        self._touch(job)
        self.generation += 1

    def _upsert_queue(self, queue: Queue) -> None:
        name = queue.metadata.name
        record = self._queues.get(name)
        if record is not None and record.queue is not None and record.queue.spec == queue.spec:
            record.queue = queue
            return
        if record is None:
            record = QueueRecord(name)
        record.read(queue)
        self._queues[name] = record
        self._touch_queue(record)
        self.generation += 1

    def _touch(self, job: Job) -> None:
        job.generation += 1
        self._dirty_jobs[job.key] = job

    def _touch_queue(self, queue: QueueRecord) -> None:
        for job in queue.jobs.values():
            self._touch(job)

    # --- the other kinds ----------------------------------------------------------------------------------------------

    def _upsert_other(self, obj: AnyObject, key: str) -> None:
        kept = self.objects.setdefault(type(obj), {})
        old = kept.get(key)
        if old != obj:
            kept[key] = obj
            if old is None or _other_content(old) != _other_content(obj):
                self._other_changed(type(obj))
            self.generation += 1

    def _other_changed(self, kind: type[AnyObject]) -> None:
        if kind is PriorityClass:
            for key in list(self._tasks):
                self._again(key)
            for job in self._jobs.values():
                self._touch(job)
        elif kind in _STATIC_KINDS:
            self._nodes_changed = True
            self.room_generation += 1

    def _priority(self, pod: Pod) -> tuple[int, bool]:
        """Value and "never preempts" of a pod: its own, else its class's, else the default class's."""
        spec = pod.spec
        if spec.priority is not None:
            return spec.priority, spec.preemption_policy == "Never"
        found = self.priority_class(spec.priority_class_name)
        value = found.value if found is not None else 0
        policy = spec.preemption_policy or (found.preemption_policy if found is not None else None)
        return value, policy == "Never"

    def priority_class(self, name: str) -> PriorityClass | None:
        """The class of that name; with an empty name the default one, if there is one."""
        known = self.objects.get(PriorityClass, {})
        if name:
            found = known.get(name)
            return found if isinstance(found, PriorityClass) else None
        defaults = [cls for cls in known.values() if isinstance(cls, PriorityClass) and cls.global_default]
        return max(defaults, key=lambda cls: (cls.value, cls.metadata.name), default=None)

    # --- sums ---------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring all sums up to date; costs what changed since the last time."""
        if self.classes.generation != self._class_generation:
            self._class_generation = self.classes.generation
            for key in list(self._tasks):
                self._again(key)
        if self._dirty_jobs:
            dirty, self._dirty_jobs = self._dirty_jobs, {}
            for job in dirty.values():
                self._refresh_job(job)
        if self._nodes_changed or self._dirty_nodes:
            self._refresh_nodes()

    def _refresh_job(self, job: Job) -> None:
        if job.group is None and job.tasks:
            oldest = min(job.tasks.values(), key=lambda task: (task.created, task.key))
            job.created = oldest.created
            if job.shadow:  # what its oldest pod says of it
                job.minimum = _shadow_minimum(oldest.pod)
                self._enter(job, (oldest.pod.metadata.labels or {}).get(QUEUE_LABEL) or self.default_queue)
        job.refresh()
        name = job.group.spec.priority_class_name if job.group is not None else ""
        found = self.priority_class(name) if name else None
        job.priority_class_missing = name if name and found is None else ""
        if found is not None:
            job.priority = found.value
        else:
            priorities = [task.priority for task in job.tasks.values() if not task.terminal]
            job.priority = max(priorities) if priorities else 0
        if job.queue:
            queue = self._queues[job.queue]
            if job.counted is not None:
                queue.count(job.counted[1], job.counted[2], -1)
            job.counted = (job.queue, job.allocated, job.request)
            queue.count(job.allocated, job.request, 1)
        if job.settled:
            self._live.pop(job.key, None)
        else:
            self._live[job.key] = job

    def _refresh_nodes(self) -> None:
        dirty, self._dirty_nodes = self._dirty_nodes, {}
        for name, record in dirty.items():
            self._count_capacity(self._node_capacity.pop(name, None), -1)
            if self._nodes.get(name) is record and record.node is not None:
                capacity = self._node_capacity[name] = record.capacity()
                self._count_capacity(capacity, 1)
        if self._nodes_changed:
            self._nodes_changed = False
            self._any_closed = any(record.closed_by for record in self._nodes.values())
            self._table.rebuild(self._nodes, ())
        else:
            self._table.update(dirty.values())

    def _count_capacity(self, vector: Resources | None, sign: int) -> None:
        for name, amount in (vector or {}).items():
            self._capacity[name] = self._capacity.get(name, 0) + sign * amount

    # --- for tests ----------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Work everything out anew and compare; for tests, after each step.

        Raises:
            AssertionError: a sum that is kept differs from the one worked out.
        """
        validate(self)


def validate(model: ClusterModel) -> None:
    """See `ClusterModel.validate`."""
    model.refresh()
    for record in model.nodes.values():
        fresh = NodeRecord(record.name, record.node, record.allocatable)
        for task in model.tasks.values():
            if task.node == record.name and not task.terminal:
                fresh.count(task, 1)
        for kept, wanted in (
            (record.used, fresh.used),
            (record.releasing, fresh.releasing),
            (record.foreign, fresh.foreign),
        ):
            _check({k: v for k, v in kept.items() if v} == {k: v for k, v in wanted.items() if v}, record.name)
        _check(record.tasks.keys() == fresh.tasks.keys(), record.name)
        row = model.table.row.get(record.name)
        _check((row is not None) == (record.node is not None), record.name)
        if row is not None:
            for name, idle in model.table.idle.items():
                _check(int(idle[row]) == record.allocatable.get(name, 0) - fresh.used.get(name, 0), record.name)
                _check(int(model.table.releasing[name][row]) == fresh.releasing.get(name, 0), record.name)
                _check(int(model.table.capacity[name][row]) == record.capacity().get(name, 0), record.name)
    total: Resources = {}
    for record in model.nodes.values():
        for name, amount in record.capacity().items():
            total[name] = total.get(name, 0) + amount
    _check({k: v for k, v in total.items() if v and k != PODS} == model.capacity, "capacity")
    for job in model.jobs.values():
        _check(bool(job.tasks) or job.group is not None, job.key)
        _check(model.queues[job.queue].jobs.get(job.key) is job if job.queue else job.group is None, job.key)
        _check((job.key in model.live) == (not job.settled), job.key)
    for queue in model.queues.values():
        allocated: Resources = {}
        for job in queue.jobs.values():
            for task in job.tasks.values():
                if task.holds or (task.pending and task.nominated):
                    for name, amount in task.cls.request.items():
                        allocated[name] = allocated.get(name, 0) + amount
        _check({k: v for k, v in allocated.items() if v} == queue.allocated, queue.name)


def _check(holds: bool, where: str) -> None:
    if not holds:
        raise AssertionError(f"the model's sums are wrong at {where}")


def key_of(obj: AnyObject) -> str:
    """`namespace/name`, or `name` of a cluster-scoped object."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def _shadow_minimum(pod: Pod) -> int:
    """The minimum that a pod without a group asks for; what is no number above zero counts as 1."""
    text = (pod.metadata.annotations or {}).get(GROUP_MIN_MEMBER_ANNOTATION, "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else 1


def _other_content(obj: AnyObject) -> object:
    """All that decisions read of an object, where that is less than the object and the rest often changes."""
    if isinstance(obj, PersistentVolumeClaim):
        return obj.spec, selected_node(obj), usable(obj)
    if isinstance(obj, PersistentVolume | CsiNode):
        return obj.spec
    return obj


def _node_content(node: Node) -> tuple[object, ...]:
    """All of a node that decisions read, and nothing that beats like a heart."""
    facts = tuple((condition.type, condition.status) for condition in node.status.conditions or ())
    return node.metadata.labels, node.spec, facts, node.status.images
