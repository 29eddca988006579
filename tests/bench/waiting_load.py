"""A full cluster in which much waits: the load of `tests.bench.waiting`, and of others.

The groups are of many shapes: sizes from 8 to 27 pods, three priorities, one role or two of unlike size, with or
without a node selector, topology spread, minResources. Some queues have a capability below their share by weight, and
some namespaces a ResourceQuota that leaves little or nothing beside what runs there, so that groups wait for these as
well. Pods that a quota refuses are never created: in such a namespace a group comes without pods, and they are made
once it is in queue. What is used of the quotas is counted as their controller does.

There is a second set with inter-pod affinity (`AFFINITIES`): of six shapes one asks for one zone for all its pods, one
for a node of its own for each, one prefers both, and one is kept away by pods that run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from msgspec.structs import replace

from kbatch.api import conditions
from kbatch.api.names import EXPECTED_SECONDS_ANNOTATION, GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import (
    Affinity,
    AnyObject,
    Container,
    GroupTopology,
    LabelSelector,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    PriorityClass,
    Queue,
    QueueSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceRequirements,
    SubGroup,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kbatch.engine import Transaction, Verdict, verdict_conditions
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.simulator.controllers import QuotaUse
from tests.bench.engine import STAMP
from tests.bench.topology import wired

NAMESPACES: Final = 20
SIZES: Final = (8, 27)
BOUND: Final = {"ns0": 0.5, "ns8": 0.75, "ns16": 1.1}
"""The namespaces whose quota binds, and the quota over what runs there first: two were lowered since."""
CAPPED: Final = 0.75
"""The capability of a queue that has one, over its share by weight."""
HOSTNAME: Final = "kubernetes.io/hostname"
KEPT_AWAY: Final = {"load": "disk"}
"""The label of pods that others keep away."""

Affine = Literal["", "together", "apart", "preferred", "kept away"]
AFFINITIES: Final[tuple[Affine, ...]] = ("together", "apart", "preferred", "kept away", "", "")
"""What the shapes of the second set ask for, in turn."""
TOPOLOGIES: Final = (
    GroupTopology(max_hops=6), None, GroupTopology(mode="Preferred"), GroupTopology(max_hops=4), None,
)  # fmt: skip
"""What the shapes ask for where the plugin `topology` is on, in turn."""


@dataclass(frozen=True, slots=True)
class Row:
    """A cluster, its running groups of one pod of a CPU, and what waits; limits in seconds of the processor per cycle.

    Of the waiting groups the part `without_pods` comes without pods, besides those that a quota keeps from having any.
    """

    name: str
    nodes: int
    running: int
    waiting: int
    shapes: int
    queues: int
    without_pods: float
    mean: float
    p99: float | None
    cycles: int
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """What groups that are alike ask for: per role its name, pods, and CPUs of each."""

    roles: tuple[tuple[str, int, int], ...]
    priority: str
    selector: str
    spread: bool
    affinity: Affine
    stated: bool

    @property
    def size(self) -> int:
        return sum(count for _, count, _ in self.roles)

    @property
    def cpus(self) -> int:
        return sum(count * cpus for _, count, cpus in self.roles)


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked beside the plain load: inter-pod affinity, places in a network, expected run times."""

    affinity: bool = False
    topology: bool = False
    expected: bool = False


def shapes_of(count: int, chance: random.Random, *, affinity: bool, sizes: tuple[int, int] = SIZES) -> list[Shape]:
    """So many shapes, of gangs of at least and at most so many pods."""
    found = []
    for at in range(count):
        size = chance.randint(*sizes)
        roles: tuple[tuple[str, int, int], ...] = (("", size, chance.choice((1, 1, 2, 4))),)
        if at % 4 == 3:
            masters = chance.randint(1, 3)
            roles = (("master", masters, 4), ("worker", size - masters, 1))
        priority, selector = chance.choice(("low", "low", "mid", "high")), chance.choice(("", "", "a", "b"))
        affine = AFFINITIES[at % len(AFFINITIES)] if affinity else ""
        found.append(
            Shape(
                roles, priority,
                # On so many nodes there is one for each pod: half of them carry the label.
                selector="" if affine == "apart" else selector,
                # All pods in one zone are not spread over zones.
                spread=at % 5 == 4 and affine != "together",
                affinity=affine, stated=at % 2 == 0,
            )
        )  # fmt: skip
    return found


def _affinity_of(kind: Affine, alike: LabelSelector) -> Affinity | None:
    """What pods of a group ask for; `alike` are the pods of their group."""
    zone = PodAffinityTerm(topology_key="zone", label_selector=alike)
    host = PodAffinityTerm(topology_key=HOSTNAME, label_selector=alike)
    match kind:
        case "together":
            return Affinity(pod_affinity=PodAffinity(required=(zone,)))
        case "apart":
            return Affinity(pod_anti_affinity=PodAffinity(required=(host,)))
        case "preferred":
            return Affinity(
                pod_affinity=PodAffinity(preferred=(WeightedPodAffinityTerm(weight=50, pod_affinity_term=zone),)),
                pod_anti_affinity=PodAffinity(preferred=(WeightedPodAffinityTerm(weight=10, pod_affinity_term=host),)),
            )
        case _:
            return None


def _affinity_of_running(node: int) -> Affinity | None:
    """What one running pod of each node asks for: on every fourth it keeps others away, on the next it likes them."""
    disk = LabelSelector(match_labels=KEPT_AWAY)
    if node % 4 == 0:
        term = PodAffinityTerm(topology_key=HOSTNAME, label_selector=disk)
        return Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    if node % 4 == 1:
        term = PodAffinityTerm(topology_key="zone", label_selector=disk)
        liked = WeightedPodAffinityTerm(weight=20, pod_affinity_term=term)
        return Affinity(pod_affinity=PodAffinity(preferred=(liked,)))
    return None


def pods_of(name: str, namespace: str, shape: Shape, stamp: str) -> Iterator[Pod]:
    """The pods of a group."""
    for role, count, cpus in shape.roles:
        wanted = ResourceRequirements(requests={"cpu": str(cpus), "memory": f"{2 * cpus}Gi"})
        alike = LabelSelector(match_labels={"app": name})
        spec = PodSpec(
            scheduler_name="kube-batch", containers=(Container(name="main", image="busybox", resources=wanted),),
            node_selector={"kind": shape.selector} if shape.selector else None,
            affinity=_affinity_of(shape.affinity, alike),
        )  # fmt: skip
        if shape.spread:
            spec.topology_spread_constraints = (
                TopologySpreadConstraint(
                    max_skew=2, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=alike
                ),
            )
        common = {"app": name, **(KEPT_AWAY if shape.affinity == "kept away" else {})}
        for index in range(count):
            one = f"{name}-{role}{index}"
            yield Pod(
                metadata=Metadata(
                    name=one, namespace=namespace, uid=one, creation_timestamp=stamp,
                    labels={**common, SUB_GROUP_LABEL: role} if role else dict(common),
                    annotations={GROUP_NAME_ANNOTATION: name},
                ),
                spec=spec,
                status=PodStatus(phase="Pending"),
            )  # fmt: skip


def waiting_group(name: str, namespace: str, shape: Shape, queue: str, stamp: str, *, stated: bool) -> PodGroup:
    """The PodGroup of a group."""
    subs = tuple(SubGroup(name=role, min_member=count) for role, count, _ in shape.roles if role)
    least: dict[str, str | int | float] | None = None
    if stated:
        least = {"cpu": str(shape.cpus), "memory": f"{2 * shape.cpus}Gi"}
    return PodGroup(
        metadata=Metadata(name=name, namespace=namespace, uid=name, creation_timestamp=stamp, generation=1),
        spec=PodGroupSpec(
            min_member=shape.size, queue=queue, priority_class_name=shape.priority, sub_groups=subs, min_resources=least
        ),
    )


def weight_of(queue: int) -> int:
    """The weight of a queue, by its number."""
    return 1 + queue % 3


def capabilities(cpus: int, queues: int) -> dict[int, int]:
    """CPUs that some queues may have at most, of so many in the cluster, by their number: every fifth queue's."""
    together = sum(weight_of(index) for index in range(queues))
    return {
        index: int(CAPPED * cpus * weight_of(index) / together) for index in range(min(4, queues - 1), queues, 5)
    }  # fmt: skip


def cluster_of(nodes: int, cpus: int, queues: int, bound: Mapping[str, int]) -> Iterator[AnyObject]:
    """Priority classes, queues, quotas and nodes of so many CPUs: what is there before any pod.

    `bound`: of how many CPUs the quota is in these namespaces; two others have one that never binds.
    """
    for name, value in (("low", 1), ("mid", 10), ("high", 100)):
        yield PriorityClass(metadata=Metadata(name=name), value=value)
    capped = capabilities(nodes * cpus, queues)
    for index in range(queues):
        most: dict[str, str | int | float] | None = {"cpu": str(capped[index])} if index in capped else None
        yield Queue(metadata=Metadata(name=f"q{index}"), spec=QueueSpec(weight=weight_of(index), capability=most))
    for index in range(0, NAMESPACES, 4):
        namespace = f"ns{index}"
        hard: dict[str, str | int | float] = {"requests.cpu": str(bound.get(namespace, 100 * cpus * nodes))}
        yield ResourceQuota(metadata=Metadata(name="quota", namespace=namespace), spec=ResourceQuotaSpec(hard=hard))
    for index in range(nodes):
        labels = {HOSTNAME: f"n{index:05}", "zone": f"z{index % 8}", "kind": "ab"[index % 2]}
        yield Node(
            metadata=Metadata(name=f"n{index:05}", labels=labels),
            status=NodeStatus(allocatable={"cpu": str(cpus), "memory": "256Gi", "pods": "110"}),
        )


class World:
    """The cluster of a row, and the changes that befall it.

    Attributes:
        pods: how many pods of waiting groups were made.
        running: the pods of the first groups, which consist of one pod each: these are those that end.
    """

    def __init__(self, row: Row, load: Load, seed: int = 1) -> None:
        self.row, self.load = row, load
        self.chance = random.Random(seed)
        self.shapes = shapes_of(row.shapes, self.chance, affinity=load.affinity)
        self.model = ClusterModel()
        self.running: list[str] = []
        self.pods = 0
        self.groups = 0
        self._quotas: dict[str, QuotaUse] = {}
        self._bare: dict[str, Shape] = {}
        self._stand()
        for _ in range(row.waiting):
            self.arrive()

    # --- what is there first ------------------------------------------------------------------------------------------

    def _stand(self) -> None:
        """Make the cluster, and fill it."""
        row = self.row
        cpus = row.running // row.nodes
        spaces = [f"ns{self.chance.randrange(NAMESPACES)}" for _ in range(row.running)]
        used = Counter(spaces)
        bound = {namespace: int(part * used[namespace]) for namespace, part in BOUND.items()}
        for obj in cluster_of(row.nodes, cpus, row.queues, bound):
            if isinstance(obj, ResourceQuota):
                self._quotas[obj.metadata.namespace] = QuotaUse(obj)
            elif isinstance(obj, Node) and self.load.topology:
                self.model.apply(Upsert(wired(obj, int(obj.metadata.name[1:]))))
            else:
                self.model.apply(Upsert(obj))
        wanted = ResourceRequirements(requests={"cpu": "1", "memory": "2Gi"})
        runs = verdict_conditions(Verdict("", shadow=False, enqueued=True, scheduled=True), 1)
        left = capabilities(row.nodes * cpus, row.queues)
        for at, namespace in enumerate(spaces):
            name, node = f"r{at:06}", at % row.nodes
            queue = self.chance.choice([each for each in range(row.queues) if left.get(each, 1)])
            if queue in left:
                left[queue] -= 1
            group = PodGroup(
                metadata=Metadata(
                    name=name, namespace=namespace, uid=name, creation_timestamp=STAMP, generation=1,
                    annotations=self._expected(at),
                ),
                spec=PodGroupSpec(
                    min_member=1, queue=f"q{queue}", priority_class_name=self.chance.choice(("low", "mid", "high"))
                ),
                status=PodGroupStatus(conditions=conditions.merge((), runs, STAMP)),
            )  # fmt: skip
            self.model.apply(Upsert(group))
            spec = PodSpec(
                scheduler_name="kube-batch", node_name=f"n{node:05}",
                containers=(Container(name="main", image="busybox", resources=wanted),),
                affinity=_affinity_of_running(node) if self.load.affinity and at < row.nodes else None,
            )  # fmt: skip
            pod = Pod(
                metadata=Metadata(
                    name=f"{name}-0", namespace=namespace, uid=name, creation_timestamp=STAMP,
                    annotations={GROUP_NAME_ANNOTATION: name},
                ),
                spec=spec,
                status=PodStatus(phase="Running", start_time=STAMP),
            )  # fmt: skip
            self._put(pod)
            self.running.append(f"{namespace}/{name}-0")
        self._state_quotas()

    def _expected(self, number: int) -> dict[str, str] | None:
        """How long a group says that its pods run, where groups say so: from ten minutes to an hour."""
        return {EXPECTED_SECONDS_ANNOTATION: str(600 + number * 7919 % 3000)} if self.load.expected else None

    # --- what changes -------------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        """One more group comes."""
        chance, at = self.chance, self.groups
        self.groups += 1
        number = chance.randrange(len(self.shapes))
        shape = self.shapes[number]
        name, namespace = f"w{at:06}", f"ns{chance.randrange(NAMESPACES)}"
        stamp = f"2026-01-01T00:00:{at * 59 // max(1, self.row.waiting) % 60:02}Z"
        bare = chance.random() < self.row.without_pods or namespace in BOUND
        group = waiting_group(
            name, namespace, shape, f"q{chance.randrange(self.row.queues)}", stamp, stated=bare or shape.stated
        )
        group.metadata.annotations = self._expected(at)
        if self.load.topology:
            group.spec.topology = TOPOLOGIES[number % len(TOPOLOGIES)]
        self.model.apply(Upsert(group))
        if bare:
            self._bare[f"{namespace}/{name}"] = shape
        else:
            self._make_pods(name, namespace, shape, stamp)

    def end_one(self) -> None:
        """A running pod ends, and its group with it."""
        self._remove(self.running.pop(self.chance.randrange(len(self.running))))
        self._state_quotas()

    def carry_out(self, transactions: list[Transaction], verdicts: list[Verdict], stamp: str) -> tuple[int, int]:
        """Do what was decided, and write what has changed of how groups stand, as the scheduler does; the pods of
        groups that came in queue are made.
        """
        binds = evictions = 0
        for verdict in verdicts:
            self._write(verdict, stamp)
            shape = self._bare.pop(verdict.group, None) if verdict.enqueued else None
            if shape is not None:
                namespace, _, name = verdict.group.partition("/")
                self._make_pods(name, namespace, shape, stamp)
        for transaction in transactions:
            for bind in transaction.binds:
                pod = self.model.tasks[bind.pod].pod
                self.model.assume(bind.pod, bind.uid, bind.node)
                status = PodStatus(phase="Running", start_time=stamp)
                self._put(replace(pod, spec=replace(pod.spec, node_name=bind.node), status=status))
                binds += 1
            for eviction in transaction.evictions:
                pod = self.model.tasks[eviction.pod].pod
                self._remove(eviction.pod)
                evictions += 1
                if eviction.pod in self.running:
                    self.running.remove(eviction.pod)
                else:
                    self._make_again(pod)
        self._state_quotas()
        return binds, evictions

    def reasons(self) -> dict[str, int]:
        """How many groups wait for which reason, by its code, the most frequent first."""
        found = Counter(
            condition.reason or ""
            for job in self.model.jobs.values()
            if job.group is not None
            for condition in job.group.status.conditions or ()
            if condition.type == "Scheduled" and condition.status == "False"
        )
        return dict(found.most_common())

    # --- inside -------------------------------------------------------------------------------------------------------

    def _write(self, verdict: Verdict, stamp: str) -> None:
        """Write how a group stands, if that has changed."""
        group = self.model.jobs[verdict.job].group if verdict.job in self.model.jobs else None
        if group is None:
            return
        standing = group.status.conditions or ()
        merged = conditions.merge(standing, verdict_conditions(verdict, 1), stamp)
        if [(each.type, each.status, each.reason) for each in merged] != [
            (each.type, each.status, each.reason) for each in standing
        ] or verdict.attempts != group.status.scheduling_attempts:
            status = replace(group.status, conditions=merged, scheduling_attempts=verdict.attempts)
            self.model.apply(Upsert(replace(group, status=status)))

    def _make_pods(self, name: str, namespace: str, shape: Shape, stamp: str) -> None:
        for pod in pods_of(name, namespace, shape, stamp):
            self._put(pod)
            self.pods += 1

    def _make_again(self, pod: Pod) -> None:
        """Another pod comes in the place of a gang's that was evicted, as its controller makes it."""
        made = replace(pod.metadata, uid=f"{pod.metadata.uid}+")
        self._put(Pod(metadata=made, spec=replace(pod.spec, node_name=""), status=PodStatus(phase="Pending")))

    def _put(self, pod: Pod) -> None:
        """A pod is there now, or is another than it was."""
        self.model.apply(Upsert(pod))
        quota = self._quotas.get(pod.metadata.namespace)
        if quota is not None:
            quota.count(pod.metadata.name, pod)

    def _remove(self, key: str) -> None:
        """A pod goes, and its group with it if that is one of the first, which consist of one pod."""
        namespace, _, name = key.partition("/")
        self.model.apply(Delete(Pod, namespace, name))
        if namespace in self._quotas:
            self._quotas[namespace].count(name, None)
        group, _, last = name.rpartition("-")
        if group.startswith("r") and last == "0":
            self.model.apply(Delete(PodGroup, namespace, group))

    def _state_quotas(self) -> None:
        """Write what is used of the quotas, where that has changed."""
        for quota in self._quotas.values():
            if quota.news:
                self.model.apply(Upsert(quota.stated()))
