"""What the scheduler tells of packing: anew where something changed, and not too often."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from kbatch.metrics import SchedulerMetrics
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from operators.scheduler.packed import Packed
from tests.unit.engine.worlds import queue, world
from tests.unit.plugins.views import node, pod


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def figures(registry: CollectorRegistry) -> tuple[float | None, float | None]:
    cpu = registry.get_sample_value("kbatch_scheduler_fragmentation_ratio", {"resource": "cpu"})
    return cpu, registry.get_sample_value("kbatch_scheduler_nodes_opened")


def look(packed: Packed, model: ClusterModel) -> int:
    """How many turns it gave."""
    return len(list(packed.look(model)))


def test_it_is_told_anew_after_a_change_and_a_while() -> None:
    registry, clock = CollectorRegistry(), Clock()
    packed = Packed(SchedulerMetrics(registry), clock)
    model = world(queue(), node("a"), pod("h", "a", requests={"cpu": "6"}), pod("p", requests={"cpu": "3"}))
    assert look(packed, model) > 0
    assert figures(registry) == (0.25, 1.0)
    model.apply(Upsert(node("b")))
    clock.now += 9
    assert look(packed, model) == 0, "too early"
    assert figures(registry) == (0.25, 1.0)
    clock.now += 2
    look(packed, model)
    assert figures(registry) == (1 / 7, 1.0)
    clock.now += 100
    assert look(packed, model) == 0, "nothing has changed"


def test_it_is_none_when_nobody_waits_any_more() -> None:
    registry, clock = CollectorRegistry(), Clock()
    packed = Packed(SchedulerMetrics(registry), clock)
    model = world(queue(), node("a"), pod("p", requests={"cpu": "3"}))
    assert figures(registry) == (0.0, 0.0), "the series is there from the start"
    look(packed, model)
    assert figures(registry) == (0.1, 0.0)
    model.apply(Upsert(pod("p", "a", requests={"cpu": "3"})))
    clock.now += 11
    look(packed, model)
    assert figures(registry) == (0.0, 1.0)
