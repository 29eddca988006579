"""Names and times of the simulation: its annotations, its start, and how its times are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

PREFIX: Final = "simulate.kbatch.dev/"
ARRIVAL: Final = "simulate.kbatch.dev/arrival"
"""On any object: when it is created, in seconds after the start."""
DEPARTURE: Final = "simulate.kbatch.dev/departure"
"""On any object: when it is deleted, in seconds after the start."""
DURATION: Final = "simulate.kbatch.dev/duration"
"""On a pod: how long it runs after its bind (from the start, if it runs then), in seconds; then it has Succeeded."""
TERMINATION: Final = "simulate.kbatch.dev/termination"
"""On a pod: from its eviction until it is gone, in seconds; 1 if it is not given."""
TIMES: Final = frozenset({ARRIVAL, DEPARTURE, DURATION, TERMINATION})
DEFAULT_TERMINATION_MS: Final = 1000

DEFAULT_NAMESPACE: Final = "default"

_START: Final = datetime(2000, 1, 1, tzinfo=UTC)
START_MS: Final = int(_START.timestamp()) * 1000
"""The start, in ms since the epoch: always the same, so that equal input gives equal decisions."""


@lru_cache(maxsize=4096)
def timestamp(elapsed: int) -> str:
    """A time as Kubernetes writes it, of `elapsed` ms after the start; with the milliseconds where there are any."""
    moment = _START + timedelta(milliseconds=elapsed)
    return f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{elapsed % 1000:03d}Z" if elapsed % 1000 else "Z")


def path(annotation: str) -> str:
    """The field that an annotation is, for messages."""
    return f"metadata.annotations[{annotation}]"
