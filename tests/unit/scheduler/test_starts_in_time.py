"""What was told has held where the group starts by `latest`, also after `time`: half of all do."""

from __future__ import annotations

from tests.unit.scheduler.test_starts import Followed, runs, waits


def test_who_starts_between_time_and_latest_has_started_in_time() -> None:
    found = Followed()
    found.cycle(0, {}, waits("a", 100, 200), waits("b", 100, 200))
    found.cycle(150, {}, runs("a"))
    found.cycle(200, {}, runs("b"))
    assert found.value("start_estimates_held_total", basis="history", outcome="in_time") == 2
    assert found.value("start_estimates_held_total", basis="history", outcome="late") == 0
