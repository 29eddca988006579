"""The one catalogue of metrics: every name that a kbatch process exports stands here.

Times are in seconds, amounts of memory in bytes, cpu in cores, as Prometheus wants it. Labels are bounded: actions,
results, kinds, queues (a few, made by administrators), never pods, groups, nodes or users. Each process makes its own
registry, so that two of them can live in one test; children of deleted queues are removed.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector

_FAST: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Buckets of work inside a process."""
_CALLS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of calls to the API server."""
_WAITS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
"""Buckets of what people wait for."""


def process_metrics(registry: CollectorRegistry, process: str, version: str) -> None:
    """What every process exports: memory, cpu, collections, and which build it is."""
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    info = Gauge(
        "kbatch_build_info", "1, with process and version as labels", ["process", "version"], registry=registry
    )
    info.labels(process, version).set(1)


class LeaderMetrics:
    """Leadership, of processes with a Lease."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leader: Final = Gauge("kbatch_leader", "1 while this process holds the Lease", registry=registry)


class WatchMetrics:
    """What a process sees of the cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events: Final = Counter(
            "kbatch_watch_events_total", "Objects seen, from lists and watches", ["kind"], registry=registry
        )
        self.relists: Final = Counter(
            "kbatch_watch_relists_total", "Times a kind was listed whole", ["kind"], registry=registry
        )
        self.unreadable: Final = Counter(
            "kbatch_watch_unreadable_total", "Objects that could not be read", ["kind"], registry=registry
        )
        self.age: Final = Gauge(
            "kbatch_watch_age_seconds", "Time since anything was heard of a kind", ["kind"], registry=registry
        )


class ReconcileMetrics:
    """The work of an operator."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reconciles: Final = Counter(
            "kbatch_reconciles_total",
            "Objects reconciled: unchanged, written, gone, failed",
            ["result"],
            registry=registry,
        )
        self.seconds: Final = Histogram(
            "kbatch_reconcile_seconds", "Time of one reconciliation, writes included", buckets=_CALLS, registry=registry
        )
        self.backlog: Final = Gauge("kbatch_reconcile_backlog", "Objects waiting to be reconciled", registry=registry)
        self.writes: Final = Counter(
            "kbatch_status_writes_total",
            "Status writes: ok, conflict, gone, failed",
            ["kind", "result"],
            registry=registry,
        )


class QueueMetrics:
    """Shares of queues; `resource` is a dimension, cpu in cores, memory in bytes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["queue", "resource"]
        self.deserved: Final = Gauge("kbatch_queue_deserved", "What the queue deserves", labels, registry=registry)
        self.allocated: Final = Gauge("kbatch_queue_allocated", "What the queue holds", labels, registry=registry)
        self.requested: Final = Gauge("kbatch_queue_requested", "What the queue asks for", labels, registry=registry)
        self.share: Final = Gauge(
            "kbatch_queue_share_ratio",
            "Largest allocated over deserved of all dimensions",
            ["queue"],
            registry=registry,
        )
        self.groups: Final = Gauge(
            "kbatch_queue_groups", "PodGroups of the queue by phase", ["queue", "phase"], registry=registry
        )

    def forget(self, queue: str) -> None:
        """Drop all series of a queue that is gone."""
        for gauge in (self.deserved, self.allocated, self.requested, self.share, self.groups):
            gauge.remove_by_labels({"queue": queue})


class WebhookMetrics:
    """Admission reviews."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reviews: Final = Counter(
            "kbatch_webhook_reviews_total",
            "Reviews by outcome: allowed, patched, denied, malformed, failed",
            ["handler", "outcome"],
            registry=registry,
        )
        self.seconds: Final = Histogram(
            "kbatch_webhook_review_seconds", "Time to answer a review", ["handler"], buckets=_FAST, registry=registry
        )
        self.certificate_expiry: Final = Gauge(
            "kbatch_webhook_certificate_expiry_timestamp_seconds", "When the certificate ends", registry=registry
        )


class SchedulerMetrics:
    """The scheduling loop and what it does to the cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cycle: Final = Histogram(
            "kbatch_scheduler_cycle_seconds", "Time of one cycle", buckets=_FAST, registry=registry
        )
        self.span: Final = Histogram(
            "kbatch_scheduler_span_seconds", "Time of a part of a cycle", ["span"], buckets=_FAST, registry=registry
        )
        self.slice: Final = Histogram(
            "kbatch_scheduler_slice_seconds",
            "Time for which the loop was held at once",
            buckets=_FAST,
            registry=registry,
        )
        self.binds: Final = Counter(
            "kbatch_scheduler_binds_total", "Binds: ok, conflict, gone, failed", ["result"], registry=registry
        )
        self.bind_seconds: Final = Histogram(
            "kbatch_scheduler_bind_seconds", "Time of one bind call", buckets=_CALLS, registry=registry
        )
        self.evictions: Final = Counter(
            "kbatch_scheduler_evictions_total",
            "Evictions by action and result",
            ["action", "result"],
            registry=registry,
        )
        self.nominations: Final = Counter(
            "kbatch_scheduler_nominations_total", "Nominations written or withdrawn", ["result"], registry=registry
        )
        self.status_writes: Final = Counter(
            "kbatch_scheduler_status_writes_total", "Conditions written on PodGroups", ["result"], registry=registry
        )
        self.pod_seconds: Final = Histogram(
            "kbatch_scheduler_pod_wait_seconds", "From a pod's creation to its bind", buckets=_WAITS, registry=registry
        )
        self.group_seconds: Final = Histogram(
            "kbatch_scheduler_group_wait_seconds",
            "From a group's creation to all of its minimum being bound",
            buckets=_WAITS,
            registry=registry,
        )
        self.groups: Final = Gauge(
            "kbatch_scheduler_groups", "Groups by what the last cycle said of them", ["verdict"], registry=registry
        )
        self.waiting: Final = Gauge(
            "kbatch_scheduler_waiting_groups", "Waiting groups by reason", ["reason"], registry=registry
        )
        self.in_flight: Final = Gauge(
            "kbatch_scheduler_writes_in_flight", "Binds and evictions not answered yet", registry=registry
        )
        self.configuration_valid: Final = Gauge(
            "kbatch_scheduler_configuration_valid",
            "0 while the newest scheduler configuration is refused",
            registry=registry,
        )
        self.reloads: Final = Counter(
            "kbatch_scheduler_configuration_reloads_total",
            "Configurations read: ok, refused",
            ["result"],
            registry=registry,
        )
