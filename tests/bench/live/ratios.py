"""What the installed product must reach: ratios to the bare loop of the same round, of which the median counts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tests.bench.live.limits import Check

LOOP, PRODUCT = "bare loop", "kbatch as installed"


class Measured(Protocol):
    """A run, as `tests.bench.live.installed` measures it."""

    who: str
    round: int
    nodes: int
    shape: str
    mode: str
    pods: int
    cpu: float
    made_per_second: float
    binds_per_second: float
    told_per_second: float
    failed: str


def judge(figures: Sequence[Measured]) -> list[Check]:
    """All limits that the rows which ran are held to."""
    return list(_checks(figures))


def _checks(figures: Sequence[Measured]) -> Iterator[Check]:
    loops = {(one.nodes, one.round, one.mode): one for one in figures if one.who == LOOP}
    rows: dict[tuple[int, str, str], list[Measured]] = {}
    for one in figures:
        if one.failed:
            yield Check(
                f"{one.who}, {one.shape}, {one.mode}, {one.nodes} nodes: {one.failed}", None, 1.0, at_least=True
            )
        elif one.who == PRODUCT:
            rows.setdefault((one.nodes, one.shape, one.mode), []).append(one)
    for (nodes, shape, mode), runs in rows.items():
        pairs = [(one, loops[nodes, one.round, mode]) for one in runs if not loops[nodes, one.round, mode].failed]
        where = f"as installed, {shape}, {mode}, {nodes} nodes"
        singles = runs[0].shape == f"{runs[0].pods} x 1"

        def ratio(what: Callable[[Measured], float], pairs: list[tuple[Measured, Measured]] = pairs) -> float | None:
            values = [what(one) / what(loop) for one, loop in pairs if what(loop)]
            return statistics.median(values) if values else None

        of = f"median of {len(pairs)}"
        yield Check(f"{where}: CPU over the loop's, {of}", ratio(lambda one: one.cpu), 2.5 if singles else 1.4, False)
        if mode == "live":
            made = ratio(lambda one: one.made_per_second)
            yield Check(f"{where}: pods made in a second over the loop's, {of}", made, 0.85, True)
            continue
        bound = ratio(lambda one: one.binds_per_second)
        yield Check(f"{where}: bind efficiency, {of}", bound, 0.65 if singles else 0.8, True)
        if singles:
            told = ratio(lambda one: one.told_per_second)
            yield Check(f"{where}: the same until all groups say so, {of}", told, 0.35, True)
