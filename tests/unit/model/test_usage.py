"""Usage that fades."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kbatch.api.objects import QueueFlow
from kbatch.model.usage import Anchor, faded, faded_until, read_anchor, spelled_out
from kbatch.resources import MILLION
from kbatch.times import HOUR, SECOND

START = 1_767_225_600 * SECOND


@pytest.mark.parametrize(
    ("amount", "elapsed", "half_life", "left"),
    [
        (8 * MILLION, 0, HOUR, 8 * MILLION),
        (8 * MILLION, HOUR, HOUR, 4 * MILLION),
        (8 * MILLION, 3 * HOUR, HOUR, MILLION),
        (8 * MILLION, 100 * HOUR, HOUR, 0),
        (1, HOUR, HOUR, 0),
        (MILLION, HOUR // 2, HOUR, 707_106),
        (MILLION, HOUR, 3 * HOUR, 793_700),
        (MILLION, -SECOND, HOUR, MILLION),
        (-5, HOUR, HOUR, 0),
        (0, HOUR, HOUR, 0),
    ],
)
def test_half_is_left_after_each_half_life(amount: int, elapsed: int, half_life: int, left: int) -> None:
    assert faded(amount, elapsed, half_life) == left


@pytest.mark.parametrize("half_life", [1, 7, SECOND, HOUR, 1000 * HOUR])
def test_the_last_unit_is_right_for_large_amounts(half_life: int) -> None:
    """Against roots in exact arithmetic: 2^(-1/4) is the root of the root of 1/2."""
    amount = 10**18
    left = faded(amount, half_life, 4 * half_life)
    assert Fraction(left, amount) ** 4 <= Fraction(1, 2) < Fraction(left + 1, amount) ** 4


def test_the_flow_is_what_was_used_until_it_fades() -> None:
    anchor = Anchor().moved(START, HOUR, 4 * MILLION, 4 * MILLION)
    assert anchor.at(START, HOUR) == (4 * MILLION, 4 * MILLION)
    assert anchor.at(START + 10 * HOUR, HOUR) == (4 * MILLION, 4 * MILLION)
    ended = anchor.moved(START + 10 * HOUR, HOUR, MILLION, 0)
    assert ended.at(START + 10 * HOUR, HOUR) == (4 * MILLION, 4 * MILLION)
    assert ended.at(START + 11 * HOUR, HOUR) == (2_500_000, 2 * MILLION)
    assert ended.at(START + 100 * HOUR, HOUR) == (MILLION, 0)


def test_it_moves_only_when_the_usage_changes() -> None:
    anchor = Anchor(5, 4, 3, 2, START)
    assert anchor.moved(START + HOUR, HOUR, 3, 2) is anchor
    assert anchor.moved(START + HOUR, HOUR, 3, 1).time == START + HOUR
    assert anchor.moved(START + HOUR, HOUR, 4, 2).time == START + HOUR


def test_of_several_changes_at_one_instant_only_the_last_counts() -> None:
    before = Anchor(6 * MILLION, 6 * MILLION, MILLION, MILLION, START)
    peak = before.moved(START + HOUR, HOUR, 9 * MILLION, 9 * MILLION).moved(START + HOUR, HOUR, 2 * MILLION, MILLION)
    assert peak == before.moved(START + HOUR, HOUR, 2 * MILLION, MILLION)
    assert peak.at(START + HOUR, HOUR) == (3_500_000, 3_500_000)


def test_without_a_half_life_it_is_the_usage() -> None:
    anchor = Anchor().moved(START, 0, 9, 8).moved(START, 0, 3, 2)
    assert anchor.at(START, 0) == anchor.at(START + HOUR, 0) == (3, 2)
    assert anchor.written().value == "0.000003"


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    anchor = Anchor(5, 5, 3, 3, START)
    assert anchor.at(START - HOUR, HOUR) == (5, 5)
    assert anchor.moved(START - HOUR, HOUR, 4, 4) == Anchor(5, 5, 4, 4, START)


def test_what_is_written_is_read_as_it_was() -> None:
    anchor = Anchor(7_250_001, 5, 1_500_000, 0, START + 123_456)
    written = anchor.written()
    assert written == QueueFlow(
        value="7.250001", unlimited_value="0.000005", usage="1.5", unlimited_usage=0, time="2026-01-01T00:00:00.123456Z"
    )
    assert read_anchor(written) == anchor
    assert list(spelled_out(written)) == ["value", "unlimitedValue", "usage", "unlimitedUsage", "time"]


def test_what_is_written_is_never_below_the_usage() -> None:
    anchor = Anchor(1, 0, 5, 4, START)
    written = anchor.written()
    assert (written.value, written.unlimited_value) == ("0.000005", "0.000004")
    again = read_anchor(written)
    assert again is not None
    assert again.at(START + SECOND, HOUR) == anchor.at(START + SECOND, HOUR)


@pytest.mark.parametrize("time", ["", "yesterday"])
def test_what_cannot_be_read_is_nothing(time: str) -> None:
    assert read_anchor(QueueFlow(value=1, time=time)) is None


def test_numbers_that_cannot_be_are_nothing() -> None:
    for odd in (float("inf"), float("nan"), "much", "1e300"):
        assert read_anchor(QueueFlow(value=odd, time="2026-01-01T00:00:00Z")) is None
    below = read_anchor(QueueFlow(value=-1, time="2026-01-01T00:00:00Z"))
    assert below == Anchor(0, 0, 0, 0, START)


def test_it_is_told_as_of_now() -> None:
    written = Anchor(4 * MILLION, 2 * MILLION, 0, 0, START).written()
    assert faded_until(written, START + HOUR, HOUR) == QueueFlow(
        value=2, unlimited_value=1, usage=0, unlimited_usage=0, time="2026-01-01T01:00:00.000000Z"
    )
    odd = QueueFlow(value="much", time="2026-01-01T00:00:00Z")
    assert faded_until(odd, START, HOUR) is odd
