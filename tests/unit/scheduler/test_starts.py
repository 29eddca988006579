"""How planned and foreseen starts come true is counted."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kbatch.engine import Report, StartEstimate, Verdict
from kbatch.metrics import StartMetrics
from kbatch.times import SECOND
from operators.scheduler.starts import Starts


class Followed:
    """`Starts` with what it counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.starts = Starts(StartMetrics(self.registry))

    def cycle(self, now: int, planned: dict[str, int | None], *verdicts: Verdict, gone: tuple[str, ...] = ()) -> None:
        by_key = {verdict.job: verdict for verdict in verdicts}
        plans = {key: None if at is None else at * SECOND for key, at in planned.items()}
        self.starts.take(now * SECOND, Report(by_key, whole=False, gone=gone), plans)

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"kbatch_scheduler_{name}", labels) or 0.0

    def outcomes(self) -> dict[str, float]:
        return {each: self.value("planned_start_outcomes_total", outcome=each) for each in ("kept", "moved", "broken")}


def waits(key: str, time: int | None = None, latest: int | None = None, basis: str = "history") -> Verdict:
    told = None
    if time is not None and latest is not None:
        told = StartEstimate(time * SECOND, latest * SECOND, basis)
    return Verdict(key, shadow=False, enqueued=True, scheduled=False, job=key, estimate=told)


def runs(key: str) -> Verdict:
    return Verdict(key, shadow=False, enqueued=True, scheduled=True, job=key)


def test_what_becomes_of_planned_starts() -> None:
    found = Followed()
    found.cycle(0, {"a": 10, "b": 10, "c": 10, "d": 10, "e": None})
    assert found.value("planned_starts") == 5
    found.cycle(5, {"a": 10, "b": 12, "c": 10, "d": 10, "e": None})
    assert found.outcomes() == {"kept": 0, "moved": 1, "broken": 0}
    found.cycle(11, {"e": None}, runs("a"), runs("b"), waits("c"), gone=("d",))
    assert found.outcomes() == {"kept": 1, "moved": 1, "broken": 2}  # b in time; a late; c waits without one; d is gone
    found.cycle(12, {}, runs("e"))
    assert found.outcomes()["kept"] == 2


def test_how_far_first_estimates_were_off() -> None:
    found = Followed()
    found.cycle(0, {}, waits("a", 100, 200), waits("b", 100, 200), waits("c", 50, 50, "reservation"))
    assert found.value("start_estimates", basis="history") == 2
    assert found.value("start_estimates", basis="reservation") == 1
    found.cycle(90, {}, waits("b", 900, 1000))
    found.cycle(95, {}, runs("a"))
    found.cycle(260, {}, runs("b"), runs("c"))
    assert found.value("start_estimates_held_total", basis="history", outcome="in_time") == 1
    assert found.value("start_estimates_held_total", basis="history", outcome="late") == 1
    assert found.value("start_estimates_held_total", basis="reservation", outcome="late") == 1
    assert found.value("start_error_seconds_sum", side="early") == 5
    assert found.value("start_error_seconds_sum", side="late") == 160 + 210
    assert found.value("start_estimates", basis="history") == 0


def test_who_is_gone_is_forgotten() -> None:
    found = Followed()
    found.cycle(0, {}, waits("a", 100, 200))
    found.cycle(1, {}, gone=("a",))
    found.cycle(2, {}, runs("a"))
    assert found.value("start_error_seconds_count", side="early") == 0
    found.cycle(3, {}, waits("a", 100, 200))
    found.starts.take(4 * SECOND, Report({}), {})
    assert found.value("start_estimates", basis="history") == 0
