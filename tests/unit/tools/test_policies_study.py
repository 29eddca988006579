"""The study of policies goes on where it was broken off: a run that is kept is not made again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench import policies
from tests.bench.policies import Figures, study

RUN = Figures(0.8, 60.0, 600.0, 900.0, 950.0, 1.5, 0.99, 0.1, 3, 30.0, 2.0)


def test_runs_that_are_kept_are_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int, str]] = []

    def run(name: str, seed: int, way: str) -> Figures:
        made.append((name, seed, way))
        return replace(RUN, evictions=seed)

    monkeypatch.setattr(policies, "one_run", run)
    keep = tmp_path / "runs.jsonl"
    first = study("gpus", ["flow"], 1, keep)
    second = study("gpus", ["flow", "packing"], 2, keep)
    assert made == [("gpus", 1, "flow"), ("gpus", 1, "packing"), ("gpus", 2, "flow"), ("gpus", 2, "packing")]
    assert first == {"flow": [replace(RUN, evictions=1)]}
    assert second["flow"] == second["packing"] == [replace(RUN, evictions=1), replace(RUN, evictions=2)]


def test_without_a_file_every_run_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "one_run", lambda name, seed, way: replace(RUN, evictions=seed))
    assert [each.evictions for each in study("gpus", ["flow"], 3)["flow"]] == [1, 2, 3]
