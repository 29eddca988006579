"""The jobs that run, by the instants at which they are expected to end."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from kbatch.simulator.traces.jobs import Job


def expected_end(start: int, estimate: int, now: int) -> int:
    """`start + estimate * (1 + k/10)` with the least k from 0 on that puts it after now, rounded up to a microsecond.

    Rounding up changes no comparison with an instant, as these are whole.
    """
    tenths = max(10, 10 * (now - start) // estimate + 1)
    return start - (-estimate * tenths // 10)


class Running:
    """The jobs that run; what of them is overdue is put off when somebody asks."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Job]] = []

    def add(self, job: Job, until: int) -> None:
        """A job starts, or is expected to run on until then."""
        job.until = until
        heapq.heappush(self._heap, (until, job.number, job))

    def end(self, job: Job) -> int:
        """A job has ended; when it was expected to."""
        until, job.until = job.until, 0
        return until

    @property
    def next(self) -> int | None:
        """The instant at which the next of them is expected to end."""
        heap = self._heap
        while heap and heap[0][2].until != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def overdue(self, now: int) -> bool:
        """Whether one was expected to have ended, and runs."""
        following = self.next
        return following is not None and following <= now

    def put_off(self, now: int) -> Iterator[Job]:
        """Expect those that are overdue to end later; each of them."""
        while self.overdue(now):
            job = heapq.heappop(self._heap)[2]
            assert job.start is not None  # noqa: S101 - it runs
            self.add(job, expected_end(job.start, job.estimate, now))
            yield job
