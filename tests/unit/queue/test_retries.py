"""Pauses after failures, and which failures are logged."""

from __future__ import annotations

from operators.queue.retries import FIRST_SECONDS, LONGEST_SECONDS, Retries


def test_a_pause_grows_until_a_success_and_is_counted_by_the_clock() -> None:
    now = [0.0]
    retries = Retries(clock=lambda: now[0])
    assert (retries.left("a"), retries.soonest()) == (0.0, None)
    lefts = []
    for _ in range(12):
        retries.failed("a")
        lefts.append(retries.left("a"))
    assert FIRST_SECONDS / 2 <= lefts[0] <= FIRST_SECONDS
    assert LONGEST_SECONDS / 2 <= lefts[-1] <= LONGEST_SECONDS
    retries.failed("b")
    assert retries.soonest() == retries.left("b") < retries.left("a")
    now[0] = 1.0
    assert (retries.left("b"), retries.soonest()) == (0.0, 0.0)
    assert retries.left("a") == lefts[-1] - 1.0
    retries.forget("a")
    retries.failed("a")
    assert retries.left("a") <= FIRST_SECONDS


def test_failures_in_a_row_are_logged_ever_more_seldom() -> None:
    retries = Retries()
    assert [times for times in range(1, 40) if retries.failed("a")] == [1, 2, 4, 8, 16, 32]
    assert retries.failed("b") == 1
    retries.forget("a")
    assert retries.failed("a") == 1


def test_what_is_gone_is_forgotten() -> None:
    retries = Retries()
    for key in "abc":
        retries.failed(key)
    retries.keep({"b", "x"})
    assert len(retries) == 1
    assert retries.left("b") > 0
