"""The comparison of the engine with the reference, all kinds: what it keeps and says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference.__main__ import PAGE, keep, main, page


def row(**more: Any) -> dict[str, Any]:
    return {"cases": 10, "feasible": 5, "missed": [], "unsound": [], "evicting": 2, "needless": [], **more}


def test_what_is_missed_is_listed_by_its_seed() -> None:
    text = "\n".join(page({"place": row(missed=["seed 7: 5 nodes"]), "reclaim": row(needless=[3, 4])}))
    assert "| place | 10 | 5 | 1 | 80.00 % | 0 | 2 | 0 |" in text
    assert "## place: missed" in text
    assert "* seed 7: 5 nodes" in text
    assert "Seeds 3, 4." in text
    assert "preempt" not in text


def test_kinds_that_did_not_run_stay_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    keep({"place": row()}, file)
    keep({"reclaim": row(cases=20)}, file)
    assert json.loads(file.with_suffix(".json").read_text()) == {"place": row(), "reclaim": row(cases=20)}
    assert "| reclaim | 20 |" in file.read_text()


@pytest.mark.many
def test_the_command_ends_with_0_where_nothing_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "page.md"
    assert main(["--kind", "place", "--cases", "20", "--page", str(file)]) == 0
    assert "place: 20 cases" in capsys.readouterr().out
    assert main(["--kind", "reclaim", "--minutes", "0", "--page", str(file)]) == 0
    assert "| reclaim | 0 |" in file.read_text()


def test_the_page_is_what_its_data_say() -> None:
    data = json.loads(PAGE.with_suffix(".json").read_text())
    assert PAGE.read_text() == "\n".join(page(data)) + "\n"
