from __future__ import annotations

import io
import json
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from kbatch.choices import Backfill
from kbatch.simulator.traces.cluster import Cluster, numbered
from kbatch.simulator.traces.jobs import ONE_CPU, Job, Shape, Trace
from kbatch.simulator.traces.options import Options
from kbatch.simulator.traces.plot import MOST_QUEUES, draw
from kbatch.simulator.traces.result import TraceResult, total_wait
from kbatch.simulator.traces.run import simulate
from kbatch.simulator.traces.usage import SLICES, Slices
from kbatch.times import SECOND


def job(name: str, submit: int, run: int, tasks: int, queue: str = "q", shape: Shape = ONE_CPU) -> Job:
    return Job(0, name, submit * SECOND, run * SECOND, run * SECOND, tasks, shape, queue)


def result(
    jobs: list[Job], nodes: int = 4, options: Options | None = None, cluster: Cluster | None = None
) -> TraceResult:
    return simulate(Trace(jobs), cluster or numbered(nodes, 1000, 0), options or Options())


def json_of(found: TraceResult) -> dict[str, object]:
    return dict(json.loads(b"".join(found.encode())))


def test_the_output_has_jobs_and_the_rest_of_the_simulators_without_cycles_and_pods() -> None:
    found = json_of(result([job("a", 5, 10, 4), job("b", 6, 2, 2), job("c", 6, 2, 5)]))
    assert list(found) == ["jobs", "podgroups", "queues", "summary"]
    assert found["jobs"] == {
        "a": {"submit": 5.0, "start": 5.0, "finish": 15.0, "nodes": [0, 1, 2, 3]},
        "b": {"submit": 6.0, "start": 15.0, "finish": 17.0, "nodes": [0, 1]},
    }
    assert found["queues"] == {"q": {"deserved": {"cpu": "0"}, "allocated": {"cpu": "0"}, "share": 0.0}}


def test_what_the_summary_says() -> None:
    # Waits 0, 9 and 8 s; in use 40 + 4 + 4 of 14 s times 4 CPUs.
    summary = result([job("a", 5, 10, 4), job("b", 6, 2, 2), job("c", 7, 4, 1), job("d", 6, 2, 5)]).summary()
    assert {name: summary[name] for name in ("jobs", "started", "cycles", "binds", "evictions", "wasted_seconds")} == {
        "jobs": 3, "started": 3, "cycles": 6, "binds": 7, "evictions": 0, "wasted_seconds": 0.0
    }  # fmt: skip
    assert summary["dropped"]["too_large"] == 1
    assert [summary[f"{name}_wait"] for name in ("mean", "median", "p99", "max")] == [5.666667, 8.0, 9.0, 9.0]
    assert [summary[f"{name}_total_wait"] for name in ("mean", "max")] == [5.666667, 9.0], "nobody is evicted"
    assert summary["mean_bounded_slowdown"] == round((1 + 1.1 + 1.2) / 3, 6)
    assert summary["utilisation"] == {"cpu": round(48 / 56, 6)}
    assert (summary["makespan"], summary["nodes_opened"]) == (19.0, 4)


def test_nodes_are_called_by_their_names_once_for_each_pod() -> None:
    cluster = Cluster([Shape(2000, 100, 0), Shape(2000, 100, 0)], ["a", "b"])
    found = json_of(result([job("j", 0, 1, 3)], cluster=cluster))
    assert found["jobs"] == {"j": {"submit": 0.0, "start": 0.0, "finish": 1.0, "nodes": ["a", "a", "b"]}}


def test_nodes_are_left_out_where_nobody_asked() -> None:
    found = json_of(result([job("j", 0, 1, 3)], options=Options(nodes=False)))
    assert found["jobs"] == {"j": {"submit": 0.0, "start": 0.0, "finish": 1.0}}


def test_a_job_that_never_starts_has_null() -> None:
    found = json_of(result([job("a", 0, 9, 4), job("b", 1, 1, 1)], options=Options(until=5 * SECOND)))
    assert found["jobs"] == {
        "a": {"submit": 0.0, "start": 0.0, "finish": None, "nodes": [0, 1, 2, 3]},
        "b": {"submit": 1.0, "start": None, "finish": None},
    }
    assert found["queues"] == {"q": {"deserved": {"cpu": "4"}, "allocated": {"cpu": "4"}, "share": 1.0}}


def test_a_job_that_was_evicted_waited_again() -> None:
    """One ran for 3 s before it was evicted, and ends at 50 s. At 60 s another runs, and another has not started."""
    evicted, runs, waits = job("a", 0, 10, 1), job("b", 0, 30, 1), job("c", 20, 5, 1)
    evicted.start, evicted.finish, evicted.lost, runs.start = 0, 50 * SECOND, 3 * SECOND, 40 * SECOND
    assert [total_wait(each, 60 * SECOND) // SECOND for each in (evicted, runs, waits)] == [37, 40, 40]


def test_p99_is_the_wait_that_99_of_100_do_not_exceed() -> None:
    # One at a time, a second each: the waits are 0 to 99 s.
    jobs = [job(str(at), 0, 1, 1) for at in range(100)]
    summary = result(jobs, nodes=1).summary()
    assert (summary["p99_wait"], summary["median_wait"], summary["max_wait"]) == (98.0, 49.5, 99.0)


def test_shares_of_queues_that_hold_what_they_deserve() -> None:
    summary = result([job("a", 0, 10, 2, "x"), job("b", 0, 10, 2, "y")]).summary()
    assert (summary["jain_index"], summary["greatest_lag"]) == (1.0, 0.0)


def test_shares_of_queues_of_which_one_waits_for_the_other() -> None:
    # From 1 to 10 the second deserves half of the cluster and has none; from 10 to 20 it has all that it asks for.
    summary = result([job("a", 0, 10, 4, "x"), job("b", 1, 10, 4, "y")]).summary()
    x = (40 + 0) / (4 * 1 + 2 * 9)
    y = 40 / (2 * 9 + 4 * 10)
    assert summary["greatest_lag"] == 0.5
    assert summary["jain_index"] == pytest.approx((x + y) ** 2 / (2 * (x * x + y * y)), abs=1e-6)


def test_where_jobs_ask_for_gpus_shares_are_of_these() -> None:
    found = result([job("a", 0, 10, 1, "x", Shape(1000, 0, 2))], cluster=numbered(2, 4000, 2))
    assert found.summary()["utilisation"] == {"cpu": 0.125, "nvidia.com/gpu": 0.5}
    assert json_of(found)["queues"] == {
        "x": {"deserved": {"nvidia.com/gpu": "0"}, "allocated": {"nvidia.com/gpu": "0"}, "share": 0.0}
    }


def test_one_gpu_is_deserved_by_all_queues_alike() -> None:
    # Until 10 each deserves half of it, whatever their names; then the second has all that it asks for.
    gpu = Shape(1000, 0, 1)
    options = Options(until=5 * SECOND)
    for first, second in ("xy", "yx"):
        jobs = [job("a", 0, 10, 1, first, gpu), job("b", 0, 10, 1, second, gpu)]
        summary = result(jobs, cluster=numbered(1, 2000, 1)).summary()
        x, y = 10 / 5, 10 / 15
        assert summary["greatest_lag"] == 0.5
        assert summary["jain_index"] == pytest.approx((x + y) ** 2 / (2 * (x * x + y * y)), abs=1e-6)
        jobs = [job("a", 0, 10, 1, first, gpu), job("b", 0, 10, 1, second, gpu)]
        assert json_of(result(jobs, options=options, cluster=numbered(1, 2000, 1)))["queues"] == {
            first: {"deserved": {"nvidia.com/gpu": "500m"}, "allocated": {"nvidia.com/gpu": "1"}, "share": 2.0},
            second: {"deserved": {"nvidia.com/gpu": "500m"}, "allocated": {"nvidia.com/gpu": "0"}, "share": 0.0},
        }


def test_slices_keep_the_integral_and_a_bounded_number() -> None:
    slices = Slices(7, 2)
    now, total = 7, 0
    for step in range(1, 400):
        slices.add(now, now + step * step, (step, 1))
        now, total = now + step * step, total + step**3
    assert len(slices.sums[0]) <= SLICES
    assert sum(slices.sums[0]) == total
    assert sum(slices.sums[1]) == now - 7
    assert set(slices.means(now)[1]) == {1.0}


def test_the_picture_is_well_formed_and_shows_the_largest_queues_and_the_rest() -> None:
    names = [f"<{at:02}>" for at in range(MOST_QUEUES + 2)]
    jobs = [job(name, 0, 10 + at, 1, name) for at, name in enumerate(names)]
    found = result(jobs, nodes=2, options=Options(backfill=Backfill.EASY, slices=True))
    picture = draw(found)
    root = ET.fromstring(picture)  # noqa: S314 - our own
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"utilisation (cpu)", "jobs that wait", "part of the cluster held (cpu)", "2 others", "<09>"} <= set(texts)
    assert "<00>" not in texts
    lines = [
        each.get("d") or "" for each in root.iter("{http://www.w3.org/2000/svg}path") if each.get("fill") == "none"
    ]
    assert len(lines) == 1 + 2 * (MOST_QUEUES + 1)
    assert all(line.startswith("M64.0 ") for line in lines)
    assert draw(result(jobs_again(jobs), nodes=2, options=Options(backfill=Backfill.EASY, slices=True))) == picture


def jobs_again(jobs: list[Job]) -> list[Job]:
    return [job(each.name, each.submit // SECOND, each.run // SECOND, each.tasks, each.queue) for each in jobs]


def test_a_picture_of_nothing() -> None:
    ET.fromstring(draw(result([], options=Options(slices=True))))  # noqa: S314 - our own


def test_the_page_for_people() -> None:
    text = io.StringIO()
    found = result([job("a", 0, 10, 4), job("b", 1, 5, 2, "r"), job("c", 0, 1, 9)], options=Options(check=True))
    found.report(Console(file=text, width=120, color_system=None))
    page = text.getvalue()
    assert "2, 2 started; left out: 1 (larger than the cluster)" in page
    assert "mean 4.5 s, median 4.5 s, p99 9 s, max 9 s" in page
    assert "0 jobs were backfilled; they delayed 0 reservations" in page
    assert "cut off" not in page
