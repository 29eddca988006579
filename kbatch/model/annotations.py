"""What annotations say of pods, and of the group of a pod."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from kbatch.api.names import (
    EXPECTED_SECONDS_ANNOTATION,
    GROUP_MIN_MEMBER_ANNOTATION,
    LAST_CHECKPOINT_ANNOTATION,
    MAX_HOPS_ANNOTATION,
)
from kbatch.api.objects import Metadata, timestamp_us
from kbatch.times import SECOND

MOST_HOPS: Final = 64

_SECONDS: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6}))?", re.ASCII)


def minimum_said(metadata: Metadata) -> int | None:
    """The minimum that a pod asks for on behalf of its group, at least 1; None where it says no number."""
    text = (metadata.annotations or {}).get(GROUP_MIN_MEMBER_ANNOTATION, "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else None


def expected_said(metadata: Metadata) -> int | None:
    """For how long pods are expected to run, in microseconds, above 0; None where it says nothing that can be read."""
    annotations = metadata.annotations
    text = annotations.get(EXPECTED_SECONDS_ANNOTATION) if annotations else None
    return seconds_of(text) if text is not None else None


def hops_said(metadata: Metadata) -> int | None:
    """The most hops between any two pods of a PodGroup; None where it says no number that could be meant."""
    text = (metadata.annotations or {}).get(MAX_HOPS_ANNOTATION, "")
    said = int(text) if text.isascii() and text.isdigit() and len(text) < 3 else None
    return said if said is not None and said <= MOST_HOPS else None


def checkpoint_said(metadata: Metadata) -> int | None:
    """When work was saved, in microseconds since the epoch; None where it says nothing that can be read."""
    text = (metadata.annotations or {}).get(LAST_CHECKPOINT_ANNOTATION)
    try:
        return timestamp_us(text)
    except msgspec.ValidationError:
        return None


@lru_cache(maxsize=1 << 16)
def seconds_of(text: str) -> int | None:
    """A number of seconds above 0, of up to nine digits, with up to six more behind a point, in microseconds; None
    where the text is no such number.
    """
    found = _SECONDS.fullmatch(text)
    if found is None:
        return None
    return int(found[1]) * SECOND + int((found[2] or "").ljust(6, "0")) or None
