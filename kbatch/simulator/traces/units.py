"""The timeline of nodes each of which takes one pod: a room is the set of free nodes, the bits of an integer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from kbatch.simulator.traces.freed import FAR, News
from kbatch.simulator.traces.jobs import Job, Shape
from kbatch.simulator.traces.timeline import Timeline

_AT_ONCE: Final = 8
"""Stretches of a trial after which its room is counted: any that is too full does to go on from."""
_MANY: Final = 16
"""So many vain searches are remembered before any is forgotten."""


class UnitTimeline(Timeline):
    """Rooms and places are integers: bit n is node n."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._free = [(1 << nodes) - 1]
        self._counts = [nodes]
        self._in_vain: list[tuple[int, int, int, int]] = []
        """What was looked for in vain (`_before`): tasks, estimate, before which instant, and the last instant that was
        in the way of any trial. It stays so until something comes free before one of these.
        """

    def room(self, stretch: int) -> int:
        """What is free in a stretch."""
        return self._free[stretch]

    def meet(self, one: int, other: int) -> int:
        """What is free in both."""
        return one & other

    def pods(self, room: int, shape: Shape) -> int:
        """How many nodes are free."""
        return room.bit_count()

    def lowest(self, room: int, job: Job) -> int:
        """The lowest nodes, one for each pod: bisection by the number of bits below a node."""
        tasks = job.tasks
        low, high = tasks, room.bit_length()
        while low < high:
            middle = (low + high) >> 1
            if (room & ((1 << middle) - 1)).bit_count() < tasks:
                low = middle + 1
            else:
                high = middle
        return room & ((1 << low) - 1)

    def levels(self, shape: Shape) -> Sequence[int]:
        """How many nodes are free in each stretch."""
        return self._counts

    def runs(self, placed: int) -> tuple[int, ...]:
        """Nodes that follow one another, one pod on each."""
        found: list[int] = []
        node = 0
        while placed:
            gap = (placed & -placed).bit_length() - 1
            placed >>= gap
            length = (~placed & (placed + 1)).bit_length() - 1
            placed >>= length
            found += (node + gap, length, 1)
            node += gap + length
        return tuple(found)

    def same(self, one: int, other: int) -> bool:
        """Whether these are the same nodes."""
        return one == other

    def overlap(self, one: int, other: int) -> bool:
        """Whether any node is in both."""
        return (one & other) != 0

    def open(self, begin: int, end: int, placed: int) -> bool:
        """Whether these very nodes are free all the time."""
        stretches = range(self.index(begin), self.index(end - 1) + 1)
        return all(self._free[stretch] & placed == placed for stretch in stretches)

    def freed(self, begin: int, end: int, placed: int) -> News:
        """What it is worth that these nodes came free: how far around it any of them is free as well."""
        times, rooms = self.times, self._free
        first, last = self.index(begin), self.index(end - 1) + 1
        free = placed
        while last < len(times) and (free := free & rooms[last]):
            last += 1
        free = placed
        while first and (free := free & rooms[first - 1]):
            first -= 1
        until = times[last] if last < len(times) else FAR
        return News(begin, end, times[first], until, until - times[first], placed)

    def sooner(self, job: Job, start: int, end: int, placed: int, news: News) -> tuple[int, int] | None:
        """As in general, but looked for where the promise stands: its nodes count as free from `start` on.

        A node that is of use now and was not when the promise was made came free since, and is free for as long as the
        job says to run; but for the promise's own nodes, which may be free before it for a shorter time.
        """
        fits = job.estimate <= news.longest
        if not fits and not placed & news.nodes:
            return None
        before = min(start, news.end)
        if not placed & news.nodes:
            before = min(before, news.until - job.estimate + 1)
        found = self._before(job, start, placed, before, news.since)
        if found is None and fits and news.end > start and news.begin < end:
            found = self._lower(job, start, end, placed)
        return found

    def _before(self, job: Job, start: int, placed: int, before: int, since: int) -> tuple[int, int] | None:
        """The first instant before `before` (not after `start`) from which on a job finds room; none before `since`.

        As in `earliest`, where a stretch that is too full ends a trial, the next one begins with the earliest stretch
        from which all up to that one would do.

        What was looked for in vain would be so for larger and longer jobs as well, unless their own places help.
        So these begin where that ended.
        """
        times, rooms, counts, tasks = self.times, self._free, self._counts, job.tasks
        latest, whole = 0, since <= times[0]
        for less, shorter, limit, in_the_way in self._in_vain:
            if limit > since and less <= tasks and shorter <= job.estimate and in_the_way < start:
                since, latest = limit, in_the_way
        if since >= before:
            return None
        kept = bisect_left(times, start)
        first, last = bisect_left(times, since), bisect_left(times, before, 0, kept)
        while first < last:
            if counts[first] < tasks:
                first += 1
                continue
            goal = bisect_left(times, times[first] + job.estimate, first)
            most = min(goal, kept)
            if min(counts[first:most]) < tasks:  # a third of the time of a trial of nodes, and the usual end of one
                most -= 1
                while counts[most] >= tasks:
                    most -= 1
                latest = max(latest, times[most])
                first = most + 1
                continue
            full, room = self._filled(first, goal, kept, placed, tasks)
            if not full:
                return times[first], self.lowest(room, job)
            latest = max(latest, times[full])
            room = rooms[full] if full < kept else rooms[full] | placed
            first += 1
            while full > first:
                room &= rooms[full - 1] if full - 1 < kept else rooms[full - 1] | placed
                if room.bit_count() < tasks:
                    break
                full -= 1
            first = full
        if whole:
            self._remember(tasks, job.estimate, before, latest)
        return None

    def _filled(self, first: int, goal: int, kept: int, placed: int, tasks: int) -> tuple[int, int]:
        """A stretch at which a trial of stretches up to `goal` has found too little room, 0: none; and that room.

        From stretch `kept` on the nodes `placed` count as free.
        """
        rooms = self._free
        room = rooms[first]
        for begin in range(first + 1, goal, _AT_ONCE):
            end = min(begin + _AT_ONCE, goal)
            for other in rooms[begin : min(end, kept)]:
                room &= other
            if end > kept:
                for other in rooms[max(begin, kept) : end]:
                    room &= other | placed
            if room.bit_count() < tasks:
                return end - 1, room
        return 0, room

    def _remember(self, tasks: int, estimate: int, before: int, in_the_way: int) -> None:
        """A job of this size found nothing; what this says more of is forgotten."""
        if len(self._in_vain) > _MANY:
            self._in_vain = [
                each
                for each in self._in_vain
                if each[0] < tasks or each[1] < estimate or each[2] > before or each[3] < in_the_way
            ]
        self._in_vain.append((tasks, estimate, before, in_the_way))

    def _lower(self, job: Job, start: int, end: int, placed: int) -> tuple[int, int] | None:
        """The same instant with lower nodes, if any below the highest is free all the time."""
        room = ((1 << placed.bit_length()) - 1) & ~placed
        for stretch in range(self.index(start), self.index(end - 1) + 1):
            room &= self._free[stretch]
            if not room:
                return None
        return start, self.lowest(room | placed, job)

    def _change(self, first: int, last: int, placed: int, *, free: bool) -> None:
        rooms, counts = self._free, self._counts
        if free and self._in_vain:
            begin = self.times[first]
            self._in_vain = [each for each in self._in_vain if each[2] <= begin and each[3] < begin]
        change = placed.bit_count() if free else -placed.bit_count()
        for stretch in range(first, last):
            rooms[stretch] ^= placed  # all of it is taken, or none
            counts[stretch] += change

    def _insert(self, stretch: int) -> None:
        self._free.insert(stretch, self._free[stretch - 1])
        self._counts.insert(stretch, self._counts[stretch - 1])

    def _remove(self, first: int, last: int) -> None:
        del self._free[first:last]
        del self._counts[first:last]

    def _alike(self, one: int, other: int) -> bool:
        return self._free[one] == self._free[other]
