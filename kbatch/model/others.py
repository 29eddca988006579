"""The kinds that are kept as they are: volumes, claims, priority classes, quotas, budgets, namespaces and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbatch.api.names import NAMESPACE_NAME_LABEL
from kbatch.api.objects import (
    AnyObject,
    CsiNode,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PriorityClass,
    StorageClass,
)
from kbatch.model.volumes import selected_node, usable

STATIC_KINDS: Final = frozenset({PersistentVolume, PersistentVolumeClaim, StorageClass, CsiNode, Namespace})
"""Kinds that predicates read besides pods and nodes: a change of one invalidates what was worked out per class."""


class OtherObjects:
    """Objects by type and key. Changed by the `ClusterModel` alone."""

    def __init__(self) -> None:
        self.by_kind: dict[type[AnyObject], dict[str, AnyObject]] = {}

    def upsert(self, obj: AnyObject, key: str) -> tuple[bool, bool]:
        """Take over an object. Whether it is news at all, and whether in anything that decisions read."""
        kept = self.by_kind.setdefault(type(obj), {})
        old = kept.get(key)
        if old == obj:
            return False, False
        kept[key] = obj
        return True, old is None or _content(old) != _content(obj)

    def remove(self, kind: type[AnyObject], key: str) -> bool:
        """The object is gone. Whether it was known."""
        return self.by_kind.get(kind, {}).pop(key, None) is not None

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; the API server gives each its own name as one, so that one is always known."""
        found = self.by_kind.get(Namespace, {}).get(name)
        labels = (found.metadata.labels or {}) if isinstance(found, Namespace) else {}
        return {NAMESPACE_NAME_LABEL: name, **labels}

    def priority_class(self, name: str) -> PriorityClass | None:
        """The class of that name; with an empty name the default one, if there is one."""
        known = self.by_kind.get(PriorityClass, {})
        if name:
            found = known.get(name)
            return found if isinstance(found, PriorityClass) else None
        defaults = [cls for cls in known.values() if isinstance(cls, PriorityClass) and cls.global_default]
        return max(defaults, key=lambda cls: (cls.value, cls.metadata.name), default=None)

    def priority(self, pod: Pod) -> tuple[int, bool]:
        """Value and "never preempts" of a pod: its own, else its class's, else the default class's."""
        spec = pod.spec
        if spec.priority is not None:
            return spec.priority, spec.preemption_policy == "Never"
        found = self.priority_class(spec.priority_class_name)
        value = found.value if found is not None else 0
        policy = spec.preemption_policy or (found.preemption_policy if found is not None else None)
        return value, policy == "Never"


def _content(obj: AnyObject) -> object:
    """All that decisions read of an object, where that is less than the object and the rest often changes."""
    if isinstance(obj, PersistentVolumeClaim):
        return obj.spec, selected_node(obj), usable(obj)
    if isinstance(obj, PersistentVolume | CsiNode):
        return obj.spec
    return obj
