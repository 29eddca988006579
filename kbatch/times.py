"""The unit of time: every instant and every duration of the model, the engine and the simulator is an integer.

Instants are microseconds since the epoch (in the simulator: since its start), durations microseconds. Kubernetes knows
no finer times than that (MicroTime).
"""

from __future__ import annotations

from typing import Final

MILLISECOND: Final = 1_000
"""Microseconds in a millisecond."""
SECOND: Final = 1_000_000
"""Microseconds in a second."""
HOUR: Final = 3_600 * SECOND
"""Microseconds in an hour."""
