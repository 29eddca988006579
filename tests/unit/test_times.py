"""Instants are exact integers, in microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.objects import timestamp_us
from kbatch.api.schema import MOST_SECONDS
from kbatch.simulator.names import START, timestamp
from kbatch.times import MILLISECOND, SECOND

EPOCH = 1_767_225_600 * SECOND


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2026-01-01T00:00:00Z", EPOCH),
        ("2026-01-01T00:00:00.5Z", EPOCH + 500 * MILLISECOND),
        ("2026-01-01T00:00:00.000001Z", EPOCH + 1),
        ("2026-01-01T00:00:00.123456Z", EPOCH + 123_456),
        ("2026-01-01T00:00:00.999999Z", EPOCH + 999_999),
        ("2026-01-01T00:00:00.1234567Z", EPOCH + 123_457),
        ("2026-01-01T01:30:00.000001+01:30", EPOCH + 1),
        ("2026-01-01T00:00:00.000001", EPOCH + 1),
        ("9999-12-31T23:59:59.999999Z", 253_402_300_800 * SECOND - 1),
    ],
)
def test_a_time_is_read_to_the_microsecond(text: str | None, expected: int | None) -> None:
    assert timestamp_us(text) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-01", "1767225600", "2026-13-01T00:00:00Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        timestamp_us(text)


@given(st.integers(0, 400 * 366 * 24 * 3600 * SECOND))
def test_every_microsecond_is_told_from_the_next(elapsed: int) -> None:
    assert timestamp_us(timestamp(elapsed)) == START + elapsed


@pytest.mark.parametrize(
    ("elapsed", "expected"),
    [
        (0, "2000-01-01T00:00:00Z"),
        (61 * SECOND, "2000-01-01T00:01:01Z"),
        (SECOND + 500 * MILLISECOND, "2000-01-01T00:00:01.500Z"),
        (SECOND + 1, "2000-01-01T00:00:01.000001Z"),
        (SECOND + 20 * MILLISECOND + 300, "2000-01-01T00:00:01.020300Z"),
        (-MILLISECOND, "1999-12-31T23:59:59.999Z"),
    ],
)
def test_a_time_of_the_simulator_is_written_with_the_digits_that_it_needs(elapsed: int, expected: str) -> None:
    assert timestamp(elapsed) == expected


def test_ten_years_from_now_a_float_still_tells_microseconds_apart() -> None:
    last = timestamp_us((datetime(2100, 1, 1, tzinfo=UTC) + timedelta(seconds=MOST_SECONDS)).isoformat())
    assert last is not None
    assert last < 2**53
