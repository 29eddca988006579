"""What happened to the cluster, as typed facts.

Whoever watches the world (the live scheduler, the queue operator, the simulator, a replayed log) makes these of it and
feeds them to a `kbatch.model.cluster.ClusterModel`. The order of events between kinds does not matter: a pod may come
before its node, a group after its pods.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kbatch.api.objects import AnyObject


class Upsert(msgspec.Struct, frozen=True, gc=False):
    """The object exists and looks like this; told again with equal content, it changes nothing."""

    obj: AnyObject


class Delete(msgspec.Struct, frozen=True, gc=False):
    """The object of this type is gone. `namespace` is empty for cluster-scoped kinds. Unknown ones are ignored."""

    kind: type[AnyObject]
    namespace: str
    name: str


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """The object exists but could not be decoded or holds an amount that cannot be counted.

    It takes no part in decisions. A pod of which `node_name` is known closes that node, because what it uses there is
    unknown; it opens again with the pod's next readable `Upsert` or its `Delete`.
    """

    kind: type[AnyObject]
    namespace: str
    name: str
    uid: str
    node_name: str
    why: str


Event: TypeAlias = Upsert | Delete | Unreadable


def left_out(obj: AnyObject, why: str) -> Unreadable:
    """To be told instead of an object that breaks the model."""
    meta = obj.metadata
    node = getattr(getattr(obj, "spec", None), "node_name", "")
    return Unreadable(type(obj), meta.namespace, meta.name, meta.uid, node if isinstance(node, str) else "", why)


def name_of(event: Event) -> str:
    """Which object it is about, for people: `PodGroup NAMESPACE/NAME`."""
    if isinstance(event, Upsert):
        kind, namespace, name = type(event.obj), event.obj.metadata.namespace, event.obj.metadata.name
    else:
        kind, namespace, name = event.kind, event.namespace, event.name
    return f"{kind.__name__} {namespace}/{name}" if namespace else f"{kind.__name__} {name}"
