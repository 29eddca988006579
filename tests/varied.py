"""Loads in which no two pods are alike, drawn with a seed: for the soak, the fault tests and the live benchmark.

What differs: resources (also of init containers, and limits), node selectors and affinity, tolerations, spread and
affinity among the group's own pods, hosts' ports, volumes (claims of each pod's own), priorities, roles, owners.

Every group can be placed on nodes that are marked by `marked` and otherwise empty: what would contradict itself, as a
zone and a volume of another zone, is not drawn. Equal draws give equal documents.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Document = dict[str, Any]

ZONES: Final = 4
"""Zones of the nodes; the node of number n is in the zone of n modulo this."""
FEW: Final = 6
"""Groups of up to so many pods may be bound to a zone, or kept together or apart."""
LEAST_NODES: Final = 2 * ZONES
"""With so many nodes, or more, all groups can be placed."""
SCHEDULER: Final = "kube-batch"

_API = "scheduling.incubator.k8s.io/v1alpha1"
_ZONE, _TAINT = "varied.test/zone", "varied.test/reserved"
_HOST = "kubernetes.io/hostname"
_GROUP = "varied.test/group"
"""The label of a group's pods by which they spread, or keep together or apart."""
_CLASSES = 10
_STORAGE = "varied"
_PLACES = ("any", "zone", "spread", "apart", "together")
_LARGE_PLACES = ("any", "spread")
_VOLUMES = ("none", "none", "none", "empty", "claim", "ephemeral")
_TOLERATION = {"key": _TAINT, "operator": "Exists", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class Traits:
    """What the pods of one group have in common; the rest is drawn for each.

    Attributes:
        place: how the pods are bound to nodes: one of `_PLACES`.
        zone: the zone, where `place` says zone.
        volume: which volume each pod has: one of `_VOLUMES`.
        priority: its PriorityClass; empty for none.
        roles: how many roles the pods are divided into; 0: none.
        owners: how many objects the pods belong to; 0: none.
        skew: the largest, where `place` says spread.
        tolerates: whether all pods tolerate the taint; None: each as it is drawn.
    """

    place: str = "any"
    zone: str = ""
    volume: str = "none"
    priority: str = ""
    roles: int = 0
    owners: int = 0
    skew: int = 1
    tolerates: bool | None = None


def traits(draw: random.Random, size: int) -> Traits:
    """The traits of a group of so many pods."""
    place = draw.choice(_PLACES if size <= FEW else _LARGE_PLACES)
    return Traits(
        place=place,
        zone=f"z{draw.randrange(ZONES)}" if place == "zone" else "",
        volume=draw.choice(_VOLUMES) if size <= 2 * FEW else draw.choice(_VOLUMES[:4]),
        priority=draw.choice(("", f"varied-{draw.randrange(_CLASSES)}")),
        roles=draw.choice((0, 0, 2, 3)) if size >= 3 else 0,
        owners=draw.choice((0, 0, 1, 2)),
        skew=draw.randint(1, 3),
        # A domain counts for one pod of a spread, or of a set that keeps together, as for all others.
        tolerates=None if place in {"any", "apart"} else draw.random() < 0.5,
    )


def fixtures() -> list[Document]:
    """What must be there before the first group: PriorityClasses, none of which preempts, and a StorageClass."""
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": f"varied-{number}"},
            "value": 10 * number, "preemptionPolicy": "Never",
        }
        for number in range(_CLASSES)
    ]  # fmt: skip
    storage = {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": _STORAGE},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "Immediate",
    }  # fmt: skip
    return [*classes, storage]


def marks(number: int) -> Document:
    """The labels and taints of the node of a number, as a merge patch: its zone; each eighth is reserved."""
    taints = [{"key": _TAINT, "value": "yes", "effect": "NoSchedule"}] if number % 8 == 7 else []
    return {"metadata": {"labels": {_ZONE: f"z{number % ZONES}"}}, "spec": {"taints": taints}}


def marked(node: Document, number: int) -> Document:
    """A node as it is to be created, with its marks."""
    has = marks(number)
    meta = node["metadata"] | {"labels": node["metadata"].get("labels", {}) | has["metadata"]["labels"]}
    return node | {"metadata": meta, "spec": node.get("spec", {}) | has["spec"]}


def is_marked(node: Document) -> bool:
    """Whether a node has its labels."""
    return _ZONE in node["metadata"].get("labels", {})


NO_MARKS: Final[Document] = {"metadata": {"labels": {_ZONE: None}}, "spec": {"taints": []}}
"""The merge patch that takes the marks away."""


def group(
    draw: random.Random,
    namespace: str,
    name: str,
    size: int,
    seconds: float,
    *,
    nodes: int,
    labels: Mapping[str, str] | None = None,
) -> list[Document]:
    """A group and its pods, and before them what these need: volumes, claims, owners.

    The pods' references to owners lack the uid; see `with_owners`.

    Args:
        draw: where all comes from.
        seconds: how long the pods run; 0: until they are deleted.
        nodes: `node-0` … so many are there, at least LEAST_NODES.
        labels: further ones of the pods.
    """
    common = traits(draw, size)
    owners = [f"{name}-owner-{number}" for number in range(common.owners)]
    roles = _divided(draw, size, common.roles)
    before: list[Document] = [_owner(namespace, one) for one in owners]
    pods: list[Document] = []
    for number in range(size):
        made: Document = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": namespace, "name": f"{name}-{number}",
                "labels": {_GROUP: name, **(labels or {})},
                "annotations": {"scheduling.k8s.io/group-name": name, **_notes(seconds)},
            },
            "spec": _spec(draw, common, name, nodes),
        }  # fmt: skip
        if roles:
            made["metadata"]["labels"]["kbatch.dev/sub-group"] = roles[number]
        if owners:
            owner = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": draw.choice(owners),
                "uid": "",
                "controller": True,
            }
            made["metadata"]["ownerReferences"] = [owner]
        before += _volumes(made, common)
        pods.append(made)
    spec: Document = {"minMember": size}
    if roles:
        spec = {"subGroups": [{"name": one, "minMember": roles.count(one)} for one in sorted(set(roles))]}
    elif common.place == "any":
        # What is above the minimum may go only where nobody else has a right to it: the load is to end by itself.
        spec = {"minMember": draw.randint(max(1, size // 2), size), "disruption": "Never"}
    if common.priority:
        spec["priorityClassName"] = common.priority
    whole = {"apiVersion": _API, "kind": "PodGroup", "metadata": {"namespace": namespace, "name": name}, "spec": spec}
    return [*before, whole, *pods]


def template(
    draw: random.Random, name: str, size: int, seconds: float, *, nodes: int, labels: Mapping[str, str]
) -> Document:
    """A pod template that is like no other group's: for Jobs and roles, whose pods somebody else makes."""
    common = traits(draw, size)
    spec = _spec(draw, common, name, nodes)
    # Pods of one template want the same ports: more of them than there are nodes would not fit.
    for container in spec["containers"]:
        container.pop("ports", None)
    return {"metadata": {"labels": {_GROUP: name, **labels}, "annotations": _notes(seconds)}, "spec": spec}


def owners_of(documents: Sequence[Document]) -> list[Document]:
    """Those that own pods of the others: to be made first, for their uids."""
    return [one for one in documents if one["kind"] == "ConfigMap"]


def with_owners(documents: Sequence[Document], uid: Callable[[Document], str]) -> list[Document]:
    """All but the owners, which are there; with their uids."""
    known = {one["metadata"]["name"]: uid(one) for one in owners_of(documents)}
    found = [copy.deepcopy(one) for one in documents if one["kind"] != "ConfigMap"]
    for one in found:
        for reference in one["metadata"].get("ownerReferences") or ():
            reference["uid"] = known[reference["name"]]
    return found


def path_of(document: Document) -> str:
    """Where a document is created."""
    root = f"/apis/{document['apiVersion']}" if "/" in document["apiVersion"] else f"/api/{document['apiVersion']}"
    namespace = document["metadata"].get("namespace")
    plural = document["kind"].lower() + ("es" if document["kind"].endswith("s") else "s")
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def _spec(draw: random.Random, common: Traits, name: str, nodes: int) -> Document:
    spec: Document = {
        "schedulerName": SCHEDULER, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "containers": [_container(draw, "main", port=draw.random() < 0.1)],
    }  # fmt: skip
    if draw.random() < 0.2:
        spec["containers"].append(_container(draw, "beside"))
    if draw.random() < 0.2:
        first = _container(draw, "first")
        if draw.random() < 0.3:
            first["restartPolicy"] = "Always"
        spec["initContainers"] = [first]
    if common.priority:
        spec["priorityClassName"] = common.priority
    if draw.random() < 0.5 if common.tolerates is None else common.tolerates:
        spec["tolerations"] = [_TOLERATION]
    own = {"matchLabels": {_GROUP: name}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    match common.place:
        case "zone":
            spec["nodeSelector"] = {_ZONE: common.zone}
        case "spread":
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": common.skew, "topologyKey": _ZONE, "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": own, "nodeTaintsPolicy": "Honor",
                }
            ]  # fmt: skip
        case "apart":
            spec["affinity"] = {"podAntiAffinity": {required: [{"labelSelector": own, "topologyKey": _HOST}]}}
        case "together":
            spec["affinity"] = {"podAffinity": {required: [{"labelSelector": own, "topologyKey": _ZONE}]}}
        case _ if draw.random() < 0.5:
            shunned = sorted({f"node-{draw.randrange(nodes)}" for _ in range(2)})
            terms = [{"matchExpressions": [{"key": _HOST, "operator": "NotIn", "values": shunned}]}]
            spec["affinity"] = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}}
    return spec


def _container(draw: random.Random, name: str, *, port: bool = False) -> Document:
    """A container of random size: up to 1.2 CPU and 1 GiB, that nobody else has."""
    cpu, memory = draw.randint(50, 1200), draw.randint(16 * 1024, 1024 * 1024)
    resources: Document = {"requests": {"cpu": f"{cpu}m", "memory": f"{memory}Ki"}}
    if draw.random() < 0.3:
        resources["limits"] = {"cpu": f"{2 * cpu}m", "memory": f"{2 * memory}Ki"}
    if draw.random() < 0.2:
        resources["requests"]["ephemeral-storage"] = f"{draw.randint(1, 4096)}Mi"
    made: Document = {"name": name, "image": "busybox", "resources": resources}
    if port:
        number = draw.randint(20_000, 60_000)
        made["ports"] = [{"containerPort": number, "hostPort": number}]
    return made


def _volumes(pod: Document, common: Traits) -> list[Document]:
    """Give the pod its volume; the documents that must be there for it."""
    if common.volume == "none":
        return []
    if common.volume == "empty":
        pod["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
        return []
    meta = pod["metadata"]
    spec: Document = {
        "accessModes": ["ReadWriteOnce"], "storageClassName": _STORAGE, "resources": {"requests": {"storage": "1Gi"}},
    }  # fmt: skip
    claim = f"{meta['name']}-data"
    volume: Document = {
        "apiVersion": "v1", "kind": "PersistentVolume",
        # Volumes have no namespace; the label is by which they are found again.
        "metadata": {"name": f"{meta['namespace']}-{claim}", "labels": {VOLUMES_OF: meta["namespace"]}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": _STORAGE, "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "varied.test", "volumeHandle": claim},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta["namespace"], "name": claim,
            },
        },
    }  # fmt: skip
    if common.zone:
        here = {"key": _ZONE, "operator": "In", "values": [common.zone]}
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    if common.volume == "ephemeral":  # the control plane makes the claim, of the pod's name
        pod["spec"]["volumes"] = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]
        return [volume]
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    made = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"namespace": meta["namespace"], "name": claim}, "spec": spec,
    }  # fmt: skip
    return [volume, made]


VOLUMES_OF: Final = "varied.test/namespace"
"""The label of a PersistentVolume with the namespace of its claim: nobody else takes it away."""


def _owner(namespace: str, name: str) -> Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}}


def _notes(seconds: float) -> Document:
    return {"simulate.kbatch.dev/duration": f"{seconds:g}"} if seconds else {}


def _divided(draw: random.Random, size: int, roles: int) -> list[str]:
    """A role for each pod, each role with one pod at least; none for no roles."""
    if not roles:
        return []
    return [f"r{number}" if number < roles else f"r{draw.randrange(roles)}" for number in range(size)]
