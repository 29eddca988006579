"""The timeline of nodes each of which takes one pod: a room is the set of free nodes, the bits of an integer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from kbatch.simulator.traces.jobs import Job, Shape
from kbatch.simulator.traces.timeline import Timeline


class UnitTimeline(Timeline):
    """Rooms and places are integers: bit n is node n."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._free = [(1 << nodes) - 1]
        self._counts = [nodes]
        self._in_vain: list[tuple[int, int, int, int]] = []
        """What was looked for in vain (`_before`) since anything came free: tasks, estimate, before which instant, and
        the last instant that stood in the way."""

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

    def sooner(self, job: Job, start: int, end: int, placed: int, freed: tuple[int, int]) -> tuple[int, int] | None:
        """As in general, but looked for where the promise stands: its nodes count as free from `start` on."""
        found = self._before(job, start, placed, freed[1])
        if found is None and freed[1] > start and freed[0] < end:
            found = self._lower(job, start, end, placed)
        return found

    def _before(self, job: Job, start: int, placed: int, before: int) -> tuple[int, int] | None:
        """The first instant before `start` and `before` from which on a job finds room.

        As in `earliest`, where a stretch that is too full ends a trial, the next one begins with the earliest stretch
        from which all up to that one would do.

        What was looked for in vain would be so for larger and longer jobs as well, unless their own places help.
        """
        times, rooms, counts, tasks = self.times, self._free, self._counts, job.tasks
        before = min(before, start)
        for less, shorter, limit, last_full in self._in_vain:
            if less <= tasks and shorter <= job.estimate and before <= limit and last_full < start:
                return None
        kept = bisect_left(times, start)
        first, last, latest = 0, bisect_left(times, before, 0, kept), 0
        while first < last:
            if counts[first] < tasks:
                first += 1
                continue
            room = rooms[first]
            goal = bisect_left(times, times[first] + job.estimate, first)
            full = 0
            for stretch in range(first + 1, goal):
                room &= rooms[stretch] if stretch < kept else rooms[stretch] | placed
                if room.bit_count() < tasks:
                    full = stretch
                    break
            if not full:
                return times[first], self.lowest(room, job)
            latest = max(latest, full)
            if full >= kept:
                room = rooms[full] | placed
            elif counts[full] < tasks:
                first = full + 1
                continue
            else:
                room = rooms[full]
            first += 1
            while full > first:
                room &= rooms[full - 1] if full - 1 < kept else rooms[full - 1] | placed
                if room.bit_count() < tasks:
                    break
                full -= 1
            first = full
        self._in_vain.append((tasks, job.estimate, before, times[latest]))
        return None

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
        if free:
            self._in_vain.clear()
        for stretch in range(first, last):
            rooms[stretch] = room = rooms[stretch] | placed if free else rooms[stretch] & ~placed
            counts[stretch] = room.bit_count()

    def _insert(self, stretch: int) -> None:
        self._free.insert(stretch, self._free[stretch - 1])
        self._counts.insert(stretch, self._counts[stretch - 1])

    def _remove(self, first: int, last: int) -> None:
        del self._free[first:last]
        del self._counts[first:last]

    def _alike(self, one: int, other: int) -> bool:
        return self._free[one] == self._free[other]
