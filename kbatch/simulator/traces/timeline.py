"""What is free on which nodes, now and as far as ends are expected: the ground on which the schedulers decide.

Time is cut into *stretches* in which nothing is expected to change: stretch `i` goes from `times[i]` to `times[i + 1]`,
the last one for ever. Of each it is known what is free then, as a *room*. Jobs that run claim their places until their
expected ends, jobs that wait the places that are reserved for them. A later stretch may have more room than an earlier
one (ends) or less (reservations). What rooms and places are is the business of two kinds of timeline: `units` where a
node is either free or not, `amounts` otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, TypeAlias

from kbatch.simulator.traces.freed import FAR, News
from kbatch.simulator.traces.jobs import Job, Shape

Room: TypeAlias = Any
"""What is free at an instant, or all through a span of time; never changed once it is made."""
Placed: TypeAlias = Any
"""Where the pods of one job stand."""


class Timeline(ABC):
    """See the module. All instants in microseconds; the first stretch begins at `times[0]`, now."""

    def __init__(self) -> None:
        self.times: list[int] = [0]

    # --- what the two kinds differ in ---------------------------------------------------------------------------------

    @abstractmethod
    def room(self, stretch: int) -> Room:
        """What is free in a stretch."""

    @abstractmethod
    def meet(self, one: Room, other: Room) -> Room:
        """What is free in both."""

    @abstractmethod
    def pods(self, room: Room, shape: Shape) -> int:
        """How many pods of a shape find room."""

    @abstractmethod
    def lowest(self, room: Room, job: Job) -> Placed:
        """The places of a job on the nodes of the lowest numbers; it must fit."""

    @abstractmethod
    def levels(self, shape: Shape) -> Sequence[int]:
        """For each stretch, at least as many as there are pods of the shape that find room."""

    @abstractmethod
    def runs(self, placed: Placed) -> tuple[int, ...]:
        """Places as in `Job.nodes`."""

    @abstractmethod
    def same(self, one: Placed, other: Placed) -> bool:
        """Whether these are the same places."""

    @abstractmethod
    def overlap(self, one: Placed, other: Placed) -> bool:
        """Whether any node is in both."""

    @abstractmethod
    def open(self, begin: int, end: int, placed: Placed) -> bool:
        """Whether these very places are free from an instant (not before now) to another."""

    @abstractmethod
    def _change(self, first: int, last: int, placed: Placed, *, free: bool) -> None:
        """Make places free, or not free, in the stretches from `first` up to `last`."""

    @abstractmethod
    def _insert(self, stretch: int) -> None:
        """The stretch before this place is cut in two of the same room."""

    @abstractmethod
    def _remove(self, first: int, last: int) -> None:
        """Forget the rooms of these stretches."""

    @abstractmethod
    def _alike(self, one: int, other: int) -> bool:
        """Whether two stretches have the same room."""

    # --- what they share ----------------------------------------------------------------------------------------------

    def advance(self, now: int) -> None:
        """Nothing is asked about the time before now any more."""
        gone = bisect_right(self.times, now) - 1
        if gone > 0:
            del self.times[:gone]
            self._remove(0, gone)
        self.times[0] = now

    def claim(self, begin: int, end: int, placed: Placed) -> None:
        """Take places that are free from an instant (not before now) to another."""
        self._between(begin, end, placed, free=False)

    def release(self, begin: int, end: int, placed: Placed) -> None:
        """Give places back."""
        self._between(begin, end, placed, free=True)

    def _between(self, begin: int, end: int, placed: Placed, *, free: bool) -> None:
        first, last = self._at(begin), self._at(end)
        self._change(first, last, placed, free=free)
        self._join(last)
        self._join(first)

    def _at(self, instant: int) -> int:
        """The stretch that begins at an instant, cut off if need be."""
        stretch = bisect_left(self.times, instant)
        if stretch == len(self.times) or self.times[stretch] != instant:
            self.times.insert(stretch, instant)
            self._insert(stretch)
        return stretch

    def _join(self, stretch: int) -> None:
        """One stretch of two that do not differ."""
        if stretch and self._alike(stretch - 1, stretch):
            del self.times[stretch]
            self._remove(stretch, stretch + 1)

    def index(self, instant: int) -> int:
        """The stretch in which an instant lies."""
        return bisect_right(self.times, instant) - 1

    def earliest(self, job: Job, before: int | None = None, *, rising: bool = False) -> tuple[int, Placed] | None:
        """The first instant from which the job's pods find room for as long as it says to run, and the lowest places
        that they have then; None where that is not `before` an instant. Where room is only ever `rising` (nothing is
        reserved), what is free at an instant stays so.

        It begins now or where a stretch does. Where a stretch that is too full ends a trial, the next is the earliest
        one from which all stretches up to that one would do.
        """
        times, shape, tasks = self.times, job.shape, job.tasks
        levels, count = self.levels(shape), len(self.times)
        first = 0
        while first < count:
            if levels[first] < tasks:
                first += 1
                continue
            if before is not None and times[first] >= before:
                return None
            room = self.room(first)
            if self.pods(room, shape) < tasks:
                first += 1
                continue
            full = 0
            if not rising:
                full, room = self._trial(first, times[first] + job.estimate, job, levels)
            if not full:
                return times[first], self.lowest(room, job)
            first = self._after(first, full, job)
        raise AssertionError(f"job {job.name} is larger than the cluster")

    def freed(self, begin: int, end: int, placed: Placed) -> News:
        """What it is worth that these places came free."""
        return News(begin, end, self.times[0], FAR, FAR, -1)

    def sooner(self, job: Job, start: int, end: int, placed: Placed, news: News) -> tuple[int, Placed] | None:
        """What a job would be promised instead of these places from `start` to `end`, if these were given back and all
        others stay; None where that is the same.

        It was the earliest instant, and the lowest places, when it was promised; `news` is what came free since then.
        So it is the same unless that is of use: while the promise stands, as there may be lower places then; or before.
        Then there is a stretch that begins before the promise and before the end of what came free, from which on
        enough is free for as long as the job says to run, or up to the promise.
        """
        if not (news.end > start and news.begin < end) and not self._hole(job, start, min(start, news.end)):
            return None
        self.release(start, end, placed)
        found = self.earliest(job)
        self.claim(start, end, placed)
        return None if found is None or (found[0] == start and self.same(found[1], placed)) else found

    def _hole(self, job: Job, start: int, before: int) -> bool:
        """Whether there seems to be room for a job that begins before an instant, up to `start` at least."""
        times, tasks, levels = self.times, job.tasks, self.levels(job.shape)
        kept = bisect_left(times, start)
        stretch, last = 0, bisect_left(times, before)
        while stretch < last:
            until, goal = stretch, times[stretch] + job.estimate
            while until < kept and levels[until] >= tasks and times[until] < goal:
                until += 1
            if until == kept or times[until] >= goal:
                return True
            stretch = until + 1
        return False

    def _trial(self, first: int, end: int, job: Job, levels: Sequence[int]) -> tuple[int, Room]:
        """Where a trial from stretch `first` on finds too little room (0: nowhere), and what is free until then."""
        times, count, tasks, shape = self.times, len(self.times), job.tasks, job.shape
        room = self.room(first)
        stretch = first + 1
        while stretch < count and times[stretch] < end:
            if levels[stretch] < tasks:
                return stretch, room
            room = self.meet(room, self.room(stretch))
            if self.pods(room, shape) < tasks:
                return stretch, room
            stretch += 1
        return 0, room

    def _after(self, first: int, full: int, job: Job) -> int:
        """Where to begin next when a trial from `first` on found too little room in stretch `full`."""
        room = self.room(full)
        if self.pods(room, job.shape) < job.tasks:
            return full + 1
        while full - 1 > first:
            room = self.meet(room, self.room(full - 1))
            if self.pods(room, job.shape) < job.tasks:
                break
            full -= 1
        return full
