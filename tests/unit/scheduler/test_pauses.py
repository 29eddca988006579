"""Pauses grow with each failure, are counted by the clock, and do not pile up."""

from __future__ import annotations

from operators.scheduler.pauses import FIRST, LONGEST, Pauses


def test_a_pause_grows_until_a_success() -> None:
    now = [0.0]
    pauses = Pauses(lambda: now[0])
    assert not pauses.paused("a")
    waits = [pauses.failed("a") for _ in range(12)]
    assert FIRST / 2 <= waits[0] <= FIRST
    assert LONGEST / 2 <= waits[-1] <= LONGEST
    assert pauses.paused("a")
    assert pauses.next_end() == waits[-1]
    now[0] = waits[-1]
    assert not pauses.paused("a")
    assert pauses.next_end() is None
    pauses.succeeded("a")
    assert pauses.failed("a") <= FIRST


def test_what_fails_for_good_waits_longest_from_the_first_time() -> None:
    pauses = Pauses(lambda: 0.0)
    assert pauses.failed("a", for_good=True) >= LONGEST / 2


def test_pauses_that_are_over_are_forgotten_and_others_are_not() -> None:
    now = [0.0]
    pauses = Pauses(lambda: now[0], most=10)
    for number in range(11):
        pauses.failed(f"old {number}")
    now[0] = 100.0
    for number in range(30):
        pauses.failed(f"new {number}")
    assert len(pauses._pauses) == 30
    assert all(pauses.paused(f"new {number}") for number in range(30))
