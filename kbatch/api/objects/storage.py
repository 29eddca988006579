"""Volumes: what is claimed, what is there, and where it can be used."""

from __future__ import annotations

import msgspec

from kbatch.api.objects.meta import Metadata, Object, Value
from kbatch.api.objects.placement import NodeSelector
from kbatch.api.objects.pods import CsiSource


class VolumeNodeAffinity(Value, kw_only=True, frozen=True):
    required: NodeSelector | None = None


class ClaimReference(Value, kw_only=True, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(Object, kw_only=True):
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    csi: CsiSource | None = None


class PersistentVolume(Object, kw_only=True):
    api_version: str = "v1"
    kind: str = "PersistentVolume"
    metadata: Metadata
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)


class PersistentVolumeClaimSpec(Object, kw_only=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None


class PersistentVolumeClaimStatus(Object, kw_only=True):
    phase: str = ""


class PersistentVolumeClaim(Object, kw_only=True):
    api_version: str = "v1"
    kind: str = "PersistentVolumeClaim"
    metadata: Metadata
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=PersistentVolumeClaimStatus)


class TopologySelectorRequirement(Value, kw_only=True, frozen=True):
    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Value, kw_only=True, frozen=True):
    match_label_expressions: tuple[TopologySelectorRequirement, ...] | None = None


class StorageClass(Object, kw_only=True):
    api_version: str = "storage.k8s.io/v1"
    kind: str = "StorageClass"
    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] | None = None


class CsiNodeAllocatable(Value, kw_only=True, frozen=True):
    count: int | None = None


class CsiNodeDriver(Value, kw_only=True, frozen=True):
    name: str
    allocatable: CsiNodeAllocatable | None = None


class CsiNodeSpec(Object, kw_only=True):
    drivers: tuple[CsiNodeDriver, ...] = ()


class CsiNode(Object, kw_only=True):
    api_version: str = "storage.k8s.io/v1"
    kind: str = "CSINode"
    metadata: Metadata
    spec: CsiNodeSpec = msgspec.field(default_factory=CsiNodeSpec)
