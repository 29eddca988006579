"""The live benchmark's verdict: each limit is asked of its row, a row that ran several times counts by its median."""

from __future__ import annotations

import pytest

from tests.bench.live.limits import efficiency_limit, judge, wait_limit
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
        (row("250 x 20"), 0.85),
        (row("1 x 5000"), 0.85),
        (row("5000 x 1"), 0.75),
        (row("plain pods"), None),
        (row("250 x 20", mode="live"), None),
        (row("250 x 20", mode="standing"), 0.75),
        (row("250 x 20", scheduler="volcano"), None),
    ],
)
def test_gangs_with_a_backlog_have_a_limit_of_efficiency(figure: Figure, limit: float | None) -> None:
    assert efficiency_limit(figure) == limit


def test_of_a_row_that_ran_several_times_the_median_counts() -> None:
    lines = [check.line for check in judge([row("250 x 20", value) for value in (0.7, 0.9, 0.86)])]
    assert [line for line in lines if "efficiency" in line] == [
        "ok   kbatch, 250 x 20, backlog, 500 nodes: bind efficiency, median of 3: 0.86 (limit ≥ 0.85)"
    ]
    assert not all(check.met for check in judge([row("250 x 20", value) for value in (0.7, 0.84, 0.9)]))


def test_pods_that_wait_too_long_miss() -> None:
    assert wait_limit(row("250 x 20", mode="live")) == 3.0
    for other in (row("250 x 20"), row("20 x 250", mode="live"), row("250 x 20", mode="live", scheduler="peer")):
        assert wait_limit(other) is None
    lines = [check.line for check in judge([row("250 x 20", mode="live", wait=wait) for wait in (3.01, 0.9, 1.2)])]
    assert [line for line in lines if "p99" in line] == [
        "ok   kbatch, 250 x 20, live, 500 nodes: p99 create to bound, s, median of 3: 1.2 (limit ≤ 3)"
    ]
    assert not all(check.met for check in judge([row("250 x 20", mode="live", wait=wait) for wait in (3.01, 0.9, 9.0)]))


def test_beside_what_runs_already_the_first_bind_comes_soon() -> None:
    runs = [row("250 x 20", 0.8, mode="standing") for _ in range(3)]
    for run, first in zip(runs, (2.0, 3.1, 9.0), strict=True):
        run.first_bind = first
    (missed,) = [check.line for check in judge(runs) if not check.met]
    assert missed == (
        "MISS kbatch, 250 x 20, standing, 500 nodes: first bind after a start, s, median of 3: 3.1 (limit ≤ 3)"
    )


def test_plain_pods_are_compared_by_their_medians() -> None:
    def plain(scheduler: str, rate: float) -> Figure:
        figure = row("plain pods", scheduler=scheduler)
        figure.binds_per_second = rate
        return figure

    rates = [("kbatch", 400.0), ("kube-scheduler", 100.0), ("kbatch", 300.0), ("kube-scheduler", 350.0)]
    rates += [("kbatch", 200.0), ("kube-scheduler", 360.0)]
    (check,) = [check for check in judge([plain(*one) for one in rates]) if "kube-scheduler" in check.what]
    assert check.value == pytest.approx(300 / 350)
    assert not check.met


def test_a_row_without_a_figure_misses() -> None:
    assert not all(check.met for check in judge([row("250 x 20", None)]))
    failed = row("250 x 20")
    failed.failed = "it broke"
    assert not all(check.met for check in judge([failed]))
