"""What a review and its answer carry besides kopf: the objects, until when the answer is waited for, and its patch.

kopf would wrap the objects, compare them, copy them whole and compare the copies, which costs more than the review
itself. So it is shown no more of them than which they are; the handler finds them, and a place for its patch, in the
context of the request.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

Operation = dict[str, Any]
Body = Mapping[str, Any]

USED_PART: Final = 0.7
"""Of the time that the API server waits; the rest is for the way there and back."""
LONGEST: Final = 5.0
_TIMEOUT: Final = re.compile(r"(?P<seconds>[0-9]{1,2})s", re.ASCII)


@dataclass(slots=True)
class Review:
    """One review: nobody waits for its answer after `deadline` (monotonic seconds). `failed` is the defect because of
    which there is none. `large`: reading the objects takes long enough to be done beside the event loop.
    """

    deadline: float
    new: Body | None = None
    old: Body | None = None
    large: bool = False
    operations: list[Operation] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failed: Exception | None = None


_PLACE: Final[ContextVar[Review | None]] = ContextVar("review", default=None)


@contextmanager
def reviewing(
    arrived: float, timeout: str | None, new: Body | None = None, old: Body | None = None, *, large: bool = False
) -> Iterator[Review]:
    """A review of these objects that arrived then, and the time-out that the API server gives with it (`5s`)."""
    match = _TIMEOUT.fullmatch(timeout or "")
    seconds = min(float(match["seconds"]), LONGEST) if match else LONGEST
    review = Review(arrived + seconds * USED_PART, new, old, large)
    token = _PLACE.set(review)
    try:
        yield review
    finally:
        _PLACE.reset(token)


def deadline() -> float:
    """Until when the answer of this review is waited for, in monotonic seconds."""
    review = _PLACE.get()
    return time.monotonic() + LONGEST * USED_PART if review is None else review.deadline


def objects(shown: Body, shown_before: Body | None) -> tuple[Body, Body | None]:
    """The object under review and what it was before, instead of what kopf was shown of them; of one that is deleted,
    what it was.
    """
    review = _PLACE.get()
    if review is None or (review.new is None and review.old is None):
        return dict(shown), None if shown_before is None else dict(shown_before)
    return (review.old or {}) if review.new is None else review.new, review.old


def is_large() -> bool:
    """Whether the objects under review are to be read beside the event loop."""
    review = _PLACE.get()
    return review is not None and review.large


def shown(body: Body | None) -> dict[str, Any] | None:
    """What kopf needs to see of an object: its name, for its logs.

    Not its uid, by which kopf would keep something of each object for ever: it is told of no deletion.
    """
    if body is None:
        return None
    metadata = body.get("metadata") or {}
    return {"metadata": {key: metadata[key] for key in ("name", "namespace") if key in metadata}}


def give_up(error: Exception) -> None:
    """There is no answer to this review."""
    review = _PLACE.get()
    if review is not None:
        review.failed = error


def warn(text: str) -> None:
    """Tell the user something with the answer."""
    review = _PLACE.get()
    if review is not None:
        review.warnings.append(text)


def leave(body: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    """Leave the changes (a merge patch without removals) for the answer; False where there is no place for them."""
    review = _PLACE.get()
    if review is None:
        return False
    review.operations += operations_of(body, changes)
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
