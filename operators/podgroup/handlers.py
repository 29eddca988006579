"""kopf's part: it watches PodGroups. Its handlers only pass on what they see.

No handler writes through kopf: `patch.status` is a merge patch, which would replace the scheduler's conditions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import kopf
import msgspec

from kbatch.api.names import GROUP, VERSION
from kbatch.api.objects import PodGroup
from kbatch.model.events import Delete, Event, Upsert

_log = logging.getLogger(__name__)

DOMAIN: Final = "podgroup.kbatch.dev"


def event_of(raw: Mapping[str, Any]) -> Event | None:
    """A kopf watch event as one of the model's, or None where the object cannot be read."""
    body = raw.get("object")
    try:
        group = msgspec.convert(dict(body or {}), PodGroup)
    except msgspec.ValidationError as error:
        metadata = (body or {}).get("metadata") or {}
        _log.warning("PodGroup %s/%s cannot be read: %s", metadata.get("namespace"), metadata.get("name"), error)
        return None
    if raw.get("type") == "DELETED":
        return Delete(PodGroup, group.metadata.namespace, group.metadata.name)
    return Upsert(group)


def make_registry(deliver: Callable[[Event], None]) -> kopf.OperatorRegistry:
    """A registry of this operator's own; `deliver` is called in kopf's thread."""
    registry = kopf.OperatorRegistry()

    @kopf.on.event(GROUP, VERSION, "podgroups", registry=registry)
    async def podgroup(event: kopf.RawEvent, **_: Any) -> None:
        seen = event_of(event)
        if seen is not None:
            deliver(seen)

    return registry
