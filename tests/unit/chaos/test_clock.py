"""A process' wall clock can be moved from outside, and nothing else of its time."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.e2e.chaos.clock import HOUR, Clock

TELL = """
import sys, time
from datetime import datetime, UTC
import msgspec
assert msgspec.convert("2026-01-01T00:00:00Z", datetime, strict=False).year == 2026
for _ in sys.stdin:
    print(datetime.now(UTC).isoformat(), time.time(), time.monotonic(), flush=True)
"""


def test_the_clock_of_a_process_moves_while_it_runs(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    with subprocess.Popen(
        [sys.executable, "-c", TELL], env=os.environ | clock.environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        monotonic = []
        for seconds in (0.0, HOUR, -HOUR, 0.0):
            clock.move(seconds)
            process.stdin.write("now\n")
            process.stdin.flush()
            said, stamp, other = process.stdout.readline().split()
            expected = datetime.now(UTC) + timedelta(seconds=seconds)
            assert abs(datetime.fromisoformat(said) - expected) < timedelta(seconds=5)
            assert abs(float(stamp) - expected.timestamp()) < 5
            monotonic.append(float(other))
        assert 0 < monotonic[-1] - monotonic[0] < 60
        process.stdin.close()
