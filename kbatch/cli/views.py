"""PodGroups and Queues of a live cluster as rows: for tables and for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.table import Table

from kbatch.api import conditions
from kbatch.api.names import QUEUE_LABEL
from kbatch.api.objects import EstimatedStart, Job, PodGroup, Queue, QueueFlow, RawQuantity, RawResources
from kbatch.cli.held import why_no_group
from kbatch.model.jobs_release import members
from kbatch.model.minresources import minimum_of
from kbatch.model.usage import faded_until, spelled_out
from kbatch.resources import MILLION, QuantityError, in_millionths

_OVER = {"Completed": conditions.COMPLETED, "Failed": conditions.FAILED}
"""The phases of groups that are over, and the condition that says why."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A PodGroup: its phase, its pods, and what its condition Scheduled says; once it is over, how it ended. Or
    a Job that is held although no PodGroup stands for it.
    """

    namespace: str
    name: str
    queue: str
    phase: str
    minimum: int
    running: int
    pending: int
    succeeded: int
    failed: int
    scheduled: bool | None
    reason: str
    message: str
    start: EstimatedStart | None = None
    """When it is to start, if that is planned."""
    kind: str = "PodGroup"

    @property
    def over(self) -> bool:
        """Whether it has ended, well or badly."""
        return self.phase in _OVER

    @property
    def waits(self) -> bool:
        """Whether it is neither placed nor over."""
        return self.scheduled is not True and not self.over

    def json(self) -> dict[str, Any]:
        """As one object of the output."""
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "queue": self.queue,
            "phase": self.phase,
            "minMember": self.minimum,
            "running": self.running,
            "pending": self.pending,
            "succeeded": self.succeeded,
            "failed": self.failed,
            "scheduled": self.scheduled,
            "reason": self.reason,
            "message": self.message,
            "estimatedStart": None
            if self.start is None
            else {"time": self.start.time, "latest": self.start.latest, "basis": self.start.basis},
        }


def group_row(group: PodGroup) -> GroupRow:
    """The row of one PodGroup."""
    spec, status = group.spec, group.status
    condition = conditions.find(status.conditions, conditions.SCHEDULED)
    told = condition
    if status.phase in _OVER:  # why it waited is of no use any more
        told = conditions.find(status.conditions, _OVER[status.phase])
    return GroupRow(
        namespace=group.metadata.namespace,
        name=group.metadata.name,
        queue=spec.queue,
        phase=status.phase or "Pending",
        minimum=minimum_of(spec),
        running=status.running,
        pending=status.pending,
        succeeded=status.succeeded,
        failed=status.failed,
        scheduled=None if condition is None else condition.status == conditions.TRUE,
        reason=told.reason if told is not None else "",
        message=told.message if told is not None else "",
        start=status.estimated_start,
    )


def group_rows(groups: Iterable[PodGroup]) -> list[GroupRow]:
    """All rows, by namespace and name."""
    return sorted((group_row(group) for group in groups), key=lambda row: (row.namespace, row.name))


def held_row(job: Job, *, taken: bool = False) -> GroupRow:
    """The row of a Job that is held although no PodGroup stands for it; `taken`: another one has its name."""
    reason, message = why_no_group(job, taken=taken)
    return GroupRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        queue=(job.metadata.labels or {}).get(QUEUE_LABEL, ""),
        phase="Pending",
        minimum=members(job),
        running=0,
        pending=0,
        succeeded=0,
        failed=0,
        scheduled=None,
        reason=reason,
        message=message,
        kind="Job",
    )


def group_table(rows: Sequence[GroupRow]) -> Table:
    """The rows for people; when they are to start, where that is planned of any."""
    planned = any(row.start is not None for row in rows)
    start = ("Start",) if planned else ()
    table = _table("Namespace", "Name", "Queue", "Phase", "Min>", "Running>", "Pending>", *start, "Reason", "Message")
    if planned:
        table.columns[7].no_wrap = True
    for row in rows:
        counts = (str(row.minimum), str(row.running), str(row.pending))
        said = ((row.start.time or row.start.basis) if row.start is not None else "",) if planned else ()
        name = row.name if row.kind == "PodGroup" else f"{row.kind.lower()}/{row.name}"
        table.add_row(row.namespace, name, row.queue, row.phase, *counts, *said, row.reason, row.message)
    return table


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A Queue: what it may, deserves, holds and asks for. What it does not set of capability, placement, evictions,
    budget and namespace selector is None. So is what the plugin flow alone says: `flow`, `fair_share` and
    `excess_charged`.
    """

    name: str
    weight: int
    state: str
    reclaimable: bool
    capability: RawResources | None
    placement: str | None
    evictions_per_hour: int | None
    excess_budget: int | None
    namespace_selector: dict[str, Any] | None
    deserved: RawResources
    allocated: RawResources
    requested: RawResources
    share: str
    pending: int
    inqueue: int
    running: int
    completed: int
    flow: QueueFlow | None
    fair_share: RawQuantity | None
    excess_charged: RawQuantity | None
    over: str = ""
    """What it holds beyond its capability, in words; empty if nothing."""

    def json(self) -> dict[str, Any]:
        """As one object of the output."""
        return {
            "name": self.name,
            "weight": self.weight,
            "state": self.state,
            "reclaimable": self.reclaimable,
            "capability": self.capability,
            "overCapability": self.over or None,
            "placement": self.placement,
            "evictionsPerHour": self.evictions_per_hour,
            "excessBudget": self.excess_budget,
            "namespaceSelector": self.namespace_selector,
            "deserved": self.deserved,
            "allocated": self.allocated,
            "requested": self.requested,
            "share": self.share,
            "pending": self.pending,
            "inqueue": self.inqueue,
            "running": self.running,
            "completed": self.completed,
            "flow": None if self.flow is None else spelled_out(self.flow),
            "fairShare": self.fair_share,
            "excessCharged": self.excess_charged,
        }


def queue_row(queue: Queue, now: int = 0, half_life: int | None = None) -> QueueRow:
    """The row of one Queue. Its flow is that of `now` where the half-life is known, else as it was last written."""
    spec, status = queue.spec, queue.status
    flow = status.flow
    over = conditions.find(status.conditions, conditions.OVER_CAPABILITY)
    return QueueRow(
        name=queue.metadata.name,
        weight=spec.weight,
        state=status.state or spec.state,
        reclaimable=spec.reclaimable,
        capability=None if spec.capability is None else dict(spec.capability),
        placement=spec.placement,
        evictions_per_hour=spec.evictions_per_hour,
        excess_budget=spec.excess_budget,
        namespace_selector=None if spec.namespace_selector is None else msgspec.to_builtins(spec.namespace_selector),
        deserved=dict(status.deserved or {}),
        allocated=dict(status.allocated or {}),
        requested=dict(status.requested or {}),
        share=status.share or "",
        pending=status.pending,
        inqueue=status.inqueue,
        running=status.running,
        completed=status.completed,
        flow=flow if flow is None or half_life is None else faded_until(flow, now, half_life),
        fair_share=status.fair_share,
        excess_charged=status.excess_charged,
        over=over.message if over is not None and over.status == conditions.TRUE else "",
    )


def queue_rows(queues: Iterable[Queue], now: int = 0, half_life: int | None = None) -> list[QueueRow]:
    """All rows, by name; see `queue_row`."""
    return sorted((queue_row(queue, now, half_life) for queue in queues), key=lambda row: row.name)


def queue_table(rows: Sequence[QueueRow]) -> Table:
    """The rows for people."""
    fades = any(row.flow is not None or row.fair_share is not None for row in rows)
    more = ("Flow>", "Fair share>", "Budget>") if fades else ()
    capped = ("Capability",) if any(row.capability for row in rows) else ()
    table = _table(
        "Queue", "Weight>", "State", *capped, "Deserved", "Allocated", "Requested", "Share>", *more, "Pending>",
        "InQueue>", "Running>",
    )  # fmt: skip
    for row in rows:
        amounts = (_amounts(row.deserved), _amounts(row.allocated), _amounts(row.requested))
        counts = (str(row.pending), str(row.inqueue), str(row.running))
        used = (_number(row.flow.value if row.flow is not None else 0), _number(row.fair_share or 0), _budget(row))
        shown = used if fades else ()
        cap = (_amounts(row.capability or {}) + (" (exceeded)" if row.over else ""),) if capped else ()
        table.add_row(row.name, str(row.weight), row.state, *cap, *amounts, row.share, *shown, *counts)
    return table


def _budget(row: QueueRow) -> str:
    """What is charged of the budget; `-` where there is none and nothing is charged."""
    if row.excess_budget is None:
        return _number(row.excess_charged) if row.excess_charged else "-"
    return f"{_number(row.excess_charged or 0)}/{row.excess_budget}"


def _number(number: RawQuantity) -> str:
    """Up to three decimals."""
    try:
        return f"{in_millionths(number) / MILLION:.3f}".rstrip("0").rstrip(".")
    except QuantityError:
        return str(number)


def job_set_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Job sets, as they stand in JSON, for people."""
    table = _table(
        "Queue", "Job set", "Groups>", "Jobs>", "Phases", "Suspended>", "Running>", "Pending>", "Succeeded>", "Failed>"
    )
    for row in rows:
        phases = " ".join(f"{phase}={count}" for phase, count in row["phases"].items()) or "-"
        counts = [str(row[name]) for name in ("suspended", "running", "pending", "succeeded", "failed")]
        table.add_row(row["queue"], row["name"], str(row["groups"]), str(row["jobs"]), phases, *counts)
    return table


def _amounts(amounts: RawResources) -> str:
    return " ".join(f"{name}={amount}" for name, amount in sorted(amounts.items())) or "-"


def _table(*columns: str) -> Table:
    """A table without lines; a column whose name ends with `>` is of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold")
    return table
