"""Small random clusters with one gang that waits: plain facts, and the same as objects for the engine.

The facts are read by `tests.reference.brute`, which shares no code with the engine. The same seed gives the same world.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from kbatch.api.objects import (
    Affinity,
    AnyObject,
    Container,
    ContainerPort,
    LabelSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    PodGroupSpec,
    ResourceRequirements,
    SubGroup,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from tests.unit.engine.worlds import group, node, pod, queue

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
KINDS: Final = ("place", "reclaim", "preempt")
UNITS: Final = {"cpu": "", "memory": "Gi", "nvidia.com/gpu": ""}

Labels = dict[str, str]


@dataclass(frozen=True)
class Machine:
    """A node: what it holds (whole cores, Gi, cards, places), its labels, its taints as (key, value, effect)."""

    name: str
    room: dict[str, int]
    labels: Labels
    taints: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class Term:
    """A required term of pod affinity or anti-affinity: pods with all these labels, within one domain of the key."""

    key: str
    labels: Labels


@dataclass(frozen=True)
class Spread:
    """A topology spread constraint that must hold."""

    key: str
    skew: int
    labels: Labels
    least_domains: int | None = None
    selected_only: bool = True
    taints_count: bool = False


@dataclass(frozen=True)
class Shape:
    """What pods of one kind ask for."""

    request: dict[str, int]
    labels: Labels
    selector: Labels = field(default_factory=dict)
    affinity_to_nodes: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Requirements (key, operator, values) of one node selector term."""
    tolerations: tuple[str, ...] = ()
    """Keys of taints that it tolerates."""
    near: tuple[Term, ...] = ()
    far: tuple[Term, ...] = ()
    spreads: tuple[Spread, ...] = ()
    ports: tuple[int, ...] = ()


@dataclass(frozen=True)
class Standing:
    """A running pod. `leaves`: it may be evicted for the gang. `terminating`: it was, and still holds its room."""

    name: str
    shape: Shape
    machine: int
    leaves: bool = False
    terminating: bool = False


@dataclass(frozen=True)
class Part:
    """A role; `most` None: no bound."""

    name: str
    least: int
    most: int | None = None


@dataclass(frozen=True)
class Members:
    """Alike pods of the gang; `part` is the index of their role, -1 for none."""

    part: int
    shape: Shape
    count: int


@dataclass
class Case:
    """A cluster with running pods, and a gang that waits."""

    seed: int
    kind: str
    machines: list[Machine]
    standing: list[Standing]
    minimum: int
    parts: list[Part]
    members: list[Members]

    @property
    def needed(self) -> int:
        """Pods that must stand together: the minimum, or the sum of the roles' if that is more."""
        return max(self.minimum, sum(part.least for part in self.parts))

    @property
    def features(self) -> tuple[str, ...]:
        """What about the gang makes it more than packing; "choice": it has more pods than it needs."""
        shapes = [each.shape for each in self.members]
        others = [each.shape for each in self.standing]
        meant = [term.labels.items() for shape in others for term in shape.far]
        found = {
            "spread": any(shape.spreads for shape in shapes),
            "anti-affinity": any(shape.far for shape in shapes)
            or any(labels <= shape.labels.items() for labels in meant for shape in shapes),
            "affinity": any(shape.near for shape in shapes),
            "ports": any(shape.ports for shape in shapes),
            "nodes": any(shape.selector or shape.affinity_to_nodes for shape in shapes),
            "roles": bool(self.parts),
            "choice": sum(each.count for each in self.members) > self.needed,
        }
        return tuple(name for name, there in found.items() if there) or ("packing only",)

    def pod_names(self) -> list[tuple[str, int]]:
        """The gang's pods by name, with the index of what they are alike with."""
        return [(f"g-{at}-{index}", at) for at, each in enumerate(self.members) for index in range(each.count)]

    def objects(self) -> list[AnyObject]:
        """The same as Kubernetes objects: the gang is `ns/g`, in the queue `own`."""
        found: list[AnyObject] = [_machine(each) for each in self.machines]
        found += [queue("own", 1_000_000 if self.kind == "reclaim" else 1), queue("other")]
        for at, each in enumerate(self.standing):
            found += self._standing(each, at)
        subs = tuple(SubGroup(name=part.name, min_member=part.least, max_member=part.most) for part in self.parts)
        gang = group("g", 1, at=100)
        spec = PodGroupSpec(min_member=self.minimum, queue="own", sub_groups=subs or None)
        found.append(PodGroup(metadata=gang.metadata, spec=spec))
        for name, index in self.pod_names():
            each_ = self.members[index]
            role = self.parts[each_.part].name if each_.part >= 0 else ""
            found.append(_pod(name, each_.shape, of="g", at=100, role=role, priority=100))
        if self.kind == "reclaim":
            found += self._demand()
        return found

    def _standing(self, each: Standing, at: int) -> list[AnyObject]:
        on = self.machines[each.machine].name
        if not each.leaves:
            return [_pod(each.name, each.shape, on=on, at=at, scheduler="default-scheduler", priority=1000)]
        where = "other" if self.kind == "reclaim" else "own"
        return [
            group(each.name, 1, at=at, queue=where),
            _pod(each.name, each.shape, of=each.name, on=on, at=at, priority=1 if self.kind == "preempt" else 100),
        ]

    def _demand(self) -> list[AnyObject]:
        """Work of the gang's queue that comes later and fits nowhere: with it the queue deserves nearly everything."""
        tolerations = (Toleration(operator="Exists"),)
        request: dict[str, Any] = {name: f"1000{UNITS[name]}" for name in ("cpu", "memory", "nvidia.com/gpu")}
        wish = pod("wish", of="wish", at=200, priority=0, tolerations=tolerations)
        wish.spec.containers = (Container(resources=ResourceRequirements(requests=request)),)
        return [group("wish", 1, at=200, queue="own"), wish]


def _machine(each: Machine) -> AnyObject:
    room = {name: f"{amount}{UNITS.get(name, '')}" for name, amount in each.room.items()}
    extra = {name: amount for name, amount in room.items() if name not in {"cpu", "memory", "pods"}}
    taints = tuple(Taint(key=key, value=value, effect=effect) for key, value, effect in each.taints)
    return node(
        each.name, room["cpu"], room["memory"], room["pods"],
        labels=dict(each.labels), extra=extra, taints=taints or None,
    )  # fmt: skip


def _pod(name: str, shape: Shape, **more: Any) -> Pod:
    made = pod(name, "0", labels=dict(shape.labels), **more)
    requests: dict[str, Any] = {key: f"{amount}{UNITS[key]}" for key, amount in shape.request.items() if amount}
    ports = tuple(ContainerPort(container_port=port, host_port=port) for port in shape.ports)
    made.spec.containers = (Container(resources=ResourceRequirements(requests=requests), ports=ports or None),)
    made.spec.node_selector = dict(shape.selector) or None
    made.spec.tolerations = tuple(Toleration(key=key, operator="Exists") for key in shape.tolerations) or None
    made.spec.affinity = _affinity(shape)
    made.spec.topology_spread_constraints = tuple(_constraint(spread) for spread in shape.spreads) or None
    return made


def _affinity(shape: Shape) -> Affinity | None:
    near, far = _terms(shape.near), _terms(shape.far)
    nodes = None
    if shape.affinity_to_nodes:
        wanted = tuple(
            NodeSelectorRequirement(key=key, operator=operator, values=values or None)
            for key, operator, values in shape.affinity_to_nodes
        )
        nodes = NodeAffinity(
            required=NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=wanted),))
        )  # fmt: skip
    if not (near or far or nodes):
        return None
    return Affinity(
        node_affinity=nodes,
        pod_affinity=PodAffinity(required=near) if near else None,
        pod_anti_affinity=PodAffinity(required=far) if far else None,
    )


def _terms(terms: tuple[Term, ...]) -> tuple[PodAffinityTerm, ...]:
    return tuple(PodAffinityTerm(topology_key=term.key, label_selector=_chosen(term.labels)) for term in terms)


def _chosen(labels: Labels) -> LabelSelector:
    return LabelSelector(match_labels=dict(labels))


def _constraint(spread: Spread) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=spread.skew,
        topology_key=spread.key,
        when_unsatisfiable="DoNotSchedule",
        label_selector=_chosen(spread.labels),
        min_domains=spread.least_domains,
        node_affinity_policy=None if spread.selected_only else "Ignore",
        node_taints_policy="Honor" if spread.taints_count else None,
    )


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(seed: int, kind: str = "place") -> Case:
    """The world of a seed.

    Args:
        seed: any number; the same one gives the same world.
        kind: "place": the gang waits beside pods of others. "reclaim": nodes are full of pods of another queue, which
            holds far more than it deserves (without cards: only in what the gang lacks may others be reclaimed from);
            "preempt": of pods of lower priority in the gang's own queue.
    """
    rng = Random(f"{kind} {seed}")
    machines = _machines(rng, cards=kind != "reclaim")
    free = [dict(machine.room) for machine in machines]
    standing: list[Standing] = []
    for at in range(rng.choice([0, 0, 1, 1, 2, 3, 4])):
        _stand(rng, machines, free, standing, f"f{at}", leaves=False)
    least = [dict(each) for each in free]
    if kind != "place":
        for at in range(rng.randint(2, 10)):
            _stand(rng, machines, free, standing, f"v{at}", leaves=True)
        free = least
    parts, members, minimum = _gang(rng, machines, free)
    if kind == "reclaim":
        # The gang's queue deserves this node too, which nobody can use, so its share is never what keeps the gang out.
        machines.append(Machine("spare", {"cpu": 100, "memory": 100, "pods": 1}, {}, (("spare", "", "NoSchedule"),)))
    return Case(seed, kind, machines, standing, minimum, parts, members)


def _machines(rng: Random, *, cards: bool) -> list[Machine]:
    found: list[Machine] = []
    zones = rng.choice([1, 2, 2, 3])
    memory, gpu = rng.random() < 0.6, rng.random() < 0.25 and cards
    shapes = [(rng.randint(2, 8), rng.randint(3, 12)) for _ in range(rng.choice([1, 2, 5]))]
    labelled = rng.random() < 0.85
    for at in range(rng.choice([1, 2, 3, 3, 4, 4, 5, 5, 5])):
        cpu, gibs = rng.choice(shapes)
        room = {"cpu": cpu, "memory": gibs if memory else 64, "pods": rng.choice([2, 3, 4, 110, 110, 110])}
        if gpu and rng.random() < 0.6:
            room["nvidia.com/gpu"] = rng.randint(1, 4)
        labels: Labels = {HOST: f"n{at}"}
        if labelled or rng.random() < 0.6:
            labels[ZONE] = f"z{rng.randrange(zones)}"
        if rng.random() < 0.6:
            labels["disk"] = rng.choice(["ssd", "hdd"])
        taints: tuple[tuple[str, str, str], ...] = ()
        if rng.random() < 0.12:
            taints = (("dedicated", "batch", rng.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])),)
        found.append(Machine(f"n{at}", room, labels, taints))
    return found


def _stand(
    rng: Random,
    machines: list[Machine],
    free: list[dict[str, int]],
    standing: list[Standing],
    name: str,
    *,
    leaves: bool,
) -> None:
    """Let a pod run somewhere, if a place for it is found in a few trials."""
    labels = {"app": rng.choice(["web", "db", "web", "db", "job"])}
    far: tuple[Term, ...] = ()
    if rng.random() < 0.2:
        far = (Term(rng.choice([HOST, ZONE]), rng.choice([{"app": "gang"}, {"app": "gang"}, {"role": "b"}])),)
    ports = (rng.choice([80, 81]),) if rng.random() < 0.15 else ()
    request = {"cpu": rng.randint(0, 3), "memory": rng.randint(0, 4)}
    if leaves:
        request = {"cpu": rng.randint(1, 4), "memory": rng.randint(1, 4)}
    for _ in range(3):
        at = rng.randrange(len(machines))
        if leaves and free[at].get("nvidia.com/gpu", 0):
            request["nvidia.com/gpu"] = rng.randint(0, 1)
        taken = any(port in each.shape.ports for each in standing if each.machine == at for port in ports)
        if taken or free[at]["pods"] < 1 or any(free[at].get(key, 0) < amount for key, amount in request.items()):
            continue
        for key, amount in request.items():
            free[at][key] = free[at].get(key, 0) - amount
        free[at]["pods"] -= 1
        standing.append(Standing(name, Shape(request, labels, far=far, ports=ports), at, leaves))
        return


def _gang(rng: Random, machines: list[Machine], free: list[dict[str, int]]) -> tuple[list[Part], list[Members], int]:
    roles = rng.choice([0, 0, 1, 2, 2, 3])
    shapes = [_shape(rng, name, machines) for name in "abc"[: max(roles, rng.choice([1, 1, 2]))]]
    shapes = _couple(rng, shapes)
    total = {name: sum(each.get(name, 0) for each in free) for name in ("cpu", "memory")}
    budget = {name: amount * rng.uniform(0.3, 0.95) for name, amount in total.items()}
    counts = [0] * len(shapes)
    for _ in range(rng.choice([2, 3, 4, 5, 6, 7, 8, 8])):
        at = counts.index(0) if 0 in counts else rng.randrange(len(shapes))
        ask = {name: shapes[at].request.get(name, 0) for name in budget}
        if sum(counts) >= 2 and any(ask[name] > budget[name] for name in ask):
            continue
        for name, amount in ask.items():
            budget[name] -= amount
        counts[at] += 1
    counted = [(shape, count) for shape, count in zip(shapes, counts, strict=True) if count]
    if not roles:
        spare = rng.choice([0, 0, 0, 1])
        return [], [Members(-1, shape, count) for shape, count in counted], max(1, sum(counts) - spare)
    parts: list[Part] = []
    least = 0
    for name, (_, count) in zip("abc", counted, strict=False):
        mine = max(0, count - rng.choice([0, 0, 0, 1]))
        most = rng.choice([None, None, None, max(1, mine), count])
        parts.append(Part(name, mine, most))
        least += mine
    could = sum(min(count, part.most or count) for part, (_, count) in zip(parts, counted, strict=True))
    minimum = max(1, least if rng.random() < 0.6 else rng.randint(least, max(least, could)))
    members = [Members(at, shape, count) for at, (shape, count) in enumerate(counted)]
    return parts, members, minimum


def _shape(rng: Random, name: str, machines: list[Machine]) -> Shape:
    request = {"cpu": rng.randint(1, 3), "memory": rng.randint(0, 4)}
    if any("nvidia.com/gpu" in machine.room for machine in machines) and rng.random() < 0.4:
        request["nvidia.com/gpu"] = 1
    selector: Labels = {}
    wanted: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    chance = rng.random()
    if chance < 0.12:
        selector = rng.choice([{"disk": "ssd"}, {ZONE: "z0"}])
    elif chance < 0.24:
        wanted = (
            rng.choice([
                ("disk", "NotIn", ("hdd",)), ("disk", "Exists", ()), (HOST, "NotIn", ("n0",)),
                (ZONE, "In", ("z0", "z1")), (ZONE, "DoesNotExist", ()), (HOST, "In", ("n1", "n2", "n3")),
            ]),
        )  # fmt: skip
    return Shape(
        request,
        {"app": "gang", "role": name},
        selector=selector,
        affinity_to_nodes=wanted,
        tolerations=("dedicated",) if rng.random() < 0.4 else (),
        ports=(rng.choice([80, 81]),) if rng.random() < 0.12 else (),
    )


def _couple(rng: Random, shapes: list[Shape]) -> list[Shape]:
    """Let the gang's pods look at one another and at others."""
    found: list[Shape] = []
    together = rng.random()
    whole = {"app": "gang"}
    for shape in shapes:
        own = {"role": shape.labels["role"]}
        near: tuple[Term, ...] = ()
        far: tuple[Term, ...] = ()
        spreads: tuple[Spread, ...] = ()
        if together < 0.25 or rng.random() < 0.1:
            near = _near(rng, own, whole)
        if 0.2 < together < 0.45 or rng.random() < 0.1:
            meant = rng.choice([own, own, own, whole, {"app": "web"}, {"app": "db"}, {"role": "a"}])
            far = (Term(HOST if rng.random() < 0.7 else ZONE, meant),)
        if 0.4 < together < 0.75 or rng.random() < 0.05:
            spreads = _spreads(rng, own, whole)
        found.append(
            Shape(
                shape.request, shape.labels, shape.selector, shape.affinity_to_nodes, shape.tolerations,
                near, far, spreads, shape.ports,
            )
        )  # fmt: skip
    return found


def _near(rng: Random, own: Labels, whole: Labels) -> tuple[Term, ...]:
    meant = rng.choice([own, own, whole, whole, whole, {"role": "a"}, {"role": "a"}, {"app": "web"}, {"app": "db"}])
    key = HOST if rng.random() < 0.3 else ZONE
    if rng.random() < 0.15:
        return (Term(ZONE, meant), Term(rng.choice([HOST, ZONE]), whole))
    return (Term(key, meant),)


def _spreads(rng: Random, own: Labels, whole: Labels) -> tuple[Spread, ...]:
    def one(key: str) -> Spread:
        return Spread(
            key,
            rng.choice([1, 1, 2]),
            rng.choice([own, own, whole, whole, {"app": "web"}]),
            rng.choice([None, None, None, 2, 3]),
            selected_only=rng.random() < 0.8,
            taints_count=rng.random() < 0.3,
        )

    if rng.random() < 0.15:
        return one(HOST), one(ZONE)
    return (one(HOST if rng.random() < 0.5 else ZONE),)
