"""What the minimum of a group asks for, read off its templates or its owner, and what that means to quotas.

Only what follows is ever said: where the templates do not say all, the answer is None, and whoever asked lets the
silence of the user stand.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from kbatch.api.objects import Job, PodGroupSpec, PodSpec, PodTemplate
from kbatch.model.quota import Ask, Subject, ask_of_group, subject_of
from kbatch.model.requests import effective_limit, effective_request
from kbatch.resources import QuantityError, Resources, add, check_limit, parse_resources, positive, scale


def minimum_of(spec: PodGroupSpec) -> int:
    """Pods that must be placed together: the larger of the group's own minimum and the sum of its roles'."""
    return max(spec.min_member, sum(role.min_member for role in spec.sub_groups or ()))


def from_templates(spec: PodGroupSpec) -> Resources | None:
    """What the minimum asks for by the roles' templates; None where they do not say all.

    They say all when each role with a minimum has one that can be read, and these minimums make up the group's. A sum
    beyond 2^53 is as unreadable as a single amount.
    """
    found = _templates(spec)
    if found is None:
        return None
    try:
        return _exact(add(*(scale(effective_request(template), count) for template, count in found)))
    except QuantityError:
        return None


def from_owner(spec: PodGroupSpec, owner: Job) -> Resources | None:
    """What the minimum asks for if all its pods are made by this Job; None where its template cannot be read."""
    try:
        return _exact(scale(effective_request(owner.spec.template.spec), minimum_of(spec)))
    except QuantityError:
        return None


def _exact(asked: Resources) -> Resources | None:
    check_limit(asked)
    return positive(asked) or None


def ask_of(spec: PodGroupSpec) -> Ask:
    """What the group asks of quotas: its minResources, its minimum as pods, and limits where templates name them.

    Raises:
        QuantityError: an amount of minResources cannot be read.
    """
    resources = parse_resources(spec.min_resources or {})
    plain = ask_of_group(resources, minimum_of(spec), spec.priority_class_name)
    templates = _templates(spec)
    if not templates:
        return plain
    try:
        limits = add(*(scale(effective_limit(template), count) for template, count in templates))
        subjects = {_with_class(subject_of(template), spec.priority_class_name) for template, _ in templates}
    except QuantityError:
        return plain
    # Roles that look different to scopes are charged as the group itself looks.
    subject = subjects.pop() if len(subjects) == 1 else plain.subject
    return Ask(plain.requests, plain.limits or positive(limits), plain.pods, subject)


def _with_class(subject: Subject, name: str) -> Subject:
    """Pods without a PriorityClass of their own are charged by their group's."""
    return subject if subject.priority_class else dataclasses.replace(subject, priority_class=name)


def _templates(spec: PodGroupSpec) -> list[tuple[PodSpec, int]] | None:
    """The templates of the minimum, each with its number of pods; None where something is missing."""
    roles = [role for role in spec.sub_groups or () if role.min_member > 0]
    if not roles or sum(role.min_member for role in roles) < spec.min_member:
        return None
    found: list[tuple[PodSpec, int]] = []
    for role in roles:
        template = None if role.template is None else _read(role.template)
        if template is None:
            return None
        found.append((template, role.min_member))
    return found


def _read(template: dict[str, Any]) -> PodSpec | None:
    try:
        return msgspec.convert(template, PodTemplate).spec
    except msgspec.ValidationError:
        return None
