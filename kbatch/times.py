"""The unit of time: every instant and every duration of the model, the engine and the simulator is an integer.

Instants are microseconds since the epoch (in the simulator: since its start), durations microseconds. Kubernetes knows
no finer times than that (MicroTime).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

MILLISECOND: Final = 1_000
"""Microseconds in a millisecond."""
SECOND: Final = 1_000_000
"""Microseconds in a second."""
HOUR: Final = 3_600 * SECOND
"""Microseconds in an hour."""


def rfc3339_us(instant: int) -> str:
    """An instant as Kubernetes writes a MicroTime."""
    return (_EPOCH + timedelta(microseconds=instant)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
