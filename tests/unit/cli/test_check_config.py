from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kbatch.cli.main import app

GOOD = 'actions: "allocate"\ntiers:\n- plugins: [{name: priority}, {name: gang}]\n- plugins: [{name: predicates}]\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scheduler.yaml"


def test_a_good_file_is_shown_as_it_is_understood(path: Path) -> None:
    path.write_text(GOOD)
    result = CliRunner().invoke(app, ["check-config", str(path)])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{path}: valid",
        "actions: allocate",
        "tier 1:  priority, gang",
        "tier 2:  predicates",
    ]
    shown = CliRunner().invoke(app, ["check-config", str(path), "-o", "json"])
    assert json.loads(shown.stdout) == {
        "valid": True,
        "errors": [],
        "actions": ["allocate"],
        "tiers": [["priority", "gang"], ["predicates"]],
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("allocate", "enqueue, backfill"), "there is no action allocate: no pod"),
        (GOOD.replace(", {name: gang}", ""), "no plugin gang is enabled: the minMember"),
        (GOOD.replace("predicates", "nodeorder"), "no plugin predicates is enabled: selectors"),
    ],
)
def test_what_is_most_likely_not_meant_is_a_warning(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    result = CliRunner().invoke(app, ["check-config", str(path)])
    assert result.exit_code == 0
    assert said in result.stderr
    (found,) = json.loads(CliRunner().invoke(app, ["check-config", str(path), "-o", "json"]).stdout)["warnings"]
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (GOOD.replace("allocate", "alocate"), 1, "allocate"),
        (GOOD.replace("name: gang", "name: gnag"), 3, "gang"),
        (GOOD.replace("{name: gang}", "{name: gang, enableJobOrdr: true}"), 3, "enableJobOrder"),
        ("tiers: [\n", 1, "not YAML"),
    ],
)
def test_a_bad_file_is_status_2_with_the_line_and_the_nearest_word(path: Path, text: str, line: int, said: str) -> None:
    path.write_text(text)
    result = CliRunner().invoke(app, ["check-config", str(path)])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"kbatch: {path}:{line}: ")
    assert said in result.stderr
    shown = CliRunner().invoke(app, ["check-config", str(path), "-o", "json"])
    assert shown.exit_code == 2
    found = json.loads(shown.stdout)
    assert found["valid"] is False
    assert (found["errors"][0]["file"], found["errors"][0]["line"]) == (str(path), line)


def test_a_file_that_is_not_there(path: Path) -> None:
    result = CliRunner().invoke(app, ["check-config", str(path)])
    assert (result.exit_code, result.stderr) == (2, f"kbatch: {path}: cannot be read: No such file or directory\n")
