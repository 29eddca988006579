"""The installed product's verdict: each run against the loop of its own round, and the median of the rounds."""

from __future__ import annotations

import time

import pytest

from tests.bench.live.following import Followed
from tests.bench.live.installed import Figure, filled
from tests.bench.live.load import Shape
from tests.bench.live.ratios import LOOP, PRODUCT, judge


def run(who: str, round_: int, mode: str = "backlog", shape: str = "250 x 20", **given: float) -> Figure:
    figure = Figure(who, round_, 500, shape, mode, 5000, 10.0)
    values = {"made_per_second": 100.0, "binds_per_second": 100.0, "told_per_second": 100.0} | given
    for name, value in values.items():
        setattr(figure, name, value)
    return figure


def rounds(mode: str, shape: str, *products: dict[str, float]) -> list[Figure]:
    figures = [run(LOOP, number, mode, "plain pods") for number in range(len(products))]
    return figures + [run(PRODUCT, number, mode, shape, **given) for number, given in enumerate(products)]


def missed(figures: list[Figure]) -> list[str]:
    return [check.line for check in judge(figures) if not check.met]


def test_the_median_of_the_ratios_counts() -> None:
    figures = rounds("backlog", "250 x 20", {"cpu": 14.0}, {"cpu": 30.0}, {"cpu": 11.0})
    assert missed(figures) == []
    figures[0].cpu = 9.0  # the first round's loop was cheaper: 14 / 9
    assert missed(figures) == [
        "MISS as installed, 250 x 20, backlog, 500 nodes: CPU over the loop's, median of 3: 1.56 (limit ≤ 1.4)"
    ]


@pytest.mark.parametrize(
    ("mode", "shape", "figure", "value", "met"),
    [
        ("backlog", "1 x 5000", "binds_per_second", 80.0, True),
        ("backlog", "1 x 5000", "binds_per_second", 79.0, False),
        ("backlog", "5000 x 1", "binds_per_second", 65.0, True),
        ("backlog", "5000 x 1", "told_per_second", 34.0, False),
        ("backlog", "5000 x 1", "cpu", 25.0, True),
        ("backlog", "5000 x 1", "cpu", 26.0, False),
        ("live", "20 x 250", "cpu", 15.0, False),
        ("live", "20 x 250", "binds_per_second", 1.0, True),  # what is made bounds it
        ("live", "20 x 250", "made_per_second", 84.0, False),
    ],
)
def test_each_limit(mode: str, shape: str, figure: str, value: float, met: bool) -> None:
    assert (missed(rounds(mode, shape, {figure: value})) == []) == met


def test_a_run_that_did_not_end_misses() -> None:
    figures = rounds("live", "250 x 20", {}, {})
    figures[-1].failed = "3 of 5000 pods are bound"
    assert missed(figures) == [
        "MISS kbatch as installed, 250 x 20, live, 500 nodes: 3 of 5000 pods are bound: none (limit ≥ 1)"
    ]


def test_a_run_before_which_something_went_on_has_no_figures() -> None:
    for idle, failed in ((0.05, False), (0.5, True)):
        figure = run(PRODUCT, 0)
        seen = Followed()
        for number in range(5000):
            for times in (seen.sent, seen.made, seen.bound, seen.running):
                times[f"p{number}"] = time.time() - 1
        filled(figure, seen, Shape(5000, 250), {"kube-apiserver": 50.0}, {"kube-apiserver": idle}, time.time() - 100)
        assert bool(figure.failed) == failed
