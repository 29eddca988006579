"""The cluster as one model, fed by events: what the scheduler decides on and the queue operator reports from.

`apply` is the only way in for what the API server says; `assume` and `evicting` hold what this process has decided and
the API server has not confirmed, `refuse_bind` and `refuse_eviction` what it has refused. Events are cheap (one
dictionary operation per dimension of a pod); sums over a group are worked out again by the first reader after a change
(`refresh`), so their cost follows what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from kbatch.api.names import DEFAULT_QUEUE, DEFAULT_SCHEDULER_NAME, LAST_CHECKPOINT_ANNOTATION
from kbatch.api.objects import AnyObject, Namespace, Node, Pod, PodGroup, PriorityClass, Queue
from kbatch.api.objects import Job as BatchJob
from kbatch.model.bad_nodes import BadNodes
from kbatch.model.demand import Demand
from kbatch.model.events import Delete, Event, Unreadable, Upsert
from kbatch.model.group_index import GroupIndex
from kbatch.model.jobs import Job, QueueRecord
from kbatch.model.journal import Journal
from kbatch.model.makers import Maker
from kbatch.model.node_index import NodeIndex
from kbatch.model.nodes import NodeRecord, NodeTable
from kbatch.model.others import STATIC_KINDS, OtherObjects
from kbatch.model.quota import Ask
from kbatch.model.refusals import Refusal, Refusals
from kbatch.model.shares import Claim
from kbatch.model.tasks import ClassTable, Task, TaskClass, read_task, same_class, same_task
from kbatch.model.usable import Astray, Usable
from kbatch.model.validation import validate
from kbatch.resources import QuantityError, Resources

_AT_ONCE: Final = 200
"""So many pods are read again in a millisecond or two."""


class ClusterModel:
    """Everything known of one cluster.

    Attributes:
        generation: moves with every change of anything; equal generations mean an equal cluster.
        room_generation: moves whenever a pod that found no node before might find one now: something left a node, a
            node came or changed, a nomination ended. While it stands still, room only shrinks.
        standing_generation: moves with every change of what stands on nodes or is nominated to them, and of the nodes.
        capacity_generation: moves with every change of what nodes offer were this scheduler's pods all gone.
        unreadable: why objects were left out, by type and key.
        checkpointed: keys of the pods and PodGroups that say when their work was last saved; those of groups begin with
            `#`, which no pod's does.
        classes: the pods' classes.
        refusals: what the API server refused to do, as long as that holds.
    """

    def __init__(self, scheduler_name: str = DEFAULT_SCHEDULER_NAME, default_queue: str = DEFAULT_QUEUE) -> None:
        self.scheduler_name = scheduler_name
        self.default_queue = default_queue
        self.generation = 0
        self.room_generation = 0
        self.standing_generation = 0
        self.capacity_generation = 0
        self.unreadable: dict[tuple[type[AnyObject], str], str] = {}
        self.classes = ClassTable()
        self.checkpointed: set[str] = set()
        self._tasks: dict[str, Task] = {}
        self._others = OtherObjects()
        self._nodes = NodeIndex()
        self._usable = Usable(self._nodes.table, self.classes.selections)
        self._groups = GroupIndex(default_queue, self._others, self.classes.selections, scheduler_name)
        self._assumed: dict[str, tuple[str, str]] = {}
        self._evicting: dict[str, str] = {}
        self.refusals = Refusals()
        self._bad_nodes = BadNodes()
        self._class_generation = 0
        self._unread: list[str] = []
        self._deserved: tuple[int, dict[str, Resources]] | None = None
        self._upserts: dict[type[Any], Callable[[Any, str], None]] = {
            Pod: self._upsert_pod,
            Node: self._upsert_node,
            PodGroup: self._upsert_group,
            Queue: self._upsert_queue,
            BatchJob: self._upsert_job,
        }

    # --- views --------------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Mapping[str, Task]:
        """Pods by key, of all schedulers."""
        return self._tasks

    @property
    def nodes(self) -> Mapping[str, NodeRecord]:
        """Nodes by name, also those of which only pods are known."""
        return self._nodes.records

    @property
    def objects(self) -> dict[type[AnyObject], dict[str, AnyObject]]:
        """The other kinds, by type and key, as they are."""
        return self._others.by_kind

    @property
    def jobs(self) -> Mapping[str, Job]:
        """Groups by key, sums up to date."""
        self.refresh()
        return self._groups.jobs

    @property
    def members(self) -> Mapping[str, Job]:
        """Groups by key: their pods, and what their PodGroups say, up to date; their sums as of the last `refresh`."""
        return self._groups.jobs

    @property
    def queues(self) -> Mapping[str, QueueRecord]:
        """Queues by name, sums up to date; also such as are only named by groups (`queue` is None)."""
        self.refresh()
        return self._groups.queues

    @property
    def exclusive(self) -> AbstractSet[str]:
        """The keys of the groups of which some pods want nodes for their group alone."""
        return self._groups.exclusive

    @property
    def bad_nodes(self) -> Mapping[str, AbstractSet[str]]:
        """By the group's key the nodes that it avoids, for those groups that avoid any."""
        return self._bad_nodes.every

    @property
    def live(self) -> Mapping[str, Job]:
        """The groups that are not settled."""
        self.refresh()
        return self._groups.live

    @property
    def changes(self) -> Journal[str]:
        """The keys of the groups that changed."""
        return self._groups.changes

    @property
    def node_changes(self) -> Journal[str]:
        """The names of the nodes on which something came, went or changed."""
        return self._nodes.changes

    @property
    def table(self) -> NodeTable:
        """The nodes as columns, up to date."""
        self.refresh()
        return self._nodes.table

    @property
    def capacity(self) -> Resources:
        """What schedulable nodes hold, less what foreign pods use; `pods` left out."""
        self.refresh()
        return self._nodes.capacity()

    def claims(self) -> list[Claim]:
        """What the existing queues bring to the division, in the order of names."""
        self.refresh()
        return self._groups.claims()

    def demand(self, job: Job) -> Demand:
        """What one of its groups asks for."""
        self.refresh()
        return self._groups.demand(job)

    def quota_ask(self, job: Job) -> Ask:
        """What one of its groups asks of quotas beyond its pods that exist."""
        self.refresh()
        return self._groups.quota_ask(job)

    def makers(self, group: str) -> Mapping[str, Maker]:
        """The batch Jobs whose pods belong to the group of that key, by name."""
        return self._groups.makers(group)

    def deserved(self) -> dict[str, Resources]:
        """The deserved share of each existing queue: the division that scheduler and queue operator both go by.

        Of what nodes offer, only what the queues' work may use is divided, each part between those who may use it.
        """
        while self._deserved is None or self._deserved[0] != self.generation:
            for _ in self.dividing():
                pass
        return self._deserved[1]

    def dividing(self) -> Iterator[None]:
        """Work out what queues deserve, in pieces of a few milliseconds; `deserved` has it then, until events come.

        What is not done when it is left off, or when events come in between, is done anew.
        """
        generation = self.generation
        if self._deserved is None or self._deserved[0] != generation:
            claims = self.claims()
            parts = [self._groups.parts(claim.name) for claim in claims]
            found = yield from self._usable.dividing(claims, parts, self._astray())
            if generation == self.generation:
                self._deserved = (generation, found)

    def _astray(self) -> list[Astray]:
        """The pods that hold room on nodes that they could not come to now."""
        found: list[Astray] = []
        jobs, rows = self._groups.jobs, self._nodes.table.row
        for record in self._nodes.astray.values():
            row = rows.get(record.name)
            if row is not None and record.schedulable:
                found += [(jobs[task.job].queue, task.cls, row) for task in record.astray.values() if task.holds]
        return found

    def priority_class(self, name: str) -> PriorityClass | None:
        """The class of that name; with an empty name the default one, if there is one."""
        return self._others.priority_class(name)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace, its own name among them."""
        return self._others.namespace_labels(name)

    # --- what the API server says -------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Take over one event, in place. An object whose amounts cannot be read is treated as `Unreadable`."""
        if isinstance(event, Upsert):
            obj = event.obj
            meta = obj.metadata
            key = _key(meta.namespace, meta.name)
            try:
                self._upserts.get(type(obj), self._upsert_other)(obj, key)
            except QuantityError as error:
                node_name = obj.spec.node_name if isinstance(obj, Pod) else ""
                self._unreadable(Unreadable(type(obj), meta.namespace, meta.name, meta.uid, node_name, str(error)))
            else:
                if self.unreadable:
                    self.unreadable.pop((type(obj), key), None)
        elif isinstance(event, Delete):
            key = _key(event.namespace, event.name)
            self.unreadable.pop((event.kind, key), None)
            self._remove(event.kind, key)
        else:
            self._unreadable(event)

    def _upsert_node(self, node: Node, _key: str) -> None:
        if self._nodes.upsert(node):
            self._room_changed()

    def _upsert_group(self, group: PodGroup, key: str) -> None:
        self._note_checkpoint(group, f"#{key}")
        job = self._groups.jobs.get(key)
        before = job.group.metadata.uid if job is not None and job.group is not None else None
        if self._groups.upsert_group(group):
            self.generation += 1
            if job is not None and before != group.metadata.uid:
                self._sort_members(key)
            self._avoid(key)

    def _upsert_queue(self, queue: Queue, _key: str) -> None:
        if self._groups.upsert_queue(queue):
            self.generation += 1

    def _upsert_job(self, job: BatchJob, key: str) -> None:
        self._upsert_other(job, key)
        self._groups.upsert_maker(job, key)

    def _upsert_other(self, obj: AnyObject, key: str) -> None:
        news, matters = self._others.upsert(obj, key)
        if news:
            self.generation += 1
        if matters:
            self._other_changed(type(obj), key)

    def _other_changed(self, kind: type[AnyObject], key: str) -> None:
        if kind is PriorityClass:
            self._read_all_again()
            self._groups.touch_all()
        elif kind in STATIC_KINDS:
            self._nodes.static_changed()
            self._room_changed()
            if kind is Namespace:
                self._groups.namespace_changed(key)

    def _unreadable(self, event: Unreadable) -> None:
        key = _key(event.namespace, event.name)
        old = self._tasks.get(key) if event.kind is Pod else None
        node_name = event.node_name or (old.node if old is not None else "")
        self._remove(event.kind, key)
        self.unreadable[event.kind, key] = event.why
        if event.kind is Pod and node_name:
            self._nodes.close(node_name, key)
            self._room_changed()
        self.generation += 1

    def _remove(self, kind: type[AnyObject], key: str) -> None:
        if kind is Pod:
            self._remove_pod(key)
        elif kind is Node:
            if self._nodes.remove(key):
                self._room_changed()
        elif kind is PodGroup:
            self._groups.remove_group(key)
            self._sort_members(key)
            self._avoid(key)
            self.checkpointed.discard(f"#{key}")
            self.generation += 1
        elif kind is Queue:
            self._groups.remove_queue(key)
            self.generation += 1
        elif self._others.remove(kind, key):
            self._other_changed(kind, key)
            if kind is BatchJob:
                self._groups.remove_maker(key)
            self.generation += 1

    def _room_changed(self) -> None:
        """Something but the use of a node changed."""
        self.room_generation += 1
        self.standing_generation += 1
        self.capacity_generation += 1
        self.generation += 1

    # --- what this process does ---------------------------------------------------------------------------------------

    def assume(self, pod_key: str, uid: str, node: str) -> None:
        """A bind of this pod to this node is under way: it holds its room from now on."""
        task = self._tasks.get(pod_key)
        if task is None or task.uid != uid or task.node:
            return
        self._assumed[pod_key] = (uid, node)
        self._replace(task, task.pod, _own_class(task))

    def forget(self, pod_key: str, uid: str) -> None:
        """The bind failed: the pod waits again."""
        if self._assumed.get(pod_key, ("", ""))[0] == uid:
            del self._assumed[pod_key]
            self._read_again(pod_key)

    def evicting(self, pod_key: str, uid: str) -> None:
        """The eviction of this pod is under way: its room is being released."""
        task = self._tasks.get(pod_key)
        if task is not None and task.uid == uid and not task.terminating:
            self._evicting[pod_key] = uid
            self._read_again(pod_key)

    def not_evicting(self, pod_key: str, uid: str) -> None:
        """The eviction was refused: the pod stays."""
        if self._evicting.get(pod_key) == uid:
            del self._evicting[pod_key]
            self._read_again(pod_key)

    def refuse_eviction(self, pod_key: str, uid: str, until: int | None, why: str = "") -> None:
        """This pod could not be evicted; it is no victim until then (microseconds since the epoch; None: ever)."""
        task = self._tasks.get(pod_key)
        if task is not None and task.uid == uid:
            self.refusals.add_eviction(pod_key, Refusal(uid, until, why))
            self.generation += 1

    def refuse_bind(self, pod_key: str, uid: str, node: str, until: int | None, why: str = "") -> None:
        """This pod could not be bound to this node; until then (as above) it is placed on others."""
        task = self._tasks.get(pod_key)
        if task is not None and task.uid == uid and not (task.node and not task.assumed):
            self.refusals.add_bind(pod_key, node, Refusal(uid, until, why))
            self._read_again(pod_key)

    def lapse(self, now: int) -> None:
        """Forget the refusals that have ended by now, and labels that no pod selects by any more; the room of pods that
        should be gone since long counts as capacity no more.

        A cycle does this before all else.
        """
        self.classes.forget_labels()
        victims, pods = self.refusals.lapse(now)
        if victims:
            self.generation += 1
        for key in pods:
            self._read_again(key)
        if self._nodes.lapse(now):
            self.generation += 1
            self.standing_generation += 1
            self.capacity_generation += 1

    @property
    def next_stuck(self) -> int | None:
        """When, at the earliest, `lapse` gives up another pod that terminates, in microseconds since the epoch."""
        return self._nodes.next_stuck

    def marks(self) -> tuple[Mapping[str, tuple[str, str]], Mapping[str, str]]:
        """What no object says: binds under way (uid and node by pod) and evictions under way (uid by pod)."""
        return self._assumed, self._evicting

    def _note_checkpoint(self, obj: Pod | PodGroup, key: str) -> None:
        """Whether it says when its work was last saved."""
        if LAST_CHECKPOINT_ANNOTATION in (obj.metadata.annotations or ()):
            self.checkpointed.add(key)
        else:
            self.checkpointed.discard(key)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _upsert_pod(self, pod: Pod, key: str) -> None:
        old = self._tasks.get(key)
        self._note_checkpoint(pod, key)
        cls: TaskClass | None = None
        if old is not None:
            if same_task(old, pod):
                if old.pod != pod:
                    old.pod = pod
                    self.generation += 1
                return
            if same_class(old.pod, pod):
                cls = _own_class(old)
        assumed = self._assumed.get(key)
        if assumed is not None and (assumed[0] != pod.metadata.uid or pod.spec.node_name):
            del self._assumed[key]
        evicting = self._evicting.get(key)
        if evicting is not None and (evicting != pod.metadata.uid or pod.metadata.deletion_timestamp is not None):
            del self._evicting[key]
        self.refusals.settle(key, pod.metadata.uid, placed=bool(pod.spec.node_name))
        self._replace(old, pod, cls)
        if self._nodes.reopen(key):
            self._room_changed()

    def _remove_pod(self, key: str) -> None:
        old = self._tasks.pop(key, None)
        self.checkpointed.discard(key)
        self._assumed.pop(key, None)
        self._evicting.pop(key, None)
        self.refusals.drop(key)
        if self._nodes.reopen(key):
            self._room_changed()
        if old is not None:
            self._count(old, None)
            self.generation += 1

    def _read_again(self, key: str) -> None:
        """What a task says may have changed, though its pod did not."""
        task = self._tasks.get(key)
        if task is not None:
            self._replace(task, task.pod, None)

    def _read_all_again(self) -> None:
        for key in list(self._tasks):
            self._read_again(key)

    def _replace(self, old: Task | None, pod: Pod, cls: TaskClass | None) -> None:
        """Put a task made of `pod` in the place of `old`; `cls` is its class where that is known."""
        task = read_task(pod, cls or self.classes.classify(pod), self.scheduler_name)
        if task.job and pod.metadata.owner_references:
            task.job = self._groups.home(task.job, pod)
        if not task.node and task.key in self._assumed:
            task.assume(self._assumed[task.key][1])
        if task.key in self._evicting:
            task.terminating = not task.terminal
        if not task.node:
            task.cls = self.classes.avoiding(task.cls, self.refusals.nodes(task.key), self._bad_nodes.of(task.job))
        task.priority, task.never_preempts = self._others.priority(pod)
        self._tasks[task.key] = task
        self._count(old, task)
        self.generation += 1

    def _sort_members(self, key: str) -> None:
        """The PodGroup of that key is gone, or is another than before: so its members may be others."""
        for task in self._groups.misplaced(key):
            self._replace(task, task.pod, _own_class(task))

    def _count(self, old: Task | None, new: Task | None) -> None:
        """Count `new` where `old` was counted: the same pod before and after, None where it is not there."""
        if new is not None:
            self.classes.use(new.cls)
        if old is not None:
            self.classes.release(old.cls)
        if old is not None and _leaves_room(old, new):
            self.room_generation += 1
        before, after = _place(old), _place(new)
        if before != after:
            self.standing_generation += 1
            if (before and old is not None and not old.job) or (after and new is not None and not new.job):
                self.capacity_generation += 1
        if old is not None and self._nodes.stuck(old):
            self.capacity_generation += 1
        if self._nodes.swap(old, new):
            self._room_changed()
        self._groups.swap(old, new)
        if (old is not None and old.terminal) or (new is not None and new.terminal):
            for key in self._bad_nodes.swap(old, new):
                self._avoid(key)

    def _avoid(self, key: str) -> None:
        """Other nodes may have become bad for a group: its pods that have none are of another class then."""
        job = self._groups.jobs.get(key)
        if self._bad_nodes.settle(key, job.group if job is not None else None) and job is not None:
            for task in [task for task in job.tasks.values() if not (task.node or task.terminal)]:
                self._read_again(task.key)

    # --- sums ---------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring all sums up to date; costs what changed since the last time."""
        if self._unread or self._groups.stale or self._nodes.stale or self.classes.generation != self._class_generation:
            for _ in self.refreshing():
                pass

    def refreshing(self) -> Iterator[None]:
        """The same in pieces of a few milliseconds. What is not done when it is left off is done the next time."""
        if self.classes.generation != self._class_generation:
            self._class_generation = self.classes.generation
            self._unread = self._by_class()
        while self._unread:
            for _ in range(min(_AT_ONCE, len(self._unread))):
                self._read_again(self._unread.pop())
            yield
        yield from self._groups.refreshing()
        self.classes.sweep()
        selections = self.classes.selections
        self._nodes.classes_changed(len(self.classes) + len(selections), self.classes.forgotten + selections.forgotten)
        yield from self._nodes.refreshing()

    def _by_class(self) -> list[str]:
        """The pods so that, read from the last to the first, their new classes are numbered as the old ones were.

        A model that was taken down and built again has them in this order, so whatever goes by it goes on as before.
        """
        pods: dict[int, list[str]] = {}
        for key, task in self._tasks.items():
            pods.setdefault(task.cls.like or task.cls.id, []).append(key)
        found = [key for number in sorted(pods) for key in pods[number]]
        found.reverse()
        return found

    def validate(self) -> None:
        """Work everything out anew and compare; for tests, after each step.

        Raises:
            AssertionError: a sum that is kept differs from the one worked out.
        """
        validate(self)


def _own_class(task: Task) -> TaskClass | None:
    """The class that the pod itself has, where that is known; not the one that nodes' refusals made of it."""
    return None if task.cls.avoids else task.cls


def _place(task: Task | None) -> tuple[object, ...]:
    """Where a pod stands or is to stand, and as what; empty where it does neither."""
    if task is None or task.terminal or not (task.node or task.nominated):
        return ()
    return task.node, task.nominated, task.cls.id, task.terminating, bool(task.job)


def _leaves_room(old: Task, new: Task | None) -> bool:
    """Whether another pod might find room that it did not find while this one was as it was."""
    if old.node and not old.terminal:
        stays = new is not None and new.node == old.node and not new.terminal
        return not stays or new is None or new.cls is not old.cls or (new.terminating and not old.terminating)
    if not old.nominated:
        return False
    # A nominee that is being deleted waits no longer, even where a finalizer keeps its object.
    ends = new is None or new.nominated != old.nominated or (new.terminating and not old.terminating)
    return ends or new is None or new.cls is not old.cls


def _key(namespace: str, name: str) -> str:
    """`namespace/name`, or `name` of a cluster-scoped object."""
    return f"{namespace}/{name}" if namespace else name
