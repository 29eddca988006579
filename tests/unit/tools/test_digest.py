"""The digest of decisions: the same for the same engine, another for an engine that decides otherwise."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from kbatch.decisions.files import logs_in
from kbatch.engine import Transaction, cycle
from tests.bench import digest
from tests.bench.digest import differing, digests, main, record, redecided

pytestmark = pytest.mark.many


def test_two_runs_give_the_same_digest_and_another_seed_gives_another() -> None:
    first, again, other = digests(1, cycles=30), digests(1, cycles=30), digests(2, cycles=30)
    assert sum(first.cycles) >= 30
    assert first.counts["binds"] > 0
    assert first.json() == again.json()
    assert differing(first.json(), again) == []
    assert other.digest != first.digest


def test_a_cycle_that_decides_otherwise_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "base.json"
    assert main(["--cycles", "30", "--write", str(file)]) == 0
    assert main(["--compare", str(file)]) == 0

    def without_binds(*arguments: Any) -> Generator[Any, None, Any]:
        steps = cycle(*arguments)
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return end.value
            if not (isinstance(step, Transaction) and step.binds):
                yield step

    monkeypatch.setattr(digest, "cycle", without_binds)
    capsys.readouterr()
    assert main(["--compare", str(file)]) == 1
    worlds = json.loads(file.read_text())["worlds"]
    out = capsys.readouterr().out
    assert f"{len(worlds)} worlds: " in out
    assert "world 0 (default): " in out


def test_recorded_logs_are_decided_again_and_a_changed_one_is_told(tmp_path: Path) -> None:
    assert record(tmp_path, 1, count=2) > 2
    paths = logs_in(tmp_path)
    assert [path.name for path in paths] == ["decisions-000000.jsonl.gz", "decisions-000001.jsonl.gz"]
    assert all(cycles and not wrong for _, cycles, wrong in redecided(paths))
    paths[0].write_bytes(b"no log")
    assert [bool(wrong) for _, _, wrong in redecided(paths)] == [True, False]
