"""Schedulers of traces: start by start and node by node what a plain reference comes to; and what they promise."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.choices import Backfill, TracePolicy
from kbatch.simulator.traces import run as run_module
from kbatch.simulator.traces.cluster import UNLIMITED, Cluster
from kbatch.simulator.traces.jobs import Job, Shape, Trace
from kbatch.simulator.traces.options import Options
from kbatch.simulator.traces.run import scheduler_of, simulate, timeline_of
from kbatch.simulator.traces.timeline import Timeline
from kbatch.times import SECOND
from tests.examples import examples
from tests.reference.traces import Plain, Work

pytestmark = pytest.mark.many


@dataclass(frozen=True)
class World:
    offers: tuple[tuple[int, int], ...]
    """Of each node CPUs and GPUs."""
    jobs: tuple[tuple[int, int, int, int, int, int], ...]
    """Of each job submission, run time, estimate, tasks, and CPUs and GPUs of each."""

    def trace(self) -> Trace:
        jobs = [
            Job(place, str(place), submit * SECOND, run * SECOND, estimate * SECOND, tasks, Shape(cpu, 0, gpu), "q")
            for place, (submit, run, estimate, tasks, cpu, gpu) in enumerate(self.jobs)
        ]
        return Trace(sorted(jobs, key=lambda job: job.submit))

    def cluster(self) -> Cluster:
        return Cluster([Shape(cpu, UNLIMITED, gpu) for cpu, gpu in self.offers])

    def works(self, trace: Trace) -> list[Work]:
        """The same jobs for the reference, of those that fit."""
        return [
            Work(
                int(job.name), job.submit, job.run, job.estimate, job.tasks, (job.shape.cpu, job.shape.gpu)
            )
            for job in trace.jobs
        ]  # fmt: skip


@st.composite
def worlds(draw: st.DrawFn, *, alone: bool, estimates: str = "any") -> World:
    """Small worlds; `alone`: each node takes one pod; `estimates`: "exact", "kept" (nobody runs longer) or "any"."""
    nodes = draw(st.integers(1, 6 if alone else 3))
    offers = [(1, 0) if alone else (draw(st.integers(1, 3)), draw(st.integers(0, 1))) for _ in range(nodes)]
    jobs = []
    for _ in range(draw(st.integers(1, 12))):
        run = draw(st.integers(1, 20))
        at_most = {"exact": run, "kept": 3 * run, "any": 3 * run}[estimates]
        estimate = draw(st.just(run) | st.integers(1 if estimates == "any" else run, at_most))
        cpu, gpu = (1, 0) if alone else (draw(st.integers(0, 2)), draw(st.integers(0, 1)))
        tasks = draw(st.integers(1, nodes))
        jobs.append((draw(st.integers(0, 25)), run, estimate, tasks, cpu, gpu))
    return World(tuple(offers), tuple(jobs))


WORLDS = worlds(alone=True) | worlds(alone=False)
KEPT = worlds(alone=True, estimates="kept") | worlds(alone=False, estimates="kept")
EXACT = worlds(alone=True, estimates="exact") | worlds(alone=False, estimates="exact")


def ran(world: World, options: Options) -> dict[int, tuple[int | None, list[int]]]:
    trace = world.trace()
    simulate(trace, world.cluster(), options)
    return {
        int(job.name): (
            job.start,
            [
                node
                for at in range(0, len(job.nodes), 3)
                for node in range(job.nodes[at], job.nodes[at] + job.nodes[at + 1])
                for _ in range(job.nodes[at + 2])
            ],
        )
        for job in trace.jobs
    }


def expected(world: World, options: Options) -> dict[int, tuple[int | None, list[int]]]:
    trace, cluster = world.trace(), world.cluster()
    trace.jobs = [job for job in trace.jobs if cluster.takes(job)]
    works = world.works(trace)
    Plain(world.offers, works, options.policy, options.backfill, options.depth).go()
    return {work.place: (work.start, work.nodes) for work in works}


@pytest.mark.parametrize("policy", [TracePolicy.FCFS, TracePolicy.SJF])
@pytest.mark.parametrize(
    ("backfill", "depth"),
    [
        (Backfill.NONE, None), (Backfill.EASY, None), (Backfill.EASY, 2), (Backfill.EASY, 4),
        (Backfill.CONSERVATIVE, None), (Backfill.CONSERVATIVE, 1), (Backfill.CONSERVATIVE, 3),
    ],
)  # fmt: skip
@given(world=WORLDS)
@settings(max_examples=examples(40))
def test_jobs_start_when_and_where_the_reference_starts_them(
    policy: TracePolicy, backfill: Backfill, depth: int | None, world: World
) -> None:
    options = Options(policy=policy, backfill=backfill, depth=depth, check=True)
    assert ran(world, options) == expected(world, options)


@given(
    world=worlds(alone=True),
    backfill=st.sampled_from(Backfill),
    policy=st.sampled_from([TracePolicy.FCFS, TracePolicy.SJF]),
)
@settings(max_examples=examples(30))
def test_nodes_of_one_pod_are_a_special_case_of_nodes_of_several(
    world: World, backfill: Backfill, policy: TracePolicy
) -> None:
    options = Options(policy=policy, backfill=backfill)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "one_pod_a_node", lambda cluster, jobs: False)
        slow = ran(world, options)
    assert ran(world, options) == slow


def crowded(seed: int) -> World:
    """Sixty jobs of many sizes on nine nodes, more than these can do for a while."""
    chance = Random(seed)
    submit, jobs = 0, []
    for _ in range(60):
        submit += chance.randint(0, 8)
        run = chance.randint(1, 40)
        estimate = chance.choice([run, run * chance.randint(1, 5), max(1, run // 2) if seed % 2 else run])
        jobs.append((submit, run, estimate, chance.choice([1, 1, 1, 2, 2, 3, 5, 8, 9]), 1, 0))
    return World(((1, 0),) * 9, tuple(jobs))


@pytest.mark.parametrize("policy", [TracePolicy.FCFS, TracePolicy.SJF])
@pytest.mark.parametrize("seed", range(4))
def test_crowded_worlds_come_out_the_same_without_short_cuts(seed: int, policy: TracePolicy) -> None:
    world = crowded(seed)
    options = Options(policy=policy, backfill=Backfill.CONSERVATIVE, depth=None if seed < 2 else 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "one_pod_a_node", lambda cluster, jobs: False)
        patch.setattr(Timeline, "_hole", lambda timeline, job, start, before: True)
        slow = ran(world, options)
    assert ran(world, options) == slow


def told(world: World, options: Options) -> list[tuple[int, dict[int, int]]]:
    """At each instant, when each job with a reservation is to start at the latest, by its place in the file."""
    found: list[tuple[int, dict[int, int]]] = []
    real = scheduler_of

    def watched(given: Options, timeline: object) -> object:
        scheduler = real(given, timeline)  # type: ignore[arg-type]
        decide = scheduler.decide

        def watching(now: int, ended: list[Job], arrived: list[Job]) -> list[Job]:
            started = decide(now, ended, arrived)
            reserved = {int(each.job.name): each.start for each in scheduler.reservations()}
            found.append((now, {int(job.name): now for job in started} | reserved))
            return started

        scheduler.decide = watching  # type: ignore[method-assign, assignment]
        return scheduler

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "scheduler_of", watched)
        simulate(world.trace(), world.cluster(), options)
    return found


@given(
    world=KEPT,
    policy=st.sampled_from([TracePolicy.FCFS, TracePolicy.SJF]),
)
@settings(max_examples=examples(40))
def test_where_estimates_hold_no_conservative_promise_is_ever_broken(world: World, policy: TracePolicy) -> None:
    latest: dict[int, int] = {}
    for now, reserved in told(world, Options(policy=policy, backfill=Backfill.CONSERVATIVE)):
        for place, start in reserved.items():
            assert start >= now
            assert start <= latest.get(place, start), f"job {place} was promised {latest[place]}"
            latest[place] = start


@given(world=KEPT, depth=st.integers(1, 3))
@settings(max_examples=examples(40))
def test_where_estimates_hold_easy_never_puts_off_the_first_of_the_queue(world: World, depth: int) -> None:
    first: tuple[int, int] | None = None
    for now, reserved in told(world, Options(backfill=Backfill.EASY, depth=depth)):
        if first is not None and first[0] in reserved:
            assert reserved[first[0]] <= first[1]
        waiting = [place for place, start in reserved.items() if start > now]
        first = None
        if waiting:
            order = sorted(waiting, key=lambda place: (world.jobs[place][0], place))
            first = order[0], reserved[order[0]]


@given(world=EXACT, data=st.data())
@settings(max_examples=examples(40))
def test_without_those_that_were_let_in_the_first_of_the_queue_starts_no_earlier(
    world: World, data: st.DataObject
) -> None:
    """Up to some instant the runs are the same; from then on the one lets nobody in before the first of the queue."""
    options = Options(backfill=Backfill.EASY)
    instants = told(world, options)
    now = data.draw(st.sampled_from([now for now, _ in instants]))
    waiting = {
        place: start for at, reserved in instants if at == now for place, start in reserved.items() if start > now
    }
    if not waiting:
        return
    first = min(waiting, key=lambda place: (world.jobs[place][0], place))
    with_others = ran(world, options)[first][0]
    late = [
        place
        for place, (start, _) in ran(world, options).items()
        if start is not None and start >= now and (world.jobs[place][0], place) > (world.jobs[first][0], first)
    ]
    fewer = World(world.offers, tuple(job for place, job in enumerate(world.jobs) if place not in late))
    place = first - sum(other < first for other in late)
    without = ran(fewer, options)[place][0]
    assert with_others is not None
    assert without is not None
    assert with_others <= without


@given(
    world=WORLDS,
    backfill=st.sampled_from([Backfill.EASY, Backfill.CONSERVATIVE]),
    policy=st.sampled_from([TracePolicy.FCFS, TracePolicy.SJF]),
    depth=st.sampled_from([None, 2]),
)
@settings(max_examples=examples(40))
def test_the_check_of_backfilling_finds_nothing_wrong(
    world: World, backfill: Backfill, policy: TracePolicy, depth: int | None
) -> None:
    options = Options(policy=policy, backfill=backfill, depth=depth, check=True)
    assert simulate(world.trace(), world.cluster(), options).delays == ()


def test_an_empty_trace_is_over_at_once() -> None:
    world = World(((1, 0),), ())
    result = simulate(world.trace(), world.cluster(), Options(slices=True))
    assert timeline_of(world.cluster(), []).times == [0]
    assert result.summary()["jobs"] == 0
