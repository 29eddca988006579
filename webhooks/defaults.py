"""What the webhook fills in on a PodGroup: only what the schema's own defaults cannot know. Pure.

The API server has applied the schema's defaults before, and checks the schema after.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kbatch.api.objects import PodGroupSpec
from kbatch.model.minresources import from_templates, minimum_of
from kbatch.resources import format_resources


def defaults(spec: PodGroupSpec, *, creating: bool, default_queue: str) -> dict[str, Any]:
    """The fields of the spec to set, as they stand in a manifest; empty where there is nothing to do.

    Args:
        spec: as it was sent, schema's defaults applied.
        creating: False on an update: what a user has taken away since stays away.
        default_queue: the queue of a group that names none.
    """
    filled: dict[str, Any] = {}
    if not spec.queue.strip():
        filled["queue"] = default_queue
    if creating and spec.min_resources is None:
        derived = from_templates(spec)
        if derived:
            filled["minResources"] = format_resources(derived)
    minimum = minimum_of(spec)
    if minimum != (spec.min_member if spec.minimum is None else spec.minimum):
        filled["minimum"] = minimum
    return filled


def with_defaults(spec: PodGroupSpec, filled: dict[str, Any]) -> PodGroupSpec:
    """The spec with what is filled in."""
    return msgspec.structs.replace(
        spec,
        queue=filled.get("queue", spec.queue),
        min_resources=filled.get("minResources", spec.min_resources),
        minimum=filled.get("minimum", spec.minimum),
    )
