"""What is worth a write of a group's status, and how instants are written."""

from __future__ import annotations

import time

from kbatch.api.objects import Condition
from kbatch.engine import StartEstimate
from kbatch.times import SECOND
from operators.scheduler.status_diff import Difference, Wanted, difference, fell, start_moved, start_of
from tests.unit.scheduler.fakes import group


def test_a_group_never_starts_after_what_it_was_told_for_want_of_a_part_of_a_second() -> None:
    told = start_of(StartEstimate(1_767_225_600 * SECOND + 1, 1_767_225_610 * SECOND, "reservation"))
    assert told is not None
    assert (told.time, told.latest) == ("2026-01-01T00:00:01Z", "2026-01-01T00:00:10Z")


def test_that_a_start_rests_on_something_else_is_news_though_it_is_the_same_instant() -> None:
    at = int(time.time() + 1_000) * SECOND
    planned, learned = StartEstimate(at, at, "reservation"), StartEstimate(at, at, "history")
    assert not start_moved(start_of(planned), planned)
    assert start_moved(start_of(planned), learned)


def test_what_was_said_of_an_older_generation_is_said_again() -> None:
    """Who waits with `kubectl wait` for what holds of the spec as it is now would wait for ever."""
    said = Condition(type="Scheduled", status="True", reason="r", observed_generation=1, last_transition_time="x")
    now = Condition(type="Scheduled", status="True", reason="r", observed_generation=2)
    assert difference(group(conditions=(said,)), Wanted("u", (now,), 0)) is Difference.STATUS
    assert difference(group(conditions=(said,)), Wanted("u", (said,), 0)) is Difference.NOTHING


def test_a_group_falls_that_was_placed_and_is_so_no_longer() -> None:
    placed, waits = (Condition(type="Scheduled", status=status, reason="r") for status in ("True", "False"))
    assert fell(group(conditions=(placed,)), Wanted("u", (waits,), 0))
    for before, after in ((waits, waits), (waits, placed), (placed, placed)):
        assert not fell(group(conditions=(before,)), Wanted("u", (after,), 0))
    assert not fell(group(conditions=()), Wanted("u", (waits,), 0))
    assert not fell(group(conditions=(placed,)), Wanted("u", (), 0))
