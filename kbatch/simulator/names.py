"""Names and times of the simulation: its annotations, its start, and how its times are written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from kbatch.times import SECOND

PREFIX: Final = "simulate.kbatch.dev/"
ARRIVAL: Final = "simulate.kbatch.dev/arrival"
"""On any object: when it is created, in seconds after the start."""
DEPARTURE: Final = "simulate.kbatch.dev/departure"
"""On any object: when it is deleted, in seconds after the start."""
DURATION: Final = "simulate.kbatch.dev/duration"
"""On a pod: how long it runs after its bind (from the start, if it runs then), in seconds; then it has Succeeded."""
TERMINATION: Final = "simulate.kbatch.dev/termination"
"""On a pod: from its eviction until it is gone, in seconds; 1 if it is not given."""
FAILS_PODS: Final = "simulate.kbatch.dev/fails-pods-after"
"""On a node: every pod that comes there fails so many seconds after its bind, unless it has ended before."""
REFUSE_EVICTION: Final = "simulate.kbatch.dev/refuse-eviction"
"""On a pod: why the API server refuses to evict it, whenever that is asked for."""
SCHEDULER_CONF: Final = "simulate.kbatch.dev/scheduler-conf"
"""On a ConfigMap, with the value `true`: its one text is the scheduler's configuration, unless another is asked for."""
TIMES: Final = frozenset({ARRIVAL, DEPARTURE, DURATION, TERMINATION, FAILS_PODS})
KNOWN: Final = TIMES | {REFUSE_EVICTION}
FOR_PODS: Final = (DURATION, TERMINATION, REFUSE_EVICTION)
"""What an owner may say for its pods."""
DEFAULT_TERMINATION: Final = SECOND

DEFAULT_NAMESPACE: Final = "default"

_START: Final = datetime(2000, 1, 1, tzinfo=UTC)
START: Final = int(_START.timestamp()) * SECOND
"""The start, in microseconds since the epoch: always the same, so that equal input gives equal decisions."""


@lru_cache(maxsize=4096)
def timestamp(elapsed: int) -> str:
    """A time as Kubernetes writes it, of `elapsed` microseconds after the start.

    Its fraction has three digits where they suffice, else six; there is none where it is 0.
    """
    moment = _START + timedelta(microseconds=elapsed)
    fraction = f".{elapsed % SECOND:06d}".removesuffix("000").removesuffix(".000")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def path(annotation: str) -> str:
    """The field that an annotation is, for messages."""
    return f"metadata.annotations[{annotation}]"
