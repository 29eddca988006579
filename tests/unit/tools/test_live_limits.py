"""The live benchmark's verdict: each limit is asked of its row, a row that ran several times counts by its median."""

from __future__ import annotations

import pytest

from tests.bench.live.limits import efficiency_limit, judge, wait_limit, wants_more
from tests.bench.live.rows import Figure


def row(
    shape: str,
    efficiency: float | None = None,
    *,
    mode: str = "backlog",
    scheduler: str = "kbatch",
    wait: float | None = None,
) -> Figure:
    return Figure("row", scheduler, shape, mode, 500, 5000, bound=5000, efficiency=efficiency, wait_p99=wait)


@pytest.mark.parametrize(
    ("figure", "limit"),
    [
        (row("250 x 20"), 0.75),
        (row("1 x 5000"), 0.75),
        (row("5000 x 1"), 0.6),
        (row("plain pods"), None),
        (row("250 x 20", mode="live"), None),
        (row("250 x 20", mode="standing"), None),
        (row("250 x 20", scheduler="kbatch with operators"), None),
    ],
)
def test_gangs_with_a_backlog_have_a_limit_of_efficiency(figure: Figure, limit: float | None) -> None:
    assert efficiency_limit(figure) == limit


def test_a_row_that_misses_runs_again_and_its_median_counts() -> None:
    assert wants_more(row("250 x 20", 0.74))
    assert not wants_more(row("250 x 20", 0.75))
    lines = [check.line for check in judge([row("250 x 20", value) for value in (0.7, 0.9, 0.76)])]
    assert [line for line in lines if "efficiency" in line] == [
        "ok   kbatch, 250 x 20, backlog, 500 nodes: bind efficiency, median of 3: 0.76 (limit ≥ 0.75)"
    ]
    assert not all(check.met for check in judge([row("250 x 20", value) for value in (0.7, 0.74, 0.9)]))


def test_pods_that_wait_too_long_are_measured_again_too() -> None:
    assert wait_limit(row("250 x 20", mode="live")) == 3.0
    for other in (row("250 x 20"), row("20 x 250", mode="live"), row("250 x 20", mode="live", scheduler="peer")):
        assert wait_limit(other) is None
    assert wants_more(row("250 x 20", mode="live", wait=3.01))
    assert not wants_more(row("250 x 20", mode="live", wait=3.0))
    lines = [check.line for check in judge([row("250 x 20", mode="live", wait=wait) for wait in (3.01, 0.9, 1.2)])]
    assert [line for line in lines if "p99" in line] == [
        "ok   kbatch, 250 x 20, live, 500 nodes: p99 create to bound, s, median of 3: 1.2 (limit ≤ 3)"
    ]
    assert not all(check.met for check in judge([row("250 x 20", mode="live", wait=wait) for wait in (3.01, 0.9, 9.0)]))


def test_a_row_without_a_figure_misses() -> None:
    assert not all(check.met for check in judge([row("250 x 20", None)]))
    failed = row("250 x 20")
    failed.failed = "it broke"
    assert not all(check.met for check in judge([failed]))
