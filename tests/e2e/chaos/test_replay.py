"""What schedulers recorded while things broke, decided again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kbatch.decisions.files import logs_in, read_lines
from kbatch.decisions.records import Cycle, encode_line
from kbatch.decisions.replay import replay
from tests.e2e.chaos import trials

if TYPE_CHECKING:
    from tests.e2e.chaos.field import Field

pytestmark = pytest.mark.faults

CYCLE = encode_line(Cycle(number=0, now=0)).partition(b",")[0]
"""How the line of a cycle begins."""


def test_chaotic_runs_are_decided_again_byte_for_byte(field: Field) -> None:
    """All that was recorded in this session; run alone, a run of its own with a kill."""
    if not list(field.decisions.glob("*/*")):
        trials.kills(field, count=1, seed=15)
    cycles = decisions = 0
    for folder in sorted(field.decisions.iterdir()):
        for path in logs_in(folder):
            lines = list(read_lines(path))
            if not any(line.startswith(CYCLE) for line in lines):
                continue  # killed before its first cycle: nothing was decided that could be lost
            for again in replay(lines):
                assert again.difference is None, (path, again)
                cycles += 1
                decisions += again.decisions
    print(f"{cycles} cycles, {decisions} decisions decided again")
    assert cycles > 10
    assert decisions > 10
