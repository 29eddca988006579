"""kopf's part: it watches PodGroups, and says of which one something happened. What, the informers say.

No handler writes through kopf: `patch.status` is a merge patch, which would replace the scheduler's conditions. And
none keeps an object: kopf does not tell of objects that vanished while its watch was away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kopf

from kbatch.api.names import GROUP, VERSION
from kbatch.kube.kinds import key_of


def make_registry(hear: Callable[[str, str], None]) -> kopf.OperatorRegistry:
    """A registry of this operator's own; `hear` is called in kopf's thread with a group's name and version."""
    registry = kopf.OperatorRegistry()

    @kopf.on.event(GROUP, VERSION, "podgroups", registry=registry)
    async def podgroup(meta: kopf.Meta, **_: Any) -> None:
        hear(key_of(meta.get("namespace", ""), meta.get("name", "")), meta.get("resourceVersion", ""))

    return registry
