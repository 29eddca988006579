"""What the figures must reach."""

from __future__ import annotations

from collections.abc import Iterator
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


def judge(figures: list[Figure]) -> list[Check]:
    """All limits that the rows which ran are held to."""
    return list(_checks(figures))


def _checks(figures: list[Figure]) -> Iterator[Check]:
    plain: dict[tuple[int, str], dict[str, Figure]] = {}
    for figure in figures:
        where = f"{figure.scheduler}, {figure.shape}, {figure.mode}, {figure.nodes} nodes"
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
        if figure.mode == "backlog" and gangs.isdigit():
            limit = 0.6 if int(gangs) == figure.pods else 0.75
            yield Check(f"{where}: bind efficiency", figure.efficiency, limit, at_least=True)
        if figure.mode == "live" and gangs.isdigit() and int(gangs) == figure.pods // 20:
            yield Check(f"{where}: p99 create to bound, s", figure.wait_p99, 3.0, at_least=False)
        if figure.mode == "live" and gangs == "1":
            yield Check(f"{where}: first bind after the last creation, s", figure.first_bind, 2.0, at_least=False)
    for (nodes, mode), by in plain.items():
        if "kbatch" in by and "kube-scheduler" in by:
            ours, theirs = by["kbatch"].binds_per_second or 0.0, by["kube-scheduler"].binds_per_second or 1.0
            if mode == "backlog":
                yield Check(
                    f"plain pods, {mode}, {nodes} nodes: kbatch / kube-scheduler", ours / theirs, 1.0, at_least=True
                )
