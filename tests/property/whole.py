"""Whole small clusters, with nearly all that users have in one, and their lives: time, failures, changes of every kind.

`draw` makes a cluster by number; `Life` carries out what the engine decides and keeps books of its own, by which every
decision is judged without the engine's or the model's sums. The same number gives the same life.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from random import Random
from typing import Any, Final

from kbatch.api.conditions import ENQUEUED, SCHEDULED, find, merge
from kbatch.api.names import GROUP_MIN_MEMBER_ANNOTATION, GROUP_NAME_ANNOTATION, QUEUE_LABEL, SUB_GROUP_LABEL
from kbatch.api.objects import (
    Affinity,
    AnyObject,
    Container,
    ContainerPort,
    LabelSelector,
    Metadata,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodGroup,
    PodStatus,
    Queue,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceRequirements,
    SchedulingGate,
    SubGroup,
    Taint,
    Toleration,
    TopologySpreadConstraint,
    timestamp_us,
)
from kbatch.engine import (
    CycleState,
    Memo,
    Policy,
    Report,
    Transaction,
    Verdict,
    take_snapshot,
    verdict_conditions,
)
from kbatch.engine.decisions import OWN_SAKE
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.property.test_engine import POLICIES
from tests.unit.engine.worlds import EPOCH, Decisions, decide, group, node, pod, priority_class, queue, stamp

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "zone"
PRIORITY: Final = {"": 0, "low": 1, "mid": 50, "high": 100, "polite": 100}
NAMESPACES: Final = ("ns", "team")
LATEST: Final = 70_000
"""Seconds; no life goes on for longer, for a day has little more."""
REFUSED: Final = 20
"""Seconds for which a refusal is heeded."""
MOST_CYCLES: Final = 14

Key = tuple[type[AnyObject], str, str]


def key_of(obj: AnyObject) -> Key:
    return type(obj), obj.metadata.namespace, obj.metadata.name


def amounts(one: Pod) -> dict[str, int]:
    """What a pod asks for: cpu in thousandths, memory in Gi, others as they are."""
    found: Counter[str] = Counter()
    for container in one.spec.containers:
        for name, value in (container.resources.requests or {}).items() if container.resources else ():
            found[name] += _plain(name, value)
    return dict(found)


def _plain(name: str, value: Any) -> int:
    text = str(value)
    if name == "cpu":
        return int(text[:-1]) if text.endswith("m") else int(text) * 1000
    return int(text.removesuffix("Gi"))


@dataclass
class Plan:
    """What a group's pods are like, for those that come later or replace others.

    Attributes:
        make: makes the pod of that place in the group, at that second.
        count: how many pods there are to be. owned: whether somebody replaces those that are gone.
        late: pods come only so many seconds after the group is in queue; None: they are there.
    """

    namespace: str
    name: str
    make: Callable[[int, int], Pod]
    count: int
    owned: bool
    late: int | None = None


@dataclass
class Cluster:
    """The objects at the start, and the groups' plans."""

    objects: list[AnyObject] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    policy: Policy = POLICIES[0]


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(dice: Random) -> Cluster:
    """A cluster."""
    found = Cluster(policy=dice.choice([POLICIES[0], POLICIES[0], POLICIES[0], POLICIES[1], POLICIES[2]]))
    for name, value in PRIORITY.items():
        if name:
            more = {"preemption_policy": "Never"} if name == "polite" else {}
            found.objects.append(priority_class(name, value, **more))
    gpus = dice.random() < 0.3
    nodes = [_node(dice, f"n{at}", gpus=gpus) for at in range(dice.randint(1, 5))]
    found.objects += nodes
    names = [f"q{at}" for at in range(dice.randint(1, 4))]
    found.objects += [_queue(dice, name) for name in names]
    if dice.random() < 0.3:
        found.objects.append(_quota(dice, "quota"))
    taste = {what for what in _TASTES if dice.random() < 0.3}
    free = {one.metadata.name: {name: _plain(name, value) for name, value in (one.status.allocatable or {}).items()}
            for one in nodes}  # fmt: skip
    for at in range(dice.randint(2, 7)):
        _group(dice, found, f"g{at}", names, taste, free, gpus=gpus)
    for at in range(dice.choice([0, 0, 1, 2])):
        _foreign(dice, found, f"f{at}", free)
    for at in range(dice.choice([0, 1, 1, 3])):
        _loner(dice, found, f"p{at}", names, taste, gpus=gpus)
    if "budgets" in taste:
        for at in range(dice.choice([1, 1, 2])):
            found.objects.append(_budget(dice, f"b{at}"))
    return found


_TASTES: Final = ("lifetimes", "runtimes", "spread", "apart", "together", "ports", "gates", "selectors", "unlike",
                  "budgets", "late", "priorities", "roles", "many namespaces", "promises")  # fmt: skip


def _node(dice: Random, name: str, *, gpus: bool) -> Node:
    extra = {"nvidia.com/gpu": str(dice.randint(1, 4))} if gpus and dice.random() < 0.6 else {}
    labels = {HOST: name, "disk": dice.choice(["ssd", "hdd"])}
    if dice.random() < 0.9:
        labels[ZONE] = dice.choice(["z0", "z1"])
    more: dict[str, Any] = {}
    if dice.random() < 0.12:
        more["taints"] = (Taint(key="dedicated", value="x", effect="NoSchedule"),)
    if dice.random() < 0.05:
        more["unschedulable"] = True
    pods = str(dice.choice([2, 4, 20, 20, 20]))
    return node(name, str(dice.randint(1, 8)), f"{dice.randint(2, 12)}Gi", pods, labels=labels, extra=extra, **more)


def _queue(dice: Random, name: str) -> Queue:
    more: dict[str, Any] = {}
    if dice.random() < 0.3:
        more["capability"] = {"cpu": str(dice.randint(1, 8))}
        if dice.random() < 0.3:
            more["capability"]["memory"] = f"{dice.randint(1, 12)}Gi"
    if dice.random() < 0.15:
        more["reclaimable"] = False
    if dice.random() < 0.08:
        more["state"] = "Closed"
    return queue(name, dice.choice([1, 1, 1, 2, 3]), **more)


def _quota(dice: Random, name: str) -> ResourceQuota:
    hard: dict[str, Any] = {"requests.cpu": str(dice.randint(2, 12))}
    if dice.random() < 0.4:
        hard["pods"] = dice.randint(2, 10)
    return ResourceQuota(
        metadata=Metadata(name=name, namespace=dice.choice(NAMESPACES)), spec=ResourceQuotaSpec(hard=hard)
    )


def _budget(dice: Random, name: str) -> PodDisruptionBudget:
    labels = {"app": f"g{dice.randint(0, 4)}"}
    spec = PodDisruptionBudgetSpec(min_available=dice.randint(0, 4), selector=LabelSelector(match_labels=labels))
    return PodDisruptionBudget(metadata=Metadata(name=name, namespace="ns"), spec=spec)


def _group(
    dice: Random, found: Cluster, name: str, queues: list[str], taste: set[str], free: dict[str, Any], *, gpus: bool
) -> None:
    count = dice.choice([0, 1, 1, 2, 2, 3, 4, 5, 6])
    least = dice.randint(1, max(1, count + (dice.random() < 0.1)))
    spec: dict[str, Any] = {
        "queue": dice.choice([*queues, *queues, *queues, *queues, "nowhere"]) if dice.random() < 0.3 else
                 dice.choice(queues),
        "priority_class_name": dice.choice(["", "", "low", "low", "mid", "high", "high", "polite"]),
        "disruption": dice.choice(["Surplus", "Surplus", "Surplus", "Whole", "Whole", "Never"]),
        "schedule_timeout_seconds": dice.choice([20, 300, 300]),
    }  # fmt: skip
    if "lifetimes" in taste and dice.random() < 0.6:
        spec["lifetime_seconds"] = dice.choice([0, 5, 60, 400])
    if "runtimes" in taste and dice.random() < 0.6:
        spec["min_runtime_seconds"] = dice.choice([1, 30, 400])
    roles: dict[str, int] | None = None
    if "roles" in taste and count >= 2 and dice.random() < 0.6:
        roles = {"m": dice.randint(0, 1), "w": dice.randint(0, count - 1)}
    if "promises" in taste and dice.random() < 0.6:
        spec["min_resources"] = {"cpu": str(dice.randint(1, 6))}
        if dice.random() < 0.3:
            spec["min_resources"]["memory"] = f"{dice.randint(1, 6)}Gi"
    namespace = dice.choice(NAMESPACES) if "many namespaces" in taste else "ns"
    made = group(name, least, at=0, roles=roles, **spec)
    made.metadata.namespace = namespace
    if roles and dice.random() < 0.5:
        subs = tuple(
            SubGroup(name=role, min_member=low, max_member=max(1, low) + dice.randint(0, 1))
            for role, low in roles.items()
        )
        made.spec.sub_groups = subs
    kinds = [_kind(dice, taste, name, gpus=gpus) for _ in range(dice.choice([1, 1, 2, 3]) if "unlike" in taste else 1)]
    shares = [dice.randrange(len(kinds)) for _ in range(max(1, count))]
    priorities = [PRIORITY[spec["priority_class_name"]]] * max(1, count)
    if "priorities" in taste and dice.random() < 0.5:
        priorities = [dice.choice([0, 1, 50, 100]) for _ in priorities]
    gated = {at for at in range(count) if "gates" in taste and dice.random() < 0.2}
    polite = spec["priority_class_name"] == "polite"

    def make(index: int, at: int) -> Pod:
        role = "" if roles is None else "m" if index == 0 else "w"
        one = pod(f"{name}-{index}", "0", of=name, at=at, role=role, priority=priorities[index % len(priorities)])
        one.metadata.namespace = namespace
        one.metadata.labels = {**(one.metadata.labels or {}), "app": name}
        kinds[shares[index % len(shares)]](one)
        if polite:
            one.spec.preemption_policy = "Never"
        if index in gated:
            one.spec.scheduling_gates = (SchedulingGate(name="g"),)
        return one

    late = dice.choice([0, 2, 8]) if "late" in taste and dice.random() < 0.5 and not gated else None
    plan = Plan(namespace, name, make, count, owned=dice.random() < 0.7, late=late)
    found.plans.append(plan)
    found.objects.append(made)
    if late is not None:
        if not made.spec.min_resources:
            made.spec.min_resources = {"cpu": f"{sum(amounts(make(at, 0)).get('cpu', 0) for at in range(least))}m"}
        return
    pods = [make(index, 1) for index in range(count)]
    if dice.random() < 0.5 and count >= least and not gated and spec["queue"] != "nowhere":
        _start(dice, pods, found, free)
    found.objects += pods


def _start(dice: Random, pods: list[Pod], found: Cluster, free: dict[str, dict[str, int]]) -> None:
    """Let pods run where there is room, all of them or none; only where nothing but room matters."""
    left = copy.deepcopy(free)
    where: list[str] = []
    for one in pods:
        spec = one.spec
        if spec.node_selector or spec.affinity or spec.topology_spread_constraints or spec.containers[0].ports:
            return
        asked = {**amounts(one), "pods": 1}
        fits = [name for name, room in left.items() if all(room.get(key, 0) >= some for key, some in asked.items())]
        if not fits:
            return
        where.append(dice.choice(fits))
        for key, some in asked.items():
            left[where[-1]][key] = left[where[-1]].get(key, 0) - some
    free.update(left)
    for one, name in zip(pods, where, strict=True):
        one.spec.node_name = name
        one.status = PodStatus(phase="Running", start_time=stamp(1))


def _kind(dice: Random, taste: set[str], app: str, *, gpus: bool) -> Callable[[Pod], None]:
    """Something to ask for besides room, and how much room."""
    request: dict[str, Any] = {}
    cpu = dice.choice([0, 500, 1000, 1000, 1000, 2000, 3000])
    if cpu:
        request["cpu"] = f"{cpu}m"
    if dice.random() < 0.4:
        request["memory"] = f"{dice.randint(1, 5)}Gi"
    if gpus and dice.random() < 0.3:
        request["nvidia.com/gpu"] = str(dice.randint(1, 2))
    same = LabelSelector(match_labels={"app": app})
    other = LabelSelector(match_labels={"app": f"g{dice.randint(0, 3)}"})
    extras = [what for what in ("spread", "apart", "together", "ports", "selectors") if what in taste]
    extra = dice.choice(extras) if extras and dice.random() < 0.6 else ""
    key, ports = dice.choice([HOST, ZONE]), (ContainerPort(container_port=80, host_port=dice.choice([80, 81])),)
    tolerates = dice.random() < 0.3
    whom = dice.choice([same, same, other])
    skew = dice.choice([1, 1, 2])

    def dress(one: Pod) -> None:
        container = Container(
            resources=ResourceRequirements(requests=dict(request)), ports=ports if extra == "ports" else None
        )
        one.spec.containers = (container,)
        if tolerates:
            one.spec.tolerations = (Toleration(key="dedicated", operator="Exists"),)
        term = PodAffinityTerm(topology_key=key, label_selector=whom)
        if extra == "spread":
            one.spec.topology_spread_constraints = (
                TopologySpreadConstraint(
                    max_skew=skew, topology_key=key, when_unsatisfiable="DoNotSchedule", label_selector=same
                ),
            )
        elif extra == "apart":
            one.spec.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
        elif extra == "together":
            one.spec.affinity = Affinity(pod_affinity=PodAffinity(required=(term,)))
        elif extra == "selectors":
            one.spec.node_selector = {"disk": "ssd"}

    return dress


def _foreign(dice: Random, found: Cluster, name: str, free: dict[str, Any]) -> None:
    """A pod of another scheduler, running, perhaps on its way out."""
    one = pod(name, str(dice.randint(0, 2)), at=1, scheduler="default-scheduler", priority=10)
    one.metadata.labels = {"app": f"g{dice.randint(0, 3)}"}
    _start(dice, [one], found, free)
    if one.spec.node_name and dice.random() < 0.4:
        one.metadata.deletion_timestamp = stamp(dice.choice([5, 40]))
    found.objects.append(one)


def _loner(dice: Random, found: Cluster, name: str, queues: list[str], taste: set[str], *, gpus: bool) -> None:
    """A pod without a group, or several of one owner, with a minimum perhaps."""
    dress = _kind(dice, taste, name, gpus=gpus)
    priority, owner = dice.choice([0, 1, 100]), dice.choice(["", "", f"rs-{name}"])
    where, least = dice.choice(queues), dice.choice([0, 0, 2, 3])
    namespace = dice.choice(NAMESPACES) if "many namespaces" in taste else "ns"

    def make(index: int, at: int) -> Pod:
        one = pod(f"{name}-{index}", "0", at=at, queue=where, owner=owner, priority=priority)
        one.metadata.namespace = namespace
        one.metadata.labels = {**(one.metadata.labels or {}), "app": name}
        if owner and least:
            one.metadata.annotations = {GROUP_MIN_MEMBER_ANNOTATION: str(least)}
        dress(one)
        return one

    count = dice.randint(1, 3) if owner else 1
    found.plans.append(Plan(namespace, name, make, count, owned=bool(owner)))
    found.objects += [make(index, 1) for index in range(count)]


# --- living -----------------------------------------------------------------------------------------------------------


class Life:
    """A cluster as time goes by.

    Attributes:
        objects: what the API server has. model: what the long-lived process makes of its events.
        flying: binds under way: node by pod. leaving: evictions under way.
        refused_evictions, refused_binds: until which second.
        slow: whether binds and evictions arrive some cycles after they were decided.
    """

    def __init__(self, cluster: Cluster, dice: Random, *, faults: bool = True) -> None:
        self.dice = dice
        self.probe = Random(dice.random())
        self.policy = cluster.policy
        self.plans = {(plan.namespace, plan.name): plan for plan in cluster.plans}
        self.objects: dict[Key, AnyObject] = {}
        self.model = ClusterModel()
        self.now = 2
        self.memo, self.state = Memo(), CycleState()
        self.stands: dict[str, Verdict] = {}
        self.flying: dict[str, tuple[str, str]] = {}
        self.leaving: dict[str, str] = {}
        self.refused_evictions: dict[str, tuple[str, int]] = {}
        self.refused_binds: dict[tuple[str, str], tuple[str, int]] = {}
        self.faults = faults
        self.slow = False
        self.numbers: Counter[str] = Counter()
        self.told: list[str] = []
        self.coming: list[tuple[int, Plan]] = []
        self.evictions: list[tuple[int, str]] = []
        self.last: Decisions = Decisions()
        self.wrote: list[str] = []
        self.gone: dict[str, PodGroup] = {}
        for obj in cluster.objects:
            self.put(obj)

    # --- events ---

    def put(self, obj: AnyObject) -> None:
        self.objects[key_of(obj)] = obj
        self.model.apply(Upsert(obj))

    def drop(self, kind: type[AnyObject], namespace: str, name: str) -> None:
        if self.objects.pop((kind, namespace, name), None) is None:
            return
        self.model.apply(Delete(kind, namespace, name))
        if kind is Pod:
            key = f"{namespace}/{name}"
            self.flying.pop(key, None)
            self.leaving.pop(key, None)
            self.refused_evictions.pop(key, None)
            for both in [both for both in self.refused_binds if both[0] == key]:
                del self.refused_binds[both]

    def pod(self, key: str) -> Pod:
        namespace, _, name = key.partition("/")
        found = self.objects[Pod, namespace, name]
        assert isinstance(found, Pod)
        return found

    def pods(self) -> list[Pod]:
        return [one for one in self.objects.values() if isinstance(one, Pod)]

    def of(self, kind: Any) -> list[Any]:
        return [one for one in self.objects.values() if isinstance(one, kind)]

    def fresh(self, *, marks: bool = True) -> ClusterModel:
        """The model of a process that has just read everything, in another order."""
        model = ClusterModel()
        objects = list(self.objects.values())
        Random(len(objects)).shuffle(objects)
        for obj in (*self.gone.values(), *objects):
            model.apply(Upsert(obj))
        for key in self.gone:  # in whose queue their pods go on to count
            model.apply(Delete(PodGroup, *key.split("/")))
        if marks:
            for key, (uid, where) in self.flying.items():
                model.assume(key, uid, where)
            for key, uid in self.leaving.items():
                model.evicting(key, uid)
            for key, (uid, until) in self.refused_evictions.items():
                model.refuse_eviction(key, uid, EPOCH + until * SECOND)
            for (key, where), (uid, until) in self.refused_binds.items():
                model.refuse_bind(key, uid, where, EPOCH + until * SECOND)
        return model

    # --- deciding ---

    def decide(self, model: ClusterModel, now: int, memo: Memo, state: CycleState) -> Decisions:
        return decide(take_snapshot(model, EPOCH + now * SECOND, state), self.policy, memo, attrgetter("job"))

    def cycle(self) -> Decisions:
        """One cycle, compared with that of a process that remembers nothing but `state`, judged and carried out."""
        for both, (_, until) in list(self.refused_binds.items()):
            if until <= self.now:
                del self.refused_binds[both]
        for key, (_, until) in list(self.refused_evictions.items()):
            if until <= self.now:
                del self.refused_evictions[key]
        alone = self.decide(self.fresh(), self.now, Memo(), self.state)
        found = self.last = self.decide(self.model, self.now, self.memo, self.state)
        assert found.outcome is not None
        assert alone.outcome is not None
        for error in found.outcome.errors:
            raise AssertionError(f"work on {error.group} failed in {error.phase}: {error.trace}")
        assert alone.transactions == found.transactions, (
            f"decisions depend on what is remembered:\n{alone.transactions}\n{found.transactions}"
        )
        report = Report(found.verdicts, found.outcome.whole, found.outcome.gone)
        self.stands = report.onto(self.stands)
        one, other = codes(alone.verdicts), codes(self.stands)
        assert one == other, f"verdicts depend on what is remembered: {set(one.items()) ^ set(other.items())}"
        states = [each.outcome.state for each in (alone, found)]  # type: ignore[union-attr]
        assert states[0] == states[1], f"what is left depends on what is remembered: {states}"
        wakes = [each.outcome.next_wake for each in (found, alone)]  # type: ignore[union-attr]
        assert wakes[1] is None or (wakes[0] is not None and wakes[0] <= wakes[1]), f"it wakes too late: {wakes}"
        self.model.validate()
        Judge(self).judge(found)
        self.memo, self.state = found.outcome.memo, found.outcome.state
        self._carry_out(found)
        self.wrote = [verdict.group for verdict in found.verdicts.values() if self._write(verdict)]
        return found

    def _carry_out(self, found: Decisions) -> None:
        for transaction in found.transactions:
            for one in transaction.nominations:
                if (Pod, *one.pod.split("/")) in self.objects:
                    named = copy.deepcopy(self.pod(one.pod))
                    named.status.nominated_node_name = one.node or ""
                    self.put(named)
            failed = False
            for gone in transaction.evictions:
                uid = self.pod(gone.pod).metadata.uid
                self.evictions.append((self.now, gone.pod))
                if self.faults and self.dice.random() < 0.05:
                    self.model.evicting(gone.pod, uid)
                    self.model.not_evicting(gone.pod, uid)
                    self.refuse_eviction(gone.pod, uid)
                    failed = True
                elif self.slow:
                    self.leaving[gone.pod] = uid
                    self.model.evicting(gone.pod, uid)
                else:
                    self.evict(gone.pod)
            if failed:  # what the plan was made for is not bound; others of it go all the same
                for bind in transaction.binds:
                    self.model.assume(bind.pod, self.pod(bind.pod).metadata.uid, bind.node)
                    self.model.forget(bind.pod, self.pod(bind.pod).metadata.uid)
                continue
            for bind in transaction.binds:
                uid = self.pod(bind.pod).metadata.uid
                if self.faults and self.dice.random() < 0.04:
                    self.model.assume(bind.pod, uid, bind.node)
                    self.model.forget(bind.pod, uid)
                    self.refuse_bind(bind.pod, uid, bind.node)
                elif self.slow:
                    self.flying[bind.pod] = uid, bind.node
                    self.model.assume(bind.pod, uid, bind.node)
                else:
                    self.bind(bind.pod, bind.node)

    def refuse_eviction(self, key: str, uid: str) -> None:
        until = self.now + REFUSED
        self.refused_evictions[key] = uid, until
        self.model.refuse_eviction(key, uid, EPOCH + until * SECOND)

    def refuse_bind(self, key: str, uid: str, where: str) -> None:
        until = self.now + REFUSED
        self.refused_binds[key, where] = uid, until
        self.model.refuse_bind(key, uid, where, EPOCH + until * SECOND)

    def bind(self, key: str, where: str) -> None:
        one = copy.deepcopy(self.pod(key))
        one.spec.node_name = where
        one.status = PodStatus(phase="Running", start_time=stamp(self.now))
        for both in [both for both in self.refused_binds if both[0] == key]:
            del self.refused_binds[both]
        self.put(one)

    def evict(self, key: str, grace: int | None = None) -> None:
        """Somebody deletes the pod; its controller makes another."""
        old = self.pod(key)
        if old.metadata.deletion_timestamp is not None:
            return
        ended = old.status.phase in {"Succeeded", "Failed"}
        if old.spec.node_name and not ended:
            gone = copy.deepcopy(old)
            grace = self.dice.choice([1, 1, 5, 45]) if grace is None else grace
            gone.metadata.deletion_timestamp = stamp(self.now + grace)
            self.put(gone)
        else:
            self.drop(Pod, *key.split("/"))
        if not ended:
            self.replaced(old)

    def replaced(self, old: Pod) -> None:
        base, _, rest = old.metadata.name.partition("-")
        plan = self.plans.get((old.metadata.namespace, base))
        if plan is None or not plan.owned:
            return
        index = int(rest.partition("r")[0])
        self.numbers[old.metadata.namespace + base] += 1
        fresh = plan.make(index, self.now)
        fresh.metadata.name = f"{base}-{index}r{self.numbers[old.metadata.namespace + base]}"
        fresh.metadata.uid = f"u-{fresh.metadata.name}"
        self.put(fresh)

    def arrive(self) -> None:
        """What was under way is done, or has failed."""
        for key, uid in list(self.leaving.items()):
            del self.leaving[key]
            self.model.not_evicting(key, uid)
            if self.dice.random() < 0.1:
                self.refuse_eviction(key, uid)
            else:
                self.evict(key)
        for key, (uid, where) in list(self.flying.items()):
            del self.flying[key]
            if self.dice.random() < 0.1 or (Node, "", where) not in self.objects:
                self.model.forget(key, uid)
                self.refuse_bind(key, uid, where)
            else:
                self.bind(key, where)
                self.model.forget(key, uid)

    def _write(self, verdict: Verdict) -> bool:
        """Write the conditions; whether they say anything new."""
        if verdict.shadow:
            return False
        old = self.objects.get((PodGroup, *verdict.group.split("/")))  # type: ignore[arg-type]
        if not isinstance(old, PodGroup):
            return False
        new = copy.deepcopy(old)
        wanted = verdict_conditions(verdict, new.metadata.generation)
        new.status.conditions = merge(new.status.conditions or (), wanted, stamp(self.now))
        new.status.scheduling_attempts = verdict.attempts
        if new == old:
            return False
        self.put(new)
        return True

    # --- time ---

    def settle(self) -> None:
        """Cycles at this instant until one decides nothing."""
        for _ in range(MOST_CYCLES):
            if not self.cycle().transactions and not self.wrote:
                if not (self.flying or self.leaving):
                    return
                self.arrive()
        raise AssertionError(f"cycles at one instant never end: {self.last.transactions}")

    def pass_time(self, seconds: int) -> None:
        """Let the time pass second by second where something is to come, else at once."""
        self.now += seconds
        for one in self.pods():
            meta = one.metadata
            if meta.deletion_timestamp is not None and (timestamp_us(meta.deletion_timestamp) or 0) <= (
                EPOCH + self.now * SECOND
            ):
                if meta.labels and meta.labels.get("stuck"):
                    continue
                self.drop(Pod, meta.namespace, meta.name)
        for plan in self.plans.values():
            if plan.late is None:
                continue
            found = self.objects.get((PodGroup, plan.namespace, plan.name))
            let_in = find(found.status.conditions, ENQUEUED) if isinstance(found, PodGroup) else None
            if let_in is None or let_in.status != "True":
                continue
            if EPOCH + (self.now - plan.late) * SECOND >= (timestamp_us(let_in.last_transition_time) or 0):
                for index in range(plan.count):
                    self.put(plan.make(index, self.now))
                plan.late = None

    def quiet_until_it_wakes(self) -> None:
        """Of a cluster at rest: until the instant that the cycle named, the same snapshot is decided alike."""
        outcome = self.last.outcome
        assert outcome is not None
        assert not self.last.transactions
        wake = LATEST if outcome.next_wake is None else min(LATEST, -(-(outcome.next_wake - EPOCH) // SECOND))
        state = self.state
        said = codes(self.stands)
        soon = self.probe.choice([1, 7, 45, 120, 700])
        instants = {self.now + 1 + self.probe.randrange(max(1, wake - self.now)), self.now + soon}
        for now in sorted(instants):
            if not self.now < now < wake:
                continue
            model = self.fresh()
            for end in model.refusals.ends():
                assert end >= EPOCH + wake * SECOND, "a refusal ends unseen"
            later = self.decide(model, now, Memo(), state)
            assert later.transactions == [], (
                f"at {self.now} it was to sleep until {wake}, and would decide at {now}: {later.transactions}"
            )
            new = codes(later.verdicts)
            both = new.keys() | said.keys()
            changed = {
                key: (said.get(key), new.get(key))
                for key in both
                if not self.says_the_same(said.get(key), new.get(key))
            }
            assert not changed, f"at {self.now} it was to sleep until {wake}, and would say at {now}: {changed}"

    def says_the_same(self, one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> bool:
        """Whether a group stands as it did, as far as a cluster at rest must be woken for it."""
        return one == other


def codes(found: dict[str, Verdict]) -> dict[str, tuple[Any, ...]]:
    """How each group stands, without numbers."""
    return {
        key: (each.enqueued, each.scheduled, each.reason.code if each.reason is not None else "", each.attempted,
              each.pods_unschedulable, each.attempts, each.members_lost)
        for key, each in found.items()
    }  # fmt: skip


# --- judging ----------------------------------------------------------------------------------------------------------


class Judge:
    """What one cycle decides, against the objects alone."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.where: dict[str, str] = {}
        """Of each pod that holds a node which."""
        self.going: set[str] = set()
        self.promised: dict[str, str] = {}
        for one in life.pods():
            key = f"{one.metadata.namespace}/{one.metadata.name}"
            if one.status.phase in {"Succeeded", "Failed"}:
                continue
            at = one.spec.node_name or life.flying.get(key, ("", ""))[1]
            if at:
                self.where[key] = at
                if one.metadata.deletion_timestamp is not None or key in life.leaving:
                    self.going.add(key)
            elif one.status.nominated_node_name and one.metadata.deletion_timestamp is None:
                self.promised[key] = one.status.nominated_node_name
        self.evicted: dict[str, tuple[str, str]] = {}

    def judge(self, found: Decisions) -> None:
        held = self._by_queue()
        for transaction in found.transactions:
            for one in transaction.nominations:
                self.promised.pop(one.pod, None)
            for gone in transaction.evictions:
                self._victim(transaction, gone.pod, gone.action, gone.beneficiary)
            for gone in transaction.evictions:
                self.going.add(gone.pod)
                self.evicted[gone.pod] = gone.action, transaction.group
            self._whole_victims(transaction)
            for bind in transaction.binds:
                self._bound(bind.pod, bind.node)
            for one in transaction.nominations:
                if one.node is not None:
                    self._nominated(one.pod, one.node)
        self._sums(held)
        self._roles()

    # --- who is placed ---

    def _may_be_placed(self, key: str, where: str) -> None:
        life, one = self.life, self.life.pod(key)
        assert one.metadata.deletion_timestamp is None, f"{key} terminates and is placed"
        assert one.status.phase == "Pending", f"{key} is placed and not pending"
        assert not one.spec.scheduling_gates, f"{key} is placed through its gate"
        assert one.spec.scheduler_name == "kube-batch", f"{key} is not ours"
        assert (key, where) not in life.refused_binds, f"{key} goes to {where}, which refused it"
        node_ = life.objects.get((Node, "", where))
        assert isinstance(node_, Node), f"{key} goes to {where}, which is gone"
        assert not node_.spec.unschedulable, f"{key} goes to {where}, which is cordoned"
        tolerated = {each.key for each in one.spec.tolerations or ()}
        assert all(taint.key in tolerated for taint in node_.spec.taints or ()), f"{key} does not tolerate {where}"
        labels = node_.metadata.labels or {}
        assert (one.spec.node_selector or {}).items() <= labels.items(), f"{key} selects other nodes than {where}"
        name = self.queue_of(one)
        found = life.objects.get((Queue, "", name))
        assert isinstance(found, Queue), f"{key} is placed for queue {name}, which is not there"
        assert found.spec.state != "Closed", f"{key} is placed for queue {name}, which is closed"
        of = (one.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
        if of:
            assert (PodGroup, one.metadata.namespace, of) in life.objects, f"{key} is placed without its group"

    def _bound(self, key: str, where: str) -> None:
        assert key not in self.where, f"{key} is bound twice"
        self._may_be_placed(key, where)
        self.promised.pop(key, None)
        self.where[key] = where
        self._apart(key, where, waits=False)

    def _nominated(self, key: str, where: str) -> None:
        assert key not in self.where, f"{key} has a node and is nominated"
        self._may_be_placed(key, where)
        self.promised[key] = where

    def _apart(self, key: str, where: str, *, waits: bool) -> None:
        mine = self._ports(key)
        for other, at in self.where.items():
            if other != key and at == where and not mine.isdisjoint(self._ports(other)):
                raise AssertionError(f"{key} and {other} want the same port of {where}")

    def _ports(self, key: str) -> set[int]:
        return {each.host_port for container in self.life.pod(key).spec.containers
                for each in container.ports or () if each.host_port}  # fmt: skip

    def queue_of(self, one: Pod) -> str:
        of = (one.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
        if of:
            found = self.life.objects.get((PodGroup, one.metadata.namespace, of))
            if isinstance(found, PodGroup):
                return found.spec.queue
            gone = self.life.gone.get(f"{one.metadata.namespace}/{of}")
            if gone is not None and not (one.metadata.labels or {}).get(QUEUE_LABEL):
                return gone.spec.queue  # what is left of a group goes on to count there
        return (one.metadata.labels or {}).get(QUEUE_LABEL, "default")

    def _group(self, key: str) -> PodGroup | None:
        one = self.life.pod(key)
        of = (one.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, "")
        found = self.life.objects.get((PodGroup, one.metadata.namespace, of))
        return found if isinstance(found, PodGroup) else None

    # --- who goes ---

    def _priority(self, key: str) -> int:
        """Of the pod's group: that of its class, but the lowest of its pods at most (decision 34)."""
        made = self._group(key)
        stated = [self.life.pod(each).spec.priority for each in self._members(key)]
        lowest = min((each for each in stated if each is not None), default=None)
        if made is not None and made.spec.priority_class_name:
            named = PRIORITY[made.spec.priority_class_name]
            return named if lowest is None else min(named, lowest)
        return lowest or 0

    def _members(self, key: str) -> list[str]:
        one = self.life.pod(key)
        of, owners = (one.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, ""), one.metadata.owner_references

        def alike(each: Pod) -> bool:
            if of:
                return (each.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION) == of
            return each is one or bool(owners and each.metadata.owner_references == owners)

        return [
            f"{each.metadata.namespace}/{each.metadata.name}" for each in self.life.pods()
            if each.metadata.namespace == one.metadata.namespace and each.status.phase not in {"Succeeded", "Failed"}
            and alike(each)
        ]  # fmt: skip

    def _started(self, key: str) -> int:
        """The earliest second at which the victim's group can be said to have started."""
        made = self._group(key)
        times = [timestamp_us(self.life.pod(each).status.start_time) for each in self._members(key)
                 if each in self.where]  # fmt: skip
        found = [each for each in times if each is not None]
        if made is not None:
            said = find(made.status.conditions, SCHEDULED)
            if said is not None and said.status == "True":
                found.append(timestamp_us(said.last_transition_time) or 0)
        return min(found, default=EPOCH + self.life.now * SECOND)

    def _victim(self, transaction: Transaction, key: str, action: str, beneficiary: str) -> None:
        life, one = self.life, self.life.pod(key)
        assert key in self.where, f"{key} is evicted and has no node"
        assert key not in self.going, f"{key} is evicted and goes already"
        assert key not in life.refused_evictions, f"{key} was refused to be evicted"
        assert one.spec.scheduler_name == "kube-batch", f"{key} is not ours and evicted"
        if action in OWN_SAKE:
            return
        assert beneficiary, f"{key} is evicted for nobody"
        made = self._group(key)
        now = EPOCH + life.now * SECOND
        expired = False
        if made is not None and made.spec.lifetime_seconds is not None:
            expired = self._ran(key) >= made.spec.lifetime_seconds * SECOND
        if made is not None:
            assert made.spec.disruption != "Never" or expired, f"{key} is never to be disrupted"
            young = now < self._latest_start(key) + made.spec.min_runtime_seconds * SECOND
            assert not young, f"{key} has not had its minRuntimeSeconds"
        found = life.objects.get((PodGroup, *beneficiary.split("/")))  # type: ignore[arg-type]
        winner = found if isinstance(found, PodGroup) else None
        if winner is not None and winner.spec.priority_class_name == "polite":
            raise AssertionError(f"{key} is evicted for {beneficiary}, which never preempts")
        mine = self.queue_of(one)
        theirs = winner.spec.queue if winner is not None else None
        if action == "preempt" and theirs is not None:
            assert mine == theirs, f"{key} of {mine} is preempted for {beneficiary} of {theirs}"
            named = winner.spec.priority_class_name if winner is not None and winner is not made else ""
            assert not named or self._priority(key) <= PRIORITY[named], f"{key} matters more than {beneficiary}"
        if action == "reclaim":
            assert mine != theirs, f"{key} is reclaimed inside {mine}"
            donor = life.objects.get((Queue, "", mine))
            assert not isinstance(donor, Queue) or donor.spec.reclaimable, f"{key} is reclaimed of {mine}"
        budgets = [
            each for each in life.of(PodDisruptionBudget)
            if each.metadata.namespace == one.metadata.namespace
            and (each.spec.selector.match_labels or {}).items() <= (one.metadata.labels or {}).items()
        ]  # fmt: skip
        assert len(budgets) <= 1, f"{key} is under two budgets"
        for budget in budgets:
            left = [
                other for other in self.where
                if other not in self.going and other != key and life.pod(other).metadata.namespace == "ns"
                and life.pod(other).status.phase == "Running"
                and (budget.spec.selector.match_labels or {}).items() <= (life.pod(other).metadata.labels or {}).items()
            ]  # fmt: skip
            assert len(left) >= int(budget.spec.min_available or 0), f"{key} goes beyond its budget"

    def _ran(self, key: str) -> int:
        """For how long at most its group has run, in microseconds."""
        return EPOCH + self.life.now * SECOND - self._started(key)

    def _latest_start(self, key: str) -> int:
        """The latest instant at which its group may be said to have started: none of those that run came later."""
        return self._started(key)

    def _whole_victims(self, transaction: Transaction) -> None:
        """Nobody is left with a part of the minimum, but whose lost some before."""
        for gone in transaction.evictions:
            if gone.action in OWN_SAKE:
                continue
            made = self._group(gone.pod)
            if made is None:
                continue
            members = [key for key in self._members(gone.pod) if key in self.where]
            stay = [key for key in members if key not in self.going]
            done = sum(
                each.status.phase == "Succeeded" and each.metadata.namespace == made.metadata.namespace
                and (each.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION) == made.metadata.name
                for each in self.life.pods()
            )  # fmt: skip
            least = max(made.spec.min_member, sum(each.min_member for each in made.spec.sub_groups or ()))
            gang = least > 1 or bool(made.spec.sub_groups)
            if gang and stay:
                assert len(stay) + done >= least, f"{gone.pod} breaks its gang: {len(stay)} of {least} stay"
                for role in made.spec.sub_groups or ():
                    there = sum((self.life.pod(key).metadata.labels or {}).get(SUB_GROUP_LABEL) == role.name
                                for key in stay)  # fmt: skip
                    mine = (self.life.pod(gone.pod).metadata.labels or {}).get(SUB_GROUP_LABEL) == role.name
                    assert not mine or there + done >= role.min_member, f"{gone.pod} breaks its role {role.name}"

    # --- sums ---

    def _by_queue(self) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {}
        for key in (*self.where, *self.promised):
            if key in self.going or key not in self._known():
                continue
            one = self.life.pod(key)
            if one.spec.scheduler_name == "kube-batch":
                found.setdefault(self.queue_of(one), Counter()).update(amounts(one))
        return found

    def _known(self) -> set[str]:
        return {f"{one.metadata.namespace}/{one.metadata.name}" for one in self.life.pods()}

    def _sums(self, before: dict[str, Counter[str]]) -> None:
        """No node, and no queue, holds more than it may of what this cycle has given of it."""
        bound, nominated = self._given(self.where), self._given(self.promised)
        used: dict[str, Counter[str]] = {}
        later: dict[str, Counter[str]] = {}
        for key, where in self.where.items():
            asked = {**amounts(self.life.pod(key)), "pods": 1}
            used.setdefault(where, Counter()).update(asked)
            if key not in self.going:
                later.setdefault(where, Counter()).update(asked)
        for key, where in self.promised.items():
            later.setdefault(where, Counter()).update({**amounts(self.life.pod(key)), "pods": 1})
        for node_ in self.life.of(Node):
            name = node_.metadata.name
            room = {key: _plain(key, value) for key, value in (node_.status.allocatable or {}).items()}
            for sums, what, given in ((used, "holds", bound), (later, "is promised", bound | nominated)):
                for key, amount in sums.get(name, Counter()).items():
                    if amount > room.get(key, 0) and (name, key) in given:
                        raise AssertionError(f"{name} {what} {amount} of {key}, has {room.get(key, 0)}")
        after = self._by_queue()
        for found in self.life.of(Queue):
            name = found.metadata.name
            for key, value in (found.spec.capability or {}).items():
                hard, held = _plain(key, value), after.get(name, Counter())[key]
                more = held > before.get(name, Counter())[key]
                assert held <= hard or not more, f"{name} holds {held} of {key}, may {hard}"

    def _given(self, places: Mapping[str, str]) -> set[tuple[str, str]]:
        """Node and dimension of all that pods of these ask for that this cycle has placed there."""
        new = {
            key: where for key, where in places.items()
            if self.life.pod(key).spec.node_name != where and self.life.flying.get(key, ("", ""))[1] != where
            and self.life.pod(key).status.nominated_node_name != where
        }  # fmt: skip
        asked = {key: [name for name, amount in amounts(self.life.pod(key)).items() if amount] for key in new}
        return {(where, name) for key, where in new.items() for name in ("pods", *asked[key])}

    def _roles(self) -> None:
        """No role has more than its maxMember, and no gang stands in part, by what this cycle has placed."""
        for made in self.life.of(PodGroup):
            mine = [
                f"{one.metadata.namespace}/{one.metadata.name}" for one in self.life.pods()
                if one.metadata.namespace == made.metadata.namespace
                and (one.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION) == made.metadata.name
            ]  # fmt: skip
            new = [key for key in mine if key in self.where and not self.life.pod(key).spec.node_name
                   and key not in self.life.flying]  # fmt: skip
            if not new:
                continue
            done = [key for key in mine if self.life.pod(key).status.phase == "Succeeded"]
            stand = [key for key in mine if key in self.where and key not in self.going] + done
            least = max(made.spec.min_member, sum(each.min_member for each in made.spec.sub_groups or ()))
            assert len(stand) >= least, f"{made.metadata.name} is bound in part: {len(stand)} of {least}"
            for role in made.spec.sub_groups or ():
                labels = {key: self.life.pod(key).metadata.labels or {} for key in stand}
                of = [key for key in stand if labels[key].get(SUB_GROUP_LABEL) == role.name]
                assert len(of) >= role.min_member, f"{made.metadata.name} is bound without its role {role.name}"
                if role.max_member is not None and any(key in of for key in new):
                    assert len(of) <= role.max_member, f"{made.metadata.name} has {len(of)} of role {role.name}"


# --- what happens -----------------------------------------------------------------------------------------------------


def disturb(life: Life, among: Sequence[Callable[[Life], str]] | None = None) -> str:
    """Something happens; by default any of `EVENTS`."""
    what = life.dice.choice(EVENTS if among is None else among)
    done = what(life)
    life.told.append(f"{life.now}: {what.__name__} {done}")
    return what.__name__


def some(life: Life, kind: Any) -> Any:
    found = sorted(life.of(kind), key=lambda one: (one.metadata.namespace, one.metadata.name))
    return life.dice.choice(found) if found else None


def time_passes(life: Life) -> str:
    seconds = life.dice.choice([1, 1, 5, 11, 31, 61, 301, 700])
    life.pass_time(seconds)
    return str(seconds)


def it_wakes(life: Life) -> str:
    outcome = life.last.outcome
    if outcome is None or outcome.next_wake is None:
        return "never"
    due = -(-(outcome.next_wake - EPOCH) // SECOND)
    if life.now < due < LATEST:
        life.pass_time(due - life.now)
    return str(due)


def pod_ends(life: Life) -> str:
    running = [one for one in life.pods() if one.spec.node_name and one.status.phase == "Running"
               and one.metadata.deletion_timestamp is None]  # fmt: skip
    if not running:
        return ""
    one = copy.deepcopy(life.dice.choice(running))
    one.status.phase = life.dice.choice(["Succeeded", "Succeeded", "Failed"])
    life.put(one)
    if one.status.phase == "Failed":
        life.replaced(one)
    return f"{one.metadata.name} {one.status.phase}"


def pod_deleted(life: Life) -> str:
    one = some(life, Pod)
    if one is None or one.metadata.deletion_timestamp is not None:
        return ""
    life.evict(f"{one.metadata.namespace}/{one.metadata.name}")
    return str(one.metadata.name)


def pod_vanishes(life: Life) -> str:
    one = some(life, Pod)
    if one is None:
        return ""
    life.drop(Pod, one.metadata.namespace, one.metadata.name)
    if one.status.phase not in {"Succeeded", "Failed"} and one.metadata.deletion_timestamp is None:
        life.replaced(one)
    return str(one.metadata.name)


def pod_stuck(life: Life) -> str:
    going = [one for one in life.pods() if one.metadata.deletion_timestamp is not None]
    if not going:
        return ""
    one = copy.deepcopy(life.dice.choice(going))
    one.metadata.labels = {**(one.metadata.labels or {}), "stuck": "yes"}
    life.put(one)
    return str(one.metadata.name)


def gate_lifted(life: Life) -> str:
    gated = [one for one in life.pods() if one.spec.scheduling_gates]
    if not gated:
        return ""
    one = copy.deepcopy(life.dice.choice(gated))
    one.spec.scheduling_gates = None
    life.put(one)
    return str(one.metadata.name)


def node_lost(life: Life) -> str:
    one = some(life, Node)
    if one is None:
        return ""
    name = one.metadata.name
    life.drop(Node, "", name)
    if life.dice.random() < 0.7:  # else its pods are still there for a while
        for each in life.pods():
            if each.spec.node_name == name:
                life.drop(Pod, each.metadata.namespace, each.metadata.name)
                if each.metadata.deletion_timestamp is None and each.status.phase not in {"Succeeded", "Failed"}:
                    life.replaced(each)
    return str(name)


def node_comes(life: Life) -> str:
    life.numbers["nodes"] += 1
    name = f"n{life.dice.choice([0, 1, 2, 9])}"
    if (Node, "", name) in life.objects:
        return ""
    life.put(_node(life.dice, name, gpus=False))
    return name


def node_changes(life: Life) -> str:
    one = copy.deepcopy(some(life, Node))
    if one is None:
        return ""
    if life.dice.random() < 0.5:
        one.spec.unschedulable = not one.spec.unschedulable
    else:
        one.status.allocatable = {**one.status.allocatable, "cpu": str(life.dice.randint(1, 8))}
    life.put(one)
    return f"{one.metadata.name} {one.spec.unschedulable} {one.status.allocatable['cpu']}"


def queue_changes(life: Life) -> str:
    one = copy.deepcopy(some(life, Queue))
    if one is None:
        return ""
    what = life.dice.choice(["state", "capability", "weight", "reclaimable"])
    if what == "state":
        one.spec.state = "Open" if one.spec.state == "Closed" else "Closed"
    elif what == "capability":
        one.spec.capability = {"cpu": str(life.dice.randint(0, 6))} if life.dice.random() < 0.7 else None
    elif what == "weight":
        one.spec.weight = life.dice.randint(1, 4)
    else:
        one.spec.reclaimable = not one.spec.reclaimable
    life.put(one)
    return f"{one.metadata.name} {what}"


def queue_deleted(life: Life) -> str:
    one = some(life, Queue)
    if one is None or life.dice.random() < 0.5:
        return ""
    life.drop(Queue, "", one.metadata.name)
    return str(one.metadata.name)


def queue_made(life: Life) -> str:
    name = f"q{life.dice.randint(0, 3)}"
    if (Queue, "", name) not in life.objects:
        life.put(_queue(life.dice, name))
    return name


def group_deleted(life: Life) -> str:
    one = some(life, PodGroup)
    if one is None:
        return ""
    life.drop(PodGroup, one.metadata.namespace, one.metadata.name)
    life.gone[f"{one.metadata.namespace}/{one.metadata.name}"] = one
    if life.dice.random() < 0.5:
        plan = life.plans[one.metadata.namespace, one.metadata.name]
        plan.owned = False
        for each in life.pods():
            of = (each.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION)
            if of == one.metadata.name and each.metadata.namespace == one.metadata.namespace:
                life.evict(f"{each.metadata.namespace}/{each.metadata.name}")
    return str(one.metadata.name)


def group_changes(life: Life) -> str:
    one = copy.deepcopy(some(life, PodGroup))
    if one is None:
        return ""
    what = life.dice.choice(["priority", "minimum", "disruption", "lifetime", "queue"])
    if what == "priority":
        one.spec.priority_class_name = life.dice.choice(["", "low", "mid", "high"])
    elif what == "minimum":
        one.spec.min_member = life.dice.randint(1, 4)
    elif what == "disruption":
        one.spec.disruption = life.dice.choice(["Surplus", "Whole", "Never"])
    elif what == "lifetime":
        one.spec.lifetime_seconds = life.dice.choice([None, 0, 30])
    elif not any(
        each.spec.node_name for each in life.pods()
        if (each.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION) == one.metadata.name
    ):  # fmt: skip
        one.spec.queue = f"q{life.dice.randint(0, 3)}"
    one.metadata.generation += 1
    life.put(one)
    return f"{one.metadata.name} {what}"


def group_comes(life: Life) -> str:
    life.numbers["groups"] += 1
    name = f"h{life.numbers['groups']}"
    more = Cluster()
    taste = {what for what in _TASTES if life.dice.random() < 0.3}
    _group(life.dice, more, name, [f"q{at}" for at in range(4)], taste, {}, gpus=False)
    for plan in more.plans:
        life.plans[plan.namespace, plan.name] = plan
    for obj in more.objects:
        obj.metadata.creation_timestamp = stamp(life.now)
        life.put(obj)
    return name


def quota_changes(life: Life) -> str:
    if life.of(ResourceQuota) and life.dice.random() < 0.4:
        one = some(life, ResourceQuota)
        life.drop(ResourceQuota, one.metadata.namespace, one.metadata.name)
    else:
        life.put(_quota(life.dice, "quota"))
    return ""


def budget_changes(life: Life) -> str:
    if life.of(PodDisruptionBudget) and life.dice.random() < 0.5:
        one = some(life, PodDisruptionBudget)
        life.drop(PodDisruptionBudget, one.metadata.namespace, one.metadata.name)
    else:
        life.put(_budget(life.dice, "b0"))
    return ""


def process_restarts(life: Life) -> str:
    """Another process leads: it knows what the API server has."""
    life.arrive()
    life.refused_binds.clear()
    life.refused_evictions.clear()
    life.gone.clear()
    life.model = life.fresh(marks=False)
    life.memo, life.state, life.stands = Memo(), CycleState(), {}
    return ""


def grows_slow(life: Life) -> str:
    life.slow = not life.slow
    return str(life.slow)


EVENTS: Final[tuple[Callable[[Life], str], ...]] = (
    time_passes, time_passes, time_passes, time_passes, it_wakes, it_wakes, it_wakes, it_wakes, pod_ends, pod_ends,
    pod_deleted, pod_vanishes, pod_stuck, gate_lifted, node_lost, node_comes, node_comes, node_changes, queue_changes,
    queue_deleted, queue_made, group_deleted, group_changes, group_comes, group_comes, quota_changes, budget_changes,
    process_restarts,
    grows_slow,
)  # fmt: skip


def live(seed: int, events: int = 12, *, tell: bool = False) -> Iterator[str]:
    """A life, event by event."""
    dice = Random(f"whole {seed}")
    return lived(Life(draw(dice), dice), events)


def lived(life: Life, events: int, among: Sequence[Callable[[Life], str]] | None = None) -> Iterator[str]:
    """So many events in this life, one by one, with all that follows from each."""
    for _ in range(events):
        life.settle()
        life.quiet_until_it_wakes()
        yield disturb(life, among)
        if life.now > LATEST // 2:
            return
    life.settle()
