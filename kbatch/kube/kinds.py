"""The kinds that kbatch reads and writes: where the API server serves each, and the struct it is decoded into."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from kbatch.api import names, objects

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind of object: its struct, its Kubernetes name, and its place in the API."""

    type: type[T]
    name: str
    group: str
    version: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """As it stands in a manifest: `v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of a collection (of one namespace, or of all), of an object, or of its subresource.

        Raises:
            ValueError: an object of a namespaced kind without its namespace.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root += f"/namespaces/{_quoted(namespace)}"
        elif self.namespaced and name:
            raise ValueError(f"a {self.name} lives in a namespace")
        path = f"{root}/{self.plural}"
        if name:
            path += f"/{_quoted(name)}"
        return f"{path}/{subresource}" if subresource else path


def _quoted(text: str) -> str:
    """The text as a segment of a path; names of objects hardly ever need it."""
    return text if _PLAIN(text) else quote(text, safe="")


_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch


def key_of(namespace: str, name: str) -> str:
    """The key by which an object is known inside kbatch: `namespace/name`, or `name` where there is no namespace."""
    return f"{namespace}/{name}" if namespace else name


def split_key(key: str) -> tuple[str, str]:
    """Namespace and name of a namespaced object's key."""
    namespace, _, name = key.partition("/")
    return namespace, name


PODS: Final = Kind(objects.Pod, "Pod", "", "v1", "pods", namespaced=True)
NODES: Final = Kind(objects.Node, "Node", "", "v1", "nodes", namespaced=False)
NAMESPACES: Final = Kind(objects.Namespace, "Namespace", "", "v1", "namespaces", namespaced=False)
RESOURCEQUOTAS: Final = Kind(objects.ResourceQuota, "ResourceQuota", "", "v1", "resourcequotas", namespaced=True)
PERSISTENTVOLUMES: Final = Kind(
    objects.PersistentVolume, "PersistentVolume", "", "v1", "persistentvolumes", namespaced=False
)
PERSISTENTVOLUMECLAIMS: Final = Kind(
    objects.PersistentVolumeClaim, "PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", namespaced=True
)
PODGROUPS: Final = Kind(objects.PodGroup, "PodGroup", names.GROUP, names.VERSION, "podgroups", namespaced=True)
QUEUES: Final = Kind(objects.Queue, "Queue", names.GROUP, names.VERSION, "queues", namespaced=False)
PRIORITYCLASSES: Final = Kind(
    objects.PriorityClass, "PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", namespaced=False
)
PODDISRUPTIONBUDGETS: Final = Kind(
    objects.PodDisruptionBudget, "PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", namespaced=True
)
JOBS: Final = Kind(objects.Job, "Job", "batch", "v1", "jobs", namespaced=True)
REPLICASETS: Final = Kind(objects.ReplicaSet, "ReplicaSet", "apps", "v1", "replicasets", namespaced=True)
STORAGECLASSES: Final = Kind(
    objects.StorageClass, "StorageClass", "storage.k8s.io", "v1", "storageclasses", namespaced=False
)
CSINODES: Final = Kind(objects.CsiNode, "CSINode", "storage.k8s.io", "v1", "csinodes", namespaced=False)

# Kinds that are written but never decoded into a struct of their own.
LEASES: Final = Kind(dict, "Lease", "coordination.k8s.io", "v1", "leases", namespaced=True)
CONFIGMAPS: Final = Kind(dict, "ConfigMap", "", "v1", "configmaps", namespaced=True)
EVENTS: Final = Kind(dict, "Event", "events.k8s.io", "v1", "events", namespaced=True)

AnyKind = Kind[Any]
