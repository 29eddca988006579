"""The run of a trace: time goes from instant to instant, and at each the scheduler says once which jobs start."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import Final

from kbatch.choices import Backfill, PodShape, TracePolicy
from kbatch.simulator.traces.amounts import AmountTimeline
from kbatch.simulator.traces.check import BackfillCheck
from kbatch.simulator.traces.cluster import Cluster, one_pod_a_node
from kbatch.simulator.traces.conservative import ConservativeScheduler
from kbatch.simulator.traces.easy import ListScheduler
from kbatch.simulator.traces.jobs import DIMENSIONS, TOO_LARGE, Job, Trace, as_one_pod
from kbatch.simulator.traces.options import Options, Progress
from kbatch.simulator.traces.result import TraceResult
from kbatch.simulator.traces.scheduling import Scheduler, by_estimate, by_submission
from kbatch.simulator.traces.timeline import Timeline
from kbatch.simulator.traces.units import UnitTimeline
from kbatch.simulator.traces.usage import usage_of

CONSERVATIVE_DEPTH: Final = 1000
"""The most promises that are made at a time."""
_OFTEN: Final = 256
"""Instants between two words about how far the run is."""


def fit(trace: Trace, cluster: Cluster, shape: PodShape) -> None:
    """Give the jobs of a trace their shape, leave out those that are larger than the cluster, number the others."""
    jobs: list[Job] = []
    for job in trace.jobs:
        if shape is PodShape.RIGID:
            as_one_pod(job)
        if cluster.takes(job):
            job.number = len(jobs)
            jobs.append(job)
        else:
            trace.dropped[TOO_LARGE] += 1
    trace.jobs = jobs


def simulate(trace: Trace, cluster: Cluster, options: Options, progress: Progress | None = None) -> TraceResult:
    """Run the jobs of a trace; they keep what became of them."""
    fit(trace, cluster, options.shape)
    run = _Run(trace, cluster, options, progress)
    run.go()
    return run.result()


def timeline_of(cluster: Cluster, jobs: Sequence[Job]) -> Timeline:
    """An empty cluster, as these jobs see it."""
    return UnitTimeline(len(cluster.offers)) if one_pod_a_node(cluster, jobs) else AmountTimeline(cluster)


def scheduler_of(options: Options, timeline: Timeline) -> Scheduler:
    """Who decides."""
    order = by_estimate if options.policy is TracePolicy.SJF else by_submission
    if options.backfill is Backfill.CONSERVATIVE:
        return ConservativeScheduler(timeline, order, options.depth or CONSERVATIVE_DEPTH)
    return ListScheduler(timeline, order, 0 if options.backfill is Backfill.NONE else options.depth or 1)


class _Run:
    """One run; times in microseconds."""

    def __init__(self, trace: Trace, cluster: Cluster, options: Options, progress: Progress | None) -> None:
        self.trace, jobs = trace, trace.jobs
        self.jobs, self.cluster, self.options, self.progress = jobs, cluster, options, progress
        self.timeline = timeline_of(cluster, jobs)
        self.scheduler = scheduler_of(options, self.timeline)
        self.check = BackfillCheck(cluster, self.timeline, self.scheduler.order) if options.check else None
        self.usage = usage_of(jobs, cluster, trace.weights, slices=options.slices)
        self.ends: list[tuple[int, int]] = []
        self.arrivals = 0
        self.over = 0
        self.instants = 0
        self.pods = 0
        self.last = 0
        self.seconds = 0.0
        self.opened = bytearray(len(cluster.offers))

    def go(self) -> None:
        """Go from instant to instant until nothing is left to happen, or to the limit."""
        while (now := self._next()) is not None:
            if self.options.until is not None and now > self.options.until:
                self.last = self.options.until
                self.usage.passed(self.last)
                break
            self.usage.passed(now)
            ended, arrived = self._events(now)
            begin = time.perf_counter()
            started = self.scheduler.decide(now, ended, arrived)
            self.seconds += time.perf_counter() - begin
            self.instants += 1
            for job in started:
                self._start(job, now)
            if ended or arrived or started:
                self.last = now
            if self.check is not None:
                self.check.look(now, ended, started, self.scheduler.reservations())
            if self.progress is not None and self.instants % _OFTEN == 0:
                self.progress(now, self.instants, self.over / len(self.jobs))

    def _next(self) -> int | None:
        """The next instant at which anything happens, or the scheduler could decide otherwise by itself."""
        following = [] if (wake := self.scheduler.wake) is None else [wake]
        if self.ends:
            following.append(self.ends[0][0])
        if self.arrivals < len(self.jobs):
            following.append(self.jobs[self.arrivals].submit)
        return min(following, default=None)

    def _events(self, now: int) -> tuple[list[Job], list[Job]]:
        """Who ends, and who comes."""
        ended: list[Job] = []
        while self.ends and self.ends[0][0] <= now:
            job = self.jobs[heapq.heappop(self.ends)[1]]
            job.finish = now
            self.usage.ended(job)
            ended.append(job)
        self.over += len(ended)
        arrived: list[Job] = []
        while self.arrivals < len(self.jobs) and self.jobs[self.arrivals].submit <= now:
            job = self.jobs[self.arrivals]
            self.usage.came(job)
            arrived.append(job)
            self.arrivals += 1
        return ended, arrived

    def _start(self, job: Job, now: int) -> None:
        heapq.heappush(self.ends, (now + job.run, job.number))
        self.usage.started(job)
        self.pods += job.tasks
        runs = self.timeline.runs(job.place)
        for at in range(0, len(runs), 3):
            self.opened[runs[at] : runs[at] + runs[at + 1]] = b"\1" * runs[at + 1]
        if self.options.nodes:
            job.nodes = runs

    def result(self) -> TraceResult:
        """All that there is to say."""
        used = [dimension for dimension in range(len(DIMENSIONS)) if self.cluster.total(dimension)]
        return TraceResult(
            jobs=self.jobs,
            dropped=self.trace.dropped,
            cluster=self.cluster,
            usage=self.usage,
            dimensions=tuple(used),
            instants=self.instants,
            pods=self.pods,
            last=self.last,
            nodes_opened=sum(self.opened),
            engine_seconds=self.seconds,
            delays=tuple(self.check.delays) if self.check else (),
            backfilled=self.check.looked if self.check else None,
            cut=self.options.until is not None and any(job.finish is None for job in self.jobs),
        )
