"""What all kinds have in common: the structs' bases, metadata, label selectors, amounts and times."""

from __future__ import annotations

import functools
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import msgspec

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

RawQuantity: TypeAlias = str | int | float
RawResources: TypeAlias = dict[str, RawQuantity]


class Object(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """Base of all structs: camelCase in JSON, defaults left out.

    The garbage collector looks at none of them: what was read from JSON holds no cycles. A cluster's pods are most of
    what a process holds, and to go through all of them holds up everything else for a sixth of a second.
    """


class Value(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, frozen=True, gc=False):
    """Base of parts that are never changed."""


class OwnerReference(Value, kw_only=True, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(Object, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class ListMeta(Object, kw_only=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class LabelSelectorRequirement(Value, kw_only=True, frozen=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class LabelSelector(Value, kw_only=True, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] | None = None


@functools.lru_cache(maxsize=512)  # objects that come together share a second, and each is read at every change
def timestamp_us(text: str | None) -> int | None:
    """Microseconds since the epoch of an RFC 3339 time as Kubernetes writes it; None where there is none.

    The digits of the fraction are read as integers; what lies beyond the sixth is rounded. A time without an offset is
    taken for UTC.

    Raises:
        msgspec.ValidationError: no such time.
    """
    if text is None:
        return None
    moment: datetime = msgspec.convert(text, datetime)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND
