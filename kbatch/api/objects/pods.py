"""Pods and their templates."""

from __future__ import annotations

import msgspec

from kbatch.api.objects.meta import Metadata, Object, RawResources, Value
from kbatch.api.objects.placement import Affinity, Toleration, TopologySpreadConstraint


class ResourceRequirements(Value, kw_only=True, frozen=True):
    requests: RawResources | None = None
    limits: RawResources | None = None


class ContainerPort(Value, kw_only=True, frozen=True):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class RestartRule(Value, kw_only=True, frozen=True):
    action: str = ""


class Container(Value, kw_only=True, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None
    restart_policy_rules: tuple[RestartRule, ...] | None = None


class SchedulingGate(Value, kw_only=True, frozen=True):
    name: str


class ClaimSource(Value, kw_only=True, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class PodResourceClaim(Value, kw_only=True, frozen=True):
    """A claim on devices (dynamic resource allocation). Only its presence matters."""

    name: str = ""


class EphemeralSource(Value, kw_only=True, frozen=True):
    """Only its presence matters: the claim is named `<pod>-<volume>`."""


class CsiSource(Value, kw_only=True, frozen=True):
    driver: str = ""


class Volume(Value, kw_only=True, frozen=True):
    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None
    csi: CsiSource | None = None


class PodSpec(Object, kw_only=True):
    scheduler_name: str = ""
    node_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: RawResources | None = None
    resources: ResourceRequirements | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    host_network: bool = False
    host_users: bool | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None


class PodCondition(Value, kw_only=True, frozen=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class ActualResources(Value, kw_only=True, frozen=True):
    requests: RawResources | None = None


class ContainerStatus(Value, kw_only=True, frozen=True):
    """What the kubelet holds for a container: other than in the spec while it is resized in place."""

    name: str = ""
    allocated_resources: RawResources | None = None
    resources: ActualResources | None = None


class PodStatus(Object, kw_only=True):
    phase: str = ""
    conditions: tuple[PodCondition, ...] | None = None
    nominated_node_name: str = ""
    start_time: str | None = None
    reason: str = ""
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None


class Pod(Object, kw_only=True):
    api_version: str = "v1"
    kind: str = "Pod"
    metadata: Metadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class PodTemplate(Object, kw_only=True):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
