"""What the webhook fills in on a PodGroup: only what the schema's own defaults cannot know. Pure.

The API server has applied the schema's defaults before, and checks the schema after. So what cannot be read here is
left as it is: the API server refuses it with a better message than ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kbatch.api.objects import PodGroupSpec, PodTemplate
from kbatch.model.requests import effective_request
from kbatch.resources import QuantityError, Resources, add, format_resources, positive, scale


def defaults(spec: Mapping[str, Any], *, creating: bool, default_queue: str) -> dict[str, Any]:
    """The fields of the spec to set, as they stand in a manifest; empty where there is nothing to do.

    Args:
        spec: as it was sent, schema's defaults applied.
        creating: False on an update: what a user has taken away since stays away.
        default_queue: the queue of a group that names none.
    """
    try:
        group = msgspec.convert(dict(spec), PodGroupSpec)
    except msgspec.ValidationError:
        return {}
    filled: dict[str, Any] = {}
    if not group.queue.strip():
        filled["queue"] = default_queue
    if creating and group.min_resources is None:
        derived = derived_min_resources(group)
        if derived:
            filled["minResources"] = format_resources(derived)
    return filled


def derived_min_resources(spec: PodGroupSpec) -> Resources | None:
    """What the minimum of the group asks for, as far as its roles' templates say; None where they do not say all.

    The templates say all when each role with a minimum has one, and these minimums make up the group's.
    """
    roles = [role for role in spec.sub_groups or () if role.min_member > 0]
    if not roles or sum(role.min_member for role in roles) < spec.min_member:
        return None
    parts: list[Resources] = []
    for role in roles:
        if role.template is None:
            return None
        try:
            template = msgspec.convert(role.template, PodTemplate)
            parts.append(scale(effective_request(template.spec), role.min_member))
        except (msgspec.ValidationError, QuantityError):
            return None
    return positive(add(*parts))
