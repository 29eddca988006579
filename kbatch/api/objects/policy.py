"""What limits and ranks pods: priority classes, quotas, disruption budgets; and the namespaces that they are in."""

from __future__ import annotations

import msgspec

from kbatch.api.objects.meta import LabelSelector, Metadata, Object, RawResources, Value


class PriorityClass(Object, kw_only=True):
    api_version: str = "scheduling.k8s.io/v1"
    kind: str = "PriorityClass"
    metadata: Metadata
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class ScopedSelectorRequirement(Value, kw_only=True, frozen=True):
    scope_name: str
    operator: str
    values: tuple[str, ...] | None = None


class ScopeSelector(Value, kw_only=True, frozen=True):
    match_expressions: tuple[ScopedSelectorRequirement, ...] | None = None


class ResourceQuotaSpec(Object, kw_only=True):
    hard: RawResources | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(Object, kw_only=True):
    hard: RawResources | None = None
    used: RawResources | None = None


class ResourceQuota(Object, kw_only=True):
    api_version: str = "v1"
    kind: str = "ResourceQuota"
    metadata: Metadata
    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)


class PodDisruptionBudgetSpec(Object, kw_only=True):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Object, kw_only=True):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    observed_generation: int = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Object, kw_only=True):
    api_version: str = "policy/v1"
    kind: str = "PodDisruptionBudget"
    metadata: Metadata
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus | None = None


class NamespaceStatus(Object, kw_only=True):
    phase: str = "Active"


class Namespace(Object, kw_only=True):
    api_version: str = "v1"
    kind: str = "Namespace"
    metadata: Metadata
    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)
