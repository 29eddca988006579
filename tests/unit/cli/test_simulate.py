from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kbatch.cli.main import app

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests" / "cases"
CASE = str(CASES / "case-05-equal-jobs-share-equally.yaml")
CONF = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: predicates}, {name: proportion}]\n'


@pytest.fixture
def conf(tmp_path: Path) -> str:
    path = tmp_path / "scheduler.yaml"
    path.write_text(CONF)
    return str(path)


def test_json_goes_to_standard_output_alone(conf: str) -> None:
    result = CliRunner().invoke(app, ["simulate", CASE, "--scheduler-conf", conf, "-o", "json"])
    assert result.exit_code == 0
    assert result.stderr == ""
    assert json.loads(result.stdout)["summary"]["binds"] == 8


def test_text_names_queues_and_what_waits(conf: str) -> None:
    case = str(CASES / "case-02-too-few-pods-created.yaml")
    result = CliRunner().invoke(app, ["simulate", case, "--scheduler-conf", conf])
    assert result.exit_code == 0
    assert "NotEnoughTasks" in result.stdout
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


def test_standard_input_and_several_paths(conf: str) -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: n9}\nstatus: {allocatable: {cpu: '8'}}\n"
    arguments = ["simulate", CASE, "-", "--scheduler-conf", conf, "-o", "json"]
    result = CliRunner().invoke(app, arguments, input=node)
    assert json.loads(result.stdout)["summary"]["binds"] == 16


def test_warnings_go_to_standard_error(tmp_path: Path, conf: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("apiVersion: v1\nkind: Service\nmetadata: {name: a}\n")
    result = CliRunner().invoke(app, ["simulate", str(path), "--scheduler-conf", conf, "-o", "json"])
    assert result.exit_code == 0
    assert result.stderr.startswith("kbatch: Service (v1): 1 object ignored: not part of a simulation\n")
    json.loads(result.stdout)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [", "a.yaml, document 1: is not YAML"),
        ("{apiVersion: v1, kind: Thing, metadata: {name: a}}", "a.yaml, document 1: kind: Thing of v1 is no kind"),
        (
            "{apiVersion: v1, kind: Node, metadata: {name: a}, status: {allocatable: {cpu: x}}}",
            "a.yaml, document 1: status.allocatable.cpu: quantity 'x'",
        ),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: n}}",
            "a.yaml, document 1: spec.nodeName: there is no Node n",
        ),
    ],
)
def test_bad_input_is_status_2_and_one_sentence(tmp_path: Path, conf: str, text: str, sentence: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    result = CliRunner().invoke(app, ["simulate", str(path), "--scheduler-conf", conf, "-o", "json"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"kbatch: {tmp_path}/{sentence}")
    assert len(result.stderr.splitlines()) == 1


def test_a_missing_path_or_configuration_is_status_2(tmp_path: Path, conf: str) -> None:
    missing = CliRunner().invoke(app, ["simulate", str(tmp_path / "none"), "--scheduler-conf", conf])
    assert (missing.exit_code, missing.stderr) == (2, f"kbatch: {tmp_path}/none: there is no such file or folder\n")
    no_conf = CliRunner().invoke(app, ["simulate", CASE, "--scheduler-conf", str(tmp_path / "none")])
    assert (no_conf.exit_code, no_conf.stderr) == (
        2,
        f"kbatch: {tmp_path}/none: cannot be read: No such file or directory\n",
    )
    nothing = CliRunner().invoke(app, ["simulate"])
    assert nothing.exit_code == 2


def test_manifests_without_nodes_are_warned_of(tmp_path: Path, conf: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
    result = CliRunner().invoke(app, ["simulate", str(path), "--scheduler-conf", conf])
    assert result.exit_code == 0
    assert result.stderr == "kbatch: there is no Node in the manifests, so no pod can be placed\n"
    assert "Queue " not in result.stdout, "no table without rows"
    with_nodes = CliRunner().invoke(app, ["simulate", CASE, "--scheduler-conf", conf, "-o", "json"])
    assert "no Node" not in with_nodes.stderr


def test_the_limit_is_status_3_with_the_output_so_far(conf: str) -> None:
    result = CliRunner().invoke(app, ["simulate", CASE, "--scheduler-conf", conf, "--max-cycles", "1", "-o", "json"])
    assert result.exit_code == 3
    found = json.loads(result.stdout)
    assert (found["summary"]["cycles"], found["summary"]["binds"]) == (1, 8)
    assert result.stderr == "kbatch: cut off after 1 cycles (--max-cycles)\n"


def test_options_reach_the_run(tmp_path: Path, conf: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: a, annotations: {simulate.kbatch.dev/arrival: '5'}}\n"
        "---\napiVersion: v1\nkind: Node\nmetadata: {name: b, annotations: {simulate.kbatch.dev/arrival: '9.5'}}\n"
    )
    arguments = ["simulate", str(path), "--scheduler-conf", conf, "--until", "9.4", "--extra-cycles", "2", "-o", "json"]
    summary = json.loads(CliRunner().invoke(app, arguments).stdout)["summary"]
    assert summary["makespan"] == 5.0
    assert "idle_cycle_seconds" in summary


@pytest.mark.many
def test_equal_input_gives_equal_bytes_whatever_the_hash_seed() -> None:
    def output(seed: str) -> bytes:
        program = "import sys; from kbatch.cli.main import main; main()"
        arguments = [sys.executable, "-c", program, "simulate", str(ROOT / "examples" / "mixed"), "-o", "json"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(arguments, capture_output=True, check=True, timeout=60, env=environment)
        return re.sub(rb'"engine_seconds": [0-9.e-]+', b"", done.stdout)

    assert output("1") == output("2")
