"""What each process exports, read off the very classes that export it, and the reference page made of that.

python -m tools.catalogue          writes docs/reference/metrics.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from kbatch import metrics

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "metrics.md"


def _nothing() -> Mapping[str, int]:
    return {}


CLASSES: Final[Mapping[str, tuple[Callable[[CollectorRegistry], Any], ...]]] = {
    "scheduler": (
        metrics.SchedulerMetrics,
        metrics.FlowMetrics,
        metrics.StartMetrics,
        metrics.LeaderMetrics,
        metrics.WatchMetrics,
        metrics.RequestMetrics,
        lambda registry: metrics.EventMetrics(registry, _nothing),
        lambda registry: metrics.DecisionLogMetrics(registry, _nothing),
    ),
    "podgroup": (
        metrics.ReconcileMetrics,
        metrics.JobMetrics,
        metrics.LeaderMetrics,
        metrics.WatchMetrics,
        metrics.RequestMetrics,
        lambda registry: metrics.EventMetrics(registry, _nothing),
    ),
    "queue": (
        metrics.QueueMetrics,
        metrics.ReconcileMetrics,
        metrics.LeaderMetrics,
        metrics.WatchMetrics,
        metrics.RequestMetrics,
    ),
    "webhook": (metrics.WebhookMetrics, metrics.LedgerMetrics, metrics.WatchMetrics, metrics.RequestMetrics),
}
"""Besides what all have: build information, and what the Python client says of every process."""


@dataclass(frozen=True, slots=True)
class Described:
    """One metric: its name as it is asked for (a counter's with `_total`), type, labels, and what it says."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names that an exposition has of it."""
        if self.type == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))
        return (self.name,)


class _Listening(CollectorRegistry):
    """A registry that keeps what registers with it."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.collectors.append(collector)


def catalogue(process: str) -> tuple[Described, ...]:
    """The metrics of a process, in the order of names."""
    registry = _Listening()
    for made in CLASSES[process]:
        made(registry)
    found = []
    for collector in registry.collectors:
        labels: tuple[str, ...] = tuple(getattr(collector, "_labelnames", ()))
        for family in collector.describe():  # type: ignore[attr-defined]
            name = f"{family.name}_total" if family.type == "counter" else family.name
            own = labels or tuple(getattr(family, "_labelnames", ()))
            kind = "untyped" if family.type == "unknown" else family.type  # the exposition's word for it
            found.append(Described(name, kind, own, family.documentation))
    return tuple(sorted(found, key=lambda one: one.name))


def everything() -> dict[str, Described]:
    """Every metric of all processes by name, build information included."""
    found = {one.name: one for process in CLASSES for one in catalogue(process)}
    build = Described("kbatch_build_info", "gauge", ("process", "version"), "1, with process and version as labels")
    return {build.name: build, **found}


def page() -> str:
    """The reference page."""
    lines = [
        "# Metrics",
        "",
        "Every process answers on its port `metrics` under `/metrics`; the chart's Service and ServiceMonitor find",
        "them all. Times are in seconds, memory in bytes, cpu in cores. Labels are bounded: no pods, groups, nodes or",
        "users. This page is generated from the code (`python -m tools.catalogue`).",
        "",
        "Every process also has `kbatch_build_info` (`process`, `version`), which names the process of an instance:",
        "",
        "    kbatch_leader * on (instance, job) group_left (process) kbatch_build_info",
        "",
        "and the Python client's `process_*` and `python_gc_*`.",
    ]
    for process in CLASSES:
        described = [one for one in catalogue(process) if not one.name.startswith("kube_batch_")]
        lines += ["", f"## {process}", "", "| metric | type | labels | meaning |", "|---|---|---|---|"]
        lines += [_row(one) for one in described]
    aliases = [one for one in catalogue("scheduler") if one.name.startswith("kube_batch_")]
    lines += [
        "",
        "## kube-batch's names",
        "",
        "The scheduler also exports the meaningful metrics of kube-batch, with their old names and units. They are",
        "derived from kbatch's own metrics, with kbatch's buckets. Not exported are: `schedule_attempts_total` (was",
        "never incremented), `pod_preemption_victims` (described only the last node that was considered),",
        "`plugin_scheduling_latency_microseconds` (the time of plugins is not separate from that of actions),",
        "`unschedule_task_count` and `job_retry_counts` (one series for each job). New dashboards should use the names",
        "above.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    lines += [_row(one) for one in aliases]
    return "\n".join(lines) + "\n"


def _row(one: Described) -> str:
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return f"| `{one.name}` | {one.type} | {labels} | {one.text} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
