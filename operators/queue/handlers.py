"""kopf's part: it watches Queues. Its handler only says that something changed; what, the model says.

No handler writes through kopf, and none keeps an object: kopf does not tell of objects that vanished while a watch was
away, and a Queue that is gone but not forgotten would go on taking its share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kopf

from kbatch.api.names import GROUP, VERSION


def make_registry(changed: Callable[[], None]) -> kopf.OperatorRegistry:
    """A registry of this operator's own; `changed` is called in kopf's thread."""
    registry = kopf.OperatorRegistry()

    @kopf.on.event(GROUP, VERSION, "queues", registry=registry)
    async def queue(**_: Any) -> None:
        changed()

    return registry
