"""The verdict of the soak: growth is seen, warm-up and saws are not taken for it, a run that cannot tell says so."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from tests.bench.soak import MINUTES, PIECES, SLOPE_LIMIT, WARM_UP, WAYS, Growth, fitted, growth, pieces


def run(level: Callable[[float], float], noise: float = 0.0) -> Growth:
    """A run of one sample a second; `level` is MiB by the hour since the start."""
    draw = random.Random(3)
    times = [float(second) for second in range(int((WARM_UP + MINUTES) * 60) + 1)]
    return growth("p", [(at, level(at / 3600) + draw.gauss(0, noise)) for at in times])


def test_a_line_is_found_again_and_its_error_is_none() -> None:
    slope, error = fitted([0.0, 1.0, 2.0, 3.0], [5.0, 7.0, 9.0, 11.0])
    assert (slope, error) == (pytest.approx(2.0), pytest.approx(0.0))


def test_pieces_are_means_of_equal_stretches() -> None:
    assert pieces([(0, 1.0), (1, 3.0), (2, 5.0), (3, 7.0)], 2) == [(0.5, 2.0), (2.5, 6.0)]
    assert pieces([(0, 1.0), (10, 3.0)], 5) == [(0.0, 1.0), (10.0, 3.0)]


def test_what_grows_by_more_than_the_limit_misses_it() -> None:
    found = run(lambda hours: 80 + 2 * SLOPE_LIMIT * hours, noise=0.5)
    assert not found.met
    assert found.slope == pytest.approx(2 * SLOPE_LIMIT, abs=3 * found.error)


def test_what_fills_up_in_the_warm_up_is_no_growth() -> None:
    full = WARM_UP / 60
    found = run(lambda hours: 60 + 30 * min(1.0, hours / full), noise=0.5)
    assert found.met
    assert found.last - found.start > 20
    assert found.minutes == pytest.approx(MINUTES)


def test_saws_are_no_growth() -> None:
    assert run(lambda hours: 80 + 3 * math.modf(hours * 60 / 0.7)[0]).met


def test_a_run_that_cannot_tell_is_missed() -> None:
    draw = random.Random(5)
    steps = [draw.gauss(0, 6) for _ in range(4 * PIECES)]
    found = run(lambda hours: 80 + steps[int(hours * 3 * len(steps)) % len(steps)])
    assert found.error > SLOPE_LIMIT / 2
    assert not found.met


def test_memory_that_is_given_back_at_once_is_no_growth_although_no_line_fits_it() -> None:
    found = run(lambda hours: 90 - 4 * (hours > 0.26))
    assert found.error > SLOPE_LIMIT / 2
    assert found.met


@pytest.mark.parametrize("way", WAYS)
def test_no_gang_is_like_another_and_equal_draws_are_equal(way: Callable[..., list[dict[str, object]]]) -> None:
    first, second, again = (way(random.Random(seed), "g", 8, 3) for seed in (1, 2, 1))
    assert first == again
    assert first != second
    assert "PodGroup" in {one["kind"] for one in first} or [one["kind"] for one in first] == ["Job"]
