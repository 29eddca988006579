"""What annotations of pods and of pod templates say of their group."""

from __future__ import annotations

from kbatch.api.names import GROUP_MIN_MEMBER_ANNOTATION
from kbatch.api.objects import Metadata


def minimum_said(metadata: Metadata) -> int | None:
    """The minimum that a pod asks for on behalf of its group, at least 1; None where it says no number."""
    text = (metadata.annotations or {}).get(GROUP_MIN_MEMBER_ANNOTATION, "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else None
