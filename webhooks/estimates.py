"""What admission says of annotations that cannot be read: whoever wrote one should hear that it means nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbatch.api.names import EXPECTED_SECONDS_ANNOTATION
from kbatch.model.annotations import seconds_of

_MOST_SHOWN = 64


def warning(body: Mapping[str, Any]) -> str | None:
    """Why what an object, or its pod template, says of how long pods run says nothing; None where all is well."""
    spec = body.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    for holder in (body, template):
        metadata = holder.get("metadata") if isinstance(holder, Mapping) else None
        annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
        value = annotations.get(EXPECTED_SECONDS_ANNOTATION) if isinstance(annotations, Mapping) else None
        if value is not None and (not isinstance(value, str) or seconds_of(value) is None):
            return (
                f"the annotation {EXPECTED_SECONDS_ANNOTATION} is {str(value)[:_MOST_SHOWN]!r}, which is no number of "
                f"seconds above 0 (such as 90 or 0.5): nothing is expected of how long the pods run"
            )
    return None
