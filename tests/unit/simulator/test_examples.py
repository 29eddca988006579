from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kbatch.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs" / "simulator.md", ROOT / "docs" / "traces.md"
SHOWN = [
    shown
    for page in PAGES
    for shown in re.findall(r"```console\n\$ kbatch ([^\n]*)\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)
]
NAMES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/cluster.yaml"))


@pytest.mark.parametrize(("command", "text"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_page_shows_what_the_command_prints(monkeypatch: pytest.MonkeyPatch, command: str, text: str) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, command.split())
    assert result.exit_code == 0
    assert result.stdout == text, "bring the page up to date with python -m tools.show_examples"


def test_every_example_is_on_the_page() -> None:
    assert NAMES
    for name in NAMES:
        assert any(command == f"simulate examples/{name}" for command, _ in SHOWN), name


@pytest.mark.parametrize("name", NAMES)
def test_every_example_runs_to_its_end(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, ["simulate", f"examples/{name}", "-o", "json"])
    assert (result.exit_code, result.stderr) == (0, "")
    summary = json.loads(result.stdout)["summary"]
    assert summary["binds"] > 0
