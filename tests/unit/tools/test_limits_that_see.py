"""Rows of the live benchmark that bind next to nothing must miss something: each kind is held to some limit."""

from __future__ import annotations

import pytest

from tests.bench.live.limits import judge
from tests.bench.live.rows import Figure


def slow(shape: str, mode: str) -> Figure:
    return Figure(
        "row", "kbatch", shape, mode, 500, 5000, bound=5000, binds_per_second=3.0, ceiling=1000.0, efficiency=0.003,
        wait_p50=800.0, wait_p99=1600.0, first_bind=400.0,
    )  # fmt: skip


def fast(scheduler: str, shape: str, mode: str) -> Figure:
    return Figure("row", scheduler, shape, mode, 500, 5000, bound=5000, binds_per_second=900.0)


@pytest.mark.parametrize(
    ("shape", "mode"),
    [("mixed trace", "mixed"), ("pods that all differ", "backlog"), ("5000 x 1", "live"), ("plain pods", "live")],
)
def test_three_binds_a_second_are_too_few(shape: str, mode: str) -> None:
    figures = [slow(shape, mode), fast("kube-scheduler", shape, mode)]
    assert not all(check.met for check in judge(figures))


def test_nobody_is_faster_than_a_peer_of_which_nothing_is_known() -> None:
    peer = Figure("row", "kube-scheduler", "plain pods", "backlog", 500, 5000, bound=1)
    assert not all(check.met for check in judge([slow("plain pods", "backlog"), peer]))


def test_a_mixed_trace_of_which_most_was_never_bound_misses() -> None:
    row = slow("mixed trace", "mixed")
    row.bound = 3
    assert not all(check.met for check in judge([row]))
