"""A live cluster as the start of a simulation, with manifests laid over it."""

from __future__ import annotations

from collections.abc import Iterable

from kbatch.api.objects import AnyObject, Job, Node, Pod, PodGroup, ReplicaSet, timestamp_us
from kbatch.simulator.errors import Place
from kbatch.simulator.manifests import Declared, Manifests, at_start

_LIVE = Place("the cluster")


def overlay(live: Iterable[AnyObject], manifests: Manifests) -> Manifests:
    """What a cluster holds, in the order of its creation, then the manifests; these replace what bears the same name.

    Of Jobs only the suspended ones take part, and no ReplicaSets: the pods of the others exist. Pods on nodes that are
    not there (any more) are left out.
    """
    objects = list(live)
    nodes = {obj.metadata.name for obj in objects if isinstance(obj, Node)}
    nodes |= {declared.obj.metadata.name for declared in manifests.objects if isinstance(declared.obj, Node)}
    replaced = {declared.key for declared in manifests.objects}
    standing = [
        Declared(at_start(obj), _LIVE)
        for obj in sorted(objects, key=lambda obj: timestamp_us(obj.metadata.creation_timestamp) or 0)
        if _takes_part(obj, nodes)
    ]
    kept = [declared for declared in standing if declared.key not in replaced]
    ordered = (*kept, *manifests.objects)
    return Manifests(
        tuple(
            Declared(declared.obj, declared.place, declared.arrival, declared.departure, order)
            for order, declared in enumerate(ordered)
        ),
        manifests.warnings,
        recorded=manifests.recorded,
    )


def _takes_part(obj: AnyObject, nodes: set[str]) -> bool:
    if isinstance(obj, Job):
        return obj.spec.suspend
    if isinstance(obj, ReplicaSet):
        return False
    if isinstance(obj, Pod):
        return not obj.spec.node_name or obj.spec.node_name in nodes
    return not isinstance(obj, PodGroup) or obj.metadata.deletion_timestamp is None
