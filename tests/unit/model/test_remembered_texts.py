"""What is remembered of texts that were read: some tens of kilobytes, however many objects come and go."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from kbatch.api.objects import timestamp_us
from kbatch.model.finished import parse


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (timestamp_us, lambda number: f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"),
        (parse, lambda number: ",".join(str(place) for place in range(1, 26, 2) if number >> place // 2 & 1)),
    ],
)
def test_of_ten_thousand_texts_little_is_kept(read: Callable[[str], object], text: Callable[[int], str]) -> None:
    tracemalloc.start()
    try:
        for number in range(1000):
            read(text(number))
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1000, 10_000):
            read(text(number))
        assert tracemalloc.get_traced_memory()[0] - before < 100 * 1024
    finally:
        tracemalloc.stop()
