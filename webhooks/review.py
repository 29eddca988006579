"""A review as it comes in: what must be right of it, and its parts as plain data."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from kbatch.api.objects import Metadata


class Resource(msgspec.Struct, frozen=True):
    """A resource as reviews name it."""

    group: str
    version: str
    resource: str


class _Object(msgspec.Struct):
    metadata: Metadata


class Request(msgspec.Struct, rename="camel"):
    """What a review says of itself; of the objects only their metadata."""

    uid: str
    resource: Resource
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    user_info: dict[str, Any]
    object: _Object | None = None
    old_object: _Object | None = None
    namespace: str | None = None
    name: str | None = None
    dry_run: bool | None = None
    sub_resource: str | None = None


class _Review(msgspec.Struct, rename="camel"):
    """What must be right of an AdmissionReview for it to be handed on."""

    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: Request


class _Parts(msgspec.Struct, rename="camel"):
    """A review with what is asked still in pieces."""

    api_version: str
    kind: str
    request: dict[str, msgspec.Raw]


class MalformedReviewError(ValueError):
    """The body is no admission review."""


_CHECK: Final = msgspec.json.Decoder(_Review)
_PARTS: Final = msgspec.json.Decoder(_Parts)


def check_review(body: bytes) -> Request:
    """What is asked, of a review that can be handed on.

    Raises:
        MalformedReviewError: it is no review; the message names the field.
    """
    try:
        request = _CHECK.decode(body).request
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedReviewError(str(error) or type(error).__name__) from error
    if request.object is None and request.old_object is None:
        raise MalformedReviewError("neither `$.request.object` nor `$.request.oldObject` is given")
    return request


def parse_review(body: bytes) -> dict[str, Any]:
    """The review as plain data.

    Raises:
        MalformedReviewError: it is not one; the message names the field.
    """
    check_review(body)
    return decoded(body)


def decoded(body: bytes) -> dict[str, Any]:
    """The same of a review that was checked.

    Raises:
        MalformedReviewError: something in it is too deep, or no JSON.
    """
    try:
        plain: dict[str, Any] = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:  # deeper than what was looked at
        raise MalformedReviewError(str(error) or type(error).__name__) from error
    return plain


@dataclass(frozen=True, slots=True)
class Received:
    """A review that was checked. `large`: it was taken apart beside the event loop, and here is the plain data too."""

    body: bytes
    said: Request
    large: bool = False
    review: dict[str, Any] = field(default_factory=dict)


def taken_apart(body: bytes) -> Received:
    """A large review, in pieces between which others get the interpreter's lock; no piece holds it for long.

    Decoding holds that lock: of a review of 8 MiB in one piece, the event loop would wait for as long as if it decoded
    itself. So the objects are decoded one by one. The collector would take more time than the decoding, and holds the
    lock too.

    Raises:
        MalformedReviewError: it is no review; the message names the field.
    """
    said = check_review(body)
    try:
        parts = _PARTS.decode(body)
        asked: dict[str, Any] = {}
        for name, part in parts.request.items():
            time.sleep(0)  # lets go of the lock
            with _collected_once():
                asked[name] = msgspec.json.decode(part)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedReviewError(str(error) or type(error).__name__) from error
    review = {"apiVersion": parts.api_version, "kind": parts.kind, "request": asked}
    return Received(body, said, large=True, review=review)


@contextmanager
def _collected_once() -> Iterator[None]:
    """What is made meanwhile is looked at by the garbage collector once, and not again and again while it grows."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        time.sleep(0)
        gc.collect(0)
    finally:
        gc.enable()
