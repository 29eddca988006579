"""What a claim says about where its pods may go, and about who may use it, one object at a time.

A claim is *bound* once it names its volume. One that is not, and whose class waits for the first consumer, has its
volume made on the node that the scheduler of its first pod writes into an annotation; who makes it takes the annotation
away again where it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kbatch.api.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""The annotation of a claim that names the node its volume is made for."""

INLINE: Final = "csi:"
"""How an entry of `TaskClass.volumes` begins that is the driver of an inline volume, and not a claim."""

_NOT_MADE: Final = "kubernetes.io/no-provisioner"
_MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_ONE_POD: Final = "ReadWriteOncePod"


_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
ZONE_LABELS: Final = {
    _ZONE: _ZONE,
    _REGION: _REGION,
    "failure-domain.beta.kubernetes.io/zone": _ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
}
"""Labels of a volume that say where it is, as they may stand on nodes too; with each the name that it has today."""


def zones_of(volume: PersistentVolume) -> dict[str, frozenset[str]]:
    """The zones and regions that a volume can be used in, by label: several are joined by `__`."""
    labels = volume.metadata.labels or {}
    return {key: frozenset(labels[key].split("__")) for key in ZONE_LABELS if key in labels}


def claims_of(volumes: Iterable[str]) -> Iterator[str]:
    """The keys of the claims among `TaskClass.volumes`."""
    return (name for name in volumes if not name.startswith(INLINE))


def usable(claim: PersistentVolumeClaim) -> bool:
    """Whether new pods may count on it: not one that is being deleted, or whose volume is gone."""
    return claim.metadata.deletion_timestamp is None and claim.status.phase != "Lost"


def selected_node(claim: PersistentVolumeClaim) -> str:
    """The node that a volume is being made for; empty where none was chosen."""
    return (claim.metadata.annotations or {}).get(SELECTED_NODE, "")


def made_on_demand(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> bool:
    """Whether the claim's volume is made as soon as a node is chosen for it.

    Not where volumes are made by hand (`kubernetes.io/no-provisioner`): nothing would come of choosing a node.
    """
    return (
        not claim.spec.volume_name
        and storage_class is not None
        and storage_class.volume_binding_mode == "WaitForFirstConsumer"
        and storage_class.provisioner != _NOT_MADE
    )


def on_many_nodes(claim: PersistentVolumeClaim) -> bool:
    """Whether pods on several nodes may use it at once."""
    return not _MANY_NODES.isdisjoint(claim.spec.access_modes or ())


def for_one_pod(claim: PersistentVolumeClaim) -> bool:
    """Whether only one pod in the whole cluster may use it at a time."""
    return _ONE_POD in (claim.spec.access_modes or ())


def topologies(storage_class: StorageClass) -> NodeSelector | None:
    """The nodes for which volumes of a class can be made; None where it does not say."""
    if not storage_class.allowed_topologies:
        return None
    return NodeSelector(
        node_selector_terms=tuple(
            NodeSelectorTerm(
                match_expressions=tuple(
                    NodeSelectorRequirement(key=each.key, operator="In", values=each.values)
                    for each in term.match_label_expressions or ()
                )
            )
            for term in storage_class.allowed_topologies
        )
    )
