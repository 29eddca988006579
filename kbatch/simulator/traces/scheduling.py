"""What the schedulers of traces have in common: the queue in its order, what runs, and what is reserved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kbatch.simulator.traces.jobs import Job
from kbatch.simulator.traces.running import Running
from kbatch.simulator.traces.timeline import Placed, Timeline

Order = Callable[[Job], tuple[int, int]]


def by_submission(job: Job) -> tuple[int, int]:
    """First come, first served; ties by the place in the file."""
    return 0, job.number


def by_estimate(job: Job) -> tuple[int, int]:
    """Shortest job first, by what its owner says."""
    return job.estimate, job.number


@dataclass(frozen=True, slots=True)
class Reservation:
    """A job that waits is to start at an instant at the latest, there."""

    job: Job
    start: int
    placed: Placed


class Scheduler(ABC):
    """Decides which jobs start. It is told of all that happens at an instant, and then asked once."""

    def __init__(self, timeline: Timeline, order: Order, depth: int) -> None:
        self.timeline = timeline
        self.order = order
        self.depth = depth
        self.line: list[Job] = []
        """The jobs that wait, in order."""
        self.running = Running()

    @abstractmethod
    def decide(self, now: int, ended: Sequence[Job], arrived: Sequence[Job]) -> list[Job]:
        """The jobs that start now, after some ended and others came, in this order."""

    @property
    @abstractmethod
    def wake(self) -> int | None:
        """The next instant at which it could decide otherwise by itself."""

    @abstractmethod
    def reservations(self) -> list[Reservation]:
        """What is reserved after the last decision, in the order of the queue."""

    def _enqueue(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            insort(self.line, job, key=self.order)

    def _dequeue(self, started: Sequence[Job]) -> None:
        """Take those that started out of the queue."""
        if len(started) == 1:
            del self.line[bisect_left(self.line, self.order(started[0]), key=self.order)]
        elif started:
            self.line = [job for job in self.line if job.start is None]
