"""The live benchmark's verdict: each limit is asked of its row, a row that ran several times counts by its median."""

from __future__ import annotations

import pytest

from tests.bench.live.limits import efficiency_limit, judge, wants_more
from tests.bench.live.rows import Figure


def row(shape: str, efficiency: float | None = None, *, mode: str = "backlog", scheduler: str = "kbatch") -> Figure:
    return Figure("row", scheduler, shape, mode, 500, 5000, bound=5000, efficiency=efficiency)


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


def test_a_row_without_a_figure_misses() -> None:
    assert not all(check.met for check in judge([row("250 x 20", None)]))
    failed = row("250 x 20")
    failed.failed = "it broke"
    assert not all(check.met for check in judge([failed]))
