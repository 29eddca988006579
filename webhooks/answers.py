"""The patch of an answer, written straight from the changes.

kopf would copy the whole object and compare the copies, which costs more than the review itself. So the server hands
each review a place for its patch (it lives in the context of the request), and the handler fills it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import msgspec

Operation = dict[str, Any]

_PLACE: Final[ContextVar[list[Operation] | None]] = ContextVar("patch of the review", default=None)


@contextmanager
def patch_of_review() -> Iterator[list[Operation]]:
    """The operations (RFC 6902) that the handler of the review will leave."""
    operations: list[Operation] = []
    token = _PLACE.set(operations)
    try:
        yield operations
    finally:
        _PLACE.reset(token)


def leave(body: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Leave the changes (a merge patch without removals) for the answer; False where there is no place for them."""
    place = _PLACE.get()
    if place is None:
        return False
    place += operations_of(body, changes)
    return True


def operations_of(body: Mapping[str, Any], changes: Mapping[str, Any], path: str = "") -> Iterator[Operation]:
    """A merge patch without removals as operations on this object."""
    for key, value in changes.items():
        at = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        here = body.get(key)
        if isinstance(value, Mapping) and isinstance(here, Mapping):
            yield from operations_of(here, value, at)
        elif here != value:
            yield {"op": "add", "path": at, "value": value}  # replaces what is there


def encoded(operations: list[Operation]) -> str:
    """As it stands in an AdmissionReview."""
    return base64.b64encode(msgspec.json.encode(operations)).decode("ascii")
