"""The simulator's own check: no job that was let in before others delays what is reserved for these.

It takes nothing over from the schedulers' timeline but where jobs stand and what is reserved. Node by node it adds up
who is expected to be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kbatch.simulator.traces.cluster import Cluster
from kbatch.simulator.traces.jobs import DIMENSIONS, Job
from kbatch.simulator.traces.scheduling import Order, Reservation
from kbatch.simulator.traces.timeline import Timeline
from kbatch.times import SECOND


@dataclass(frozen=True, slots=True)
class Delay:
    """Jobs that started at an instant take room from under a reservation of one that comes before them."""

    now: int
    started: tuple[str, ...]
    reserved: str
    start: int

    def __str__(self) -> str:
        return (
            f"at {self.now / SECOND:g} s job {', '.join(self.started)} was backfilled before job {self.reserved}, which"
            f" therefore cannot start at {self.start / SECOND:g} s"
        )


@dataclass(frozen=True, slots=True)
class _Stay:
    """Somebody is expected on a node from one instant to another."""

    begin: int
    end: int
    takes: tuple[int, ...]
    job: Job


@dataclass(slots=True)
class BackfillCheck:
    """`looked` counts jobs that were let in before others."""

    cluster: Cluster
    timeline: Timeline
    order: Order
    looked: int = 0
    delays: list[Delay] = field(default_factory=list)
    _running: dict[int, Job] = field(default_factory=dict)

    def look(self, now: int, ended: Sequence[Job], started: Sequence[Job], reservations: Sequence[Reservation]) -> None:
        """After a decision: who ended and started, and what is reserved now, in the order of the queue."""
        for job in ended:
            del self._running[job.number]
        self._running |= {job.number: job for job in started}
        if not reservations:
            return
        first = self.order(reservations[0].job)
        ahead = [job for job in started if self.order(job) > first]
        self.looked += len(ahead)
        if ahead:
            self.delays += self._delays(now, ahead, reservations)

    def _delays(self, now: int, ahead: list[Job], reservations: Sequence[Reservation]) -> Iterator[Delay]:
        stays: dict[int, list[_Stay]] = {}
        for job in self._running.values():
            self._put(stays, now, job.until, job, job.place)
        for each in reservations:
            self._put(stays, each.start, each.start + each.job.estimate, each.job, each.placed)
        let_in = {job.number for job in ahead}
        for each in reservations:
            culprits = {
                stay.job.number: stay.job.name
                for node, _ in self._nodes(each.placed)
                for stay in self._too_many(node, stays[node], each)
                if stay.job.number in let_in and self.order(stay.job) > self.order(each.job)
            }
            if culprits:
                yield Delay(now, tuple(culprits.values()), each.job.name, each.start)

    def _put(self, stays: dict[int, list[_Stay]], begin: int, end: int, job: Job, placed: object) -> None:
        for node, pods in self._nodes(placed):
            takes = tuple(amount * pods for amount in job.shape)
            stays.setdefault(node, []).append(_Stay(begin, end, takes, job))

    def _nodes(self, placed: object) -> Iterator[tuple[int, int]]:
        runs = self.timeline.runs(placed)
        for at in range(0, len(runs), 3):
            first, count, pods = runs[at : at + 3]
            for node in range(first, first + count):
                yield node, pods

    def _too_many(self, node: int, stays: list[_Stay], reserved: Reservation) -> Iterator[_Stay]:
        """Who is on a node, at some time of a reservation, when more is taken than it offers."""
        begin, end = reserved.start, reserved.start + reserved.job.estimate
        for instant in {begin, *(stay.begin for stay in stays if begin < stay.begin < end)}:
            there = [stay for stay in stays if stay.begin <= instant < stay.end]
            for at in range(len(DIMENSIONS)):
                if sum(stay.takes[at] for stay in there) > self.cluster.offers[node][at]:
                    yield from there
                    break
