"""The door: what an AdmissionReview says is read once, into typed objects, and what decides sees nothing else of it.

The object as it was sent stays in here, for the patch: which fields of it there are, the typed object does not say.
"""

from __future__ import annotations

import base64
import gc
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

from kbatch.api.names import GROUP, VERSION
from kbatch.api.objects import Job, Metadata, Pod, PodGroupSpec
from kbatch.api.places import place_of

USED_PART: Final = 0.7
"""Of the time that the API server waits; the rest is for the way there and back."""
LONGEST: Final = 5.0
_TIMEOUT: Final = re.compile(r"(?P<seconds>[0-9]{1,2})s", re.ASCII)

Changes: TypeAlias = dict[str, Any]
"""A merge patch without removals; empty for nothing to change."""
_Operation: TypeAlias = dict[str, Any]


class Resource(msgspec.Struct, frozen=True):
    """A resource as reviews name it."""

    group: str
    version: str
    resource: str


class SubmittedGroup(msgspec.Struct):
    """A PodGroup as it was submitted. Its status is not read: the API server keeps the one that it has."""

    metadata: Metadata
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)


class GroupPhase(msgspec.Struct):
    """Of a status only the phase."""

    phase: str = ""


class StoredGroup(SubmittedGroup):
    """A PodGroup as the API server has it."""

    status: GroupPhase = msgspec.field(default_factory=GroupPhase)


class Named(msgspec.Struct):
    """Of an object only which it is: whatever else stands in a Queue, it may be deleted."""

    metadata: Metadata


Reviewed: TypeAlias = SubmittedGroup | StoredGroup | Job | Pod | Named

PODGROUPS: Final = Resource(GROUP, VERSION, "podgroups")
QUEUES: Final = Resource(GROUP, VERSION, "queues")
JOBS: Final = Resource("batch", "v1", "jobs")
PODS: Final = Resource("", "v1", "pods")


_NULL: Final = msgspec.Raw(b"null")


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    resource: Resource
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    user_info: dict[str, Any]
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL
    namespace: str | None = None
    dry_run: bool | None = None


class _Envelope(msgspec.Struct, rename="camel"):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: _Request


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_NAMED: Final[msgspec.json.Decoder[Reviewed]] = msgspec.json.Decoder(Named)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NEW: Final[Mapping[Resource, msgspec.json.Decoder[Reviewed]]] = {
    PODGROUPS: msgspec.json.Decoder(SubmittedGroup),
    JOBS: msgspec.json.Decoder(Job),
    PODS: msgspec.json.Decoder(Pod),
    QUEUES: _NAMED,
}
_OLD: Final[Mapping[Resource, msgspec.json.Decoder[Reviewed]]] = {**_NEW, PODGROUPS: msgspec.json.Decoder(StoredGroup)}


class MalformedReviewError(ValueError):
    """The body is no admission review."""


class OtherResourceError(ValueError):
    """The review is of another resource than is reviewed here."""


@dataclass(slots=True)
class Review:
    """One review, and what becomes of it.

    `new` is the object as it is to be, None where it is deleted or cannot be read; `unreadable` says why then, with the
    field, unless it could not be read before either. `old` is what it was, None too where that cannot be read.
    `large`: going through the objects takes so long that it is to be done beside the event loop. Nobody waits for the
    answer after `deadline` (monotonic seconds).

    The answer: `changes` to the object, `warnings` for the user, or `failed`, the defect that left it without one.
    """

    resource: Resource
    operation: str
    uid: str = ""
    namespace: str = ""
    dry_run: bool = False
    new: Reviewed | None = None
    old: Reviewed | None = None
    unreadable: str = ""
    large: bool = False
    deadline: float = 0.0
    changes: Changes = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failed: Exception | None = None
    _sent: msgspec.Raw = field(default_factory=msgspec.Raw)

    def patch(self) -> str:
        """The changes as they stand in an AdmissionReview; empty where the object has them already."""
        operations = list(_operations(self._sent, self.changes))
        return base64.b64encode(msgspec.json.encode(operations)).decode("ascii") if operations else ""


def read_review(body: bytes, resource: Resource, *, deadline: float, large: bool = False) -> Review:
    """What a body says.

    A large one is read in pieces between which others get the interpreter's lock. Decoding holds it: of a review of
    8 MiB in one piece, the event loop would wait for as long as if it decoded itself.

    Raises:
        MalformedReviewError: it is no review; the message names the field.
        OtherResourceError: it is of another resource.
    """
    try:
        body.decode()  # what is skipped is not looked at
        request = _ENVELOPE.decode(body).request
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedReviewError(str(error) or type(error).__name__) from error
    if request.resource != resource:
        raise OtherResourceError(f"this is for {resource.resource} alone")
    apart = _apart if large else nullcontext
    new, unreadable = _read(request.object, _NEW[resource], "object", apart())
    old, stood_so = _read(request.old_object, _OLD[resource], "oldObject", apart())
    if stood_so and request.operation == "UPDATE":
        unreadable = ""  # whoever takes a finalizer from it, or mends a part of it, is let
    if request.object == request.old_object == _NULL:
        raise MalformedReviewError("neither `$.request.object` nor `$.request.oldObject` is given")
    return Review(
        resource, request.operation, request.uid, request.namespace or "", bool(request.dry_run), new, old, unreadable,
        large, deadline, _sent=request.object,
    )  # fmt: skip


def answered_until(arrived: float, timeout: str | None) -> float:
    """Until when the answer to a review is waited for that arrived then, with the API server's time-out (`5s`)."""
    match = _TIMEOUT.fullmatch(timeout or "")
    return arrived + USED_PART * (min(float(match["seconds"]), LONGEST) if match else LONGEST)


def _read(
    raw: msgspec.Raw, decoder: msgspec.json.Decoder[Reviewed], name: str, apart: AbstractContextManager[None]
) -> tuple[Reviewed | None, str]:
    """An object, or why it cannot be read: the API server does not hold it to its schema before.

    Raises:
        MalformedReviewError: not even its metadata can be, which the API server would not send.
    """
    if raw == _NULL:
        return None, ""
    try:
        with apart:
            return decoder.decode(raw), ""
    except msgspec.ValidationError as error:
        place, what = place_of(error)
        unreadable = f"{place[1:]}: {what}" if place else what
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise MalformedReviewError(str(error) or type(error).__name__) from error
    try:
        _NAMED.decode(raw)
    except msgspec.ValidationError as error:
        place, what = place_of(error)
        raise MalformedReviewError(f"{what} - at `$.request.{name}{place}`") from error
    return None, unreadable


@contextmanager
def _apart() -> Iterator[None]:
    """Others get the lock before and after. What is made meanwhile is looked at by the garbage collector once, and not
    again and again while it grows: it would take more time than the decoding, and holds the lock too.
    """
    time.sleep(0)  # lets go of the lock
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


def _operations(sent: msgspec.Raw, changes: Mapping[str, Any], path: str = "") -> Iterator[_Operation]:
    """Changes as the operations of a JSON patch on the object that was sent."""
    fields = _FIELDS.decode(sent)
    for key, value in changes.items():
        at = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        here = fields.get(key)
        if isinstance(value, Mapping) and here is not None and memoryview(here)[0] == ord("{"):
            yield from _operations(here, value, at)
        elif here is None or msgspec.json.decode(here) != value:
            yield {"op": "add", "path": at, "value": value}  # replaces what is there
