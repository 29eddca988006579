"""When kbatch's scheduler was last seen, by its Lease."""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from kbatch.api.objects import timestamp_us
from kbatch.cli.permitted import if_readable
from kbatch.kube.client import Api
from kbatch.kube.kinds import LEASES
from kbatch.times import SECOND

LEASE: Final = "kbatch-scheduler"
"""The name of the Lease where the release is called as the documentation says."""

_NAMESPACE: Final = "kbatch-system"
_QUIET: Final = 60
"""For so many seconds the Lease has not been renewed where the scheduler counts as gone: a new leader needs fewer."""


async def unseen_since(client: Api) -> str:
    """Since when the Lease was not renewed (RFC 3339); empty where it was lately, or nothing is known of it.

    Raises:
        KubeError: the cluster does not answer.
    """
    renewed = [text for lease in await _leases(client) if (text := (lease.get("spec") or {}).get("renewTime"))]
    latest = max(renewed, default="")
    instant = timestamp_us(latest) if latest else None
    if instant is None or int(time.time()) - instant // SECOND < _QUIET:
        return ""
    return str(latest)


async def _leases(client: Api) -> list[dict[str, Any]]:
    """The Leases of that name, of all namespaces if they may be listed."""
    params = {"fieldSelector": f"metadata.name={LEASE}"}
    found = await if_readable(client.request("GET", LEASES.path(), params=params))
    if found is not None:
        return list(msgspec.json.decode(found).get("items") or ())
    one = await if_readable(client.request("GET", LEASES.path(_NAMESPACE, LEASE)))
    return [] if one is None else [msgspec.json.decode(one)]
