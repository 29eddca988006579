"""The catalogue of metrics holds to Prometheus' conventions."""

from __future__ import annotations

import inspect
import re

import pytest
from prometheus_client import CollectorRegistry

from kbatch import metrics

CLASSES = [value for _, value in inspect.getmembers(metrics, inspect.isclass) if value.__name__.endswith("Metrics")]
UNBOUNDED = {"pod", "node", "group", "podgroup", "namespace", "user", "uid", "name", "job"}


@pytest.mark.parametrize("catalogue", CLASSES, ids=lambda catalogue: catalogue.__name__)
def test_names_help_and_labels(catalogue: type) -> None:
    registry = CollectorRegistry()
    catalogue(registry)
    families = list(registry.collect())
    assert families
    for family in families:
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
        catalogue(registry)
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
