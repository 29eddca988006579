"""A job of a trace: what it asks for, and what became of it. All times in microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

PARTS: Final = "parts"
SUBMISSION: Final = "submission"
RUN_TIME: Final = "run_time"
PROCESSORS: Final = "processors"
TOO_LARGE: Final = "too_large"
REASONS: Final = (RUN_TIME, PROCESSORS, TOO_LARGE, SUBMISSION, PARTS)
"""Why a job of the file is left out: it has no run time, or no processors; it is larger than the cluster; nobody knows
when it was submitted; it is a part of another one that the log tells of as a whole."""


class Shape(NamedTuple):
    """What one pod asks for: milli-cores, bytes, whole GPUs. The dimensions of the whole simulation, in this order."""

    cpu: int
    memory: int = 0
    gpu: int = 0


DIMENSIONS: Final = ("cpu", "memory", "nvidia.com/gpu")
"""The names of the dimensions of a `Shape`, as they are printed."""
ONE_CPU: Final = Shape(1000)


@dataclass(eq=False, slots=True)
class Job:
    """One job.

    Attributes:
        number: its place in the order of submission, ties by the place in the file.
        name: its ID in the output.
        run: how long it runs once it has started; above 0.
        estimate: how long its owner says that it runs; above 0.
        tasks: how many pods; they start together.
        shape: what each of them asks for.
        start: when it started; None: not yet, or never.
        finish: when it ended. lost: how long it had run before that where it was evicted.
        nodes: where it ran, as runs of three: the first node's number, how many nodes follow one another, pods on each.
        place: where it stands or is promised to, in the terms of the timeline.
        until: while it runs, when it is expected to end.
        promise: under conservative backfilling, while it waits: the instant at which it starts at the latest.
        seen: what of the room that came free was known when the promise was made.
    """

    number: int
    name: str
    submit: int
    run: int
    estimate: int
    tasks: int
    shape: Shape
    queue: str
    priority: int = 0
    start: int | None = None
    finish: int | None = None
    lost: int = 0
    nodes: tuple[int, ...] = ()
    place: Any = None
    until: int = 0
    promise: int | None = None
    seen: int = 0


@dataclass(slots=True)
class Trace:
    """The jobs of a file in the order of submission, how many were left out for which of `REASONS`, and what queues
    count beside one another (1 where nothing is said).
    """

    jobs: list[Job]
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    weights: Mapping[str, int] = field(default_factory=dict)


def as_one_pod(job: Job) -> None:
    """Make one pod of a job's pods: it stands on one node."""
    job.shape = Shape(*(amount * job.tasks for amount in job.shape))
    job.tasks = 1
