"""First come first served and shortest job first, alone or with EASY backfilling.

The jobs of the queue start in order until one does not fit. It gets a reservation: the earliest instant at which it
fits what is expected, on the lowest nodes that are free then. Those behind it start where they delay no reservation: on
nodes that are not reserved, or, where they are gone in time, on any. Of them, the next that do not fit get reservations
as well, up to the depth. With a depth of 0 there is no backfilling: the first that does not fit stops all behind it.

At each instant all of this is done anew. Where nothing ended and no job is overdue, the answers for those that waited
before are the same, and only those that came are looked at: room is as it was, and less time is left until what is
reserved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from kbatch.simulator.traces.jobs import Job, Shape
from kbatch.simulator.traces.scheduling import Order, Reservation, Scheduler
from kbatch.simulator.traces.timeline import Room, Timeline

NEVER: Final = 2**62
"""Later than anything: without reservations nobody asks when jobs are expected to end."""


class ListScheduler(Scheduler):
    """See the module."""

    def __init__(self, timeline: Timeline, order: Order, depth: int) -> None:
        super().__init__(timeline, order, depth)
        self._reserved: list[Reservation] = []
        self._last: Job | None = None
        """The last job of the queue that matters to those behind it: it does not fit, and is reserved or stops all."""
        self._limits: list[int] = []
        self._rooms: list[Room] = []
        """What a job finds free that is gone at the first of these instants, at the second, and so on, or later."""
        self._most: dict[Shape, int] = {}
        """How many pods of a shape fit the first of them: a quick no."""
        self._fitting: dict[tuple[int, Shape], int] = {}

    def decide(self, now: int, ended: Sequence[Job], arrived: Sequence[Job]) -> list[Job]:
        """The jobs that start now."""
        anew = bool(ended) or self.running.overdue(now) or self._overtakes(arrived)
        if anew:
            for reservation in self._reserved:
                end = reservation.start + reservation.job.estimate
                self.timeline.release(reservation.start, end, reservation.placed)
            self._reserved.clear()
            self._last = None
        self.timeline.advance(now)
        for job in ended:
            if (until := self.running.end(job)) > now:
                self.timeline.release(now, until, job.place)
        for job in self.running.put_off(now):
            self.timeline.claim(now, job.until, job.place)
        self._enqueue(arrived)
        self._look()
        started = self._walk(now, self.line if anew else sorted(arrived, key=self.order))
        self._dequeue(started)
        return started

    @property
    def wake(self) -> int | None:
        """When a job that runs turns out to be overdue, as long as others wait for its room."""
        return self.running.next if self.line and self.depth else None

    def reservations(self) -> list[Reservation]:
        """What is reserved after the last decision."""
        return list(self._reserved)

    def _overtakes(self, arrived: Sequence[Job]) -> bool:
        """Whether one that came goes before one that does not fit, which changes things for those behind."""
        return self._last is not None and any(self.order(job) < self.order(self._last) for job in arrived)

    def _walk(self, now: int, jobs: Iterable[Job]) -> list[Job]:
        """Try jobs in order: start them, reserve for them, or leave them."""
        started: list[Job] = []
        for job in jobs:
            most = self._most.get(job.shape)
            if most is None:
                most = self._most[job.shape] = self.timeline.pods(self._rooms[0], job.shape)
            if job.tasks <= most and self._start(job, now):
                started.append(job)
            elif len(self._reserved) < self.depth:
                self._reserve(job)
            elif not self.depth:
                self._last = self._last or job
                break
        return started

    def _start(self, job: Job, now: int) -> bool:
        """Start a job if it delays no reservation."""
        if self._last is not None and not self.depth:
            return False
        end = now + job.estimate
        at = bisect_left(self._limits, end)
        key = at, job.shape
        fitting = self._fitting.get(key)
        if fitting is None:
            fitting = self._fitting[key] = self.timeline.pods(self._rooms[at], job.shape)
        if job.tasks > fitting:
            return False
        if not self.depth:
            end = NEVER
        job.start = now
        job.place = self.timeline.lowest(self._rooms[at], job)
        self.timeline.claim(now, end, job.place)
        self.running.add(job, end)
        self._look()
        return True

    def _reserve(self, job: Job) -> None:
        """Name the instant at which a job starts at the latest, and its nodes."""
        found = self.timeline.earliest(job, rising=not self._reserved)
        assert found is not None  # noqa: S101 - it fits the cluster
        self.timeline.claim(found[0], found[0] + job.estimate, found[1])
        self._reserved.append(Reservation(job, *found))
        self._last = job
        self._look()

    def _look(self) -> None:
        """See what is free for those that are gone in time, and for the others.

        Room gets less only where a reservation begins: what is free until an instant is free now, and at the beginning
        of all reservations before it.
        """
        self._most.clear()
        self._fitting.clear()
        timeline = self.timeline
        self._limits = sorted({reservation.start for reservation in self._reserved})
        self._rooms = [timeline.room(0)]
        for limit in self._limits:
            self._rooms.append(timeline.meet(self._rooms[-1], timeline.room(timeline.index(limit))))
