"""What the auditor lets pass, and for how long. docs/faults.md gives the reason of each; a test compares the two."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Limits:
    """How long what must not last may last, in seconds, while the server answers and somebody leads."""

    partial: float = 20.0
    """A gang that is placed in part. One that cannot be completed is given up after a minute: then more than that."""
    untrue: float = 5.0
    """A condition that contradicts what is there."""
    unsaid: float = 15.0
    """Nothing at all is said of a gang that is placed: while binds of others wait, that may take its time."""
    beneficiary: float = 30.0
    """From an eviction to the placement of the group that it was done for."""
    race: float = 1.0
    """Between two schedulers, or between a change of a node, a queue or a group and a bind."""
    overfull: float = 10.0
    """Two schedulers have filled a node beyond what it has: until some of its pods end, as no kubelet refuses any."""


FAILING: Final = 75.0
"""`partial`, and `beneficiary`, where binds or evictions fail, or nodes go: a gang is given up after a minute."""
TAKEOVER: Final = 30.0
"""`partial`, where the leader ends and the Lease is that of the chart."""
AGAIN: Final = 1.0
"""Seconds after the answer to a bind in which another attempt may be on its way: a late answer, another replica's."""
OFTEN: Final = 20
"""More status writes of one object than that, by one replica in so many seconds, is a storm."""
OFTEN_SECONDS: Final = 10.0
TOLERANCE: Final = 0.5
"""Seconds by which the times of a request as its two ends see it may differ on a busy machine."""
RECOVERY: Final = 1.0
"""What a client may need to try again what has failed, or to follow what a broken watch has missed."""
ON_THE_WIRE: Final = 1
"""Writes out of turn for each pause of a process: it may have stood between its last look at the clock and a write."""
IN_SOCKETS: Final = 200
"""Writes out of turn where the API server itself is paused: what was sent to it in time lies in its sockets."""


KILLED, KILLED_UNTRUE = 90.0, 60.0
"""`partial`, and `untrue` and `unsaid`, where each of the four processes is killed in turn: a Lease, and a start."""


def allowances() -> dict[str, float]:
    """All of them by name."""
    limits: dict[str, float] = dataclasses.asdict(Limits())
    return limits | {
        "failing": FAILING, "takeover": TAKEOVER, "again": AGAIN, "often": OFTEN, "often seconds": OFTEN_SECONDS,
        "tolerance": TOLERANCE, "recovery": RECOVERY, "on the wire": ON_THE_WIRE, "in sockets": IN_SOCKETS,
        "killed": KILLED, "killed, untrue": KILLED_UNTRUE,
    }  # fmt: skip
