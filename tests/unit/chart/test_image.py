"""The image and the workflows, as far as they can be checked without docker and GitHub."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from kbatch.localcluster.programs import KUBERNETES_VERSION
from tools.release_chart import prepare

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
    syncs = [rest for word, rest in instructions() if word == "RUN" and "uv sync" in rest]
    assert len(syncs) == 3
    for command in syncs:
        assert "uv sync --locked --no-dev" in command
    assert "--no-editable" in syncs[-1]
    # What compiles the engine has an environment of its own, which is not copied into the image.
    (compiler,) = [command for command in syncs if "--group compile" in command]
    assert compiler.startswith("UV_PROJECT_ENVIRONMENT=/opt/compiler ")
    assert not any("/opt/compiler" in rest for _, rest in stage())


def test_what_was_compiled_goes_to_the_packages_of_the_images_python() -> None:
    (compiled,) = [rest for word, rest in instructions() if word == "RUN" and "tools.compiled" in rest]
    version = re.search(r"^ARG PYTHON_IMAGE=python:([\d.]+)-slim$", DOCKERFILE, re.MULTILINE)
    assert version
    assert compiled.endswith(f" --into /opt/kbatch/lib/python{version[1]}/site-packages")


def test_it_runs_as_a_number_that_the_chart_agrees_with(default: Any) -> None:
    (user,) = (rest for word, rest in stage() if word == "USER")
    security = default.pod_spec("scheduler")["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}" == "65532:65532"


def test_uv_and_python_are_those_of_the_checkout() -> None:
    wanted = re.search(r"^UV_VERSION := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert wanted
    assert f"ARG UV_IMAGE=ghcr.io/astral-sh/uv:{wanted[1]}\n" in DOCKERFILE
    assert "ARG PYTHON_IMAGE=python:3.11-slim\n" in DOCKERFILE
    assert {rest.split()[0] for word, rest in instructions() if word == "FROM"} == {"${UV_IMAGE}", "${PYTHON_IMAGE}"}


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
                # By the commit, which cannot be moved; the version stands beside it.
                assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
                assert re.search(rf"{step['uses']} # v\d+\.\d+\.\d+\n", path.read_text()), step["uses"]
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
    assert set(jobs["build"]["needs"]) == {"test", "kind", "version"}
    assert "build" in jobs["publish"]["needs"]
    assert jobs["test"] == {"uses": "./.github/workflows/ci.yml"}
    assert jobs["kind"] == {"uses": "./.github/workflows/e2e-kind.yml"}
    for called in ("ci", "e2e-kind"):
        assert "workflow_call" in by_name[called][True]
        # Both are called by one run: neither may end the other, or the run of a push.
        assert "${{ github.workflow }}" in by_name[called]["concurrency"]["group"]
        assert not by_name[called]["concurrency"]["group"].startswith("${{")


def steps(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_a_release_is_for_both_architectures_scanned_described_and_signed() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    architectures = [one["architecture"] for one in jobs["build"]["strategy"]["matrix"]["include"]]
    build, publish = steps(jobs["build"]), steps(jobs["publish"])
    assert architectures == ["amd64", "arm64"]
    assert build.index("grype") < build.index("docker login") < build.index("--push")
    assert {"--sbom=true", "--provenance=mode=max"} <= set(build.split())
    for architecture in architectures:
        assert f'"$image:$VERSION-{architecture}"' in publish
    # By digest: what a tag means may change between two commands.
    assert 'cosign" sign --yes --recursive "$image@$digest"' in publish
    assert 'cosign" sign --yes "$REGISTRY/charts/kbatch@' in publish
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    assert all("id-token" not in job.get("permissions", {}) for name, job in jobs.items() if name != "publish")
    for tool in re.findall(r"go install (\S+)", build + publish):
        assert re.fullmatch(r"[\w./-]+@v\d+\.\d+\.\d+", tool), tool


def test_the_chart_of_a_release_names_the_image_by_its_digest(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "charts" / "kbatch", tmp_path / "chart")
    digest, image = "sha256:" + "0123456789abcdef" * 4, "ghcr.io/someone/kbatch-operators"
    prepare(tmp_path / "chart", image, digest, "https://example.org/kbatch")
    with helm_python.Chart.load(tmp_path / "chart") as chart:
        assert chart.metadata["home"] == "https://example.org/kbatch"
        assert chart.metadata["sources"] == ["https://example.org/kbatch"]
        assert f"image: {image}@{digest}" in chart.metadata["annotations"]["artifacthub.io/images"]
        options = json.dumps({"name": "kbatch", "namespace": "n", "is_install": True})
        rendered = helm_python._native.call_string("helm_render", chart._raw(), "{}", options)
    images = set(re.findall(r'image: \\"(.+?)\\"', rendered))
    assert images == {f"{image}@{digest}"}
    with pytest.raises(ValueError, match="should stand once"):
        prepare(tmp_path / "chart", image, digest, "https://example.org/kbatch")
    with pytest.raises(ValueError, match="no digest"):
        prepare(ROOT / "charts" / "kbatch", image, "latest", "https://example.org/kbatch")
