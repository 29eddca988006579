"""Conservative backfilling: every job that waits is promised an instant and nodes, and promises only ever improve.

A job that comes gets the earliest instant at which it fits between all that runs and all that is promised, on the
lowest nodes; now, if it can be. At each instant at which something ended, once, before those that came get theirs, each
promise in order is given back alone and made again. Where a job that runs past its estimate is expected to run on, room
that was promised is lost: in order, each promise that cannot be kept beside what runs and what is promised to those
before is made again, so that it is those behind who give way. Jobs beyond the depth have no promise; they start where
they delay none, and get one when others have used theirs.

Most promises cannot improve, and that is seen without giving them back: a promise that is made again comes out as it
was unless something came free since it was made, and then only what did can help.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence

from kbatch.simulator.traces.freed import Freed
from kbatch.simulator.traces.jobs import Job
from kbatch.simulator.traces.scheduling import Order, Reservation, Scheduler
from kbatch.simulator.traces.timeline import Placed, Timeline


class ConservativeScheduler(Scheduler):
    """See the module."""

    def __init__(self, timeline: Timeline, order: Order, depth: int) -> None:
        super().__init__(timeline, order, depth)
        self._promises = 0
        self._due: list[tuple[int, int, Job]] = []
        """The instants that were promised, outlived where a promise has moved. Numbers tell equal ones apart."""
        self._serial = itertools.count()
        self._freed = Freed()

    def decide(self, now: int, ended: Sequence[Job], arrived: Sequence[Job]) -> list[Job]:
        """The jobs that start now."""
        self.timeline.advance(now)
        for job in ended:
            if (until := self.running.end(job)) > now:
                self.timeline.release(now, until, job.place)
                self._freed.add(self.timeline.freed(now, until, job.place))
        overdue = list(self.running.put_off(now))
        if overdue:
            self._make_way(overdue, now)
        if ended:
            self._renew()
        started = self._keep(now)
        self._dequeue(started)
        used = bool(started)
        self._enqueue(arrived)
        anew = bool(ended) or bool(overdue) or used
        others: list[Job] = []
        if len(self.line) > self._promises:
            waiting = self.line if anew else sorted(arrived, key=self.order)
            others = [job for job in waiting if job.promise is None and self._admit(job, now)]
            self._dequeue(others)
        return started + others

    @property
    def wake(self) -> int | None:
        """The next instant that was promised, or at which a job that runs turns out to be overdue."""
        due = self._next_due()
        if not self.line or due is None:
            return None
        late = self.running.next
        return due if late is None else min(due, late)

    def reservations(self) -> list[Reservation]:
        """What is promised, in the order of the queue."""
        return [Reservation(job, job.promise, job.place) for job in self.line if job.promise is not None]

    # --- making promises ----------------------------------------------------------------------------------------------

    def _admit(self, job: Job, now: int) -> bool:
        """Start a job that has no promise now, or promise it something; whether it starts."""
        full = self._promises >= self.depth
        found = self.timeline.earliest(job, now + 1 if full else None)
        if found is None:
            return False
        start, job.place = found
        self.timeline.claim(start, start + job.estimate, job.place)
        if start == now:
            self._begin(job, now)
            return True
        self._promises += 1
        self._promise(job, start)
        return False

    def _promise(self, job: Job, start: int) -> None:
        if start != job.promise:
            heapq.heappush(self._due, (start, next(self._serial), job))
        job.promise, job.seen = start, self._freed.told

    def _begin(self, job: Job, now: int) -> None:
        job.start, job.promise = now, None
        self.running.add(job, now + job.estimate)

    # --- keeping them -------------------------------------------------------------------------------------------------

    def _next_due(self) -> int | None:
        due = self._due
        while due and due[0][2].promise != due[0][0]:
            heapq.heappop(due)
        return due[0][0] if due else None

    def _keep(self, now: int) -> list[Job]:
        """Start those whose instant has come, in the order of the queue."""
        started: list[Job] = []
        while (due := self._next_due()) is not None and due <= now:
            job = heapq.heappop(self._due)[2]
            self._begin(job, now)
            self._promises -= 1
            started.append(job)
        started.sort(key=self.order)
        return started

    def _make_way(self, overdue: Sequence[Job], now: int) -> None:
        """Some jobs run on for longer than was expected: they take the room, and promises that this breaks move."""
        kept = next((at for at, job in enumerate(self.line) if self._in_the_way(job, overdue)), len(self.line))
        moved = [job for job in self.line[kept:] if job.promise is not None]
        for job in moved:
            self.timeline.release(*self._span(job), job.place)
        for job in overdue:
            self.timeline.claim(now, job.until, job.place)
        for job in moved:
            span, place = self._span(job), job.place
            if self.timeline.open(*span, job.place):
                self.timeline.claim(*span, job.place)
            else:
                found = self.timeline.earliest(job)
                assert found is not None  # noqa: S101 - it fits the cluster
                start, job.place = found
                self.timeline.claim(start, start + job.estimate, job.place)
                self._promise(job, start)
                self._freed.add(self.timeline.freed(*span, place))

    def _in_the_way(self, job: Job, overdue: Sequence[Job]) -> bool:
        """Whether a job was promised nodes of those that run on, before they are expected to end."""
        start, overlap = job.promise, self.timeline.overlap
        return start is not None and any(start < each.until and overlap(job.place, each.place) for each in overdue)

    def _span(self, job: Job) -> tuple[int, int]:
        """From when to when a promise stands."""
        assert job.promise is not None  # noqa: S101 - asked for by the callers
        return job.promise, job.promise + job.estimate

    # --- improving them -----------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        """Give back each promise in order, alone, and make it again."""
        self._freed.begin()
        for job in self.line:
            if job.promise is None:
                continue
            news = self._freed.since(job.seen)
            found = None if news is None else self.timeline.sooner(job, *self._span(job), job.place, news)
            if found is not None:
                self._move(job, *found)
            job.seen = self._freed.told
        self._freed.end()

    def _move(self, job: Job, start: int, placed: Placed) -> None:
        """Promise something better."""
        span = self._span(job)
        self.timeline.release(*span, job.place)
        self.timeline.claim(start, start + job.estimate, placed)
        self._freed.add(self.timeline.freed(*span, job.place))
        job.place = placed
        self._promise(job, start)
