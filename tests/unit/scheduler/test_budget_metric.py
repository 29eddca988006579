"""excessBudget is shown in the unit of what is charged of it: both are seconds (docs/reference/metrics.md)."""

from __future__ import annotations

from kbatch.api.objects import Queue, QueueSpec
from tests.unit.scheduler.fakes import FakeApi, cache_with, queue
from tests.unit.scheduler.test_queues import standing, writer


def budgeted(minutes: int) -> Queue:
    found = queue("q")
    found.spec = QueueSpec(excess_budget=minutes)
    return found


def test_a_budget_that_is_charged_whole_is_shown_as_used_up() -> None:
    told, registry = writer(FakeApi(), cache_with(budgeted(10)))
    told.take({"q": standing(charged=20)})  # of half resource-minutes
    shown = [
        registry.get_sample_value(f"kbatch_scheduler_queue_excess_{what}_seconds", {"queue": "q"})
        for what in ("charged", "budget")
    ]
    assert shown == [600, 600]
