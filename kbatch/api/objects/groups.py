"""kbatch's own kinds as its processes read them; `kbatch.api.podgroup` and `kbatch.api.queue` make their schemas."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kbatch.api.objects.meta import LabelSelector, Metadata, Object, RawQuantity, RawResources, Value

MOST_OBJECTS: Final = 16
"""Objects that a group may have besides its pods."""


class Condition(Value, kw_only=True, frozen=True):
    """An entry of `status.conditions`; list-map by `type`. `status` is "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class GroupTopology(Value, kw_only=True, frozen=True):
    max_hops: int | None = None
    mode: str = ""


class SubGroup(Value, kw_only=True, frozen=True):
    name: str
    min_member: int = 0
    max_member: int | None = None
    template: dict[str, Any] | None = None
    topology: GroupTopology | None = None
    exclusive: bool = False


class PodGroupSpec(Object, kw_only=True):
    min_member: int = 1
    minimum: int | None = None
    queue: str = "default"
    priority_class_name: str = ""
    min_resources: RawResources | None = None
    sub_groups: tuple[SubGroup, ...] | None = None
    objects: tuple[dict[str, Any], ...] | None = None
    suspend: bool = False
    lifetime_seconds: int | None = None
    min_runtime_seconds: int = 0
    disruption: str = "Surplus"
    topology: GroupTopology | None = None
    exclusive: bool = False
    minimum_lost_seconds: int | None = None
    bad_node_limit: int = 2
    schedule_timeout_seconds: int = 300
    ttl_seconds_after_finished: int | None = None


class SubGroupStatus(Value, kw_only=True, frozen=True):
    name: str
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    pending: int = 0


class MadeObject(Value, kw_only=True, frozen=True):
    """An object that was made for a group, by what it is called."""

    api_version: str
    kind: str
    name: str


class NodeFailures(Value, kw_only=True, frozen=True):
    """Pods of the group, by uid, that failed on a node."""

    node: str
    pods: tuple[str, ...] = ()


class FinishedRole(Value, kw_only=True, frozen=True):
    """The members of a role that have ended well, as ranges of their numbers: `0-3,7`."""

    name: str
    indexes: str = ""


class EstimatedStart(Value, kw_only=True, frozen=True):
    """When a group that waits is to start (RFC 3339)."""

    time: str | None = None
    latest: str | None = None
    basis: str = ""


class PodGroupStatus(Object, kw_only=True):
    phase: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    pending: int = 0
    sub_groups: tuple[SubGroupStatus, ...] | None = None
    objects: tuple[MadeObject, ...] | None = None
    allocated: RawResources | None = None
    conditions: tuple[Condition, ...] | None = None
    scheduling_attempts: int = 0
    excess_charged: RawQuantity | None = None
    estimated_start: EstimatedStart | None = None
    node_failures: tuple[NodeFailures, ...] | None = None
    finished: tuple[FinishedRole, ...] | None = None


class PodGroup(Object, kw_only=True):
    api_version: str = "scheduling.incubator.k8s.io/v1alpha1"
    kind: str = "PodGroup"
    metadata: Metadata
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class QueueSpec(Object, kw_only=True):
    weight: int = 1
    capability: RawResources | None = None
    reclaimable: bool = True
    state: str = "Open"
    namespace_selector: LabelSelector | None = None
    parent: str = ""
    placement: str | None = None
    evictions_per_hour: int | None = None
    excess_budget: int | None = None


class QueueFlow(Value, kw_only=True, frozen=True):
    value: RawQuantity = 0
    unlimited_value: RawQuantity = 0
    usage: RawQuantity = 0
    unlimited_usage: RawQuantity = 0
    time: str = ""


class QueueStatus(Object, kw_only=True):
    state: str = ""
    deserved: RawResources | None = None
    allocated: RawResources | None = None
    requested: RawResources | None = None
    share: str | None = None
    pending: int = 0
    inqueue: int = 0
    running: int = 0
    completed: int = 0
    flow: QueueFlow | None = None
    fair_share: RawQuantity | None = None
    excess_charged: RawQuantity | None = None
    evicted: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class Queue(Object, kw_only=True):
    api_version: str = "scheduling.incubator.k8s.io/v1alpha1"
    kind: str = "Queue"
    metadata: Metadata
    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)
