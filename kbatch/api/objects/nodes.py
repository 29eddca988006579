"""Nodes."""

from __future__ import annotations

import msgspec

from kbatch.api.objects.meta import Metadata, Object, RawResources, Value
from kbatch.api.objects.pods import PodCondition


class Taint(Value, kw_only=True, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Object, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class ContainerImage(Value, kw_only=True, frozen=True):
    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeStatus(Object, kw_only=True):
    allocatable: RawResources | None = None
    capacity: RawResources | None = None
    conditions: tuple[PodCondition, ...] | None = None
    images: tuple[ContainerImage, ...] | None = None
    declared_features: tuple[str, ...] | None = None


class Node(Object, kw_only=True):
    api_version: str = "v1"
    kind: str = "Node"
    metadata: Metadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)
