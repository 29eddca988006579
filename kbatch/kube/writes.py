"""What kbatch writes, one function for each kind of write, none of which knows why.

All return when the server has carried the write out, and raise `ApiError` or `NoAnswerError` otherwise. After a
`NoAnswerError` with `sent` the write may have happened: read the object again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from kbatch.kube.client import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api
from kbatch.kube.decoding import decoder
from kbatch.kube.kinds import PODS, AnyKind, Kind

T = TypeVar("T")


async def bind(
    api: Api, *, namespace: str, name: str, uid: str, node: str, resource_version: str | None = None
) -> None:
    """Put a pod on a node.

    The server checks that the pod still has this `uid` (and `resource_version`), has no node yet, no scheduling gate
    and is not being deleted: else 409, or 404 where it is gone. It does not check that the node exists or has room.
    The answer is a Status, not a Binding; it is not decoded.
    """
    metadata = {"name": name, "namespace": namespace, "uid": uid}
    if resource_version is not None:
        metadata["resourceVersion"] = resource_version
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    await api.request("POST", PODS.path(namespace, name, "binding"), body=body)


async def evict(
    api: Api,
    *,
    namespace: str,
    name: str,
    uid: str,
    dry_run: bool = False,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Evict a pod, through the API that respects disruption budgets.

    429 with `ApiError.disrupts_budget` where a budget forbids it, 409 where the pod of that name has another uid.
    With `dry_run` the server checks all that and evicts nothing. The annotations are the Eviction's own, which nothing
    keeps but the server's audit log.
    """
    options: dict[str, object] = {"preconditions": {"uid": uid}}
    if dry_run:
        options["dryRun"] = ["All"]
    metadata: dict[str, object] = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = annotations
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": metadata,
        "deleteOptions": options,
    }
    await api.request("POST", PODS.path(namespace, name, "eviction"), body=body)


async def apply_status(
    api: Api, kind: AnyKind, obj: Mapping[str, Any], field_manager: str, *, force: bool = False
) -> bytes:
    """Server-side apply of an object's status; returns the object as it is then, undecoded.

    `obj` needs `metadata.name` (and namespace) and every field of the status that this manager owns: what it leaves out
    and nobody else owns is removed. A field with another value of another manager's: 409, unless `force`.
    Never creates: 404 where the object is gone. `metadata.resourceVersion`, where given, is a precondition.
    """
    return await _apply(api, kind, obj, field_manager, "status", force)


async def apply(api: Api, kind: AnyKind, obj: Mapping[str, Any], field_manager: str, *, force: bool = False) -> bytes:
    """Server-side apply of an object itself: makes it where it is absent; returns it undecoded."""
    return await _apply(api, kind, obj, field_manager, None, force)


async def _apply(
    api: Api, kind: AnyKind, obj: Mapping[str, Any], field_manager: str, subresource: str | None, force: bool
) -> bytes:
    metadata = obj["metadata"]
    # An apply is refused for a field that the schema does not have, whatever is asked here. For anything but Ignore the
    # server reads the whole of it once more, as YAML, to find fields that stand twice: that is a twelfth of the memory
    # that it takes to write a status.
    params = {"fieldManager": field_manager, "fieldValidation": "Ignore" if subresource else "Strict"}
    if force:
        params["force"] = "true"
    return await api.request(
        "PATCH",
        kind.path(metadata.get("namespace"), metadata["name"], subresource),
        params=params,
        body={"apiVersion": kind.api_version, "kind": kind.name, **obj},
        content_type=APPLY,
    )


async def merge_patch(
    api: Api,
    kind: AnyKind,
    *,
    name: str,
    patch: Mapping[str, Any],
    namespace: str | None = None,
    subresource: str | None = None,
    field_manager: str | None = None,
) -> bytes:
    """JSON merge patch (RFC 7386): lists are replaced whole. Never for `status.conditions`, which have many writers."""
    return await _patch(api, kind, name, namespace, subresource, field_manager, patch, MERGE)


async def strategic_patch(
    api: Api,
    kind: AnyKind,
    *,
    name: str,
    patch: Mapping[str, Any],
    namespace: str | None = None,
    subresource: str | None = None,
    field_manager: str | None = None,
) -> bytes:
    """Strategic merge patch: lists merge by key (pods' conditions by type). Not for custom resources."""
    return await _patch(api, kind, name, namespace, subresource, field_manager, patch, STRATEGIC)


async def json_patch(
    api: Api,
    kind: AnyKind,
    *,
    name: str,
    operations: Sequence[Mapping[str, Any]],
    namespace: str | None = None,
    subresource: str | None = None,
    field_manager: str | None = None,
) -> bytes:
    """JSON patch (RFC 6902): with a `test` on the uid it is the precondition that custom resources lack (422)."""
    return await _patch(api, kind, name, namespace, subresource, field_manager, operations, JSON_PATCH)


async def _patch(
    api: Api,
    kind: AnyKind,
    name: str,
    namespace: str | None,
    subresource: str | None,
    field_manager: str | None,
    body: object,
    content_type: str,
) -> bytes:
    params = {"fieldManager": field_manager} if field_manager else None
    path = kind.path(namespace, name, subresource)
    return await api.request("PATCH", path, params=params, body=body, content_type=content_type)


async def create(
    api: Api, kind: AnyKind, obj: Mapping[str, Any], *, field_manager: str | None = None, strict: bool = False
) -> bytes:
    """Create an object from its manifest; returns it undecoded. 409 AlreadyExists where there is one.

    A field that the kind does not have is dropped by the server; with `strict` it refuses the object: 400.
    """
    params = {"fieldManager": field_manager} if field_manager else {}
    if strict:
        params["fieldValidation"] = "Strict"
    body = {"apiVersion": kind.api_version, "kind": kind.name, **obj}
    return await api.request("POST", kind.path(obj["metadata"].get("namespace")), params=params or None, body=body)


async def replace(
    api: Api, kind: AnyKind, obj: Mapping[str, Any], *, subresource: str | None = None, attempts: int = 1
) -> bytes:
    """PUT an object; with `metadata.resourceVersion` only if it is unchanged since (409). Sent once by default."""
    metadata = obj["metadata"]
    body = {"apiVersion": kind.api_version, "kind": kind.name, **obj}
    path = kind.path(metadata.get("namespace"), metadata["name"], subresource)
    return await api.request("PUT", path, body=body, attempts=attempts)


async def delete(
    api: Api,
    kind: AnyKind,
    *,
    name: str,
    namespace: str | None = None,
    uid: str | None = None,
    version: str | None = None,
    propagation: str | None = None,
) -> None:
    """Delete an object, if it still has this `uid` and resourceVersion; 404 where it is gone, 409 where it changed.

    `propagation` is Background, Foreground or Orphan.
    """
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {"uid": uid, "resourceVersion": version}
    if uid is not None or version is not None:
        options["preconditions"] = {name: value for name, value in preconditions.items() if value is not None}
    if propagation is not None:
        options["propagationPolicy"] = propagation
    await api.request("DELETE", kind.path(namespace, name), body=options)


async def get(api: Api, kind: Kind[T], *, name: str, namespace: str | None = None) -> T:
    """Read one object.

    Raises:
        ApiError: 404 where there is none.
        msgspec.ValidationError: it cannot be read.
    """
    return decoder(kind.type).decode(await api.request("GET", kind.path(namespace, name)))


def as_dict(payload: bytes) -> dict[str, Any]:
    """An answer's body as plain data, for the rare fields that no struct has."""
    value: dict[str, Any] = msgspec.json.decode(payload)
    return value
