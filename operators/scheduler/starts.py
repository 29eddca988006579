"""How starts that were planned or foreseen come true, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from kbatch.engine import Report, StartEstimate
from kbatch.metrics import StartMetrics
from kbatch.times import SECOND

_BASES: Final = ("reservation", "history", "unknown")


class Starts:
    """Follows what cycles tell of starts."""

    def __init__(self, metrics: StartMetrics) -> None:
        self._metrics = metrics
        self._first: dict[str, StartEstimate] = {}
        """By group what it was told first."""
        self._bases: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        """How many of them rest on which basis."""
        self._planned: dict[str, int | None] = {}

    def take(self, now: int, report: Report, planned: Mapping[str, int | None]) -> None:
        """What a cycle at an instant (microseconds) said of groups, and when which are planned to start."""
        if report.whole:
            for key in self._bases.keys() - report.verdicts.keys():
                self._drop(key)
        for key in report.gone:
            self._drop(key)
        begun: set[str] = set()
        for key, verdict in report.verdicts.items():
            if verdict.scheduled:
                begun.add(key)
                self._started(key, now)
                self._drop(key)
            elif verdict.estimate is not None:
                self._based(key, verdict.estimate.basis)
                if verdict.estimate.time is not None:
                    self._first.setdefault(key, verdict.estimate)
            else:
                self._based(key, None)
        self._compare(now, planned, begun, report)
        for basis in _BASES:
            self._metrics.estimates.labels(basis).set(self._counts[basis])
        self._metrics.planned.set(len(planned))

    def _drop(self, key: str) -> None:
        self._first.pop(key, None)
        self._based(key, None)

    def _based(self, key: str, basis: str | None) -> None:
        """What the group is told rests on this now; None: it is told nothing."""
        before = self._bases.pop(key, None)
        if before is not None:
            self._counts[before] -= 1
        if basis is not None:
            self._bases[key] = basis
            self._counts[basis] += 1

    def _started(self, key: str, now: int) -> None:
        told = self._first.get(key)
        if told is None or told.time is None or told.latest is None:
            return
        error = now - told.time
        self._metrics.error.labels("late" if error > 0 else "early").observe(abs(error) / SECOND)
        self._metrics.held.labels(told.basis, "in_time" if now <= told.latest else "late").inc()

    def _compare(self, now: int, planned: Mapping[str, int | None], begun: set[str], report: Report) -> None:
        """Count what has become of the starts that were planned before."""
        outcome = self._metrics.outcomes
        for key, at in self._planned.items():
            if key in planned:
                if planned[key] != at:
                    outcome.labels("moved").inc()
            elif key in begun:
                outcome.labels("kept" if at is None or now <= at else "broken").inc()
            elif key in report.verdicts:
                outcome.labels("broken").inc()  # it waits on, and nothing is planned for it any more
        self._planned = dict(planned)
