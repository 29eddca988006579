from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kbatch.cli.main import app
from kbatch.simulator.traces.easy import ListScheduler

ROOT = Path(__file__).parents[3]
EXAMPLE = str(ROOT / "examples" / "trace" / "jobs.swf")
DAY = str(ROOT / "examples" / "trace" / "day.yaml")
CSV = "arrival,duration,estimate,tasks\n0,10,10,2\n1,5,5,4\n2,9,9,2\n2,8,8,2\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "jobs.csv"
    path.write_text(CSV)
    return str(path)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ((), [0, 10, 15, 15]),
        (("--policy", "sjf"), [0, 10, 15, 15]),
        (("--backfill", "easy"), [0, 10, 15, 2]),
        (("--backfill", "conservative", "--depth", "5"), [0, 10, 15, 2]),
    ],
)
def test_a_trace_runs_as_it_is_asked_to(trace: str, options: tuple[str, ...], starts: list[int]) -> None:
    status, out, err = run("--trace", trace, "--format", "csv", "--nodes", "4", *options, "-o", "json")
    assert (status, err) == (0, "")
    assert [job["start"] for job in json.loads(out)["jobs"].values()] == starts


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_column_like_a_known_one_is_a_warning_and_no_more(tmp_path: Path, output: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("arrival,duration,queued\n0,10,1\n")
    status, out, err = run("--trace", str(path), "--format", "csv", "--nodes", "4", "-o", output)
    assert (status, err) == (0, "kbatch: column 'queued' is ignored; is 'queue' meant?\n")
    assert out


def test_a_needed_column_that_is_misspelt_is_an_error_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("arrival,durations,queued\n0,10,1\n")
    status, out, err = run("--trace", str(path), "--format", "csv", "--nodes", "4")
    assert (status, out) == (2, "")
    assert err == f"kbatch: {path}, line 1: the first line names no column 'duration'; there is 'durations'\n"


def test_an_archive_format_and_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    status, out, _ = run(
        "--trace", EXAMPLE, "--format", "swf", "--nodes", "16", "--backfill", "easy", "--plot", str(picture)
    )  # fmt: skip
    assert status == 0
    assert "backfilled" not in out
    assert picture.read_text("utf-8").startswith("<svg ")


def test_nodes_from_a_list(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
        "p,4000,1024,1,500,0,10,0\nq,4000,1024,1,500,0,10,0\n"
    )
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,8000,4096,0,\nb,8000,4096,1,T4\n")
    arguments = ("--trace", str(tmp_path / "pods.csv"), "--format", "openb", "--nodes", str(tmp_path / "nodes.csv"))
    status, out, _ = run(*arguments, "-o", "json")
    assert status == 0
    assert json.loads(out)["jobs"] == {
        "p": {"submit": 0.0, "start": 0.0, "finish": 10.0, "nodes": ["b"]},
        "q": {"submit": 0.0, "start": 10.0, "finish": 20.0, "nodes": ["b"]},
    }


def test_without_nodes_of_jobs_and_rigid(trace: str) -> None:
    arguments = ("--trace", trace, "--format", "csv", "--nodes", "2", "--node-cpus", "2", "--shape", "rigid")
    _, out, _ = run(*arguments, "--no-job-nodes", "--until", "5", "-o", "json")
    found = json.loads(out)
    assert found["summary"]["dropped"]["too_large"] == 1
    assert found["jobs"]["1"] == {"submit": 0.0, "start": 0.0, "finish": None}


def test_the_check_says_that_all_is_well(trace: str) -> None:
    status, out, _ = run("--trace", trace, "--format", "csv", "--nodes", "4", "--backfill", "easy", "--check-backfill")
    assert status == 0
    assert "1 jobs were backfilled; they delayed 0 reservations" in out


def test_the_check_ends_with_status_1_where_a_reserved_job_is_delayed(
    trace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_away(scheduler: ListScheduler) -> None:
        scheduler._most.clear()
        scheduler._fitting.clear()
        scheduler._limits, scheduler._rooms = [], [scheduler.timeline.room(0)]

    monkeypatch.setattr(ListScheduler, "_look", look_away)
    arguments = ("--trace", trace, "--format", "csv", "--nodes", "4", "--backfill", "easy", "--check-backfill")
    status, out, err = run(*arguments, "-o", "json")
    assert status == 1
    assert err.splitlines() == [
        "kbatch: at 2 s job 3 was backfilled before job 2, which therefore cannot start at 10 s",
        "kbatch: at 10 s job 4 was backfilled before job 2, which therefore cannot start at 11 s",
        "kbatch: 2 reservations were delayed by jobs that were backfilled before them",
    ]
    assert json.loads(out)["summary"]["backfill_check"] == {"looked_at": 2, "delays": 2}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "--format is missing: swf, openb or csv"),
        (("--format", "csv"), "--nodes is missing: how many nodes there are, or a file that lists them"),
        (("--format", "csv", "--nodes", "0"), "--nodes 0: there must be from 1 to 1000000 nodes"),
        (("--format", "csv", "--nodes", "1.5"), "--nodes 1.5: neither a whole number nor a file that lists nodes"),
        (("--format", "csv", "--nodes", "-1"), "--nodes -1: neither a whole number nor a file that lists nodes"),
        (("--format", "csv", "--nodes", "none.csv"), "--nodes none.csv: neither a whole number nor a file that lists"),
        (("--format", "csv", "--nodes", "n.csv", "--node-cpus", "2"), "--node-cpus and --node-gpus cannot be used"),
        (
            ("--format", "csv", "--nodes", "4", "--node-cpus", "x"),
            "--node-cpus: quantity 'x': not a Kubernetes",
        ),
        (("--format", "csv", "--nodes", "4", "--node-cpus", "0"), "--node-cpus 0: a node must have some"),
        (("--format", "csv", "--nodes", "4", "--depth", "2"), "--depth needs --backfill"),
        (
            ("--format", "csv", "--nodes", "4", "--policy", "conf", "--backfill", "easy"),
            "--backfill and --depth cannot be used with --policy conf",
        ),
        (
            ("--format", "csv", "--nodes", "4", "--policy", "conf", "--check-backfill"),
            "--check-backfill cannot be used",
        ),
        (("--format", "csv", "--nodes", "4", "--scheduler-conf", "a"), "--scheduler-conf needs --policy conf"),
        (("--format", "csv", "--nodes", "4", "--max-cycles", "4"), "--max-cycles cannot be used with --trace"),
        (("--format", "csv", "--nodes", "4", "examples/gang"), "manifests cannot be used together"),
        (("--format", "swf", "--nodes", "4"), "{trace}, line 1: there are 1 columns, not 18"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence_and_status_2(trace: str, options: tuple[str, ...], sentence: str) -> None:
    status, out, err = run("--trace", trace, *options)
    assert (status, out) == (2, "")
    assert err.startswith(f"kbatch: {sentence.format(trace=trace)}")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "why"),
    [("none/a.svg", "No such file or directory"), ("", "Is a directory"), ("file/a.svg", "Not a directory")],
)
def test_a_picture_that_cannot_be_written_is_found_out_before_the_run(
    trace: str, tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "file").touch()
    picture = str(tmp_path / name)
    status, out, err = run("--trace", trace, "--format", "csv", "--nodes", "4", "--plot", picture)
    assert (status, out, err) == (1, "", f"kbatch: {picture}: cannot be written: {why}\n")


def test_nothing_that_is_read_is_written_over(trace: str, tmp_path: Path) -> None:
    before = Path(trace).read_bytes()
    status, out, err = run("--trace", trace, "--format", "csv", "--nodes", "4", "--plot", trace)
    assert (status, out, err) == (2, "", f"kbatch: --plot {trace}: this is the trace, and would be written over\n")
    assert Path(trace).read_bytes() == before
    day = tmp_path / "day.yaml"
    day.write_bytes(Path(DAY).read_bytes())
    status, _, err = run("--generate", str(day), "--write", str(day))
    assert (status, err) == (2, f"kbatch: --write {day}: this is the specification, and would be written over\n")
    assert day.read_bytes() == Path(DAY).read_bytes()
    both = str(tmp_path / "both")
    status, _, err = run("--generate", str(day), "--write", both, "--plot", both)
    assert (status, err) == (2, f"kbatch: --plot {both}: this is what --write writes, and would be written over\n")


def test_a_seed_is_not_negative() -> None:
    status, _, err = run("--generate", DAY, "--seed", "-1")
    assert status == 2
    assert "--seed" in err


def test_a_picture_on_a_full_disk(trace: str) -> None:
    status, out, err = run("--trace", trace, "--format", "csv", "--nodes", "4", "--plot", "/dev/full")
    assert out.startswith("Jobs")
    assert (status, err) == (1, "kbatch: /dev/full: cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    "option",
    [("--nodes", "4"), ("--policy", "fcfs"), ("--plot", "a.svg"), ("--no-job-nodes",), ("--job-nodes",)],
)
def test_options_of_traces_say_nothing_of_manifests(option: tuple[str, ...]) -> None:
    status, _, err = run(str(ROOT / "examples" / "gang"), *option)
    assert (status, err) == (2, f"kbatch: {option[0]} needs --trace or --generate\n")


def test_equal_input_gives_equal_output_but_for_the_time(trace: str) -> None:
    outputs = []
    for _ in range(2):
        _, out, _ = run("--trace", trace, "--format", "csv", "--nodes", "4", "--backfill", "easy", "-o", "json")
        found = json.loads(out)
        found["summary"].pop("engine_seconds")
        outputs.append(found)
    assert outputs[0] == outputs[1]


def test_days_that_are_made(tmp_path: Path) -> None:
    kept = tmp_path / "day.csv"
    status, out, err = run("--generate", DAY, "--seed", "3", "--write", str(kept), "--backfill", "easy", "-o", "json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    again = json.loads(run("--generate", DAY, "--seed", "3", "--backfill", "easy", "-o", "json")[1])
    assert again["jobs"] == found["jobs"]
    assert len(kept.read_text("utf-8").splitlines()) == found["summary"]["jobs"] + 1


@pytest.mark.many
def test_the_weights_of_made_days_hold_in_every_policy(tmp_path: Path) -> None:
    """Two queues of weights 3 and 1, both with more than the cluster takes."""
    path = tmp_path / "day.yaml"
    path.write_text(
        "days: 0.05\nload: 8\nnodes: {count: 2, cpu: 4}\nqueues: {a: {weight: 3}, b: {}}\n"
        "kinds:\n- {name: k, run: {median: 600, p90: 900}}\n"
    )
    for policy in ("fcfs", "conf"):
        status, out, _ = run("--generate", str(path), "--until", "4200", "--policy", policy, "-o", "json")
        assert status == 0
        queues = json.loads(out)["queues"]
        assert [queue["deserved"]["cpu"] for queue in queues.values()][:2] == ["6", "2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--generate", DAY, "--nodes", "4"), "--nodes cannot be used with --generate"),
        (("--generate", DAY, "--format", "csv"), "--format cannot be used with --generate"),
        (("--generate", DAY, "--trace", EXAMPLE), "cannot be used together"),
        (("--trace", EXAMPLE, "--format", "swf", "--nodes", "4", "--seed", "1"), "--seed needs --generate"),
        (("--trace", EXAMPLE, "--format", "swf", "--nodes", "4", "--write", "x"), "--write needs --generate"),
        (("--generate", "none.yaml"), "none.yaml: cannot be read"),
    ],
)
def test_options_of_made_days_that_do_not_belong_together(options: tuple[str, ...], message: str) -> None:
    status, _, err = run(*options)
    assert status == 2
    assert message in " ".join(err.split())
