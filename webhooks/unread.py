"""What admission says of annotations that cannot be read, or mean nothing where they stand: whoever wrote one should
hear that. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kbatch.api.names import (
    EXPECTED_SECONDS_ANNOTATION,
    GROUP_MIN_MEMBER_ANNOTATION,
    LAST_CHECKPOINT_ANNOTATION,
    MAX_HOPS_ANNOTATION,
)
from kbatch.api.objects import Job, Metadata
from kbatch.model.annotations import MOST_HOPS, checkpoint_said, expected_said, hops_said, minimum_said
from webhooks.review import SubmittedGroup

_MOST_SHOWN = 64

_READ: Final[Mapping[str, tuple[Callable[[Metadata], object | None], str]]] = {
    EXPECTED_SECONDS_ANNOTATION: (
        expected_said,
        "no number of seconds above 0 (such as 90 or 0.5): nothing is expected of how long the pods run",
    ),
    GROUP_MIN_MEMBER_ANNOTATION: (minimum_said, "no whole number: the minimum is what it is without the annotation"),
    LAST_CHECKPOINT_ANNOTATION: (
        checkpoint_said,
        "no RFC 3339 time (such as 2026-01-01T12:00:00Z): no work counts as saved",
    ),
    MAX_HOPS_ANNOTATION: (
        hops_said,
        f"no whole number from 0 to {MOST_HOPS}: the pods may stand anywhere",
    ),
}
"""How each annotation is read, and what is said where that finds nothing."""


def warnings(obj: SubmittedGroup | Job) -> Iterator[str]:
    """Which annotations of an object, and of a Job's pod template, say nothing: they cannot be read, or stand where
    nobody reads them.
    """
    for metadata in (obj.metadata, obj.spec.template.metadata) if isinstance(obj, Job) else (obj.metadata,):
        annotations = metadata.annotations or {}
        misplaced = MAX_HOPS_ANNOTATION in annotations and isinstance(obj, Job)
        if misplaced:
            yield f"the annotation {MAX_HOPS_ANNOTATION} counts on a PodGroup only: here the pods may stand anywhere"
        for name, (read, without) in _READ.items():
            value = annotations.get(name)
            if value is not None and read(metadata) is None and not (misplaced and name == MAX_HOPS_ANNOTATION):
                yield f"the annotation {name} is {value[:_MOST_SHOWN]!r}, which is {without}"
