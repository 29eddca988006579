"""The times that annotations tell the simulation: when objects come and go, and how long pods take."""

from __future__ import annotations

import difflib
import math
from typing import Any, Final

from kbatch.api.objects import AnyObject, Job, Metadata, ReplicaSet
from kbatch.simulator import names
from kbatch.simulator.errors import FieldError
from kbatch.times import SECOND

_MOST_SECONDS: Final = 10 * 366 * 24 * 3600


def seconds_text(duration: int) -> str:
    """Microseconds as a number of seconds, without needless zeros."""
    return f"{duration / SECOND:.6f}".rstrip("0").rstrip(".")


def with_times_as_text(content: dict[str, Any]) -> dict[str, Any]:
    """The document, with the simulation's own annotations as text where they were written as numbers."""
    changed = _metadata_with_text(content)
    spec = changed.get("spec")
    if isinstance(spec, dict):
        if isinstance(spec.get("template"), dict):
            changed = {**changed, "spec": {**spec, "template": _metadata_with_text(spec["template"])}}
        if isinstance(spec.get("subGroups"), list):
            roles = [
                {**role, "template": _metadata_with_text(role["template"])}
                if isinstance(role, dict) and isinstance(role.get("template"), dict)
                else role
                for role in spec["subGroups"]
            ]
            changed = {**changed, "spec": {**spec, "subGroups": roles}}
    return changed


def _metadata_with_text(holder: dict[str, Any]) -> dict[str, Any]:
    metadata = holder.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        return holder
    numbers = {
        name: str(value)
        for name, value in annotations.items()
        if name in names.TIMES and isinstance(value, int | float) and not isinstance(value, bool)
    }
    if not numbers:
        return holder
    return {**holder, "metadata": {**holder["metadata"], "annotations": {**annotations, **numbers}}}


def times_of(obj: AnyObject) -> tuple[int, int | None]:
    """Arrival and departure; all other times are checked too."""
    metadata = obj.metadata
    if isinstance(obj, Job | ReplicaSet):
        try:
            _check_times(obj.spec.template.metadata)
        except FieldError as error:
            raise FieldError(f"spec.template.{error.field}", error.what) from None
    _check_times(metadata)
    arrival = seconds(metadata, names.ARRIVAL) or 0
    departure = seconds(metadata, names.DEPARTURE)
    if departure is not None and departure < arrival:
        raise FieldError(names.path(names.DEPARTURE), "is before the arrival")
    return arrival, departure


def _check_times(metadata: Metadata) -> None:
    """How long pods take, and that every annotation of the simulation is one that it knows."""
    for name in sorted(metadata.annotations or ()):
        if name.startswith(names.PREFIX) and name not in names.KNOWN:
            near = difflib.get_close_matches(name, sorted(names.KNOWN), 1, 0.9)
            known = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(names.KNOWN))}"
            raise FieldError(names.path(name), f"there is no such annotation; {known}")
    for name in (names.DURATION, names.TERMINATION, names.FAILS_PODS):
        seconds(metadata, name)


def seconds(metadata: Metadata, name: str) -> int | None:
    """The time in an annotation, in microseconds; None where there is none.

    Raises:
        FieldError: not a number of seconds from 0 on.
    """
    text = (metadata.annotations or {}).get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MOST_SECONDS:
        raise FieldError(names.path(name), f"{text[:64]!r} is no number of seconds from 0 to {_MOST_SECONDS}")
    return round(value * SECOND)  # of ten years, a float still tells microseconds apart
