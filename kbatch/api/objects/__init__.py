"""The fields of Kubernetes objects that kbatch reads, as typed structs.

Decoding straight into these is some fifty times as fast as into a generated client's models, and an object holds a
tenth of the memory. Unknown fields are dropped while parsing. A field of the wrong type is a `msgspec.ValidationError`
for that one object; whoever decodes a list does so item by item (`kbatch.kube`), so that one bad object hides no other.

Amounts stay as written (`RawResources`): `kbatch.model` reads them once per distinct content.
"""

from __future__ import annotations

from typing import TypeAlias

from kbatch.api.objects.groups import (
    MOST_OBJECTS,
    Condition,
    EstimatedStart,
    FinishedRole,
    GroupTopology,
    MadeObject,
    NodeFailures,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    Queue,
    QueueFlow,
    QueueSpec,
    QueueStatus,
    SubGroup,
    SubGroupStatus,
)
from kbatch.api.objects.meta import (
    LabelSelector,
    LabelSelectorRequirement,
    ListMeta,
    Metadata,
    OwnerReference,
    RawQuantity,
    RawResources,
    timestamp_us,
)
from kbatch.api.objects.nodes import (
    ContainerImage,
    Node,
    NodeSpec,
    NodeStatus,
    Taint,
)
from kbatch.api.objects.placement import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from kbatch.api.objects.pods import (
    ActualResources,
    ClaimSource,
    Container,
    ContainerPort,
    ContainerStatus,
    CsiSource,
    EphemeralSource,
    Pod,
    PodCondition,
    PodResourceClaim,
    PodSpec,
    PodStatus,
    PodTemplate,
    ResourceRequirements,
    SchedulingGate,
    Volume,
)
from kbatch.api.objects.policy import (
    Namespace,
    NamespaceStatus,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PriorityClass,
    ResourceQuota,
    ResourceQuotaSpec,
    ResourceQuotaStatus,
    ScopedSelectorRequirement,
    ScopeSelector,
)
from kbatch.api.objects.storage import (
    ClaimReference,
    CsiNode,
    CsiNodeAllocatable,
    CsiNodeDriver,
    CsiNodeSpec,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    StorageClass,
    TopologySelectorRequirement,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from kbatch.api.objects.workloads import (
    Job,
    JobSpec,
    JobStatus,
    ReplicaSet,
    ReplicaSetSpec,
)

__all__ = [
    "MOST_OBJECTS",
    "ActualResources",
    "Affinity",
    "AnyObject",
    "ClaimReference",
    "ClaimSource",
    "Condition",
    "Container",
    "ContainerImage",
    "ContainerPort",
    "ContainerStatus",
    "CsiNode",
    "CsiNodeAllocatable",
    "CsiNodeDriver",
    "CsiNodeSpec",
    "CsiSource",
    "EphemeralSource",
    "EstimatedStart",
    "FinishedRole",
    "GroupTopology",
    "Job",
    "JobSpec",
    "JobStatus",
    "LabelSelector",
    "LabelSelectorRequirement",
    "ListMeta",
    "MadeObject",
    "Metadata",
    "Namespace",
    "NamespaceStatus",
    "Node",
    "NodeAffinity",
    "NodeFailures",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "NodeSpec",
    "NodeStatus",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimStatus",
    "PersistentVolumeSpec",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodCondition",
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
    "PodGroup",
    "PodGroupSpec",
    "PodGroupStatus",
    "PodResourceClaim",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "PreferredSchedulingTerm",
    "PriorityClass",
    "Queue",
    "QueueFlow",
    "QueueSpec",
    "QueueStatus",
    "RawQuantity",
    "RawResources",
    "ReplicaSet",
    "ReplicaSetSpec",
    "ResourceQuota",
    "ResourceQuotaSpec",
    "ResourceQuotaStatus",
    "ResourceRequirements",
    "SchedulingGate",
    "ScopeSelector",
    "ScopedSelectorRequirement",
    "StorageClass",
    "SubGroup",
    "SubGroupStatus",
    "Taint",
    "Toleration",
    "TopologySelectorRequirement",
    "TopologySelectorTerm",
    "TopologySpreadConstraint",
    "Volume",
    "VolumeNodeAffinity",
    "WeightedPodAffinityTerm",
    "timestamp_us",
]

AnyObject: TypeAlias = (
    Pod
    | Node
    | PodGroup
    | Queue
    | PriorityClass
    | ResourceQuota
    | PodDisruptionBudget
    | Namespace
    | Job
    | ReplicaSet
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CsiNode
)
"""Every kind that kbatch reads. Told apart by `isinstance`: some lists of the API server leave `kind` out."""
