"""Sums over time: what each queue holds, waits for and deserves; and the same in slices of time, for pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kbatch.model.shares import Claim, fill
from kbatch.simulator.traces.cluster import Cluster
from kbatch.simulator.traces.jobs import DIMENSIONS, Job

_GPU: Final = 2
_SCALE: Final = (1, 1, 1000)
"""By dimension, to thousandths: cores come in these. The last whole GPU would be deserved by a queue for its name."""
SLICES: Final = 1024
"""The finest that a picture shows; an even number."""


@dataclass(slots=True)
class QueueUse:
    """A queue, in the one dimension that shares are told of. Amounts by time are in units times microseconds.

    Attributes:
        held: by its jobs that run; asked: by these and by those that wait.
        waiting: how many of its jobs wait.
        deserved: of what there is, by the weights of the queues, and no more than it asks for.
        had, owed: held and deserved, over the time so far.
        lag: the most that it held less than it deserved, at any time.
    """

    held: int = 0
    asked: int = 0
    waiting: int = 0
    deserved: int = 0
    had: int = 0
    owed: int = 0
    lag: int = 0


class Slices:
    """Values that change over time, as their means in slices of equal length; the longer it takes, the longer these."""

    def __init__(self, begin: int, width: int) -> None:
        self.begin = begin
        self.length = 1
        self.sums: list[list[int]] = [[] for _ in range(width)]

    def add(self, begin: int, end: int, values: Sequence[int]) -> None:
        """The values stood from one instant to another, which is not before any earlier one."""
        while end - self.begin > SLICES * self.length:
            self.length *= 2
            self.sums = [[sum(row[at : at + 2]) for at in range(0, len(row), 2)] for row in self.sums]
        first, last = (begin - self.begin) // self.length, (end - 1 - self.begin) // self.length
        for row, value in zip(self.sums, values, strict=True):
            row += [0] * (last + 1 - len(row))
            for at in range(first, last + 1):
                edge = self.begin + at * self.length
                row[at] += value * (min(end, edge + self.length) - max(begin, edge))

    def means(self, end: int) -> list[list[float]]:
        """By value, the mean of each slice; the last one may be shorter."""
        lengths = [
            min(self.length, end - self.begin - at * self.length) for at in range(len(self.sums[0]) if self.sums else 0)
        ]
        return [[total / length for total, length in zip(row, lengths, strict=True)] for row in self.sums]


@dataclass(slots=True)
class Usage:
    """Told of every change at an instant before that instant is `passed`.

    Attributes:
        dimension: that shares are told of, by its place in `DIMENSIONS`.
        capacity: what there is of it; this and all amounts are in thousandths of cores or GPUs.
        weights: what queues count; 1 where nothing is said.
        slices: for pictures: first what is held in all, then for each queue, by name, what it holds, and how many wait.
    """

    names: Sequence[str]
    dimension: int
    capacity: int
    weights: Mapping[str, int]
    slices: Slices | None = None
    queues: dict[str, QueueUse] = field(default_factory=dict)
    _since: int | None = None
    _changed: bool = False

    def __post_init__(self) -> None:
        self.queues = {name: QueueUse() for name in self.names}

    def came(self, job: Job) -> None:
        """A job waits."""
        use = self.queues[job.queue]
        use.asked += self._amount(job)
        use.waiting += 1
        self._changed = True

    def started(self, job: Job) -> None:
        """A job that waited runs."""
        use = self.queues[job.queue]
        use.held += self._amount(job)
        use.waiting -= 1
        self._changed = True

    def ended(self, job: Job) -> None:
        """A job that ran is over."""
        use = self.queues[job.queue]
        amount = self._amount(job)
        use.held -= amount
        use.asked -= amount
        self._changed = True

    def _amount(self, job: Job) -> int:
        """What a job takes."""
        return job.tasks * job.shape[self.dimension] * _SCALE[self.dimension]

    def passed(self, now: int) -> None:
        """All that was told so far stood until now."""
        since, self._since = self._since, now
        if since is None or since == now:
            return
        if self._changed:
            self._divide()
        length = now - since
        for use in self.queues.values():
            use.had += use.held * length
            use.owed += use.deserved * length
            use.lag = max(use.lag, use.deserved - use.held)
        if self.slices is not None:
            uses = self.queues.values()
            values = [sum(use.held for use in uses), *(use.held for use in uses), *(use.waiting for use in uses)]
            self.slices.add(since, now, values)

    def _divide(self) -> None:
        """What each queue deserves now."""
        self._changed = False
        uses = list(self.queues.values())
        if len(uses) == 1:
            uses[0].deserved = min(uses[0].asked, self.capacity)
            return
        claims = [Claim(name, self.weights.get(name, 1), {}) for name in self.queues]
        shares = fill(DIMENSIONS[self.dimension], self.capacity, claims, [use.asked for use in uses])
        for use, share in zip(uses, shares, strict=True):
            use.deserved = share

    def jain(self) -> float | None:
        """Jain's index of what the queues held over what they deserved: 1 where all had the same part; None: no queue
        deserved anything. (R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984.)
        """
        parts = [use.had / use.owed for use in self.queues.values() if use.owed]
        if not parts:
            return None
        squares = sum(part * part for part in parts)
        return sum(parts) ** 2 / (len(parts) * squares) if squares else 1.0

    def lag(self) -> float:
        """The most that a queue held less than it deserved, as a part of what there is."""
        return max((use.lag for use in self.queues.values()), default=0) / self.capacity if self.capacity else 0.0


def usage_of(jobs: Sequence[Job], cluster: Cluster, weights: Mapping[str, int], *, slices: bool) -> Usage:
    """Sums for these jobs, none of which has come yet. Shares are told of GPUs where any job asks for these."""
    dimension = _GPU if any(job.shape.gpu for job in jobs) else 0
    names = sorted({job.queue for job in jobs})
    kept = Slices(jobs[0].submit, 1 + 2 * len(names)) if slices and jobs else None
    return Usage(names, dimension, cluster.total(dimension) * _SCALE[dimension], weights, kept)
