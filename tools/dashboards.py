"""The Grafana dashboard that the chart ships, made from one list of panels.

    python -m tools.dashboards         writes charts/kbatch/dashboards/kbatch.json

Every metric that a query names must be in the catalogue (a test looks), and every query is run against a Prometheus
that scraped a real kbatch (`tests/e2e/metrics`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent.parent / "charts" / "kbatch" / "dashboards"
UID: Final = "kbatch-overview"
_COLUMNS: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_BY_PROCESS: Final = "* on (instance, job) group_left (process) kbatch_build_info"


@dataclass(frozen=True, slots=True)
class Query:
    """One line, or several, of a panel. `legend` is Grafana's, with `{{label}}`."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel. `unit` is one of Grafana's; `kind` is timeseries or stat; `width` in columns of 24."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    text: str = ""
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


def _quantiles(metric: str, by: str = "", legend: str = "") -> tuple[Query, ...]:
    labels = f"le, {by}" if by else "le"
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by ({labels}) (rate({metric}_bucket[$__rate_interval])))",
            f"p{round(quantile * 100)} {legend}".strip(),
        )
        for quantile in (0.5, 0.99)
    )


def _rate(metric: str, by: str, where: str = "", *, over: str = "rate") -> Query:
    """How a counter moves, by labels: a second, or (`over="increase"`) in all of the interval."""
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return Query(f"sum by ({by}) ({over}({metric}{where}[$__rate_interval]))", legend)


def _queue(metric: str, legend: str) -> Query:
    return Query(f'{metric}{{queue=~"$queue", resource="$resource"}}', legend)


ROWS: Final = (
    Row(
        "At a glance",
        (
            Panel("Waiting groups", (Query('sum(kbatch_scheduler_groups{verdict="waiting"})'),), kind="stat", width=4),
            Panel(
                "Oldest waiting group",
                (Query("max(kbatch_scheduler_oldest_waiting_seconds)"),),
                unit="s",
                kind="stat",
                width=4,
            ),
            Panel(
                "Binds a second",
                (Query('sum(rate(kbatch_scheduler_binds_total{result="ok"}[$__rate_interval]))'),),
                kind="stat",
                width=4,
            ),
            Panel(
                "Created to bound, p99",
                (
                    Query(
                        "histogram_quantile(0.99, sum by (le) "
                        "(rate(kbatch_scheduler_pod_wait_seconds_bucket[$__rate_interval])))"
                    ),
                ),
                unit="s",
                kind="stat",
                width=4,
            ),
            Panel(
                "Leaders",
                (Query(f"max by (process) (kbatch_leader {_BY_PROCESS})", "{{process}}"),),
                kind="stat",
                width=4,
                text="1 for each process of which one replica leads.",
            ),
            Panel(
                "Configuration in force",
                (Query("min(kbatch_scheduler_configuration_valid)"),),
                kind="stat",
                width=4,
                text="0: the newest scheduler configuration was refused, and the one before is in force.",
            ),
        ),
    ),
    Row(
        "Queues",
        (
            Panel(
                "Deserved, allocated, requested",
                (
                    _queue("kbatch_queue_deserved", "{{queue}} deserved"),
                    _queue("kbatch_queue_allocated", "{{queue}} allocated"),
                    _queue("kbatch_queue_requested", "{{queue}} requested"),
                ),
                width=12,
                text="Of the chosen resource: cpu in cores, memory in bytes.",
            ),
            Panel(
                "Share: largest allocated over deserved",
                (Query('kbatch_queue_share_ratio{queue=~"$queue"}', "{{queue}}"),),
                unit="percentunit",
                width=6,
                text="Above 100 %: the queue uses what others left idle, and its pods are the first to be reclaimed.",
            ),
            Panel(
                "Groups by phase",
                (Query('sum by (phase) (kbatch_queue_groups{queue=~"$queue"})', "{{phase}}"),),
                width=6,
                stacked=True,
            ),
        ),
    ),
    Row(
        "Waiting and latency",
        (
            Panel(
                "Waiting groups by reason",
                (Query("sum by (reason) (kbatch_scheduler_waiting_groups)", "{{reason}}"),),
                stacked=True,
            ),
            Panel("Pod: created to bound", _quantiles("kbatch_scheduler_pod_wait_seconds"), unit="s"),
            Panel("Group: created to scheduled", _quantiles("kbatch_scheduler_group_wait_seconds"), unit="s"),
            Panel(
                "The same by queue, p99",
                _quantiles("kbatch_scheduler_queue_wait_seconds", "queue", "{{queue}}")[1:],
                unit="s",
            ),
            Panel(
                "Oldest waiting group by queue",
                (Query("max by (queue) (kbatch_scheduler_queue_oldest_waiting_seconds)", "{{queue}}"),),
                unit="s",
                text="`-` stands for queues that do not exist.",
            ),
            Panel("Attempts at groups", (_rate("kbatch_scheduler_attempts_total", "result"),), unit="ops"),
        ),
    ),
    Row(
        "Flow, where the plugin flow is configured",
        (
            Panel(
                "Flow, usage, fair share",
                (
                    Query('kbatch_scheduler_queue_flow{queue=~"$queue"}', "{{queue}} flow"),
                    Query('kbatch_scheduler_queue_usage{queue=~"$queue"}', "{{queue}} usage"),
                    Query('kbatch_scheduler_queue_fair_share{queue=~"$queue"}', "{{queue}} fair share"),
                ),
                width=16,
                text="In units of usage, such as cores. Who has the least flow for its weight comes next.",
            ),
            Panel(
                "Budget: charged, and of how much",
                (
                    Query('kbatch_scheduler_queue_excess_charged_seconds{queue=~"$queue"}', "{{queue}} charged"),
                    Query('kbatch_scheduler_queue_excess_budget_seconds{queue=~"$queue"}', "{{queue}} budget"),
                ),
                unit="s",
                text="Of one core, say: what groups with a lifetime take beyond their queue's fair share.",
            ),
        ),
    ),
    Row(
        "Planned and estimated starts",
        (
            Panel("Planned starts", (Query("max(kbatch_scheduler_planned_starts)"),), width=4),
            Panel(
                "What became of planned starts",
                (_rate("kbatch_scheduler_planned_start_outcomes_total", "outcome", over="increase"),),
                width=5,
                text="kept: started by then. moved: to another instant. broken: started later, or waits without one.",
            ),
            Panel(
                "Groups that are told when they start",
                (Query("max by (basis) (kbatch_scheduler_start_estimates)", "{{basis}}"),),
                width=5,
                stacked=True,
            ),
            Panel(
                "Started by `latest`, or late",
                (_rate("kbatch_scheduler_start_estimates_held_total", "basis, outcome"),),
                unit="ops",
                width=5,
                stacked=True,
                text="By what they were told first; by history nine of ten should be in time.",
            ),
            Panel(
                "Error: actual minus estimated start, p50",
                (
                    Query(
                        "histogram_quantile(0.5, sum by (le, side) "
                        "(rate(kbatch_scheduler_start_error_seconds_bucket[$__rate_interval])))",
                        "{{side}}",
                    ),
                ),
                unit="s",
                width=5,
                text="How much earlier or later groups have started than the `time` that they were told first.",
            ),
        ),
    ),
    Row(
        "Packing",
        (
            Panel(
                "Fragmentation: idle, and of no use to who waits",
                (Query("max by (resource) (kbatch_scheduler_fragmentation_ratio)", "{{resource}}"),),
                unit="percentunit",
                width=12,
                text="Of what is idle, the part that the pods that wait cannot use: the mean over their classes.",
            ),
            Panel("Nodes in use", (Query("max(kbatch_scheduler_nodes_opened)"),), width=12),
        ),
    ),
    Row(
        "Decisions and what became of them",
        (
            Panel("Decisions", (_rate("kbatch_scheduler_decisions_total", "decision"),), unit="ops", width=6),
            Panel("Binds by result", (_rate("kbatch_scheduler_binds_total", "result"),), unit="ops", width=6),
            Panel(
                "Evictions by action",
                (_rate("kbatch_scheduler_evictions_total", "action, result"),),
                unit="ops",
                width=6,
            ),
            Panel("Time of a bind", _quantiles("kbatch_scheduler_bind_seconds"), unit="s", width=6),
            Panel(
                "From a decision until its bind is sent",
                _quantiles("kbatch_scheduler_bind_queue_seconds"),
                unit="s",
                width=6,
            ),
            Panel("Binds and evictions in flight", (Query("sum(kbatch_scheduler_writes_in_flight)"),), width=6),
            Panel("Nominations", (_rate("kbatch_scheduler_nominations_total", "result"),), unit="ops", width=6),
            Panel(
                "Conditions written", (_rate("kbatch_scheduler_status_writes_total", "result"),), unit="ops", width=6
            ),
            Panel(
                "Events",
                (
                    _rate("kbatch_events_total", "result"),
                    Query("sum(rate(kbatch_scheduler_events_dropped_total[$__rate_interval]))", "Scheduled, dropped"),
                ),
                unit="ops",
                width=6,
            ),
        ),
    ),
    Row(
        "Cycles",
        (
            Panel("Time of a cycle", _quantiles("kbatch_scheduler_cycle_seconds"), unit="s", width=6),
            Panel(
                "Time of its parts",
                (
                    Query(
                        "sum by (span) (rate(kbatch_scheduler_span_seconds_sum[$__rate_interval]))",
                        "{{span}}",
                    ),
                ),
                unit="percentunit",
                width=6,
                stacked=True,
                text="The share of a processor that each part of the cycles takes.",
            ),
            Panel(
                "Time for which the loop was held",
                _quantiles("kbatch_scheduler_slice_seconds"),
                unit="s",
                width=6,
                text="Meanwhile no bind goes out and the Lease is not renewed.",
            ),
            Panel(
                "Cycles, and those that failed",
                (
                    Query("sum(rate(kbatch_scheduler_cycle_seconds_count[$__rate_interval]))", "cycles"),
                    Query("sum(rate(kbatch_scheduler_cycle_failures_total[$__rate_interval]))", "failed"),
                    Query("sum(rate(kbatch_scheduler_group_errors_total[$__rate_interval]))", "errors of one group"),
                ),
                unit="ops",
                width=6,
            ),
        ),
    ),
    Row(
        "The API server as kbatch sees it",
        (
            Panel("Requests by resource", (_rate("kbatch_requests_total", "verb, resource"),), unit="reqps", width=12),
            Panel("Requests by outcome", (_rate("kbatch_requests_total", "outcome"),), unit="reqps", width=12),
            Panel(
                "Attempts by code",
                (_rate("kbatch_request_attempts_total", "code"),),
                unit="reqps",
                width=12,
                text="Also those that were repeated and then went well, such as 429, and the Lease's.",
            ),
            Panel(
                "Time of an attempt, p99",
                _quantiles("kbatch_request_seconds", "verb, resource", "{{verb}} {{resource}}")[1:],
                unit="s",
                width=12,
            ),
            Panel("Objects seen", (_rate("kbatch_watch_events_total", "kind"),), unit="ops", width=6),
            Panel(
                "Objects left out",
                (_rate("kbatch_watch_unreadable_total", "kind", over="increase"),),
                width=6,
                text="They cannot be read: logs and the scheduler's Events name each. A bound pod closes its node.",
            ),
            Panel(
                "Lists made anew",
                (_rate("kbatch_watch_relists_total", "kind", over="increase"),),
                width=6,
                text="The API server had forgotten where a watch stood.",
            ),
            Panel(
                "Silence of watches",
                (Query(f"max by (process, kind) (kbatch_watch_age_seconds {_BY_PROCESS})", "{{process}} {{kind}}"),),
                unit="s",
                width=6,
                text="Bookmarks come about once a minute; beyond three minutes an alert fires.",
            ),
        ),
    ),
    Row(
        "Operators and webhook",
        (
            Panel(
                "Reconciliations",
                (
                    Query(
                        f"sum by (process, result) (rate(kbatch_reconciles_total[$__rate_interval]) {_BY_PROCESS})",
                        "{{process}} {{result}}",
                    ),
                ),
                unit="ops",
            ),
            Panel("Time of a reconciliation", _quantiles("kbatch_reconcile_seconds"), unit="s"),
            Panel("Waiting to be reconciled", (Query("sum(kbatch_reconcile_backlog)"),)),
            Panel("Reviews by outcome", (_rate("kbatch_webhook_reviews_total", "handler, outcome"),), unit="reqps"),
            Panel("Time of a review", _quantiles("kbatch_webhook_review_seconds"), unit="s"),
            Panel(
                "Held against ledgers",
                (
                    _rate("kbatch_webhook_ledger_claims_total", "outcome"),
                    Query(
                        "sum by (outcome) (rate(kbatch_webhook_ledger_commits_total[$__rate_interval]))",
                        "write {{outcome}}",
                    ),
                ),
                unit="reqps",
            ),
            Panel(
                "Writes of ledgers under way",
                (Query("sum(rate(kbatch_webhook_ledger_commit_seconds_sum[$__rate_interval]))"),),
            ),
            Panel("Grants not seen yet", (Query("max(kbatch_webhook_ledger_entries)"),)),
            Panel(
                "Certificate ends in",
                (Query("min(kbatch_webhook_certificate_expiry_timestamp_seconds) - time()"),),
                unit="s",
                kind="stat",
            ),
        ),
    ),
    Row(
        "Processes",
        (
            Panel(
                "Memory",
                (Query(f"process_resident_memory_bytes {_BY_PROCESS}", "{{process}} {{instance}}"),),
                unit="bytes",
                width=12,
            ),
            Panel(
                "Processor",
                (
                    Query(
                        f"rate(process_cpu_seconds_total[$__rate_interval]) {_BY_PROCESS}", "{{process}} {{instance}}"
                    ),
                ),
                unit="percentunit",
                width=12,
                text="100 % is one core.",
            ),
        ),
    ),
)


def queries() -> tuple[tuple[str, str], ...]:
    """Every query of the dashboard with the title of its panel."""
    return tuple(
        (panel.title, query.expression) for row in ROWS for panel in row.panels for query in panel.queries
    )  # fmt: skip


def names_in(expression: str) -> set[str]:
    """The metrics of kbatch that a query names."""
    return set(re.findall(r"\bkbatch_[a-z_]+", expression))


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in ROWS:
        panels.append(_row(row, len(panels) + 1, top))
        top += 1
        left = 0
        for panel in row.panels:
            height = 4 if panel.kind == "stat" and row is ROWS[0] else 8
            if left + panel.width > _COLUMNS:
                left, top = 0, top + height
            panels.append(_panel(panel, len(panels) + 1, (left, top, height)))
            left += panel.width
        top += height
    return {
        "uid": UID,
        "title": "kbatch",
        "tags": ["kbatch", "kubernetes", "scheduling"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": panels,
    }


def _variables() -> list[dict[str, Any]]:
    def of_label(name: str, label: str, *, several: bool) -> dict[str, Any]:
        query = f"label_values(kbatch_queue_deserved, {label})"
        found: dict[str, Any] = {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": several,
            "includeAll": several,
        }
        if several:
            found |= {"allValue": ".*", "current": {"text": "All", "value": "$__all"}}
        else:
            found |= {"current": {"text": "cpu", "value": "cpu"}}
        return found

    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return [source, of_label("queue", "queue", several=True), of_label("resource", "resource", several=False)]


def _row(row: Row, number: int, top: int) -> dict[str, Any]:
    place = {"h": 1, "w": _COLUMNS, "x": 0, "y": top}
    return {"id": number, "type": "row", "title": row.title, "gridPos": place, "collapsed": False, "panels": []}


def _panel(panel: Panel, number: int, place: tuple[int, int, int]) -> dict[str, Any]:
    left, top, height = place
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    options: dict[str, Any]
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    else:
        defaults["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 5,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
        options = {
            "legend": {"showLegend": True, "displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        }
    found: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": {"h": height, "w": panel.width, "x": left, "y": top},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend or "__auto",
            }
            for index, query in enumerate(panel.queries)
        ],
    }
    if panel.text:
        found["description"] = panel.text
    return found


def text() -> str:
    """The dashboard as it stands in its file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "kbatch.json").write_text(text(), encoding="utf-8")
