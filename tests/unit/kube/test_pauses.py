"""Pauses grow with each failure, are counted by the clock, and do not pile up; failures are logged ever more seldom."""

from __future__ import annotations

from kbatch.kube.pauses import FIRST, LONGEST, Pauses


def test_a_pause_grows_until_a_success() -> None:
    now = [0.0]
    pauses = Pauses(lambda: now[0])
    assert not pauses.paused("a")
    assert (pauses.left("a"), pauses.soonest(), pauses.next_end()) == (0.0, None, None)
    waits = [pauses.failed("a") for _ in range(12)]
    assert FIRST / 2 <= waits[0] <= FIRST
    assert LONGEST / 2 <= waits[-1] <= LONGEST
    assert pauses.paused("a")
    assert pauses.next_end() == waits[-1]
    now[0] = 1.0
    assert pauses.left("a") == pauses.soonest() == waits[-1] - 1.0
    now[0] = waits[-1]
    assert not pauses.paused("a")
    assert (pauses.left("a"), pauses.soonest(), pauses.next_end()) == (0.0, 0.0, None)
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


def test_failures_in_a_row_are_logged_ever_more_seldom() -> None:
    pauses = Pauses(lambda: 0.0)
    logged = []
    for _ in range(40):
        pauses.failed("a")
        logged.append(pauses.to_log("a"))
    assert [times for times in logged if times] == [1, 2, 4, 8, 16, 32]
    pauses.failed("b")
    assert pauses.to_log("b") == 1
    pauses.succeeded("a")
    assert pauses.to_log("a") == 0
    pauses.failed("a")
    assert pauses.to_log("a") == 1


def test_what_is_gone_is_forgotten() -> None:
    pauses = Pauses(lambda: 0.0)
    for key in "abc":
        pauses.failed(key)
    pauses.keep({"b", "x"})
    assert len(pauses) == 1
    assert pauses.paused("b")
