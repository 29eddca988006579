"""The one catalogue of metrics: every name that a kbatch process exports stands here.

Times are in seconds, amounts of memory in bytes, cpu in cores, as Prometheus wants it. Labels are bounded: actions,
results, kinds, queues (a few, made by administrators), never pods, groups, nodes or users. Each process makes its own
registry, so that two of them can live in one test; children of deleted queues are removed. Where the values of a label
are known beforehand their series exist from the start, at zero: a rate is then right from the first failure on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_FAST: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Buckets of work inside a process."""
_CALLS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of calls to the API server."""
_QUEUED: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets of what waits for its turn inside a process."""
_WAITS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
"""Buckets of what people wait for."""
_QUEUE_WAITS: Final = (1, 10, 60, 300, 1800, 3600, 14400, 86400, 604800)
"""The same where there is a series for each queue."""


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


class RequestMetrics:
    """What a process asks of the API server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests: Final = Counter(
            "kbatch_requests_total",
            "Requests to the API server by outcome: ok, conflict, gone, refused, throttled, failed, unanswered, fenced",
            ["verb", "resource", "outcome"],
            registry=registry,
        )
        self.attempts: Final = Counter(
            "kbatch_request_attempts_total",
            "Attempts at requests to the API server by the status code of the answer (none: no answer). Counts each "
            "retry, lists, watches and renewals of the Lease",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.seconds: Final = Histogram(
            "kbatch_request_seconds",
            "Time of one attempt, including the wait for a connection; of a watch, until it is open",
            ["verb", "resource"],
            buckets=_CALLS,
            registry=registry,
        )


class EventMetrics:
    """Events of Kubernetes, read from whoever writes them: how many were written, refused, never written."""

    def __init__(self, registry: CollectorRegistry, counts: Callable[[], Mapping[str, int]]) -> None:
        registry.register(
            _Counts(
                "kbatch_events", "Kubernetes Events by result: written, failed, dropped under load", "result", counts
            )
        )


class DecisionLogMetrics:
    """The decision log of a scheduler that keeps one."""

    def __init__(self, registry: CollectorRegistry, counts: Callable[[], Mapping[str, int]]) -> None:
        registry.register(
            _Counts("kbatch_scheduler_decision_log_ends", "Decision logs that ended, by reason", "why", counts)
        )


class _Counts(Collector):
    """A counter by one label that somebody else keeps."""

    def __init__(self, name: str, documentation: str, label: str, counts: Callable[[], Mapping[str, int]]) -> None:
        self._described = name, documentation, label
        self._counts = counts

    def describe(self) -> Iterable[Metric]:
        name, documentation, label = self._described
        return [CounterMetricFamily(name, documentation, labels=[label])]

    def collect(self) -> Iterable[Metric]:
        name, documentation, label = self._described
        family = CounterMetricFamily(name, documentation, labels=[label])
        for value, count in dict(self._counts()).items():
            family.add_metric([value], count)
        return [family]


class WatchMetrics:
    """What a process sees of the cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.events: Final = Counter(
            "kbatch_watch_events_total", "Objects received from lists and watches", ["kind"], registry=registry
        )
        self.relists: Final = Counter(
            "kbatch_watch_relists_total",
            "Times that a kind was listed again because its watch had expired",
            ["kind"],
            registry=registry,
        )
        self.unreadable: Final = Counter(
            "kbatch_watch_unreadable_total", "Objects that could not be decoded", ["kind"], registry=registry
        )
        self.age: Final = Gauge(
            "kbatch_watch_age_seconds",
            "Time since the last message of the watch of a kind",
            ["kind"],
            registry=registry,
        )


class ReconcileMetrics:
    """The work of an operator."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reconciles: Final = Counter(
            "kbatch_reconciles_total",
            "Objects reconciled by result: unchanged, written, gone, failed",
            ["result"],
            registry=registry,
        )
        self.seconds: Final = Histogram(
            "kbatch_reconcile_seconds",
            "Time of one reconciliation, including writes",
            buckets=_CALLS,
            registry=registry,
        )
        self.backlog: Final = Gauge("kbatch_reconcile_backlog", "Objects waiting to be reconciled", registry=registry)
        self.writes: Final = Counter(
            "kbatch_status_writes_total",
            "Status writes by result: ok, conflict, gone, failed",
            ["kind", "result"],
            registry=registry,
        )
        for result in ("unchanged", "written", "gone", "failed"):
            self.reconciles.labels(result)


class JobMetrics:
    """Jobs that name a queue."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.outside: Final = Gauge(
            "kbatch_jobs_outside_queues",
            "Jobs that name a queue, but whose pods went to the default scheduler because no webhook reviewed them",
            registry=registry,
        )


class QueueMetrics:
    """Shares of queues; `resource` is a dimension, cpu in cores, memory in bytes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["queue", "resource"]
        self.deserved: Final = Gauge(
            "kbatch_queue_deserved", "Resources that the queue deserves", labels, registry=registry
        )
        self.allocated: Final = Gauge(
            "kbatch_queue_allocated", "Resources that the queue holds", labels, registry=registry
        )
        self.requested: Final = Gauge(
            "kbatch_queue_requested", "Resources that the queue requests", labels, registry=registry
        )
        self.share: Final = Gauge(
            "kbatch_queue_share_ratio",
            "Largest ratio of allocated to deserved over all resources",
            ["queue"],
            registry=registry,
        )
        self.groups: Final = Gauge(
            "kbatch_queue_groups", "PodGroups of the queue by phase", ["queue", "phase"], registry=registry
        )

    def forget(self, queue: str, resource: str | None = None) -> None:
        """Drop all series of a queue that is gone, or of one resource that it has nothing to do with any more."""
        if resource is not None:
            for gauge in (self.deserved, self.allocated, self.requested):
                gauge.remove(queue, resource)
            return
        for gauge in (self.deserved, self.allocated, self.requested, self.share, self.groups):
            gauge.remove_by_labels({"queue": queue})


class WebhookMetrics:
    """Admission reviews, by the `handlers` that there are."""

    def __init__(self, registry: CollectorRegistry, handlers: Iterable[str] = ()) -> None:
        self.reviews: Final = Counter(
            "kbatch_webhook_reviews_total",
            "Admission reviews by outcome: allowed, patched, denied, malformed, failed",
            ["handler", "outcome"],
            registry=registry,
        )
        self.seconds: Final = Histogram(
            "kbatch_webhook_review_seconds",
            "Time to answer an admission review",
            ["handler"],
            buckets=_FAST,
            registry=registry,
        )
        self.certificate_expiry: Final = Gauge(
            "kbatch_webhook_certificate_expiry_timestamp_seconds",
            "Time at which the certificate expires",
            registry=registry,
        )
        for handler in handlers:
            for outcome in ("allowed", "patched", "denied", "malformed", "failed"):
                self.reviews.labels(handler, outcome)


class LedgerMetrics:
    """The ledgers of the policy Reject, of all namespaces, as this replica writes them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.entries: Final = Gauge(
            "kbatch_webhook_ledger_entries",
            "Grants that stand in the ledgers, as this replica last knew them: their groups were not seen yet",
            registry=registry,
        )
        self.claims: Final = Counter(
            "kbatch_webhook_ledger_claims_total",
            "Reviews held against a ledger: granted, exceeded (over the quota), late (not decided in time), failed (no "
            "answer of the API server), full",
            ["outcome"],
            registry=registry,
        )
        self.commits: Final = Counter(
            "kbatch_webhook_ledger_commits_total",
            "Writes of ledgers by outcome: ok, conflict (another replica was first), failed",
            ["outcome"],
            registry=registry,
        )
        self.seconds: Final = Histogram(
            "kbatch_webhook_ledger_commit_seconds", "Time of one write of a ledger", buckets=_CALLS, registry=registry
        )
        for outcome in ("granted", "exceeded", "late", "failed", "full"):
            self.claims.labels(outcome)
        for outcome in ("ok", "conflict", "failed"):
            self.commits.labels(outcome)


class FlowMetrics:
    """What queues have used, where the plugin flow is configured; in units of usage, such as cores."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["queue"]
        self.flow: Final = Gauge(
            "kbatch_scheduler_queue_flow",
            "The queue's flow: its usage, and the part of its past usage that has not decayed",
            labels,
            registry=registry,
        )
        self.usage: Final = Gauge(
            "kbatch_scheduler_queue_usage",
            "The usage of the queue's groups that are placed or in queue",
            labels,
            registry=registry,
        )
        self.fair_share: Final = Gauge(
            "kbatch_scheduler_queue_fair_share",
            "The queue's share of the cluster by weight among all open queues",
            labels,
            registry=registry,
        )
        self.charged: Final = Gauge(
            "kbatch_scheduler_queue_excess_charged_seconds",
            "The part of the queue's excessBudget that its groups are charged, in resource-seconds",
            labels,
            registry=registry,
        )
        self.budget: Final = Gauge(
            "kbatch_scheduler_queue_excess_budget_seconds",
            "The queue's excessBudget, in resource-seconds; no series for queues without one",
            labels,
            registry=registry,
        )
        self.writes: Final = Counter(
            "kbatch_scheduler_queue_writes_total",
            "Flows written to the status of Queues by result: ok, gone, failed",
            ["result"],
            registry=registry,
        )

    def forget(self, queue: str) -> None:
        """Drop all series of a queue of which nothing is said any more."""
        for gauge in (self.flow, self.usage, self.fair_share, self.charged, self.budget):
            gauge.remove_by_labels({"queue": queue})


class StartMetrics:
    """How starts that were planned or foreseen come true."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.planned: Final = Gauge(
            "kbatch_scheduler_planned_starts",
            "Groups with a planned start, for which room is reserved",
            registry=registry,
        )
        self.outcomes: Final = Counter(
            "kbatch_scheduler_planned_start_outcomes_total",
            "Planned starts by outcome: kept (started by then), moved (to another time), broken (started later, or has "
            "no planned start any more)",
            ["outcome"],
            registry=registry,
        )
        self.estimates: Final = Gauge(
            "kbatch_scheduler_start_estimates",
            "Waiting groups with an estimated start, by its basis",
            ["basis"],
            registry=registry,
        )
        self.held: Final = Counter(
            "kbatch_scheduler_start_estimates_held_total",
            "Groups that have started, compared with their first estimate: in_time (by `latest`) or late",
            ["basis", "outcome"],
            registry=registry,
        )
        self.error: Final = Histogram(
            "kbatch_scheduler_start_error_seconds",
            "How much earlier or later groups started than the `time` of their first estimate",
            ["side"],
            buckets=(1, 10, 30, 60, 300, 900, 3600, 14400, 86400),
            registry=registry,
        )
        for outcome in ("kept", "moved", "broken"):
            self.outcomes.labels(outcome)
        for basis in ("reservation", "history"):
            for outcome in ("in_time", "late"):
                self.held.labels(basis, outcome)
        for side in ("early", "late"):
            self.error.labels(side)


class SchedulerMetrics:
    """The scheduling loop and what it does to the cluster."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.cycle: Final = Histogram(
            "kbatch_scheduler_cycle_seconds", "Time of one cycle", buckets=_FAST, registry=registry
        )
        self.failures: Final = Counter(
            "kbatch_scheduler_cycle_failures_total", "Cycles that ended with an error", registry=registry
        )
        self.group_errors: Final = Counter(
            "kbatch_scheduler_group_errors_total",
            "Errors that affected a single group, by part of the cycle",
            ["phase"],
            registry=registry,
        )
        for phase in (
            "session",
            "resume",
            "enqueue",
            "reclaim",
            "allocate",
            "backfill",
            "preempt",
            "ending",
            "verdicts",
        ):
            self.group_errors.labels(phase)
        self.span: Final = Histogram(
            "kbatch_scheduler_span_seconds", "Time of a part of a cycle", ["span"], buckets=_FAST, registry=registry
        )
        self.slice: Final = Histogram(
            "kbatch_scheduler_slice_seconds",
            "Time for which the event loop was blocked by one step",
            buckets=_FAST,
            registry=registry,
        )
        self.decisions: Final = Counter(
            "kbatch_scheduler_decisions_total",
            "Decisions by type, before they are carried out: bind, evict, nominate, withdraw",
            ["decision"],
            registry=registry,
        )
        self.binds: Final = Counter(
            "kbatch_scheduler_binds_total", "Binds by result: ok, conflict, gone, failed", ["result"], registry=registry
        )
        self.bind_seconds: Final = Histogram(
            "kbatch_scheduler_bind_seconds", "Time of one bind call", buckets=_CALLS, registry=registry
        )
        self.bind_queue_seconds: Final = Histogram(
            "kbatch_scheduler_bind_queue_seconds",
            "From the decision until a bind is sent; where volumes are made first, from when they are there",
            buckets=_QUEUED,
            registry=registry,
        )
        self.evictions: Final = Counter(
            "kbatch_scheduler_evictions_total",
            "Evictions by action and result: ok, refused (also by a dry run; then no pod of the plan is evicted)",
            ["action", "result"],
            registry=registry,
        )
        self.nominations: Final = Counter(
            "kbatch_scheduler_nominations_total",
            "Nominations by result: written, withdrawn, failed",
            ["result"],
            registry=registry,
        )
        self.status_writes: Final = Counter(
            "kbatch_scheduler_status_writes_total",
            "Writes of conditions of PodGroups by result: ok, conflict, gone, failed",
            ["result"],
            registry=registry,
        )
        self.pod_seconds: Final = Histogram(
            "kbatch_scheduler_pod_wait_seconds",
            "Time from a pod's creation to its bind",
            buckets=_WAITS,
            registry=registry,
        )
        self.group_seconds: Final = Histogram(
            "kbatch_scheduler_group_wait_seconds",
            "Time from a group's creation until its minimum is bound",
            buckets=_WAITS,
            registry=registry,
        )
        self.groups: Final = Gauge(
            "kbatch_scheduler_groups", "Groups by their verdict in the last cycle", ["verdict"], registry=registry
        )
        self.waiting: Final = Gauge(
            "kbatch_scheduler_waiting_groups",
            "Waiting groups by reason; `plugin` for reasons of plugins that are not part of kbatch",
            ["reason"],
            registry=registry,
        )
        self.oldest: Final = Gauge(
            "kbatch_scheduler_oldest_waiting_seconds",
            "Age of the oldest waiting group; 0 if there is none",
            registry=registry,
        )
        self.queue_oldest: Final = Gauge(
            "kbatch_scheduler_queue_oldest_waiting_seconds",
            "Age of the oldest waiting group by queue; `-` for all queues that do not exist",
            ["queue"],
            registry=registry,
        )
        self.queue_wait: Final = Histogram(
            "kbatch_scheduler_queue_wait_seconds",
            "Time from a PodGroup's creation until its minimum is bound, by queue",
            ["queue"],
            buckets=_QUEUE_WAITS,
            registry=registry,
        )
        self.attempts: Final = Counter(
            "kbatch_scheduler_attempts_total",
            "Attempts to place a group by result: scheduled (its minimum is placed), waiting (it does not fit the "
            "nodes), error",
            ["result"],
            registry=registry,
        )
        self.fragmentation: Final = Gauge(
            "kbatch_scheduler_fragmentation_ratio",
            "The part of the idle cpu or extended resource that waiting pods cannot use: the mean over the classes of "
            "pods that request it; 0 if none does",
            ["resource"],
            registry=registry,
        )
        self.nodes_opened: Final = Gauge(
            "kbatch_scheduler_nodes_opened", "Schedulable nodes with pods of this scheduler", registry=registry
        )
        self.avoiding: Final = Gauge(
            "kbatch_scheduler_groups_avoiding_nodes",
            "Groups that avoid nodes because too many of their pods failed there",
            registry=registry,
        )
        self.in_flight: Final = Gauge(
            "kbatch_scheduler_writes_in_flight", "Binds and evictions that are not answered yet", registry=registry
        )
        self.events_dropped: Final = Counter(
            "kbatch_scheduler_events_dropped_total",
            "Scheduled Events of pods that were dropped in favour of binds",
            registry=registry,
        )
        self.configuration_valid: Final = Gauge(
            "kbatch_scheduler_configuration_valid",
            "1 if the newest scheduler configuration is in force; 0 if it was refused",
            registry=registry,
        )
        self.reloads: Final = Counter(
            "kbatch_scheduler_configuration_reloads_total",
            "Scheduler configurations read by result: ok, refused",
            ["result"],
            registry=registry,
        )
        for counter, values in (
            (self.decisions, ("bind", "evict", "nominate", "withdraw")),
            (self.binds, ("ok", "conflict", "gone", "failed")),
            (self.nominations, ("written", "withdrawn", "failed")),
            (self.status_writes, ("ok", "conflict", "gone", "failed")),
            (self.reloads, ("ok", "refused")),
            (self.attempts, ("scheduled", "waiting", "error")),
        ):
            for value in values:
                counter.labels(value)
        self.fragmentation.labels("cpu")
        for action in ("allocate", "minimumLost", "preempt", "reclaim"):
            for result in ("ok", "refused"):
                self.evictions.labels(action, result)
        registry.register(_KubeBatchNames(self))

    def forget_queue(self, queue: str) -> None:
        """Drop all series of a queue that is gone."""
        for metric in (self.queue_oldest, self.queue_wait):
            metric.remove_by_labels({"queue": queue})


class _KubeBatchNames(Collector):
    """kube-batch's own names for what they meant there, made of ours when somebody reads them.

    Left out are those that had no meaning (`schedule_attempts_total` was never counted, `pod_preemption_victims` held
    the last node looked at) or one series for each job (`unschedule_task_count`, `job_retry_counts`).
    """

    _HISTOGRAMS: Final = (
        (
            "kube_batch_e2e_scheduling_latency_milliseconds",
            "As in kube-batch: kbatch_scheduler_cycle_seconds",
            "cycle",
            1e3,
        ),
        (
            "kube_batch_action_scheduling_latency_microseconds",
            "As in kube-batch: kbatch_scheduler_span_seconds of actions",
            "span",
            1e6,
        ),
        (
            "kube_batch_task_scheduling_latency_microseconds",
            "As in kube-batch: kbatch_scheduler_pod_wait_seconds",
            "pod_seconds",
            1e6,
        ),
    )

    def __init__(self, metrics: SchedulerMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        for name, documentation, attribute, _ in self._HISTOGRAMS:
            yield HistogramMetricFamily(name, documentation, labels=["action"] if attribute == "span" else [])
        yield Metric(*_PREEMPTIONS, "unknown")
        yield Metric(*_UNSCHEDULED, "gauge")

    def collect(self) -> Iterable[Metric]:
        for name, documentation, attribute, scale in self._HISTOGRAMS:
            family = Metric(name, documentation, "histogram")
            for source in getattr(self._metrics, attribute).collect():
                for sample in source.samples:
                    labels = _renamed(sample.labels, scale, spans=attribute == "span")
                    if labels is not None:
                        value = sample.value * scale if sample.name.endswith("_sum") else sample.value
                        family.add_sample(name + sample.name.removeprefix(source.name), labels, value)
            yield family
        # It counts, but as a counter it would be given the ending `_total`, under which nobody looks for it.
        preemptions = Metric(*_PREEMPTIONS, "unknown")
        preemptions.add_sample(_PREEMPTIONS[0], {}, _sum(self._metrics.evictions, "action", "preempt"))
        yield preemptions
        unscheduled = Metric(*_UNSCHEDULED, "gauge")
        unscheduled.add_sample(_UNSCHEDULED[0], {}, _sum(self._metrics.groups, "verdict", "waiting"))
        yield unscheduled


_PREEMPTIONS: Final = ("kube_batch_total_preemption_attempts", "As in kube-batch: evictions asked for by preempt")
_UNSCHEDULED: Final = ("kube_batch_unschedule_job_count", "As in kube-batch: groups that wait")


def _renamed(labels: Mapping[str, str], scale: float, *, spans: bool) -> dict[str, str] | None:
    """A sample's labels as kube-batch has them: bounds in its unit, actions by their own name; None: not an action."""
    found = dict(labels)
    if spans:
        kind, _, action = found.pop("span").partition(":")
        if kind != "action":
            return None
        found["action"] = action
    if found.get("le", "+Inf") != "+Inf":
        found["le"] = str(float(found["le"]) * scale)
    return found


def _sum(metric: Counter | Gauge, label: str, value: str) -> float:
    return sum(
        sample.value
        for family in metric.collect()
        for sample in family.samples
        if sample.labels.get(label) == value and not sample.name.endswith("_created")
    )
