"""Traces as the pages say it, word by word and without any haste: what `kbatch.simulator.traces` must come to.

Everything is looked up anew at every instant in plain lists: who is on which node from when to when. Times are whole
numbers of any unit, estimates multiples of ten of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

Amounts: TypeAlias = tuple[int, ...]


@dataclass(eq=False)
class Work:
    """A job; `nodes` has one entry for each pod."""

    place: int
    submit: int
    run: int
    estimate: int
    tasks: int
    shape: Amounts
    start: int | None = None
    nodes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Stay:
    """Pods of a shape stand on nodes (one entry each) from an instant up to another."""

    begin: Fraction
    end: Fraction
    nodes: tuple[int, ...]
    shape: Amounts


@dataclass(frozen=True)
class Promise:
    start: Fraction
    nodes: tuple[int, ...]

    def stay(self, job: Work) -> Stay:
        return Stay(self.start, self.start + job.estimate, self.nodes, job.shape)


FOR_EVER = Fraction(10**15)


def expected_end(job: Work, now: Fraction) -> Fraction:
    assert job.start is not None
    k = 0
    while job.start + job.estimate * (1 + Fraction(k, 10)) <= now:
        k += 1
    return job.start + job.estimate * (1 + Fraction(k, 10))


def free(offers: Sequence[Amounts], node: int, instant: Fraction, stays: Iterable[Stay]) -> Amounts:
    left = list(offers[node])
    for stay in stays:
        if stay.begin <= instant < stay.end:
            for one in stay.nodes:
                if one == node:
                    left = [have - want for have, want in zip(left, stay.shape, strict=True)]
    return tuple(left)


def fits(offers: Sequence[Amounts], job: Work, start: Fraction, stays: list[Stay]) -> tuple[int, ...] | None:
    """The lowest nodes on which the job finds room from an instant on for as long as its estimate says."""
    end = start + job.estimate
    instants = [start] + [stay.begin for stay in stays if start < stay.begin < end]
    found: list[int] = []
    for node in range(len(offers)):
        rooms = [free(offers, node, instant, stays) for instant in instants]
        count = 0
        while len(found) < job.tasks and all(
            have >= want * (count + 1) for room in rooms for have, want in zip(room, job.shape, strict=True) if want
        ):
            count += 1
            found.append(node)
    return tuple(found) if len(found) == job.tasks else None


def earliest(offers: Sequence[Amounts], job: Work, now: Fraction, stays: list[Stay]) -> Promise:
    for instant in sorted({now, *(stay.end for stay in stays if stay.end > now)}):
        nodes = fits(offers, job, instant, stays)
        if nodes is not None:
            return Promise(instant, nodes)
    raise AssertionError("larger than the cluster")


class Plain:
    """One run; the jobs hold what came of it."""

    def __init__(
        self, offers: Sequence[Amounts], jobs: Sequence[Work], policy: str, backfill: str, depth: int | None
    ) -> None:
        self.offers, self.jobs = offers, jobs
        self.policy, self.backfill = policy, backfill
        self.depth = depth or {"none": 0, "easy": 1, "conservative": 1000}[backfill]
        self.queue: list[Work] = []
        self.running: list[Work] = []
        self.promises: dict[Work, Promise] = {}
        self.alone = all(
            2 * job.shape[0] > offer[0] and all(want <= have for want, have in zip(job.shape, offer, strict=True))
            for job in jobs
            for offer in offers
        )
        """Every node takes one pod of any job."""

    def ordered(self, jobs: Iterable[Work]) -> list[Work]:
        if self.policy == "sjf":
            return sorted(jobs, key=lambda job: (job.estimate, job.submit, job.place))
        return sorted(jobs, key=lambda job: (job.submit, job.place))

    def go(self) -> None:
        to_come = sorted(self.jobs, key=lambda job: (job.submit, job.place))
        ends: list[tuple[int, int, Work]] = []
        now = Fraction(-1)
        while True:
            instants = [Fraction(job.submit) for job in to_come] + [Fraction(end) for end, _, _ in ends]
            if self.queue and self.backfill != "none":
                instants += [expected_end(job, now) for job in self.running]
                instants += [promise.start for promise in self.promises.values()]
            instants = [instant for instant in instants if instant > now]
            if not instants:
                return
            now = min(instants)
            ended = [job for end, _, job in ends if end == now]
            ends = [each for each in ends if each[0] != now]
            self.running = [job for job in self.running if job not in ended]
            arrived = [job for job in to_come if job.submit == now]
            to_come = [job for job in to_come if job.submit != now]
            before = list(self.running)
            if self.backfill == "conservative":
                self.conservative(now, bool(ended), arrived)
            else:
                self.queue += arrived
                self.list_scheduling(now)
            for job in self.running:
                if job not in before:
                    ends.append((int(now) + job.run, job.place, job))

    def start(self, job: Work, now: Fraction, nodes: Sequence[int]) -> None:
        assert now.denominator == 1
        job.start, job.nodes = int(now), list(nodes)
        self.queue.remove(job)
        self.running.append(job)

    def stays(self, now: Fraction) -> list[Stay]:
        """Those that run, until they are expected to end; without backfilling nobody asks when that is."""
        return [
            Stay(now, FOR_EVER if self.backfill == "none" else expected_end(job, now), tuple(job.nodes), job.shape)
            for job in self.running
        ]

    # --- none and easy ------------------------------------------------------------------------------------------------

    def list_scheduling(self, now: Fraction) -> None:
        reserved: list[tuple[Work, Promise]] = []
        blocked = False
        for job in self.ordered(self.queue):
            stays = self.stays(now)
            if blocked and self.depth == 0:
                return
            nodes = self.let_in(job, now, stays, reserved)
            if nodes is not None:
                self.start(job, now, nodes)
                continue
            blocked = True
            if len(reserved) < self.depth:
                claims = stays + [promise.stay(other) for other, promise in reserved]
                reserved.append((job, earliest(self.offers, job, now, claims)))

    def let_in(
        self, job: Work, now: Fraction, stays: list[Stay], reserved: list[tuple[Work, Promise]]
    ) -> tuple[int, ...] | None:
        """Where a job may start now. Gone in time: the lowest free nodes, reserved or not; else those not reserved."""
        if self.alone:
            kept = {node for _, promise in reserved for node in promise.nodes if now + job.estimate > promise.start}
            held = {node for stay in stays for node in stay.nodes}
            found = [node for node in range(len(self.offers)) if node not in kept | held][: job.tasks]
            return tuple(found) if len(found) == job.tasks else None
        return fits(self.offers, job, now, stays + [promise.stay(other) for other, promise in reserved])

    # --- conservative -------------------------------------------------------------------------------------------------

    def claims(self, now: Fraction, but: Work | None = None) -> list[Stay]:
        return self.stays(now) + [promise.stay(job) for job, promise in self.promises.items() if job is not but]

    def conservative(self, now: Fraction, ended: bool, arrived: list[Work]) -> None:
        self.make_way(now)
        if ended:
            for job in self.ordered(self.promises):
                self.promises[job] = earliest(self.offers, job, now, self.claims(now, but=job))
        for job in self.ordered(self.promises):
            if self.promises[job].start <= now:
                self.start(job, now, self.promises.pop(job).nodes)
        self.queue += arrived
        for job in self.ordered(self.queue):
            if job in self.promises:
                continue
            promise = earliest(self.offers, job, now, self.claims(now))
            if promise.start == now:
                self.start(job, now, promise.nodes)
            elif len(self.promises) < self.depth:
                self.promises[job] = promise

    def make_way(self, now: Fraction) -> None:
        """In order, a promise that cannot be kept beside those that run and those before it is made again."""
        before = self.stays(now)
        for job in self.ordered(self.promises):
            mine = self.promises[job].stay(job)
            claims = [*before, mine]
            instants = [mine.begin] + [stay.begin for stay in claims if mine.begin < stay.begin < mine.end]
            left = [free(self.offers, node, instant, claims) for node in set(mine.nodes) for instant in instants]
            if any(amount < 0 for amounts in left for amount in amounts):
                self.promises[job] = earliest(self.offers, job, now, before)
            before.append(self.promises[job].stay(job))
