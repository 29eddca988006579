"""docs/engine-cases.md names cases and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
LINES: Final = (ROOT / "docs" / "engine-cases.md").read_text("utf-8").splitlines()
ROWS: Final = [line.strip("| ").split(" | ") for line in LINES if re.match(r"\|\s+\d+ \|", line)]


def test_each_kind_has_its_line() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, 35))
    assert all(len(row) == 4 for row in ROWS)


def test_cases_and_tests_that_are_named_exist() -> None:
    known = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        known |= set(re.findall(r"^\s*(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE))
    cases = {file.stem for file in (ROOT / "tests" / "cases").glob("*.yaml")}
    named = [name for line in LINES for name in re.findall(r"`([\w-]+)`", line)]
    for name in named:
        if name.startswith("test_"):
            assert name in known, name
        elif "-" in name:
            assert name in cases, name


def test_each_case_is_one_that_a_test_runs() -> None:
    texts = "".join(file.read_text("utf-8") for file in (ROOT / "tests" / "unit" / "simulator").glob("test_*.py"))
    for row in ROWS:
        shown = re.findall(r"`([\w-]+)`", row[2])
        assert shown, row
        assert all(name.startswith("test_") or f'"{name}"' in texts for name in shown), row
