"""From the API server's bytes to typed objects, one bad object at a time.

The fast path decodes a whole page, or a whole watch event, straight into structs. Only when that fails are the items
looked at one by one, and the one that cannot be read becomes an `Unreadable`: it hides no other.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from kbatch.api.objects import ListMeta
from kbatch.kube.errors import ApiError, error_from
from kbatch.kube.kinds import Kind
from kbatch.model.events import Unreadable

T = TypeVar("T")


_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of one type, made once."""
    made = _decoders.get(type_)
    if made is None:
        made = _decoders[type_] = msgspec.json.Decoder(type_)
    return made


class _Listed(msgspec.Struct, Generic[T]):
    metadata: ListMeta
    items: list[T] | None = None


class _Watched(msgspec.Struct, Generic[T]):
    type: str
    object: T


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Version


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list: what could be read, what could not, the list's version, and where it goes on."""

    objects: list[T]
    unreadable: list[Unreadable]
    resource_version: str
    continue_: str


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One event of a watch.

    `type` is ADDED, MODIFIED, DELETED or BOOKMARK; `object` is None for a bookmark and for what cannot be read, which
    stands in `unreadable`; `resource_version` is where a later watch goes on.
    """

    type: str
    object: T | None
    unreadable: Unreadable | None
    resource_version: str


_event_decoders: dict[type[Any], msgspec.json.Decoder[Any]] = {}


def _event_decoder(type_: type[Any]) -> msgspec.json.Decoder[_Watched[Any]]:
    """The decoder of a watch's lines about one type: only to name the generic type costs a tenth of the decoding."""
    made = _event_decoders.get(type_)
    if made is None:
        made = _event_decoders[type_] = msgspec.json.Decoder(_Watched[type_])  # type: ignore[valid-type]
    return made


def page(kind: Kind[T], payload: bytes) -> Page[T]:
    """Decode one page of a list.

    Raises:
        msgspec.DecodeError: it is no list at all.
    """
    objects: list[T]
    try:
        listed = decoder(_Listed[kind.type]).decode(payload)  # type: ignore[name-defined]
    except msgspec.ValidationError:
        raw = decoder(_Listed[msgspec.Raw]).decode(payload)
        objects, unreadable = [], []
        for item in raw.items or ():
            try:
                objects.append(decoder(kind.type).decode(item))
            except msgspec.ValidationError as error:
                unreadable.append(describe(kind, item, str(error)))
        return Page(objects, unreadable, raw.metadata.resource_version, raw.metadata.continue_)
    return Page(listed.items or [], [], listed.metadata.resource_version, listed.metadata.continue_)


def change(kind: Kind[T], line: bytes) -> Change[T]:
    """Decode one line of a watch.

    Raises:
        ApiError: the line is an ERROR event; status 410 means that the watch's version is too old.
        msgspec.DecodeError: it is no event at all.
    """
    try:
        event = _event_decoder(kind.type).decode(line)
    except msgspec.ValidationError:
        return _odd_change(kind, line)
    if event.type in _CHANGES:
        return Change(event.type, event.object, None, event.object.metadata.resource_version)
    return _odd_change(kind, line)


_CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})


def _odd_change(kind: Kind[T], line: bytes) -> Change[T]:
    """A bookmark, an error, or an object that cannot be read."""
    event = decoder(_Watched[msgspec.Raw]).decode(line)
    if event.type == "ERROR":
        status = decoder(_Code).decode(event.object).code
        raise error_from(status, bytes(event.object))
    version = decoder(_Versioned).decode(event.object).metadata.resource_version
    if event.type not in _CHANGES:
        return Change("BOOKMARK", None, None, version)
    try:
        return Change(event.type, decoder(kind.type).decode(event.object), None, version)
    except msgspec.ValidationError as error:
        return Change(event.type, None, describe(kind, event.object, str(error)), version)


class _Code(msgspec.Struct):
    code: int = 0


def describe(kind: Kind[Any], item: msgspec.Raw | bytes, why: str) -> Unreadable:
    """What can still be said of an object that cannot be read: which it is, and the node that it stands on."""
    value = msgspec.json.decode(item)
    metadata, spec = _mapping(value, "metadata"), _mapping(value, "spec")
    return Unreadable(
        kind.type,
        _text(metadata, "namespace"),
        _text(metadata, "name"),
        _text(metadata, "uid"),
        _text(spec, "nodeName"),
        why,
    )


def _mapping(value: object, key: str) -> dict[str, Any]:
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def _text(mapping: dict[str, Any], key: str) -> str:
    value = mapping.get(key)
    return value if isinstance(value, str) else ""


def is_gone(error: ApiError) -> bool:
    """Whether the server no longer has the version asked for, so that only a new list can help."""
    return error.status == 410 or error.reason in {"Expired", "Gone"}
