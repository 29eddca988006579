from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from kbatch.cli.cluster import register
from kbatch.localcluster import demo, release, up
from kbatch.localcluster.cluster import Cluster, State
from kbatch.localcluster.errors import StartError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return CliRunner()


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    register(app)
    return app


def test_an_expected_failure_is_one_sentence_and_status_2(run: CliRunner, app: typer.Typer) -> None:
    result = run.invoke(app, ["up", "--name", "No Name"])
    assert result.exit_code == 2
    assert result.stderr.startswith("kbatch: 'No Name' cannot name a cluster")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
    assert run.invoke(app, ["status", "--name", "none"]).exit_code == 2


def test_an_installed_wheel_says_that_it_needs_a_checkout(
    run: CliRunner, app: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kbatch.__file__", str(tmp_path / "site-packages" / "kbatch" / "__init__.py"))
    result = run.invoke(app, ["up"])
    assert result.exit_code == 2
    assert "needs a checkout" in result.stderr


def test_up_prints_its_report_and_the_demo_its_groups(
    run: CliRunner, app: typer.Typer, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = up.ProcessReport(7, "http://127.0.0.1:1/metrics", "http://127.0.0.1:2/healthz")
    report = up.Report("kbatch", "/kubeconfig", "/kubectl", {"queue": process})
    monkeypatch.setattr(up, "up", lambda *_, **__: report)
    row = demo.Row("default", "too-large", "Pending", 3, 0, "NotEnoughResources", "0/3 nodes fit: " + "x" * 200)
    monkeypatch.setattr(up, "demo", lambda *_: [row])

    result = run.invoke(app, ["up", "-o", "json"])
    assert json.loads(result.stdout) == {
        "name": "kbatch",
        "kubeconfig": "/kubeconfig",
        "kubectl": "/kubectl",
        "processes": {
            "queue": {"pid": 7, "metrics": "http://127.0.0.1:1/metrics", "health": "http://127.0.0.1:2/healthz"}
        },
    }
    lines = run.invoke(app, ["up", "--demo"]).stdout.splitlines()
    assert lines[0] == "export KUBECONFIG=/kubeconfig"
    assert lines[-2].split() == ["NAMESPACE", "NAME", "PHASE", "MIN", "RUNNING", "REASON", "MESSAGE"]
    assert lines[-1].split()[:6] == ["default", "too-large", "Pending", "3", "0", "NotEnoughResources"]
    # Piped into a file, a long message stays on its line.
    assert lines[-1].endswith("x" * 200)


def test_the_status_of_a_left_over_is_1(run: CliRunner, app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "status", lambda _: (State.BROKEN, up.Report("old", "/kubeconfig", "/kubectl")))
    result = run.invoke(app, ["status", "--name", "old", "-o", "json"])
    assert (result.exit_code, json.loads(result.stdout)["state"]) == (1, "broken")


def test_the_log_of_a_failed_start_survives_the_cleaning_up(run: CliRunner) -> None:
    cluster = Cluster("gone")
    log = cluster.host_folder / "logs" / "queue.log"
    log.parent.mkdir(parents=True)
    log.write_text("why\n")
    error = StartError("kbatch-queue", "it died", log)
    up._keep_log(error, cluster)
    cluster.remove()
    assert error.log
    assert error.log.read_text() == "why\n"
    assert str(error.log) in str(error)


def test_a_row_shows_why_a_group_waits() -> None:
    class Api:
        def get(self, path: str) -> object:
            group = {
                "metadata": {"namespace": "b", "name": "waits"},
                "spec": {"minMember": 3},
                "status": {
                    "phase": "Pending",
                    "conditions": [
                        {"type": "Enqueued", "status": "True", "reason": "Enqueued"},
                        {"type": "Scheduled", "status": "False", "reason": "QueueNotFound", "message": "no queue x"},
                    ],
                },
            }
            return {"items": [group, {"metadata": {"namespace": "a", "name": "new"}, "spec": {}}]}

    assert demo.rows(Api()) == [  # type: ignore[arg-type]
        demo.Row("a", "new", "", 1, 0, "-", ""),
        demo.Row("b", "waits", "Pending", 3, 0, "QueueNotFound", "no queue x"),
    ]


def test_the_words_of_a_process_that_failed_are_its_last_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert release._last_words(log) == "it printed nothing"
    log.write_text("Traceback\nModuleNotFoundError: No module named 'x'\n")
    assert release._last_words(log) == "ModuleNotFoundError: No module named 'x'"
    lines = [{"level": "error", "message": "bad file: line 3"}, {"level": "info", "message": "stopping"}]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert release._last_words(log) == "bad file: line 3"


def test_down_without_a_name_says_which_clusters_there_are(run: CliRunner, app: typer.Typer, tmp_path: Path) -> None:
    assert run.invoke(app, ["down"]).stdout == "There is no local cluster named kbatch.\n"
    folder = tmp_path / "kbatch" / "clusters" / "demo"
    folder.mkdir(parents=True)
    record = {"name": "demo", "server": "https://127.0.0.1:1", "programs": "/nowhere", "ports": [1], "api_port": 1}
    (folder / "cluster.json").write_text(json.dumps(record))
    assert run.invoke(app, ["down"]).stdout == (
        "There is no local cluster named kbatch. There are others: demo (name one by --name).\n"
    )
