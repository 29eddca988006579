"""What the figures must reach."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench.live.rows import Figure


@dataclass(frozen=True, slots=True)
class Check:
    """One limit: `value` against `limit`, from above or from below."""

    what: str
    value: float | None
    limit: float
    at_least: bool

    @property
    def met(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def line(self) -> str:
        value = "none" if self.value is None else f"{self.value:.3g}"
        sign = "≥" if self.at_least else "≤"
        return f"{'ok  ' if self.met else 'MISS'} {self.what}: {value} (limit {sign} {self.limit:g})"


def efficiency_limit(figure: Figure) -> float | None:
    """What a row's bind efficiency must reach; None where there is no such limit."""
    if figure.scheduler != "kbatch":
        return None
    if figure.shape == "pods that all differ":
        return 0.5
    if figure.gangs is None:
        return None
    if figure.mode == "standing":
        return 0.75
    if figure.mode != "backlog":
        return None
    return 0.75 if figure.gangs == figure.pods else 0.85


def wait_limit(figure: Figure) -> float | None:
    """What 99 of 100 pods of a row may wait at most, in seconds; None where there is no such limit."""
    if figure.scheduler != "kbatch":
        return None
    if figure.mode == "mixed":
        return 10.0
    if figure.mode != "live":
        return None
    return {figure.pods // 20: 3.0, figure.pods: 5.0}.get(figure.gangs or 0)


def first_bind_limit(figure: Figure) -> float | None:
    """When the first bind must be seen, in seconds; None where there is no such limit."""
    if figure.scheduler != "kbatch":
        return None
    if figure.mode == "standing":
        return 3.0
    return 2.0 if figure.mode == "live" and figure.gangs == 1 else None


def _of_one_row(figures: Sequence[Figure]) -> Iterator[Check]:
    """The limits for which the median of a row counts, if it ran several times."""
    of = f", median of {len(figures)}" if len(figures) > 1 else ""
    where, efficiency, wait = _where(figures[0]), efficiency_limit(figures[0]), wait_limit(figures[0])
    if efficiency is not None:
        value = _median([one.efficiency for one in figures])
        yield Check(f"{where}: bind efficiency{of}", value, efficiency, at_least=True)
    if wait is not None:
        value = _median([one.wait_p99 for one in figures])
        yield Check(f"{where}: p99 create to bound, s{of}", value, wait, at_least=False)
    first = first_bind_limit(figures[0])
    if first is not None:
        value = _median([one.first_bind for one in figures])
        since = "after a start" if figures[0].mode == "standing" else "after the last creation"
        yield Check(f"{where}: first bind {since}, s{of}", value, first, at_least=False)


def _median(values: Sequence[float | None]) -> float | None:
    """None where one of them is missing."""
    found = [value for value in values if value is not None]
    return statistics.median(found) if len(found) == len(values) else None


def _where(figure: Figure) -> str:
    return f"{figure.scheduler}, {figure.shape}, {figure.mode}, {figure.nodes} nodes"


def judge(figures: list[Figure]) -> list[Check]:
    """All limits that the rows which ran are held to."""
    return list(_checks(figures))


def _checks(figures: list[Figure]) -> Iterator[Check]:
    plain: dict[tuple[int, str], dict[str, list[float | None]]] = {}
    alike: dict[str, list[Figure]] = {}
    for figure in figures:
        where = _where(figure)
        if figure.shape == "plain pods":
            rates = plain.setdefault((figure.nodes, figure.mode), {})
            rates.setdefault(figure.scheduler, []).append(figure.binds_per_second)
        if figure.failed:
            yield Check(f"{where}: ended", None, 1.0, at_least=True)
            continue
        if figure.scheduler != "kbatch":
            continue
        yield Check(f"{where}: pods bound, of all", figure.bound / max(1, figure.pods), 1.0, at_least=True)
        alike.setdefault(where, []).append(figure)
    for rows in alike.values():
        yield from _of_one_row(rows)
    for (nodes, mode), by in plain.items():
        if "kbatch" in by and "kube-scheduler" in by:
            ours, theirs = _median(by["kbatch"]), _median(by["kube-scheduler"])
            value = ours / theirs if ours is not None and theirs else None
            yield Check(f"plain pods, {mode}, {nodes} nodes: kbatch / kube-scheduler", value, 1.0, at_least=True)
