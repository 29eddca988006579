"""What is known of a recorded cluster besides its objects: how long its pods ran, and when late ones came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from kbatch.api.names import DEFAULT_QUEUE, DEFAULT_SCHEDULER_NAME


class How(Enum):
    """How a pod ends by itself."""

    SUCCEEDED = auto()
    FAILED = auto()
    DELETED = auto()


@dataclass(frozen=True, slots=True)
class End:
    """The end of a pod, so many microseconds after its bind (or after the start, if it runs then)."""

    after: int
    how: How


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a log tells that no object says; nothing of it for a cluster that was not recorded.

    Attributes:
        scheduler_name: which pods are ours. default_queue: of pods that name none.
        ends: by `namespace/name` of the pod; None: it runs on. One that replaces an evicted pod has its end.
        members: by `namespace/name` of a PodGroup the end of members that the log does not know.
        delays: by `namespace/name` of a PodGroup how long after its entry into its queue its members are made, in
            microseconds.
        terminations: by `namespace/name` of the pod how long it took to leave, in microseconds.
        termination: of others; None: not known.
    """

    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    default_queue: str = DEFAULT_QUEUE
    ends: Mapping[str, End | None] = field(default_factory=dict)
    members: Mapping[str, End] = field(default_factory=dict)
    delays: Mapping[str, int] = field(default_factory=dict)
    terminations: Mapping[str, int] = field(default_factory=dict)
    termination: int | None = None
