"""What the auditor lets pass is what docs/faults.md says, each with its reason; no test of faults has other figures."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.e2e.auditor.allowances import allowances

ROOT = Path(__file__).parents[3]
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \| (?P<amount>[\d.]+)[^|]*\| [^|]+\| (?P<reason>[^|]+)\|$", re.MULTILINE)
STAGED = "test_auditor_sees.py"
"""Misdeeds by hand, to be told at once."""


def test_the_page_has_every_allowance_with_its_figure_and_its_reason() -> None:
    page = (ROOT / "docs" / "faults.md").read_text("utf-8")
    rows = list(ROW.finditer(page.partition("### Allowances")[2].partition("\n## ")[0]))
    assert {row["name"]: float(row["amount"]) for row in rows} == allowances()
    assert len(rows) == len(allowances()), "each has one row"
    assert all(len(row["reason"].split()) >= 5 for row in rows)


def figures(source: str) -> list[str]:
    """Calls of `Limits` with a number of their own."""
    calls = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call)]
    limits = [one for one in calls if isinstance(one.func, ast.Name) and one.func.id == "Limits"]
    return [
        ast.unparse(one)
        for one in limits
        if any(isinstance(part, ast.Constant) and isinstance(part.value, int | float) for part in ast.walk(one))
    ]


def test_no_test_of_faults_has_a_figure_of_its_own() -> None:
    assert figures("Limits(partial=75)") == ["Limits(partial=75)"]
    files = [one for one in (ROOT / "tests" / "e2e").rglob("*.py") if one.name != STAGED]
    sources = [one.read_text("utf-8") for one in files]
    assert sum("Limits(" in one for one in sources) >= 4
    assert [found for one in sources for found in figures(one)] == []
