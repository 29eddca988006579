"""How a review passes through kopf: beside it.

kopf would wrap the objects, compare them, copy them whole and compare the copies, which costs more than the review
itself. So it is shown no more of them than which they are; the handler finds the review in the context of the request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import msgspec

from webhooks.review import Review

_PLACE: Final[ContextVar[Review]] = ContextVar("review")


@contextmanager
def reviewing(review: Review) -> Iterator[Any]:
    """What kopf is shown of a review, while `current` is that review.

    Of the object it is its name, for kopf's logs. Not its uid, by which kopf would keep something of each object for
    ever: it is told of no deletion.
    """
    metadata = next((one.metadata for one in (review.new, review.old) if one is not None), None)
    named = {} if metadata is None else {"name": metadata.name, "namespace": metadata.namespace}
    request = {
        "uid": review.uid,
        "resource": msgspec.structs.asdict(review.resource),
        "operation": review.operation,
        "userInfo": {},
        "object": {"metadata": {key: value for key, value in named.items() if value}},
    }
    token = _PLACE.set(review)
    try:
        yield {"request": request}
    finally:
        _PLACE.reset(token)


def current() -> Review:
    """The review that is to be decided."""
    return _PLACE.get()
