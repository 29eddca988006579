from __future__ import annotations

import json

from kbatch.api.configuration import DEFAULT, DEFAULT_TEXT, parse
from kbatch.engine import build_policy
from kbatch.simulator.traces.cluster import Cluster, numbered
from kbatch.simulator.traces.engine import simulate_by_engine
from kbatch.simulator.traces.jobs import ONE_CPU, Job, Shape, Trace
from kbatch.simulator.traces.options import Options
from kbatch.simulator.traces.result import TraceResult
from kbatch.times import SECOND


def job(
    name: str, submit: int, run: int, tasks: int, queue: str = "a", priority: int = 0, shape: Shape = ONE_CPU
) -> Job:
    return Job(0, name, submit * SECOND, run * SECOND, run * SECOND, tasks, shape, queue, priority)


def ran(jobs: list[Job], cluster: Cluster, options: Options | None = None) -> TraceResult:
    return simulate_by_engine(Trace(jobs), cluster, options or Options(), build_policy(DEFAULT))


def test_jobs_are_gangs_that_wait_for_each_other() -> None:
    cluster = Cluster([Shape(2000, 2**40, 0), Shape(2000, 2**40, 1)], ["x", "y"])
    jobs = [
        job("1", 0, 10, 4), job("2", 5, 10, 1, shape=Shape(500, 2**30, 1)), job("3", 6, 2, 5), job("4", 8, 1, 3)
    ]  # fmt: skip
    result = ran(jobs, cluster)
    assert result.dropped["too_large"] == 1
    found = json.loads(b"".join(result.encode()))
    assert found["jobs"]["1"] == {"submit": 0.0, "start": 0.0, "finish": 10.0, "nodes": ["x", "x", "y", "y"]}
    assert found["jobs"]["2"] == {"submit": 5.0, "start": 10.0, "finish": 20.0, "nodes": ["y"]}
    assert found["jobs"]["4"]["start"] == 10.0
    assert found["summary"]["utilisation"] == {
        "cpu": round((40 + 5 + 3) / 80, 6), "memory": round(10 / 2048 / 20, 6), "nvidia.com/gpu": 0.5
    }  # fmt: skip
    assert found["podgroups"]["default/job-0"]["phase"] == "Completed"
    assert set(found["queues"]) == {"a", "default"}


def test_evicted_jobs_start_again_and_what_they_had_run_is_wasted() -> None:
    # The second has the higher priority; the first is gone after a second, and runs for its 100 from 21 on.
    jobs = [job("1", 0, 100, 4), job("2", 10, 10, 4, priority=5)]
    result = ran(jobs, numbered(2, 2000, 0))
    summary = result.summary()
    assert [(each.start, each.finish) for each in jobs] == [(0, 121 * SECOND), (11 * SECOND, 21 * SECOND)]
    assert (summary["evictions"], summary["wasted_seconds"]) == (4, 44.0)
    assert summary["mean_bounded_slowdown"] == round((121 / 100 + 11 / 10) / 2, 6)
    assert summary["utilisation"] == {"cpu": round((44 + 400 + 40) / (4 * 121), 6)}


def test_what_has_not_started_when_the_clock_stops_has_no_times() -> None:
    jobs = [job("1", 0, 100, 4), job("2", 10, 10, 4)]
    result = ran(jobs, numbered(4, 1000, 0), Options(until=50 * SECOND, nodes=False, slices=True))
    assert [(each.start, each.finish, each.nodes) for each in jobs] == [(0, None, ()), (None, None, ())]
    assert result.cut


def test_the_start_of_the_first_that_waits_is_planned_though_one_in_queue_starts_just_then() -> None:
    """`second` is in queue and starts at 17, and at 25 `third` does: the next in order is `wide`, which is in queue by
    then, so that `long` does not start before it.
    """
    plain = '"enqueue, reclaim, allocate, backfill, preempt"'
    assert plain in DEFAULT_TEXT
    text = DEFAULT_TEXT.replace(
        plain, "[enqueue, reclaim, allocate, {name: backfill, arguments: {mode: easy}}, preempt]"
    )
    told = [("first", 7, 10, 2), ("second", 10, 8, 2), ("third", 12, 16, 1), ("wide", 15, 17, 2), ("long", 17, 1000, 1)]
    jobs = [job(name, at, run, 1, shape=Shape(cpu * 1000, 0, 0)) for name, at, run, cpu in told]
    result = simulate_by_engine(
        Trace(jobs), Cluster([Shape(2000, 2**40, 0)]), Options(), build_policy(parse(text, "easy.yaml"))
    )
    found = json.loads(b"".join(result.encode()))["jobs"]
    starts = {name: found[name]["start"] for name, *_ in told}
    assert starts == {"first": 7.0, "second": 17.0, "third": 25.0, "wide": 41.0, "long": 58.0}
