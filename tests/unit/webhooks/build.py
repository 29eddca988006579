"""Objects for the webhook's tests."""

from __future__ import annotations

from typing import Any

import msgspec

from kbatch.api.names import ADMITTED_ANNOTATION
from kbatch.api.objects import PodGroup, ResourceQuota
from kbatch.model.quota import Ask


def quota(name: str = "quota", *, namespace: str = "ns", scopes: tuple[str, ...] = (), **hard: str) -> ResourceQuota:
    """A quota; `requests_cpu="10"` limits requests.cpu, `used_requests_cpu="4"` says what is used of it."""
    used = {
        key.removeprefix("used_").replace("_", "."): value for key, value in hard.items() if key.startswith("used_")
    }
    limits = {key.replace("_", "."): value for key, value in hard.items() if not key.startswith("used_")}
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"hard": limits, "scopes": scopes},
            "status": {"used": used},
        },
        ResourceQuota,
    )


def group(
    name: str,
    cpu: str = "",
    *,
    version: int = 1,
    token: str = "",
    phase: str = "",
    enqueued: bool = False,
    namespace: str = "ns",
    **spec: Any,
) -> PodGroup:
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "resourceVersion": str(version),
                "annotations": {ADMITTED_ANNOTATION: token} if token else {},
            },
            "spec": {**({"minResources": {"cpu": cpu}} if cpu else {}), **spec},
            "status": {
                "phase": phase,
                "conditions": [{"type": "Enqueued", "status": "True"}] if enqueued else [],
            },
        },
        PodGroup,
    )


def cores(count: int, pods: int = 1) -> Ask:
    return Ask({"cpu": count * 1000}, {}, pods)
