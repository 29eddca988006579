"""Jobs as they come on the days of a specification: equal specifications and seeds give equal jobs."""

from __future__ import annotations

import csv
import io
import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, TypeVar

from kbatch.resources import CPU, format_quantity
from kbatch.simulator.errors import Fault, InputError, Place
from kbatch.simulator.times import seconds_text
from kbatch.simulator.traces.cluster import UNLIMITED, Cluster
from kbatch.simulator.traces.day import HOURS_OF_A_DAY, DaySpec, EstimateSpec, KindSpec, RunSpec
from kbatch.simulator.traces.jobs import DIMENSIONS, Job, Shape, Trace
from kbatch.simulator.traces.tables import COLUMNS
from kbatch.times import HOUR, SECOND

MOST_JOBS: Final = 1_000_000
ROUND_ESTIMATES: Final = (
    60, 300, 600, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800, 345_600, 604_800,
)  # fmt: skip
"""The estimates that people give, in seconds."""
_NINE_OF_TEN: Final = 1.2815515655446004
"""How many standard deviations above the mean the normal distribution has nine tenths below it."""

_GRAIN: Final = SECOND // 100
"""Of the instants at which jobs come."""

Choice = TypeVar("Choice")


def cluster_of(spec: DaySpec) -> Cluster:
    """The nodes of a specification."""
    nodes = spec.nodes
    memory = UNLIMITED if nodes.memory is None else nodes.memory
    return Cluster([Shape(nodes.cpu, memory, nodes.gpu)] * nodes.count)


def generate(spec: DaySpec, seed: int | None = None, source: str = "") -> Trace:
    """Make the jobs of a specification, with its own seed unless another one is given. They are numbered from 1 as they
    come, and the load is passed by less than the last of them.

    Raises:
        InputError: a kind has jobs larger than the cluster, or more than `MOST_JOBS` would come.
    """
    cluster = cluster_of(spec)
    _check_sizes(spec, cluster, source)
    chance = random.Random(spec.seed if seed is None else seed)
    drawn: list[Job] = []
    span = spec.days * HOURS_OF_A_DAY * HOUR
    room = [cluster.total(at) * spec.load * span for at in range(len(DIMENSIONS))]
    asked = [0] * len(DIMENSIONS)
    while all(used < most for used, most in zip(asked, room, strict=True) if most):
        if len(drawn) == MOST_JOBS:
            raise InputError([Fault(Place(source), "load", f"takes more than {MOST_JOBS} jobs")])
        job = _job(chance, spec)
        drawn.append(job)
        for at, amount in enumerate(job.shape):
            asked[at] += job.tasks * amount * job.run
    arrivals = sorted(_arrivals(chance, spec, len(drawn)))
    for number, (job, submit) in enumerate(zip(drawn, arrivals, strict=True)):
        job.number, job.name, job.submit = number, str(number + 1), submit
    return Trace(drawn, weights={name: queue.weight for name, queue in spec.queues.items()})


def written(jobs: Iterable[Job]) -> Iterator[str]:
    """The jobs as a trace of the format `csv`, line by line: read again, they are the same."""
    yield ",".join(COLUMNS) + "\n"
    for job in jobs:
        line = io.StringIO()
        amounts = [format_quantity(name, amount) for name, amount in zip(DIMENSIONS, job.shape, strict=True)]
        times = [seconds_text(value) for value in (job.submit, job.run, job.estimate)]
        csv.writer(line, lineterminator="\n").writerow([*times, job.tasks, *amounts, job.queue, job.priority])
        yield line.getvalue()


def _check_sizes(spec: DaySpec, cluster: Cluster, source: str) -> None:
    """Whether the largest jobs of each kind fit the empty cluster."""
    for at, kind in enumerate(spec.kinds):
        most = max(tasks for tasks, rate in kind.tasks.items() if rate)
        if not cluster.takes(Job(0, "", 0, 1, 1, most, _shape(kind), "")):
            what = f"{most} tasks of {format_quantity(CPU, kind.cpu)} CPU"
            what += f", {format_quantity(DIMENSIONS[1], kind.memory)} of memory" if kind.memory else ""
            what += f", {kind.gpu} GPUs" if kind.gpu else ""
            raise InputError([Fault(Place(source), f"kinds[{at}].tasks", f"{what} do not fit the empty nodes")])


def _job(chance: random.Random, spec: DaySpec) -> Job:
    kind = _drawn(chance, {at: kind.arrivals for at, kind in enumerate(spec.kinds)})
    found = spec.kinds[kind]
    tasks = _drawn(chance, found.tasks)
    run = _run(chance, found.run)
    queues: Mapping[str, float] = found.queues or {name: queue.arrivals for name, queue in spec.queues.items()}
    estimate = _estimate(chance, found.estimate, run)
    return Job(
        number=0,
        name="",
        submit=0,
        run=run * SECOND,
        estimate=estimate * SECOND,
        tasks=tasks,
        shape=_shape(found),
        queue=_drawn(chance, queues),
        priority=_drawn(chance, found.priority),
    )


def _shape(kind: KindSpec) -> Shape:
    return Shape(kind.cpu, kind.memory, kind.gpu)


def _drawn(chance: random.Random, rates: Mapping[Choice, float]) -> Choice:
    """One of them, each as often as its rate says."""
    return chance.choices(tuple(rates), tuple(rates.values()))[0]


def _run(chance: random.Random, spec: RunSpec) -> int:
    """A run time, in whole seconds from 1 on."""
    middle = math.log(spec.median)
    length = chance.lognormvariate(middle, (math.log(spec.p90) - middle) / _NINE_OF_TEN)
    return max(1, round(min(max(length, spec.least), spec.most)))


def _estimate(chance: random.Random, spec: EstimateSpec, run: int) -> int:
    """What the owner says, in whole seconds from 1 on."""
    told = max(1, math.ceil(run * chance.uniform(spec.least, spec.most)))
    if not spec.round:
        return told
    return next((each for each in ROUND_ESTIMATES if each >= told), told)


def _arrivals(chance: random.Random, spec: DaySpec, count: int) -> Iterator[int]:
    """Instants in the span, in microseconds, in any order: as dense in each hour as `hours` says."""
    hours = math.ceil(spec.days * HOURS_OF_A_DAY)
    last = spec.days * HOURS_OF_A_DAY - (hours - 1)
    rates = [spec.hours[hour % HOURS_OF_A_DAY] * (last if hour == hours - 1 else 1.0) for hour in range(hours)]
    edges = list(accumulate(rates, initial=0.0))
    for _ in range(count):
        at = chance.uniform(0, edges[-1])
        hour = min(bisect_right(edges, at), hours) - 1
        width = last if hour == hours - 1 else 1.0
        part = (at - edges[hour]) / rates[hour] * width if rates[hour] else 0.0
        yield round((hour + part) * HOUR / _GRAIN) * _GRAIN
