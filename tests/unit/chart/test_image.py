"""The image and the workflows, as far as they can be checked without docker and GitHub."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from kbatch.localcluster.programs import KUBERNETES_VERSION

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions: their words in capitals, and the rest; comments and continued lines resolved."""
    lines = [line for line in DOCKERFILE.splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def copied() -> list[str]:
    """What is copied from the checkout."""
    sources = []
    for word, rest in instructions():
        words = rest.split()
        if word == "COPY" and not rest.startswith("--from"):
            sources += words[:-1]
    return sources


def stage() -> list[tuple[str, str]]:
    """The instructions of the last stage, the image itself."""
    all_of_them = instructions()
    last = max(index for index, (word, _) in enumerate(all_of_them) if word == "FROM")
    return all_of_them[last:]


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    patterns = (ROOT / ".dockerignore").read_text().split("\n")
    kept = [pattern.removeprefix("!") for pattern in patterns if pattern.startswith("!")]
    assert patterns[1] == "*"
    assert sorted(copied()) == sorted(kept)
    for source in copied():
        assert (ROOT / source).exists(), source


def test_everything_that_the_wheel_needs_is_copied() -> None:
    build = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {*build, "pyproject.toml", "uv.lock", PROJECT["project"]["readme"]} <= set(copied())
    for pattern in PROJECT["project"]["license-files"]:
        assert fnmatch.filter(copied(), pattern)


def test_the_processes_it_names_are_scripts_of_the_project() -> None:
    named = set(re.findall(r"\bkbatch-[a-z]+\b", DOCKERFILE)) - {"kbatch-operators"}
    assert named == {"kbatch-scheduler", "kbatch-podgroup", "kbatch-queue", "kbatch-webhook"}
    assert named <= set(PROJECT["project"]["scripts"])


def test_it_is_built_from_the_lock_without_what_only_developers_need() -> None:
    syncs = [rest for word, rest in instructions() if word == "RUN"]
    assert len(syncs) == 2
    for command in syncs:
        assert command.startswith("uv sync --locked --no-dev")
    assert "--no-editable" in syncs[-1]


def test_it_runs_as_a_number_that_the_chart_agrees_with(default: Any) -> None:
    (user,) = (rest for word, rest in stage() if word == "USER")
    security = default.pod_spec("scheduler")["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}" == "65532:65532"


def test_uv_and_python_are_those_of_the_checkout() -> None:
    wanted = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert wanted
    assert f"FROM ghcr.io/astral-sh/uv:{wanted[1]} AS uv" in DOCKERFILE
    assert "ARG PYTHON=3.11" in DOCKERFILE


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_few_rights_and_pinned_actions(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    # YAML 1.1 takes the key `on` for a boolean.
    assert "pull_request_target" not in workflow[True]
    for job in workflow["jobs"].values():
        if "uses" in job:  # another workflow, which is held to the same
            assert (path.parents[2] / job["uses"]).resolve() in {other.resolve() for other in WORKFLOWS}
            continue
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@v\d+\.\d+\.\d+", step["uses"]), step["uses"]
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"] == {"persist-credentials": False}
            # What others may choose (titles, branches) must never become part of a script.
            assert "${{" not in step.get("run", "")


def test_continuous_integration_runs_what_developers_run() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    commands = [step["run"] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    assert commands[-1] == ".ci/run"
    # What is installed before is what the pages call optional: without it tests are skipped.
    assert [command.split()[-1] for command in commands[:-1]] == ["prometheus"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_kind_runs_the_kubernetes_that_the_local_control_plane_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "e2e-kind.yml").read_text())
    assert workflow["env"]["NODE"].startswith(f"kindest/node:v{KUBERNETES_VERSION}@sha256:")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_files_that_workflows_name_exist(path: Path) -> None:
    text = path.read_text()
    for name in re.findall(r"(?<![\w./-])(?:charts|crds|examples|localcluster|tests)/[\w./-]*", text):
        assert (ROOT / name).exists(), name
    for module in re.findall(r"-m (kbatch[\w.]+)", text):
        assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module


def test_a_release_is_refused_where_the_versions_differ() -> None:
    """The patterns that the workflow looks for are those of the files."""
    version = PROJECT["project"]["version"]
    chart = (ROOT / "charts" / "kbatch" / "Chart.yaml").read_text().splitlines()
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text().splitlines()
    assert f"version: {version}" in chart
    assert f'appVersion: "{version}"' in chart
    assert "  repository: kbatch-operators" in (ROOT / "charts" / "kbatch" / "values.yaml").read_text().splitlines()


def test_only_what_passed_the_tests_is_published() -> None:
    by_name = {path.stem: yaml.safe_load(path.read_text()) for path in WORKFLOWS}
    jobs = by_name["release"]["jobs"]
    assert jobs["publish"]["needs"] == "test"
    assert jobs["test"] == {"uses": "./.github/workflows/ci.yml"}
    assert "workflow_call" in by_name["ci"][True]
