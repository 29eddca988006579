"""kopf's part: the handlers that are called with each review. They gather, and call one pure function."""

from __future__ import annotations

from typing import Any, Final

import kopf

from kbatch.api.names import GROUP, VERSION
from webhooks.defaults import defaults

DOMAIN: Final = "webhook.kbatch.dev"
PODGROUP_DEFAULTS: Final = "podgroup-defaults"
HANDLERS: Final = (PODGROUP_DEFAULTS,)


def make_registry(default_queue: str) -> kopf.OperatorRegistry:
    """A registry of the webhook's own. Nothing in it has an effect besides the answer, so dry runs need no care."""
    registry = kopf.OperatorRegistry()

    @kopf.on.mutate(
        GROUP,
        VERSION,
        "podgroups",
        id=PODGROUP_DEFAULTS,
        operations=["CREATE", "UPDATE"],
        side_effects=False,
        registry=registry,
    )
    async def podgroup_defaults(body: kopf.Body, patch: kopf.Patch, **cause: Any) -> None:
        spec = dict(body).get("spec")
        if isinstance(spec, dict):
            creating = cause["operation"] == "CREATE"
            for name, value in defaults(spec, creating=creating, default_queue=default_queue).items():
                patch.spec[name] = value

    return registry
