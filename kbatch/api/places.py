"""Where in an object an error of its decoding is."""

from __future__ import annotations

import msgspec


def place_of(error: msgspec.ValidationError) -> tuple[str, str]:
    """The field that an error is about, such as `.spec.queue` (empty: all of it), and what is wrong with it."""
    what, _, place = str(error).partition(" - at `$")
    return place.removesuffix("`"), what
