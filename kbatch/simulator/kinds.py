"""Which kinds the simulator reads, and which it knows of and leaves out.

A kind is told by its API group and name. The version matters only as far as it should be one that is served today; an
older one of the same shape is read with a warning, so that old manifests can be tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from kbatch.api.names import GROUP
from kbatch.api.objects import (
    AnyObject,
    CsiNode,
    Job,
    Namespace,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PriorityClass,
    Queue,
    ReplicaSet,
    ResourceQuota,
    StorageClass,
)


@dataclass(frozen=True, slots=True)
class ReadKind:
    """A kind that takes part in the simulation."""

    type: type[AnyObject]
    version: str
    namespaced: bool = True


READ: Final[dict[tuple[str, str], ReadKind]] = {
    ("", "Namespace"): ReadKind(Namespace, "v1", namespaced=False),
    ("", "Node"): ReadKind(Node, "v1", namespaced=False),
    ("", "PersistentVolume"): ReadKind(PersistentVolume, "v1", namespaced=False),
    ("", "PersistentVolumeClaim"): ReadKind(PersistentVolumeClaim, "v1"),
    ("", "Pod"): ReadKind(Pod, "v1"),
    ("", "ResourceQuota"): ReadKind(ResourceQuota, "v1"),
    ("apps", "ReplicaSet"): ReadKind(ReplicaSet, "v1"),
    ("batch", "Job"): ReadKind(Job, "v1"),
    ("policy", "PodDisruptionBudget"): ReadKind(PodDisruptionBudget, "v1"),
    ("scheduling.k8s.io", "PriorityClass"): ReadKind(PriorityClass, "v1", namespaced=False),
    ("storage.k8s.io", "CSINode"): ReadKind(CsiNode, "v1", namespaced=False),
    ("storage.k8s.io", "StorageClass"): ReadKind(StorageClass, "v1", namespaced=False),
    (GROUP, "PodGroup"): ReadKind(PodGroup, "v1alpha1"),
    (GROUP, "Queue"): ReadKind(Queue, "v1alpha1", namespaced=False),
}

_OTHERS: Final = {
    "": """Binding ComponentStatus ConfigMap Endpoints Event LimitRange PodTemplate ReplicationController Secret Service
        ServiceAccount""",
    "admissionregistration.k8s.io": """MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
        MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
        ValidatingWebhookConfiguration""",
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "apps": "ControllerRevision DaemonSet Deployment StatefulSet",
    "autoscaling": "HorizontalPodAutoscaler",
    "batch": "CronJob",
    "certificates.k8s.io": "CertificateSigningRequest ClusterTrustBundle PodCertificateRequest",
    "coordination.k8s.io": "Lease LeaseCandidate",
    "discovery.k8s.io": "EndpointSlice",
    "events.k8s.io": "Event",
    "extensions": "DaemonSet Deployment Ingress NetworkPolicy PodSecurityPolicy ReplicaSet",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "internal.apiserver.k8s.io": "StorageVersion",
    "networking.k8s.io": "IPAddress Ingress IngressClass NetworkPolicy ServiceCIDR",
    "node.k8s.io": "RuntimeClass",
    "policy": "Eviction PodSecurityPolicy",
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "resource.k8s.io": "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate ResourceSlice",
    "scheduling.k8s.io": "Workload",
    "storage.k8s.io": "CSIDriver CSIStorageCapacity VolumeAttachment VolumeAttributesClass",
    "storagemigration.k8s.io": "StorageVersionMigration",
}
SKIPPED: Final = frozenset((group, kind) for group, kinds in _OTHERS.items() for kind in kinds.split())
"""Kinds of Kubernetes itself that have no part in the simulation."""


def split_api_version(api_version: str) -> tuple[str, str]:
    """Group and version: `batch/v1` is of the group `batch`, `v1` of the core group, the empty one."""
    group, _, version = api_version.rpartition("/")
    return group, version


@cache
def listed_kind(kind: str) -> str | None:
    """The kind of a list's items by the list's own kind: `PodList` holds `Pod`s; None if it is no list of one kind."""
    item = kind.removesuffix("List")
    if item == kind or not item:
        return None
    known = {name for _, name in READ} | {name for _, name in SKIPPED}
    return item if item in known else None
