"""What became of a trace: the object of `-o json`, and a page for people."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kbatch.resources import CPU, canonical_quantity
from kbatch.simulator.foreseen import Foreseen, judged
from kbatch.simulator.traces.check import Delay
from kbatch.simulator.traces.cluster import Cluster
from kbatch.simulator.traces.jobs import DIMENSIONS, Job
from kbatch.simulator.traces.usage import Usage
from kbatch.times import SECOND

if TYPE_CHECKING:
    from rich.console import Console

SHORT: Final = 10 * SECOND
"""Jobs that run for less count as if they ran so long in the bounded slowdown. (D. Feitelson, "Metrics for parallel job
scheduling and their convergence", JSSPP 2001.)"""
_MOST_ROWS: Final = 25


@dataclass(frozen=True, slots=True)
class Engine:
    """What only the engine's own run has to tell.

    Attributes:
        evictions: pods; wasted: how long they had run, in microseconds.
        held: by dimension, what pods held, times microseconds.
        podgroups, queues: as they are printed.
        foreseen: what jobs were told first of their starts.
    """

    evictions: int
    wasted: int
    held: tuple[int, ...]
    podgroups: dict[str, Any]
    queues: dict[str, Any]
    foreseen: tuple[Foreseen, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceResult:
    """A whole run; times in microseconds.

    Attributes:
        jobs: those of the trace that fit the cluster, in the order of submission.
        dropped: how many were left out, by reason.
        dimensions: those that the cluster has any of, by their places in `DIMENSIONS`.
        instants: at which something was decided.
        pods: that were started.
        last: the last event.
        nodes_opened: how many nodes held a pod at any time.
        engine_seconds: spent in decisions.
        delays: what the check found; backfilled: how many jobs it looked at, None: it was not asked for.
        cut: the run was cut off by its limit of time.
        engine: what the engine's own run has to tell; None: it did not decide.
    """

    jobs: Sequence[Job]
    dropped: dict[str, int]
    cluster: Cluster
    usage: Usage
    dimensions: tuple[int, ...]
    instants: int
    pods: int
    last: int
    nodes_opened: int
    engine_seconds: float
    delays: tuple[Delay, ...] = ()
    backfilled: int | None = None
    cut: bool = False
    engine: Engine | None = None

    def utilisation(self) -> dict[str, float]:
        """By dimension, what jobs held over what there was, from the first submission to the last end."""
        if not self.jobs or self.last <= self.jobs[0].submit:
            return {DIMENSIONS[at]: 0.0 for at in self.dimensions}
        span = self.last - self.jobs[0].submit
        held = self._held() if self.engine is None else self.engine.held
        return {DIMENSIONS[at]: round(held[at] / (self.cluster.total(at) * span), 6) for at in self.dimensions}

    def _held(self) -> Sequence[int]:
        """By dimension, what jobs held, times microseconds."""
        held = [0] * len(DIMENSIONS)
        for job in self.jobs:
            if job.start is not None:
                length = (self.last if job.finish is None else job.finish) - job.start
                for at in self.dimensions:
                    held[at] += job.tasks * job.shape[at] * length
        return held

    def summary(self) -> dict[str, Any]:
        """As it stands in `summary`."""
        started = [job for job in self.jobs if job.start is not None]
        waits = sorted(job.start - job.submit for job in started if job.start is not None)
        totals = [total_wait(job, self.last) for job in self.jobs]
        summary: dict[str, Any] = {
            "jobs": len(self.jobs),
            "started": len(started),
            "dropped": self.dropped,
            "cycles": self.instants,
            "binds": self.pods,
            "evictions": self.engine.evictions if self.engine else 0,
            "wasted_seconds": self.engine.wasted / SECOND if self.engine else 0.0,
            "makespan": self.last / SECOND,
            "mean_wait": _seconds(statistics.fmean(waits)) if waits else 0.0,
            "median_wait": _seconds(statistics.median(waits)) if waits else 0.0,
            "p99_wait": _seconds(waits[-(-len(waits) * 99 // 100) - 1]) if waits else 0.0,
            "max_wait": _seconds(waits[-1]) if waits else 0.0,
            "mean_total_wait": _seconds(statistics.fmean(totals)) if totals else 0.0,
            "max_total_wait": _seconds(max(totals, default=0)),
            "mean_bounded_slowdown": round(statistics.fmean(map(slowdown, started)), 6) if started else None,
            "utilisation": self.utilisation(),
            "nodes_opened": self.nodes_opened,
            "jain_index": None if (jain := self.usage.jain()) is None else round(jain, 6),
            "greatest_lag": round(self.usage.lag(), 6),
            "engine_seconds": round(self.engine_seconds, 6),
        }
        if self.engine is not None and self.engine.foreseen:
            summary["estimates"] = judged(self.engine.foreseen)
        if self.backfilled is not None:
            summary["backfill_check"] = {"looked_at": self.backfilled, "delays": len(self.delays)}
        return summary

    def queues(self) -> dict[str, Any]:
        """As it stands in `queues`: how the queues stand at the end."""
        if self.engine is not None:
            return self.engine.queues
        name = DIMENSIONS[self.usage.dimension]  # of what is told in thousandths, as of cores
        return {
            queue: {
                "deserved": {name: canonical_quantity(CPU, use.deserved if use.asked else 0)},
                "allocated": {name: canonical_quantity(CPU, use.held)},
                "share": round(use.held / use.deserved, 6) if use.asked and use.deserved else 0.0,
            }
            for queue, use in self.usage.queues.items()
        }

    def encode(self) -> Iterator[bytes]:
        """The JSON text in pieces, one job a line, ending with a newline."""
        yield b'{\n "jobs": {'
        for at, job in enumerate(self.jobs):
            yield b"%s\n  %s" % (b"," if at else b"", f"{_text(job.name)}: {_text(self._job(job))}".encode())
        groups = self.engine.podgroups if self.engine is not None else {}
        rest = json.dumps({"podgroups": groups, "queues": self.queues(), "summary": self.summary()}, indent=1)
        yield b"\n },\n" + rest[2:].encode() + b"\n"

    def _job(self, job: Job) -> dict[str, Any]:
        found: dict[str, Any] = {
            "submit": job.submit / SECOND,
            "start": None if job.start is None else job.start / SECOND,
            "finish": None if job.finish is None else job.finish / SECOND,
        }
        if job.nodes:
            runs = job.nodes
            found["nodes"] = [
                self.cluster.called(node)
                for at in range(0, len(runs), 3)
                for node in range(runs[at], runs[at] + runs[at + 1])
                for _ in range(runs[at + 2])
            ]
        return found

    def report(self, console: Console) -> None:
        """Print what people want to know."""
        from rich.table import Table

        summary = self.summary()
        left_out = {reason: count for reason, count in self.dropped.items() if count}
        told = f"; left out: {', '.join(f'{count} ({_REASONS[reason]})' for reason, count in left_out.items())}"
        rows = {
            "Jobs": f"{len(self.jobs)}, {summary['started']} started{told if left_out else ''}",
            "Waits": ", ".join(
                f"{name} {_shown(summary[f'{name}_wait'])}" for name in ("mean", "median", "p99", "max")
            ),
            "Slowdown": "-"
            if summary["mean_bounded_slowdown"] is None
            else f"{summary['mean_bounded_slowdown']:.2f} on average, with jobs of at least {SHORT // SECOND} s",
            "In use": ", ".join(f"{name} {part:.1%}" for name, part in summary["utilisation"].items())
            + f"; {self.nodes_opened} of {len(self.cluster.offers)} nodes at some time",
            "Time": f"last event at {_shown(summary['makespan'])}, {self.instants} instants looked at",
        }
        if self.engine is not None:
            if self.engine.foreseen:
                found = summary["estimates"]
                rows["Estimates"] = (
                    f"{found['groups']} jobs were told when they start; {found['held']:.1%} started by `latest`, "
                    f"{found['within_a_minute']:.1%} within a minute of `time`"
                )
            rows["Evictions"] = f"{summary['evictions']} pods that had run for {_shown(summary['wasted_seconds'])}"
        if self.backfilled is not None:
            rows["Check"] = f"{self.backfilled} jobs were backfilled; they delayed {len(self.delays)} reservations"
        width = max(map(len, rows))
        for name, text in rows.items():
            console.print(name, style="bold", end=" " * (width - len(name) + 2))
            console.print(text, markup=False)
        if self.cut:
            console.print("The run was cut off by --until; this is how far it came.", style="bold red")
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("Queue")
        for column in ("Jobs", "Started", "Mean wait", "Longest", "Held of deserved", "Greatest lag"):
            table.add_column(column, justify="right")
        for row in self._queue_rows()[:_MOST_ROWS]:
            table.add_row(*row)
        console.print()
        console.print(table)

    def _queue_rows(self) -> list[tuple[str, ...]]:
        jobs: dict[str, int] = {}
        waits: dict[str, list[int]] = {}
        for job in self.jobs:
            jobs[job.queue] = jobs.get(job.queue, 0) + 1
            if job.start is not None:
                waits.setdefault(job.queue, []).append(job.start - job.submit)
        rows: list[tuple[str, ...]] = []
        for name, use in self.usage.queues.items():
            waited = waits.get(name, [])
            rows.append(
                (
                    name,
                    str(jobs.get(name, 0)),
                    str(len(waited)),
                    _shown(statistics.fmean(waited) / SECOND) if waited else "-",
                    _shown(max(waited) / SECOND) if waited else "-",
                    f"{use.had / use.owed:.1%}" if use.owed else "-",
                    f"{use.lag / self.usage.capacity:.1%}" if self.usage.capacity else "-",
                )
            )
        return rows


_REASONS: Final = {
    "run_time": "no run time", "processors": "no processors", "too_large": "larger than the cluster",
    "submission": "no submission", "parts": "parts of others",
}  # fmt: skip


def total_wait(job: Job, last: int) -> int:
    """How long a job waited in all, in microseconds: before its first start, and after evictions. Of one that is not
    over: so far, `last` being the end.
    """
    if job.start is None:
        return max(0, last - job.submit)
    over = max(last, job.start + job.run + job.lost) if job.finish is None else job.finish
    return over - job.submit - job.run - job.lost


def slowdown(job: Job) -> float:
    """The bounded slowdown of a job that started: how many times as long as it runs it took to be over, at least 1."""
    assert job.start is not None  # noqa: S101 - asked for by the caller
    over = job.start + job.run if job.finish is None else job.finish  # later than that only where it was evicted
    return max(1.0, (over - job.submit) / max(job.run, SHORT))


def _seconds(microseconds: float) -> float:
    return round(microseconds / SECOND, 6)


def _shown(seconds: float) -> str:
    return f"{f'{seconds:.1f}'.removesuffix('.0')} s"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
