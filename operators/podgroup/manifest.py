"""The member pod that a role's template makes: pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kbatch.api.names import API_VERSION, GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import PodGroup, SubGroup
from kbatch.model.templates import member_name, render_member


def manifest_of(group: PodGroup, role: SubGroup, index: int, size: int, scheduler_name: str) -> dict[str, Any]:
    """The member pod of that number, in a role of `size`.

    Raises:
        TemplateError: the role's template cannot be rendered.
    """
    metadata = group.metadata
    name = member_name(metadata.name, role.name, index)
    rendered = render_member(
        role.template or {},
        group=metadata.name,
        role=role.name,
        index=index,
        size=size,
        peers=_peers(metadata.name, role.name, size) if "peers" in repr(role.template) else (),
        namespace=metadata.namespace,
    )
    given = rendered.get("metadata") or {}
    spec = dict(rendered.get("spec") or {})
    spec["schedulerName"] = scheduler_name
    if group.spec.priority_class_name:
        spec.setdefault("priorityClassName", group.spec.priority_class_name)
    if spec.get("subdomain"):
        spec.setdefault("hostname", name)  # or the DNS knows no host of that name
    return {
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            "labels": {**(given.get("labels") or {}), SUB_GROUP_LABEL: role.name},
            "annotations": {**(given.get("annotations") or {}), GROUP_NAME_ANNOTATION: metadata.name},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "PodGroup",
                    "name": metadata.name,
                    "uid": metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": spec,
    }


@lru_cache(maxsize=32)
def _peers(group: str, role: str, size: int) -> tuple[str, ...]:
    return tuple(member_name(group, role, index) for index in range(size))
