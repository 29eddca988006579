"""What Events say of an object."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, NamedTuple

import msgspec

from kbatch.api.objects import Metadata
from kbatch.cli.permitted import if_readable
from kbatch.kube.client import Api


class Told(NamedTuple):
    """What an Event says. `uid`: of the object that it is about."""

    uid: str | None
    reason: str
    message: str


async def newest(
    client: Api, kind: str, metadata: Metadata, wanted: Callable[[dict[str, Any]], bool]
) -> tuple[str, str] | None:
    """Reason and message of the newest wanted Event on an object; None where there is none, or none may be read.

    Raises:
        KubeError: the cluster does not answer.
    """
    selector = f"involvedObject.kind={kind},involvedObject.name={metadata.name}"
    last = await newest_of(client, metadata.namespace, selector, {metadata.uid}, wanted)
    return None if last is None else (last.reason, last.message)


async def newest_of(
    client: Api, namespace: str, selector: str, uids: Container[str], wanted: Callable[[dict[str, Any]], bool]
) -> Told | None:
    """The newest wanted Event that the field selector finds on any object of these; None where there is none, or none
    may be read.

    Raises:
        KubeError: the cluster does not answer.
    """
    path = f"/api/v1/namespaces/{namespace}/events"
    answer = await if_readable(client.request("GET", path, params={"fieldSelector": selector}))
    if answer is None:
        return None
    found = [event for event in msgspec.json.decode(answer)["items"] if _uid(event) in uids and wanted(event)]
    if not found:
        return None
    last = max(found, key=_last)
    return Told(_uid(last), last.get("reason") or "", last.get("message") or "")


def _uid(event: dict[str, Any]) -> str | None:
    """Of the object that it is about."""
    uid: str | None = (event.get("involvedObject") or {}).get("uid")
    return uid


def _last(event: dict[str, Any]) -> str:
    """When it was told last (RFC 3339)."""
    series = event.get("series") or {}
    said = (series.get("lastObservedTime"), event.get("eventTime"), event.get("lastTimestamp"))
    return max(str(time or "") for time in said)
