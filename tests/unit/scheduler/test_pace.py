"""How often a group that waits is rewritten."""

from __future__ import annotations

from operators.scheduler.pace import (
    HOLDS,
    MESSAGE_SECONDS,
    REST_SECONDS,
    START_SECONDS,
    WRITES_AT_ONCE,
    Pace,
)
from operators.scheduler.status_diff import Difference

START, MESSAGE, REASON, STATUS = Difference.START, Difference.MESSAGE, Difference.REASON, Difference.STATUS


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_where_a_group_stands_is_always_written_at_once() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(10):
        assert pace.due("g", STATUS) == clock.now
        pace.wrote("g", STATUS)
        clock.now += 1


def test_messages_are_rewritten_after_a_while_and_then_after_a_long_one() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.wrote("g", STATUS)
    assert pace.due("g", MESSAGE) == clock.now + MESSAGE_SECONDS
    assert pace.due("h", MESSAGE) == clock.now, "another group"
    clock.now += MESSAGE_SECONDS
    pace.wrote("g", MESSAGE)
    assert pace.due("g", MESSAGE) == clock.now + REST_SECONDS
    clock.now += REST_SECONDS
    pace.wrote("g", MESSAGE)
    assert pace.due("g", MESSAGE) == clock.now + REST_SECONDS
    clock.now += 2 * REST_SECONDS
    assert pace.due("g", MESSAGE) == clock.now, "it was left alone for so long that all is forgotten"


def test_reasons_that_come_and_go_are_written_at_once_and_then_now_and_then() -> None:
    clock = Clock()
    pace = Pace(clock)
    times: list[float] = []
    for _ in range(7200):
        if pace.due("g", REASON) <= clock.now:
            pace.wrote("g", REASON)
            times.append(clock.now - 1000)
        clock.now += 1
    assert times == [0, 1, 2, 1800, 3600, 5400]


def test_the_first_reason_of_a_group_that_is_placed_no_longer_is_written_at_once() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(5):  # of a group that runs, loses a pod, and so on
        pace.wrote("g", STATUS, fell=True)
        clock.now += 1
        pace.saw("g", "no pod")
        pace.saw("g", "no room")
        assert pace.due("g", REASON) == clock.now
        pace.wrote("g", REASON)
        clock.now += 1
    pace.saw("g", "no pod")
    assert pace.due("g", REASON) == clock.now + HOLDS[0], "only the first, and none of these counts as one that held"


def test_a_reason_that_holds_is_written_and_the_next_when_it_held_for_longer() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(10):
        pace.wrote("g", STATUS)
    wrote = clock.now
    for number, hold in enumerate((*HOLDS, HOLDS[-1])):
        for passing in range(5):
            pace.saw("g", ("passing", passing))
            clock.now += 1
        pace.saw("g", ("stays", number))
        since = clock.now
        pace.saw("g", ("stays", number))
        due = min(since + hold, wrote + REST_SECONDS)
        assert pace.due("g", REASON) == due
        clock.now = wrote = due
        assert pace.due("g", REASON) == clock.now
        pace.wrote("g", REASON)


def test_a_group_whose_reasons_hold_just_long_enough_is_written_a_few_times_an_hour() -> None:
    clock = Clock()
    pace = Pace(clock)
    times: list[float] = []
    number = 0
    while clock.now < 1000 + 3600:
        pace.saw("g", (number,))
        if pace.due("g", REASON) <= clock.now:
            pace.wrote("g", REASON)
            times.append(clock.now - 1000)
            number += 1
        clock.now += 1
    assert len(times) <= WRITES_AT_ONCE + 3, times


def test_when_a_group_is_to_start_has_a_pace_of_its_own() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.due("g", START) == clock.now
    pace.wrote("g", START)
    pace.wrote_start("g")
    assert pace.start_rests("g")
    assert pace.due("g", START) == clock.now + START_SECONDS
    assert pace.due("g", MESSAGE) == clock.now, "it does not count among the others"
    clock.now += START_SECONDS
    assert not pace.start_rests("g")


def test_groups_that_are_gone_are_forgotten() -> None:
    pace = Pace(Clock())
    pace.wrote("g", STATUS)
    pace.wrote_start("h")
    pace.saw("h", "waits")
    pace.saw("i", "waits")
    assert len(pace) == 2, "of a group that was never written there is nothing to hold back"
    pace.keep({"h"})
    assert len(pace) == 1
