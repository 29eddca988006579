"""What a trace is run with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kbatch.choices import Backfill, PodShape, TracePolicy


@dataclass(frozen=True, slots=True)
class Options:
    """What to run a trace with.

    Attributes:
        depth: how many jobs that cannot start get reservations; None: 1 with EASY, else as many as there may be.
        until: the last instant that is simulated, in microseconds; None: no limit.
        nodes: whether to keep where each job ran.
        slices: whether to keep what a picture needs.
        check: whether to check that what is let in before others delays none of them.
    """

    policy: TracePolicy = TracePolicy.FCFS
    backfill: Backfill = Backfill.NONE
    depth: int | None = None
    shape: PodShape = PodShape.PODS
    until: int | None = None
    nodes: bool = True
    slices: bool = False
    check: bool = False


Progress = Callable[[int, int, float], None]
"""Told now and then: the time (microseconds), how many instants were looked at, which part of the jobs is over."""
