"""Pods as the scheduler sees them: a task, and the class of tasks that are alike in all that a decision reads.

Tasks are classed by content, never by owner: two Jobs with the same template share one class, so that what is worked
out for a class (which nodes may take it, how it scores there) is worked out once. The labels of a pod count towards its
class only once some pod in the cluster selects other pods (inter-pod affinity, topology spread), and then only the
labels that are selected by: an index label that differs in each pod does not split a gang of a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, TypeAlias

import msgspec

from kbatch.api.names import GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import LabelSelector, Pod, PodSpec, timestamp_us
from kbatch.model.features import features_needed
from kbatch.model.journal import Journal
from kbatch.model.requests import as_held, effective_request, resize_infeasible
from kbatch.model.selections import Selection, SelectionTable
from kbatch.model.selectors import host_ports
from kbatch.resources import PODS, Resources

_Labels: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A namespace, and those of a pod's labels that count."""

_NOWHERE: Final = (None, None)
_AVOIDING: Final[_Labels] = ("", (("", ""),))
"""In the place of labels: no pod has these."""

_UNUSED: Final = 1000
"""So many classes may be out of use before they are forgotten, should nobody read the model for so long."""

_IDLE_KEYS: Final = 64
"""So many labels may go on counting that no pod selects by any more. Each that begins to count has all pods classed
again, and so has forgetting: where pods with a selector come and go one by one, that is seldom."""

_TEMPLATES: Final = 32
"""So many ways to write one content are known at a time: container names, for example, count for nothing."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(eq=False, slots=True)
class TaskClass:
    """Tasks that ask the same of a node.

    Attributes:
        id: integer, unique within one `ClassTable` for ever; equal content gives the same object while tasks have it.
        request: the effective request without `pods`; a shared value, not to be changed.
        needs: `request` above zero plus one place (`pods`), as pairs in the order of names: what room must hold.
        spec: the spec of the first pod of the class; every field that a predicate or a score may read is equal in all.
        namespace, labels: what selectors of other pods see; empty while nothing in the cluster selects pods.
        couples: whether the spec itself names other pods (inter-pod affinity or anti-affinity, topology spread).
        selection: what its spec asks of nodes besides room, without what names single nodes.
        volumes: what ties it to nodes: claims as `namespace/name`, drivers of inline volumes as `csi:driver`.
        avoids: nodes that refused the pod, or on which too many pods of its group failed: it is of a class of its own
            while that is so. shuns: the latter alone. like: id of the class that it has without them.
        order: made of the content alone: ties are decided by it, and so alike in every process, whereas `id` says in
            which order this one met its classes.
    """

    id: int
    request: Resources
    needs: tuple[tuple[str, int], ...]
    spec: PodSpec
    namespace: str
    labels: dict[str, str]
    couples: bool
    selection: Selection
    volumes: tuple[str, ...] = ()
    avoids: frozenset[str] = frozenset()
    shuns: frozenset[str] = frozenset()
    like: int = 0
    order: bytes = b""

    @property
    def best_effort(self) -> bool:
        """Whether it asks for nothing but a place."""
        return len(self.needs) == 1


class Task(msgspec.Struct, eq=False, gc=False):
    """One pod. Changed in place by the `ClusterModel` alone; everything else only reads it.

    Attributes:
        key: `namespace/name`.
        job: key of its `Job`; "" for a pod of another scheduler. `read_task` goes by what the pod names alone.
        node: where it is bound, or assumed to be while its bind is under way; "" where it is not.
        terminal: Succeeded or Failed; it holds nothing any more.
        terminating: being deleted, or its eviction is under way; its room is being released.
        release_at: when its grace ends, in microseconds since the epoch; None while that is not known, or it is
            not terminating.
        nominated: the node that is being cleared for it; "" where none is.
        priority: resolved through PriorityClasses.
        gated: it cannot be placed, however much room there is: it has scheduling gates, or claims.
        claims: it has resource claims (`spec.resourceClaims`), which nobody here can allocate.
        never_preempts: its preemptionPolicy is Never.
        started: since when it is bound, in microseconds since the epoch, as far as the API server says; else its
            creation.
    """

    key: str
    uid: str
    pod: Pod
    cls: TaskClass
    job: str = ""
    role: str = ""
    created: int = 0
    node: str = ""
    assumed: bool = False
    terminal: bool = False
    succeeded: bool = False
    running: bool = False
    terminating: bool = False
    release_at: int | None = None
    nominated: str = ""
    gated: bool = False
    claims: bool = False
    priority: int = 0
    never_preempts: bool = False
    started: int = 0

    def assume(self, node: str) -> None:
        """Its bind to this node is under way."""
        self.node, self.assumed, self.nominated = node, True, ""
        self.started = started_us(self.pod) or self.created

    @property
    def pending(self) -> bool:
        """Waits for a node and could take one, but for its gates."""
        return not (self.node or self.terminal or self.terminating)

    @property
    def holds(self) -> bool:
        """Stands on a node for good: bound or assumed, not on its way out."""
        return bool(self.node) and not (self.terminal or self.terminating)

    @property
    def confirmed(self) -> bool:
        """Has succeeded, or stands on a node for good by what the API server says."""
        return self.succeeded or (self.holds and not self.assumed)


def counted(tasks: Iterable[Task]) -> dict[TaskClass, int]:
    """How many of the tasks are of each class. Pods of a class ask for the same: who adds up needs no look at each."""
    found: dict[TaskClass, int] = {}
    for task in tasks:
        found[task.cls] = found.get(task.cls, 0) + 1
    return found


def read_task(pod: Pod, cls: TaskClass, scheduler_name: str) -> Task:
    """What the pod itself says; its priority stays unread. Pods of other schedulers belong to no job."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    task = Task(f"{meta.namespace}/{meta.name}", meta.uid, pod, cls)
    task.created = timestamp_us(meta.creation_timestamp) or 0
    task.node = spec.node_name
    task.succeeded = status.phase == "Succeeded"
    task.terminal = task.succeeded or status.phase == "Failed"
    task.running = status.phase == "Running"
    if meta.deletion_timestamp is not None:
        task.terminating = not task.terminal
        task.release_at = timestamp_us(meta.deletion_timestamp)
    task.claims = bool(spec.resource_claims)
    task.gated = task.claims or bool(spec.scheduling_gates)
    if spec.scheduler_name == scheduler_name:
        task.job = _job_key(pod)
        task.role = (meta.labels or {}).get(SUB_GROUP_LABEL, "")
        if not task.node and not task.terminal:
            task.nominated = status.nominated_node_name
    if task.node:
        task.started = started_us(pod) or task.created
    return task


def same_class(one: Pod, other: Pod) -> bool:
    """Whether two states of one pod are of one class for sure: also where it has come to a node in between."""
    if one.metadata.labels != other.metadata.labels or not _same_size(one, other):
        return False
    spec = one.spec
    if spec.node_name != other.spec.node_name:
        if other.status.container_statuses is not None or other.status.init_container_statuses is not None:
            return False  # what the kubelet says of its containers counts from now on
        spec = msgspec.structs.replace(spec, node_name=other.spec.node_name)
    return spec == other.spec


def _same_size(one: Pod, other: Pod) -> bool:
    """Whether the kubelet holds the same for both states of a pod, as far as it says."""
    before, after = one.status, other.status
    if before.container_statuses != after.container_statuses:
        return False
    if before.init_container_statuses != after.init_container_statuses:
        return False
    return before.conditions == after.conditions or resize_infeasible(one) == resize_infeasible(other)


def same_task(task: Task, pod: Pod) -> bool:
    """Whether a new state of the pod says nothing that the task does not say already."""
    was, now = task.pod.metadata, pod.metadata
    before, after = task.pod.status, pod.status
    return (
        after.phase == before.phase
        and now.deletion_timestamp == was.deletion_timestamp
        and after.nominated_node_name == before.nominated_node_name
        and now.uid == was.uid
        and now.labels == was.labels
        and now.annotations == was.annotations
        and now.owner_references == was.owner_references
        and now.creation_timestamp == was.creation_timestamp
        and pod.spec == task.pod.spec
        and _same_size(task.pod, pod)
        and (not task.node or (started_us(pod) or task.created) == task.started)
    )


def _job_key(pod: Pod) -> str:
    meta = pod.metadata
    group = (meta.annotations or {}).get(GROUP_NAME_ANNOTATION)
    if group:
        return f"{meta.namespace}/{group}"
    for owner in meta.owner_references:
        if owner.controller:
            return f"{meta.namespace}/{owner.name}#{owner.uid}"
    return f"{meta.namespace}/{meta.name}#{meta.uid}"


@dataclass(eq=False, slots=True)
class _Content:
    """What a class, and its variants by labels, have in common. It lives as long as any of them is used.

    Attributes:
        base: the class without labels. key: the content. templates: how pods of it were written, the latest of them.
        variants: the classes by namespace and labels that count. users: tasks of all of them.
        selects: the labels that its spec selects other pods by.
    """

    base: TaskClass
    key: bytes
    templates: list[bytes] = field(default_factory=list)
    variants: dict[_Labels, TaskClass] = field(default_factory=dict)
    users: int = 0
    selects: frozenset[str] = frozenset()


@dataclass
class ClassTable:
    """The classes of the tasks that exist, interned by content.

    A class that no task uses any more is forgotten at the next `sweep`; its id is never given again, so that whatever
    is kept under it elsewhere is merely out of use. So what is known does not depend on pods that are gone.
    """

    selections: SelectionTable = field(default_factory=SelectionTable)
    _by_template: dict[bytes, _Content] = field(default_factory=dict)
    _by_content: dict[bytes, _Content] = field(default_factory=dict)
    _homes: dict[int, tuple[_Content, _Labels | None]] = field(default_factory=dict)
    _users: dict[int, int] = field(default_factory=dict)
    _unused: dict[int, None] = field(default_factory=dict)
    _avoiding: dict[tuple[int, frozenset[str], frozenset[str]], TaskClass] = field(default_factory=dict)
    _avoids: dict[int, tuple[int, frozenset[str], frozenset[str]]] = field(default_factory=dict)
    _count: int = 0
    forgotten: int = 0
    """How many classes were forgotten so far."""
    selected_keys: set[str] = field(default_factory=set)
    coupled: bool = False
    coupling: dict[int, TaskClass] = field(default_factory=dict)
    """The classes of tasks that exist whose specs speak of other pods, by id."""
    coupling_changes: Journal[int] = field(init=False)
    """Which ids have come into `coupling`, or are gone from it."""
    generation: int = 0
    """Moves when other labels count than before: tasks must then be classed again."""
    _selecting: dict[str, int] = field(default_factory=dict)
    """By label how many contents select by it; some of `selected_keys` may have none any more."""

    def __post_init__(self) -> None:
        self.coupling_changes = Journal(alive=self.coupling)

    def __len__(self) -> int:
        return len(self._homes)

    def use(self, cls: TaskClass) -> None:
        """One more task is of the class."""
        users = self._users.get(cls.id, 0)
        self._users[cls.id] = users + 1
        if not users:
            self._unused.pop(cls.id, None)
            if cls.couples:
                self.coupling[cls.id] = cls
                self.coupling_changes.note(cls.id)
        self._homes[cls.id][0].users += 1

    def release(self, cls: TaskClass) -> None:
        """One task less is of the class."""
        users = self._users[cls.id] - 1
        self._homes[cls.id][0].users -= 1
        if users:
            self._users[cls.id] = users
        else:
            del self._users[cls.id]
            self._unused[cls.id] = None
            if self.coupling.pop(cls.id, None) is not None:
                self.coupling_changes.note(cls.id)
            if len(self._unused) > _UNUSED:
                self.sweep()

    def sweep(self) -> None:
        """Forget the classes that no task uses; costs what came out of use."""
        unused, self._unused = self._unused, {}
        for number in unused:
            content, labels = self._homes.get(number, _NOWHERE)
            if content is None:
                continue  # a base that went with the last of its variants
            if labels is not None:
                if content.variants.get(labels, content.base).id == number:
                    del content.variants[labels]
                self._forget(number)
            if not content.users and content.base.id in self._homes and not content.variants:
                del self._by_content[content.key]
                for template in content.templates:
                    del self._by_template[template]
                for name in content.selects:
                    self._selecting[name] -= 1
                    if not self._selecting[name]:
                        del self._selecting[name]
                self._forget(content.base.id)

    def forget_labels(self) -> None:
        """Let labels count no longer that no pod selects by any more, when there are many of them.

        Which pods share a class depends on it, so whoever decides by classes says when: a cycle, when it begins.
        """
        if len(self.selected_keys) <= _IDLE_KEYS:
            return
        self.sweep()  # a class that is out of use and not forgotten yet must make no difference
        if len(self.selected_keys) > len(self._selecting) + _IDLE_KEYS:
            self.selected_keys = set(self._selecting)
            self.coupled = any(content.base.couples for content in self._by_content.values())
            self._count_anew()

    def _count_anew(self) -> None:
        """Other labels count than before."""
        self.generation += 1
        for content in self._by_content.values():
            content.variants.clear()

    def _forget(self, number: int) -> None:
        del self._homes[number]
        key = self._avoids.pop(number, None)
        if key is not None:
            del self._avoiding[key]
        self.forgotten += 1

    def classify(self, pod: Pod) -> TaskClass:
        """The class of a pod.

        Raises:
            QuantityError: its requests cannot be read.
        """
        spec = as_held(pod)
        volumes = _volumes(pod)
        template = _encode(
            (
                spec.containers, spec.init_containers, spec.overhead, spec.resources, spec.node_selector, spec.affinity,
                spec.tolerations, spec.topology_spread_constraints, spec.priority, spec.priority_class_name,
                spec.preemption_policy, spec.host_network, spec.host_users, volumes,
            )
        )  # fmt: skip
        found = self._by_template.get(template)
        if found is None:
            found = self._meet(pod, spec, volumes)
            self._by_template[template] = found
            found.templates.append(template)
            if len(found.templates) > _TEMPLATES:
                del self._by_template[found.templates.pop(0)]
        base = found.base
        if not self.coupled:
            return base
        labels = pod.metadata.labels or {}
        if self.selected_keys and labels:
            seen = tuple(sorted([item for item in labels.items() if item[0] in self.selected_keys]))
        else:
            seen = ()
        key = (pod.metadata.namespace, seen)
        variant = found.variants.get(key)
        if variant is None:
            variant = self._new(
                base.request, spec, pod.metadata.namespace, dict(seen), base.volumes,
                couples=base.couples, order=_order(found.key, _encode(key)),
            )  # fmt: skip
            found.variants[key] = variant
            self._homes[variant.id] = found, key
            self._unused[variant.id] = None
        return variant

    def avoiding(self, cls: TaskClass, refused: frozenset[str], shunned: frozenset[str] = frozenset()) -> TaskClass:
        """The class of pods that are like these but for the nodes that refused them, and those their group shuns."""
        if not refused and not shunned:
            return cls
        nodes = refused | shunned
        key = cls.id, nodes, shunned
        found = self._avoiding.get(key)
        if found is None:
            self._count += 1
            found = self._avoiding[key] = replace(
                cls,
                id=self._count,
                avoids=nodes,
                shuns=shunned,
                like=cls.id,
                order=_order(cls.order, _encode((sorted(nodes), sorted(shunned)))),
            )
            self._avoids[found.id] = key
            self._homes[found.id] = self._homes[cls.id][0], _AVOIDING
            self._unused[found.id] = None
        return found

    def _meet(self, pod: Pod, spec: PodSpec, volumes: tuple[str, ...]) -> _Content:
        """A template not seen before: the class of its content, which another template may share."""
        request = effective_request(spec)
        ports = sorted(host_ports(spec))
        images = sorted({container.image for container in spec.containers})
        content = _encode(
            (
                sorted(request.items()), sorted((spec.node_selector or {}).items()), spec.affinity, spec.tolerations,
                spec.topology_spread_constraints, spec.priority, spec.priority_class_name, spec.preemption_policy,
                spec.host_network, ports, images, volumes,
            )
        )  # fmt: skip
        features = features_needed(spec)
        if features:  # else the content, and with it the order of equals, is what it was before there were any
            content += _encode(features)
        found = self._by_content.get(content)
        if found is None:
            couples = False
            selects: set[str] = set()
            for selector, keys in _pod_selectors(spec):
                couples = True
                selects |= _labels_of(selector, keys)
            namespace = pod.metadata.namespace if volumes else ""
            base = self._new(request, spec, namespace, {}, volumes, couples=couples, order=_order(content))
            found = self._by_content[content] = _Content(base, content, selects=frozenset(selects))
            self._homes[base.id] = found, None
            self._unused[base.id] = None
            if couples:
                self._select(found.selects)
        return found

    def _select(self, wanted: frozenset[str]) -> None:
        """Labels under these keys count from now on: one content more selects by them."""
        for key in wanted:
            self._selecting[key] = self._selecting.get(key, 0) + 1
        if not self.coupled or not wanted <= self.selected_keys:
            self.coupled = True
            self.selected_keys |= wanted
            self._count_anew()

    def _new(
        self,
        request: Resources,
        spec: PodSpec,
        namespace: str,
        labels: dict[str, str],
        volumes: tuple[str, ...],
        *,
        couples: bool,
        order: bytes,
    ) -> TaskClass:
        self._count += 1
        needs = tuple(sorted([*((name, amount) for name, amount in request.items() if amount > 0), (PODS, 1)]))
        return TaskClass(
            self._count, request, needs, spec, namespace, labels, couples, self.selections.read(spec), volumes,
            order=order,
        )  # fmt: skip


def _order(*content: bytes) -> bytes:
    """The `order` of a class of this content."""
    return blake2b(b"".join(content), digest_size=16).digest()


def _volumes(pod: Pod) -> tuple[str, ...]:
    """What volumes tie the pod to: its claims, which make it unlike the others, and drivers of inline volumes."""
    if not pod.spec.volumes:
        return ()
    found: list[str] = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append(f"{pod.metadata.namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            found.append(f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}")
        elif volume.csi is not None:
            found.append(f"csi:{volume.csi.driver}")
    return tuple(found)


def _pod_selectors(spec: PodSpec) -> Iterator[tuple[LabelSelector | None, tuple[str, ...]]]:
    """Every selector by which the spec looks at other pods, with the label keys it takes from the pod itself."""
    affinity = spec.affinity
    if affinity is not None:
        for part in (affinity.pod_affinity, affinity.pod_anti_affinity):
            if part is not None:
                for term in part.required or ():
                    yield term.label_selector, (*(term.match_label_keys or ()), *(term.mismatch_label_keys or ()))
                for weighted in part.preferred or ():
                    term = weighted.pod_affinity_term
                    yield term.label_selector, (*(term.match_label_keys or ()), *(term.mismatch_label_keys or ()))
    for constraint in spec.topology_spread_constraints or ():
        yield constraint.label_selector, constraint.match_label_keys or ()


def _labels_of(selector: LabelSelector | None, keys: tuple[str, ...]) -> set[str]:
    """The keys of all labels that a selector, narrowed by some of the pod's own, reads."""
    wanted = set(keys)
    if selector is not None:
        wanted.update(selector.match_labels or ())
        wanted.update(requirement.key for requirement in selector.match_expressions or ())
    return wanted


def started_us(pod: Pod) -> int | None:
    """When the pod came onto its node, in microseconds since the epoch.

    That is what its condition PodScheduled says, else its status' start time.
    """
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            return timestamp_us(condition.last_transition_time)
    return timestamp_us(pod.status.start_time)
