"""What the webhook fills in on a PodGroup: only what the schema's own defaults cannot know. Pure.

The API server has applied the schema's defaults before, and checks the schema after. So what cannot be read here is
left as it is: the API server refuses it with a better message than ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kbatch.api.objects import PodGroupSpec
from kbatch.model.minresources import from_templates, minimum_of
from kbatch.resources import format_resources


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
        derived = from_templates(group)
        if derived:
            filled["minResources"] = format_resources(derived)
    minimum = minimum_of(group)
    if minimum != (group.min_member if group.minimum is None else group.minimum):
        filled["minimum"] = minimum
    return filled
