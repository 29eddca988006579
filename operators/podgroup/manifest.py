"""The member pods that roles' templates make: pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kbatch.api.names import API_VERSION, FINISHED_FINALIZER, GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import PodGroup, SubGroup
from kbatch.model.makers import sizes
from kbatch.model.peers import member_name
from kbatch.model.template_budget import Budget
from kbatch.model.templates import TemplateError, render_member


class Manifest(NamedTuple):
    """A member that can be made. `surplus`: it is none of the group's minimum."""

    role: str
    manifest: dict[str, Any]
    surplus: bool


class Manifests(NamedTuple):
    """Members that can be made; `error`: why not one of them can, with the place, empty where they can."""

    members: tuple[Manifest, ...] = ()
    error: str = ""


def manifests_of(
    group: PodGroup, wanted: Iterable[tuple[str, int]], scheduler_name: str, *, budget: Budget
) -> Manifests:
    """The first of the wanted members, by role and number: as many as the budget serves, at least one."""
    places = {role.name: (place, role) for place, role in enumerate(group.spec.sub_groups or ())}
    counts = {size.role: size for size in sizes(group.spec)}
    members: list[Manifest] = []
    for name, index in wanted:
        if members and not budget.serves_another():
            break
        place, role = places[name]
        try:
            manifest = manifest_of(group, role, index, counts[name].most, scheduler_name, budget)
        except TemplateError as error:
            return Manifests(error=error.of_role(place))
        members.append(Manifest(name, manifest, index >= counts[name].base))
    return Manifests(tuple(members))


def manifest_of(
    group: PodGroup, role: SubGroup, index: int, size: int, scheduler_name: str, budget: Budget | None = None
) -> dict[str, Any]:
    """The member pod of that number, in a role of `size`; its template is rendered from the budget.

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
        namespace=metadata.namespace,
        budget=budget,
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
            "finalizers": [FINISHED_FINALIZER],
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
