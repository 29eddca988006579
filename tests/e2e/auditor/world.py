"""The cluster as the auditor has seen it: plain facts, kept from watch events, without any opinion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.e2e.auditor.constraints import Asks, Marks, asks_of, marks_of
from tests.e2e.auditor.quantities import Amounts, add, amounts, request_of

GROUP_NAME = "scheduling.k8s.io/group-name"
OVER = ("Succeeded", "Failed")


@dataclass
class PodFact:
    """A pod as it was last seen."""

    uid: str
    key: str
    group: str
    scheduler: str
    node: str
    nominated: str
    phase: str
    deleting: bool
    evicted: bool
    given: bool
    """Whether somebody made it with a node: of a bind, the API server leaves a condition."""
    request: Amounts
    asks: Asks
    unscheduled: bool
    """Whether its condition PodScheduled is False."""
    bound_at: float | None = None

    @property
    def holds(self) -> bool:
        """Whether it takes room on its node."""
        return bool(self.node) and self.phase not in OVER

    @property
    def placed(self) -> bool:
        """Whether it counts for its gang: it has a node, and neither failed there nor leaves."""
        return bool(self.node) and self.phase != "Failed" and not self.deleting


@dataclass
class GroupFact:
    """A PodGroup as it was last seen."""

    key: str
    uid: str
    queue: str
    minimum: int
    phase: str
    deleting: bool
    conditions: dict[str, tuple[str, str]]
    """By type: status and reason."""
    asks: Amounts = field(default_factory=dict)
    """Its minResources."""
    maximum: int = 0
    """Of its pods that may be placed; 0: any number."""
    changed_at: float = 0.0
    """When its queue or its maximum was last seen to change."""


@dataclass
class QueueFact:
    """A Queue as it was last seen."""

    name: str
    weight: int
    capability: Amounts | None
    changed_at: float = 0.0
    """When the capability was last seen to change."""


@dataclass
class BudgetFact:
    """A PodDisruptionBudget as it was last seen."""

    key: str
    selector: Mapping[str, Any]
    wanted: int
    """Pods that it wants to stay, as it says itself, or (of a share, or `maxUnavailable`) as its status does."""


@dataclass
class QuotaFact:
    """A ResourceQuota without scopes as it was last seen."""

    key: str
    hard: Amounts
    """Of what its pods request, by the plain names: cpu, memory."""
    changed_at: float


@dataclass
class World:
    """All that was seen, by key (`namespace/name`; nodes and queues by name)."""

    pods: dict[str, PodFact] = field(default_factory=dict)
    nodes: dict[str, Amounts] = field(default_factory=dict)
    gone_nodes: dict[str, float] = field(default_factory=dict)
    closed_nodes: dict[str, float] = field(default_factory=dict)
    """Nodes that are cordoned or not Ready, and since when that is known."""
    groups: dict[str, GroupFact] = field(default_factory=dict)
    queues: dict[str, QueueFact] = field(default_factory=dict)
    members: dict[str, dict[str, PodFact]] = field(default_factory=dict)
    """By group: its pods, by key."""
    on_node: dict[str, dict[str, PodFact]] = field(default_factory=dict)
    """By node: the pods that have it, by key."""
    node_marks: dict[str, list[tuple[float, Marks]]] = field(default_factory=dict)
    """By node: its labels and taints, and since when they are so; the newest last."""
    ever: dict[str, set[str]] = field(default_factory=dict)
    """By namespace: the pods (by uid) that were ever seen."""
    budgets: dict[str, BudgetFact] = field(default_factory=dict)
    quotas: dict[str, QuotaFact] = field(default_factory=dict)
    apart: bool = False
    """Whether any pod so far keeps away from others."""

    def marks(self, node: str, since: float) -> list[Marks]:
        """A node's labels and taints as they were at any moment after `since`, the newest last."""
        history = self.node_marks.get(node, [])
        ends = [began for began, _ in history[1:]] + [float("inf")]
        return [marks for (_, marks), end in zip(history, ends, strict=True) if end > since]

    def label(self, node: str, key: str) -> str:
        """The value of a node's label now; empty where there is none."""
        history = self.node_marks.get(node)
        return history[-1][1].labels.get(key, "") if history else ""

    def used(self, node: str) -> Amounts:
        """What the pods of a node hold."""
        total: Amounts = {}
        for pod in self.on_node.get(node, {}).values():
            if pod.holds:
                add(total, pod.request)
        return total

    def placed(self, group: str) -> int:
        """Members of a group that count as placed."""
        return sum(pod.placed for pod in self.members.get(group, {}).values())

    def put_pod(self, obj: dict[str, Any], at: float) -> tuple[PodFact | None, PodFact]:
        """Take over a pod; what it was before (None: unknown, or another one of that name), and what it is now."""
        meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
        namespace = meta["namespace"]
        group = (meta.get("annotations") or {}).get(GROUP_NAME, "")
        conditions = status.get("conditions") or ()
        now = PodFact(
            uid=meta["uid"],
            key=f"{namespace}/{meta['name']}",
            group=f"{namespace}/{group}" if group else "",
            scheduler=spec.get("schedulerName", ""),
            node=spec.get("nodeName") or "",
            nominated=status.get("nominatedNodeName") or "",
            phase=status.get("phase") or "Pending",
            deleting=bool(meta.get("deletionTimestamp")),
            evicted=any(
                one["type"] == "DisruptionTarget" and one.get("reason") == "EvictionByEvictionAPI" for one in conditions
            ),
            given=bool(spec.get("nodeName")) and not any(one["type"] == "PodScheduled" for one in conditions),
            request=request_of(spec),
            asks=asks_of(obj),
            unscheduled=any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions),
        )
        self.apart = self.apart or bool(now.asks.apart)
        self.ever.setdefault(namespace, set()).add(now.uid)
        before = self.pods.get(now.key)
        if before is not None:
            self._unlink(before)
            if before.uid != now.uid:
                before = None
        now.bound_at = before.bound_at if before is not None and before.node else at if now.node else None
        self.pods[now.key] = now
        if now.group:
            self.members.setdefault(now.group, {})[now.key] = now
        if now.node:
            self.on_node.setdefault(now.node, {})[now.key] = now
        return before, now

    def drop_pod(self, obj: dict[str, Any]) -> PodFact | None:
        """Forget a pod; what it was."""
        key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        known = self.pods.get(key)
        if known is None or known.uid != obj["metadata"]["uid"]:
            return None
        self._unlink(self.pods.pop(key))
        return known

    def _unlink(self, pod: PodFact) -> None:
        self.members.get(pod.group, {}).pop(pod.key, None)
        self.on_node.get(pod.node, {}).pop(pod.key, None)

    def put_node(self, obj: dict[str, Any], at: float) -> None:
        """Take over a node."""
        name, status = obj["metadata"]["name"], obj.get("status") or {}
        self.nodes[name] = amounts(status.get("allocatable"))
        history, marks = self.node_marks.setdefault(name, []), marks_of(obj)
        if not history or history[-1][1] != marks:
            history.append((at, marks))
            del history[:-8]
        self.gone_nodes.pop(name, None)
        ready = all(one["status"] == "True" for one in status.get("conditions") or () if one["type"] == "Ready")
        if ready and not (obj.get("spec") or {}).get("unschedulable"):
            self.closed_nodes.pop(name, None)
        else:
            self.closed_nodes.setdefault(name, at)

    def drop_node(self, obj: dict[str, Any], at: float) -> None:
        """A node is gone."""
        self.nodes.pop(obj["metadata"]["name"], None)
        self.closed_nodes.pop(obj["metadata"]["name"], None)
        self.gone_nodes[obj["metadata"]["name"]] = at

    def put_group(self, obj: dict[str, Any], at: float = 0.0) -> None:
        """Take over a PodGroup."""
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        roles = sum(int(role.get("minMember") or 0) for role in spec.get("subGroups") or ())
        key = f"{meta['namespace']}/{meta['name']}"
        maximum, queue = int(spec.get("maxMember") or 0), spec.get("queue") or "default"
        known = self.groups.get(key)
        same = known is not None and (known.uid, known.queue, known.maximum) == (meta["uid"], queue, maximum)
        self.groups[key] = GroupFact(
            key=key,
            uid=meta["uid"],
            queue=queue,
            minimum=max(int(spec.get("minMember") or 1), roles),
            phase=status.get("phase") or "",
            deleting=bool(meta.get("deletionTimestamp")),
            conditions={
                one["type"]: (one.get("status", ""), one.get("reason", "")) for one in status.get("conditions") or ()
            },
            asks=amounts(spec.get("minResources")),
            maximum=maximum,
            changed_at=known.changed_at if known is not None and same else at,
        )

    def drop_group(self, obj: dict[str, Any]) -> None:
        """A PodGroup is gone."""
        self.groups.pop(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", None)

    def put_queue(self, obj: dict[str, Any], at: float = 0.0) -> None:
        """Take over a Queue."""
        spec = obj.get("spec") or {}
        capability = spec.get("capability")
        name, cap = obj["metadata"]["name"], amounts(capability) if capability else None
        known = self.queues.get(name)
        changed = at if known is None or known.capability != cap else known.changed_at
        self.queues[name] = QueueFact(name, int(spec.get("weight") or 1), cap, changed)

    def put_budget(self, obj: dict[str, Any], at: float = 0.0) -> None:
        """Take over a PodDisruptionBudget."""
        key, spec = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", obj.get("spec") or {}
        least = spec.get("minAvailable")
        said = int((obj.get("status") or {}).get("desiredHealthy") or 0)
        self.budgets[key] = BudgetFact(key, spec.get("selector") or {}, least if isinstance(least, int) else said)

    def drop_budget(self, obj: dict[str, Any]) -> None:
        """A PodDisruptionBudget is gone."""
        self.budgets.pop(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", None)

    def put_quota(self, obj: dict[str, Any], at: float = 0.0) -> None:
        """Take over a ResourceQuota; one with scopes is not judged."""
        key, spec = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", obj.get("spec") or {}
        named = amounts(spec.get("hard"))
        hard = {name: named.get(f"requests.{name}", named.get(name)) for name in ("cpu", "memory")}
        limits = {name: value for name, value in hard.items() if value is not None}
        if spec.get("scopes") or spec.get("scopeSelector"):
            limits = {}
        known = self.quotas.get(key)
        changed = known.changed_at if known is not None and known.hard == limits else at
        self.quotas[key] = QuotaFact(key, limits, changed)

    def drop_quota(self, obj: dict[str, Any]) -> None:
        """A ResourceQuota is gone."""
        self.quotas.pop(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", None)

    def drop_queue(self, obj: dict[str, Any]) -> None:
        """A Queue is gone."""
        self.queues.pop(obj["metadata"]["name"], None)


def deserved(world: World) -> dict[str, Amounts]:
    """Each queue's weighted max-min share of all nodes, dimension by dimension, capped by what it asks for.

    It shares no code with what it judges. All nodes are divided between all queues, as is right where every pod may use
    every node; taints and selectors occur only among hostile objects.

    Worked out in fractions, so up to a unit away from one that is rounded to whole units.
    """
    requests = {name: _asked(world, name) for name in world.queues}
    capacity: Amounts = {}
    for node in world.nodes.values():
        add(capacity, node)
    shares: dict[str, Amounts] = {name: {} for name in world.queues}
    for dimension, whole in capacity.items():
        caps = {name: asked.get(dimension, Fraction(0)) for name, asked in requests.items()}
        for name, queue in world.queues.items():
            if queue.capability is not None and dimension in queue.capability:
                caps[name] = min(caps[name], queue.capability[dimension])
        unmet = {name for name, cap in caps.items() if cap > 0}
        rest = whole
        while unmet:
            unit = rest / sum(world.queues[name].weight for name in unmet)
            full = {name for name in unmet if caps[name] <= unit * world.queues[name].weight}
            for name in full or unmet:
                shares[name][dimension] = caps[name] if full else unit * world.queues[name].weight
                rest -= shares[name][dimension]
            unmet = unmet - full if full else set()
    return shares


def allocated(world: World, queue: str) -> Amounts:
    """What the placed pods of a queue's groups hold."""
    total: Amounts = {}
    for group in world.groups.values():
        if group.queue == queue:
            for pod in world.members.get(group.key, {}).values():
                if pod.holds and not pod.deleting:
                    add(total, pod.request)
    return total


def _asked(world: World, queue: str) -> Amounts:
    total: Amounts = {}
    for group in world.groups.values():
        if group.queue == queue:
            for pod in world.members.get(group.key, {}).values():
                if pod.phase not in OVER and not pod.deleting:
                    add(total, pod.request)
    return total
