from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from kbatch.choices import TraceForm
from kbatch.simulator.errors import InputError
from kbatch.simulator.traces.day import DaySpec, read_day
from kbatch.simulator.traces.files import load_trace
from kbatch.simulator.traces.generation import ROUND_ESTIMATES, cluster_of, generate, written
from kbatch.simulator.traces.jobs import Job
from kbatch.times import HOUR, SECOND

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "trace" / "day.yaml"
SMALL = """\
load: 1
nodes: {count: 10, cpu: 4}
queues: {a: {weight: 3}, b: {}}
kinds:
- name: only
  tasks: 2
  run: {median: 600, p90: 1800}
"""


def spec(tmp_path: Path, text: str = SMALL) -> DaySpec:
    path = tmp_path / "day.yaml"
    path.write_text(text, "utf-8")
    return read_day(path)


def told(jobs: list[Job]) -> list[tuple[object, ...]]:
    return [
        (job.number, job.name, job.submit, job.run, job.estimate, job.tasks, job.shape, job.queue, job.priority)
        for job in jobs
    ]


def test_equal_seeds_give_equal_jobs_and_others_do_not(tmp_path: Path) -> None:
    day = spec(tmp_path)
    assert told(generate(day).jobs) == told(generate(day, 1).jobs)
    assert told(generate(day).jobs) != told(generate(day, 2).jobs)


def test_what_is_written_is_read_again_as_the_same_jobs(tmp_path: Path) -> None:
    made = generate(read_day(EXAMPLE))
    path = tmp_path / "day.csv"
    path.write_text("".join(written(made.jobs)), "utf-8")
    again = load_trace(str(path), TraceForm.CSV)
    assert told(again.jobs) == told(made.jobs)
    assert made.weights == {"research": 2, "vision": 1, "nightly": 1}


@pytest.mark.parametrize("load", [0.5, 1.0, 2.0])
def test_the_load_is_that_of_the_resource_asked_for_most(load: float) -> None:
    day = read_day(EXAMPLE).model_copy(update={"load": load})
    trace, cluster = generate(day), cluster_of(day)
    loads = [
        sum(job.tasks * job.shape[at] * job.run for job in trace.jobs) / (cluster.total(at) * 24 * HOUR)
        for at in range(3)
    ]
    assert max(loads) == loads[2]
    assert load <= loads[2] < load * 1.1


def test_jobs_come_as_the_hours_say(tmp_path: Path) -> None:
    hours = [0, 8, *[1] * 10, *[0] * 12]
    day = spec(tmp_path, SMALL + f"hours: {hours}\ndays: 2\n")
    by_hour = [0] * 48
    for job in generate(day).jobs:
        by_hour[job.submit // HOUR] += 1
    assert by_hour[0] == by_hour[24] == sum(by_hour[12:24]) == sum(by_hour[36:]) == 0
    assert by_hour[1] + by_hour[25] == pytest.approx(sum(by_hour) * 8 / 18, rel=0.15)


def test_the_last_hour_of_a_part_of_a_day_is_shorter(tmp_path: Path) -> None:
    jobs = generate(spec(tmp_path, SMALL + "days: 0.1\n")).jobs
    assert max(job.submit for job in jobs) <= 2.4 * HOUR
    late = sum(job.submit >= 2 * HOUR for job in jobs)
    assert late == pytest.approx(len(jobs) / 6, rel=0.5)


def test_run_times_have_their_median_and_their_nine_tenths(tmp_path: Path) -> None:
    runs = [job.run / SECOND for job in generate(spec(tmp_path, SMALL + "days: 4\n")).jobs]
    assert statistics.median(runs) == pytest.approx(600, rel=0.1)
    assert statistics.quantiles(runs, n=10)[-1] == pytest.approx(1800, rel=0.1)


def test_estimates_are_round_numbers_that_are_not_too_short() -> None:
    jobs = [job for job in generate(read_day(EXAMPLE)).jobs if job.queue != "nightly"]
    assert all(job.estimate // SECOND in ROUND_ESTIMATES and job.estimate >= job.run for job in jobs)


def test_one_value_stands_for_all(tmp_path: Path) -> None:
    jobs = generate(spec(tmp_path, SMALL + "  priority: 7\n  queues: {b: 1}\n")).jobs
    assert {(job.tasks, job.priority, job.queue) for job in jobs} == {(2, 7, "b")}


@pytest.mark.parametrize(
    ("change", "place", "what"),
    [
        (("load: 1\n", "laod: 1\n"), "laod", "there is no such field; did you mean load?"),
        (("load: 1\n", "laod: 1\n"), "load", "is missing"),
        (("load: 1\n", "load: 1\nfoo: 1\n"), "foo", "there is no such field"),
        (("{weight: 3}", "{weigt: 3}"), "queues.a.weigt", "there is no such field; did you mean weight?"),
        (("p90: 1800", "p09: 1800"), "kinds[0].run.p09", "there is no such field; did you mean p90?"),
        (("load: 1\n", "load: .inf\n"), "load", "must be 100 or less, not inf"),
        (("load: 1\n", "load: x\n"), "load", "must be a number, not 'x'"),
        (("count: 10", "count: 1.5"), "nodes.count", "must be a whole number, not 1.5"),
        (("tasks: 2", "tasks: {2: 1, 0: 1}"), "kinds[0].tasks.0", "must be 1 or more, not '0'"),
        (("tasks: 2", "tasks: [2]"), "kinds[0].tasks", "must be a number, or numbers with how often each comes"),
        (("tasks: 2", "arrivals: -1"), "kinds[0].arrivals", "must be 0 or more, not -1"),
        (("- name: only", "- name: ''"), "kinds[0].name", "must not be empty"),
        (("{weight: 3}", "3"), "queues.a", "must be a mapping, not 3"),
        (("cpu: 4", "cpu: 4x"), "nodes.cpu", "4x"),
        (("tasks: 2", "tasks: 41"), "kinds[0].tasks", "41 tasks of 1 CPU do not fit the empty nodes"),
        (("tasks: 2", "tasks: {2: 0}"), "", "one of its tasks must come"),
        (("p90: 1800", "p90: 300"), "kinds[0].run", "must not fall"),
        (("tasks: 2", "queues: {c: 1}"), "", "names the queue 'c', which is not one of `queues`"),
        (("tasks: 2", "cpu: 0"), "", "asks for nothing"),
        (("load: 1\n", "load: 1\nload: 2\n"), "line 2", "stands twice"),
        (("load: 1\n", "load: 1\nhours: [1, 2]\n"), "hours", "must have 24 or more entries, not 2"),
        (("load: 1\n", "load: 100\ndays: 366\n"), "load", "more than 1000000 jobs"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], place: str, what: str
) -> None:
    assert change[0] in SMALL
    with monkeypatch.context() as patched:
        if "jobs" in what:
            patched.setattr("kbatch.simulator.traces.generation.MOST_JOBS", 1000)
            what = what.replace("1000000", "1000")
        with pytest.raises(InputError) as error:
            generate(spec(tmp_path, SMALL.replace(*change)), source="day.yaml")
    assert place in str(error.value)
    assert what in str(error.value)
    if "must" in what and place:
        begin = f"{tmp_path}/day.yaml: {place}: "
        assert any(line.startswith(begin) and line.endswith(what) for line in str(error.value).splitlines())


def test_without_queues_there_is_one(tmp_path: Path) -> None:
    made = generate(spec(tmp_path, SMALL.replace("queues: {a: {weight: 3}, b: {}}\n", "")))
    assert {job.queue for job in made.jobs} == {"default"}
    assert made.weights == {"default": 1}


def test_a_part_of_a_day_in_which_nobody_comes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hours: no job comes"):
        generate(spec(tmp_path, SMALL + f"days: 0.5\nhours: {[0] * 12 + [1] * 12}\n"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_day(tmp_path / "none.yaml")
