"""Members of groups with templates: the podgroup operator's part, by the same pure functions as the operator's."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from kbatch.api.names import GROUP_NAME_ANNOTATION, SUB_GROUP_LABEL
from kbatch.api.objects import OwnerReference, Pod, PodGroup, PodTemplate, SubGroup
from kbatch.model.makers import sizes
from kbatch.model.members import State, plan
from kbatch.model.peers import member_name
from kbatch.model.phase import Phase
from kbatch.model.requests import effective_request
from kbatch.model.templates import TemplateError, render_member
from kbatch.resources import QuantityError
from kbatch.simulator.names import FOR_PODS
from kbatch.simulator.pods import from_template
from kbatch.simulator.records import PodRecord


class MemberError(ValueError):
    """A template of which no pod can be made; says which role's, and why."""


def planned(
    group: PodGroup, made: Iterable[PodRecord], phase: Phase, resting: Collection[str], scheduler_name: str
) -> tuple[list[Pod], list[PodRecord]]:
    """The members to make now, and those to delete.

    Args:
        group: a group of which some role has a template.
        made: the pods made for it that exist; one that replaces an evicted one stands for it.
        phase: the group's.
        resting: roles that do not grow for now.
        scheduler_name: of the pods to make.

    Raises:
        MemberError: a template cannot be rendered, or is not one of a pod.
    """
    by_name = {record.base: record for record in made if not record.evicted}
    states = {name: _state(record) for name, record in by_name.items()}
    todo = plan(group.metadata.name, group.spec, states, phase, resting=resting)
    roles = {role.name: role for role in group.spec.sub_groups or ()}
    most = {size.role: size.most for size in sizes(group.spec)}
    pods = [_member(group, roles[role], index, most[role], scheduler_name) for role, index in todo.create]
    return pods, [by_name[name] for name in todo.remove if name in by_name]


def has_templates(group: PodGroup) -> bool:
    """Whether the operator makes members for the group."""
    return any(role.template is not None for role in group.spec.sub_groups or ())


def _state(record: PodRecord) -> State:
    if record.pod.status.phase == "Succeeded":
        return State.SUCCEEDED
    if record.pod.metadata.deletion_timestamp is not None:
        return State.LEAVING
    return State.PLACED if record.pod.spec.node_name else State.WAITING


def _member(group: PodGroup, role: SubGroup, index: int, size: int, scheduler_name: str) -> Pod:
    meta = group.metadata
    try:
        rendered: dict[str, Any] = render_member(
            role.template or {},
            group=meta.name,
            role=role.name,
            index=index,
            size=size,
            namespace=meta.namespace,
        )
        template = msgspec.convert(rendered, PodTemplate)
        effective_request(template.spec)
    except (TemplateError, msgspec.ValidationError, QuantityError) as error:
        raise MemberError(f"the template of role {role.name}: {error}") from None
    # As for Jobs: what the owner says of times holds where the template says nothing.
    times = {name: text for name, text in (meta.annotations or {}).items() if name in FOR_PODS}
    annotations = {**times, **(template.metadata.annotations or {}), GROUP_NAME_ANNOTATION: meta.name}
    spec = replace(
        template.spec,
        scheduler_name=scheduler_name,
        priority_class_name=template.spec.priority_class_name or group.spec.priority_class_name,
    )
    owner = OwnerReference(
        api_version=group.api_version, kind="PodGroup", name=meta.name, uid=meta.uid, controller=True
    )
    filled = PodTemplate(metadata=replace(template.metadata, annotations=annotations), spec=spec)
    return from_template(
        filled, member_name(meta.name, role.name, index), owner, meta.namespace, {SUB_GROUP_LABEL: role.name}
    )
