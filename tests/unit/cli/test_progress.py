from __future__ import annotations

import io
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kbatch.api.configuration import DEFAULT
from kbatch.cli.progress import OFTEN, shown
from kbatch.engine import build_policy
from kbatch.simulator.manifests import load
from kbatch.simulator.run import Limits, simulate
from kbatch.times import SECOND

CASES = Path(__file__).parents[2] / "cases"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)


def printed(console: Console) -> str:
    file: Any = console.file
    return str(file.getvalue())


def test_a_long_run_shows_how_far_it_is_and_leaves_nothing_behind() -> None:
    console, clock = terminal(), Clock()
    with shown(console, clock, after=1.0) as show:
        assert show is not None
        show(0, 1, 0.1)
        assert printed(console) == ""
        clock.now = 1.5
        show(30 * SECOND, 20, 0.25)
        assert "25%" in printed(console)
        assert "30 s simulated, 20 cycles" in printed(console)
        clock.now += OFTEN / 2
        show(31 * SECOND, 21, 0.5)
        assert "50%" not in printed(console)
        clock.now += OFTEN
        show(32 * SECOND, 22, 0.2)
        assert "32 s simulated" in printed(console)
        assert "20%" not in printed(console)  # it never goes back
    assert printed(console).endswith("\x1b[2K")  # the line is wiped


def test_nothing_is_shown_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with shown(after=0.0) as show:
        assert show is None


@pytest.mark.parametrize("until", [None, 4 * SECOND])
def test_a_run_tells_which_part_lies_behind(until: int | None) -> None:
    told: list[tuple[int, int, float]] = []
    manifests = load([str(CASES / "case-19-preemption-once-and-rest.yaml")])
    simulate(manifests, build_policy(DEFAULT), Limits(until=until), progress=lambda *state: told.append(state))
    parts = [part for _, _, part in told]
    assert all(0 <= part <= 1 for part in parts)
    assert len({cycles for _, cycles, _ in told}) > 1
    if until is None:
        assert all(before <= after for before, after in itertools.pairwise(parts))
        assert parts[-1] > 0
    else:
        assert parts == [now / until for now, _, _ in told]
