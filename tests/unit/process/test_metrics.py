"""The catalogue of metrics holds to Prometheus' conventions."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kbatch import metrics

CLASSES = [value for _, value in inspect.getmembers(metrics, inspect.isclass) if value.__name__.endswith("Metrics")]
KEPT_ELSEWHERE = {metrics.EventMetrics, metrics.DecisionLogMetrics}
"""Those that read their counts from somebody."""
UNBOUNDED = {"pod", "node", "group", "podgroup", "namespace", "user", "uid", "name", "job"}


def made(catalogue: Any, registry: CollectorRegistry) -> Any:
    return catalogue(registry, lambda: {"x": 3}) if catalogue in KEPT_ELSEWHERE else catalogue(registry)


@pytest.mark.parametrize("catalogue", CLASSES, ids=lambda catalogue: catalogue.__name__)
def test_names_help_and_labels(catalogue: type) -> None:
    registry = CollectorRegistry()
    made(catalogue, registry)
    families = list(registry.collect())
    assert families
    for family in families:
        if family.name.startswith("kube_batch_"):  # somebody else's names, see below
            continue
        assert re.fullmatch(r"kbatch_[a-z_]+", family.name), family.name
        assert family.documentation
        assert not re.search(r"_(ms|milliseconds|kb|mb|percent|minutes)$", family.name)
        if family.type == "histogram":
            assert family.name.endswith("_seconds")
    for collector in list(registry._collector_to_names):
        assert not UNBOUNDED & set(getattr(collector, "_labelnames", ()))


def test_all_of_them_fit_into_one_registry() -> None:
    registry = CollectorRegistry()
    metrics.process_metrics(registry, "example", "1.2.3")
    for catalogue in CLASSES:
        made(catalogue, registry)
    assert registry.get_sample_value("kbatch_build_info", {"process": "example", "version": "1.2.3"}) == 1


def test_a_queue_that_is_gone_leaves_no_series() -> None:
    registry = CollectorRegistry()
    shares = metrics.QueueMetrics(registry)
    for queue in ("a", "b"):
        shares.deserved.labels(queue, "cpu").set(1)
        shares.groups.labels(queue, "running").set(1)
    shares.forget("a")
    assert registry.get_sample_value("kbatch_queue_deserved", {"queue": "a", "resource": "cpu"}) is None
    assert registry.get_sample_value("kbatch_queue_groups", {"queue": "a", "phase": "running"}) is None
    assert registry.get_sample_value("kbatch_queue_deserved", {"queue": "b", "resource": "cpu"}) == 1


def test_counts_kept_elsewhere_are_read_when_asked() -> None:
    registry = CollectorRegistry()
    counts = {"dropped": 1}
    metrics.EventMetrics(registry, lambda: counts)
    counts["dropped"] = 5
    assert registry.get_sample_value("kbatch_events_total", {"result": "dropped"}) == 5


def test_kube_batchs_names_say_what_they_said_there() -> None:
    registry = CollectorRegistry()
    ours = metrics.SchedulerMetrics(registry)
    ours.cycle.observe(0.2)
    ours.span.labels("action:allocate").observe(0.003)
    ours.span.labels("session").observe(1)
    ours.pod_seconds.observe(2)
    ours.evictions.labels("preempt", "ok").inc(2)
    ours.evictions.labels("preempt", "refused").inc()
    ours.evictions.labels("reclaim", "ok").inc(7)
    ours.groups.labels("waiting").set(4)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"kube_batch_{name}", labels)

    assert value("e2e_scheduling_latency_milliseconds_sum") == pytest.approx(200)
    assert value("e2e_scheduling_latency_milliseconds_bucket", le="250.0") == 1
    assert value("e2e_scheduling_latency_milliseconds_bucket", le="100.0") == 0
    assert value("e2e_scheduling_latency_milliseconds_bucket", le="+Inf") == 1
    assert value("action_scheduling_latency_microseconds_sum", action="allocate") == pytest.approx(3000)
    assert value("action_scheduling_latency_microseconds_count", action="session") is None
    assert value("task_scheduling_latency_microseconds_count") == 1
    assert value("total_preemption_attempts") == 3
    assert value("unschedule_job_count") == 4


def test_kube_batchs_dashboards_find_its_counter_under_its_own_name() -> None:
    """The Python client gives every counter the ending `_total`, which this one never had."""
    registry = CollectorRegistry()
    metrics.SchedulerMetrics(registry).evictions.labels("preempt", "ok").inc(2)
    lines = generate_latest(registry).decode().splitlines()
    assert "kube_batch_total_preemption_attempts 2.0" in lines
    assert not [line for line in lines if "preemption_attempts_total" in line]


def test_what_can_fail_is_zero_from_the_start() -> None:
    registry = CollectorRegistry()
    metrics.SchedulerMetrics(registry)
    metrics.ReconcileMetrics(registry)
    metrics.WebhookMetrics(registry, ["groups"])
    for name, labels in (
        ("kbatch_reconciles_total", {"result": "failed"}),
        ("kbatch_webhook_reviews_total", {"handler": "groups", "outcome": "failed"}),
        ("kbatch_scheduler_binds_total", {"result": "failed"}),
        ("kbatch_scheduler_decisions_total", {"decision": "evict"}),
        ("kbatch_scheduler_evictions_total", {"action": "reclaim", "result": "ok"}),
    ):
        assert registry.get_sample_value(name, labels) == 0
