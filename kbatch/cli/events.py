"""What Events say of an object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from kbatch.api.objects import Metadata
from kbatch.cli.permitted import if_readable
from kbatch.kube.client import Api


async def newest(
    client: Api, kind: str, metadata: Metadata, wanted: Callable[[dict[str, Any]], bool]
) -> tuple[str, str] | None:
    """Reason and message of the newest wanted Event on an object; None where there is none, or none may be read.

    Raises:
        KubeError: the cluster does not answer.
    """
    selector = f"involvedObject.kind={kind},involvedObject.name={metadata.name}"
    path = f"/api/v1/namespaces/{metadata.namespace}/events"
    answer = await if_readable(client.request("GET", path, params={"fieldSelector": selector}))
    if answer is None:
        return None
    found = [
        event
        for event in msgspec.json.decode(answer)["items"]
        if (event.get("involvedObject") or {}).get("uid") == metadata.uid and wanted(event)
    ]
    if not found:
        return None
    last = max(found, key=_last)
    return last.get("reason") or "", last.get("message") or ""


def _last(event: dict[str, Any]) -> str:
    """When it was told last (RFC 3339)."""
    series = event.get("series") or {}
    said = (series.get("lastObservedTime"), event.get("eventTime"), event.get("lastTimestamp"))
    return max(str(time or "") for time in said)
