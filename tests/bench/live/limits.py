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
    gangs = figure.shape.partition(" x ")[0]
    if figure.scheduler != "kbatch" or figure.mode != "backlog" or not gangs.isdigit():
        return None
    return 0.6 if int(gangs) == figure.pods else 0.75


def wants_more(figure: Figure) -> bool:
    """Whether a row should be measured again: machines have slow minutes, and one row may lie in one."""
    limit = efficiency_limit(figure)
    return limit is not None and figure.efficiency is not None and figure.efficiency < limit


def _efficiency(figures: Sequence[Figure]) -> Check | None:
    """The median of a row that ran several times against its limit."""
    limit = efficiency_limit(figures[0])
    if limit is None:
        return None
    found = [one.efficiency for one in figures if one.efficiency is not None]
    of = f", median of {len(figures)}" if len(figures) > 1 else ""
    value = statistics.median(found) if len(found) == len(figures) else None
    return Check(f"{_where(figures[0])}: bind efficiency{of}", value, limit, at_least=True)


def _where(figure: Figure) -> str:
    return f"{figure.scheduler}, {figure.shape}, {figure.mode}, {figure.nodes} nodes"


def judge(figures: list[Figure]) -> list[Check]:
    """All limits that the rows which ran are held to."""
    return list(_checks(figures))


def _checks(figures: list[Figure]) -> Iterator[Check]:
    plain: dict[tuple[int, str], dict[str, Figure]] = {}
    alike: dict[str, list[Figure]] = {}
    for figure in figures:
        where = _where(figure)
        if figure.shape == "plain pods":
            plain.setdefault((figure.nodes, figure.mode), {})[figure.scheduler] = figure
        if figure.failed:
            yield Check(f"{where}: ended", None, 1.0, at_least=True)
            continue
        if figure.scheduler != "kbatch":
            continue
        if figure.mode != "mixed":
            yield Check(f"{where}: pods bound, of all", figure.bound / max(1, figure.pods), 1.0, at_least=True)
        gangs = figure.shape.partition(" x ")[0]
        alike.setdefault(where, []).append(figure)
        if figure.mode == "live" and gangs.isdigit() and int(gangs) == figure.pods // 20:
            yield Check(f"{where}: p99 create to bound, s", figure.wait_p99, 3.0, at_least=False)
        if figure.mode == "live" and gangs == "1":
            yield Check(f"{where}: first bind after the last creation, s", figure.first_bind, 2.0, at_least=False)
    for rows in alike.values():
        check = _efficiency(rows)
        if check is not None:
            yield check
    for (nodes, mode), by in plain.items():
        if "kbatch" in by and "kube-scheduler" in by:
            ours, theirs = by["kbatch"].binds_per_second or 0.0, by["kube-scheduler"].binds_per_second or 1.0
            if mode == "backlog":
                yield Check(
                    f"plain pods, {mode}, {nodes} nodes: kbatch / kube-scheduler", ours / theirs, 1.0, at_least=True
                )
