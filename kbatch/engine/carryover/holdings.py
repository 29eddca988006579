"""What could be taken from the groups of a queue at most, by node: kept as long as no group of the queue changes.

No votes are asked for it. Groups of which the same is certain beforehand (`Holder`) are added up together.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kbatch.engine.plugin import Holder
from kbatch.engine.state.node_resources import Index
from kbatch.model.jobs import Job, QueueRecord
from kbatch.model.nodes import Column, NodeTable


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """What some groups hold, in the dimensions of nodes: on each of `rows`, which differ, so much of each dimension."""

    rows: Index
    amounts: dict[str, Column]


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """What the groups of one queue hold that could be taken from them, the pods' nodes willing.

    Attributes:
        record, generation: the queue, and its generation then.
        table, nodes: the nodes, and their `static_generation` then.
        held: by what is known of the groups.
    """

    record: QueueRecord
    generation: int
    table: NodeTable
    nodes: int
    held: tuple[tuple[Holder, Held], ...]


Known: TypeAlias = MutableMapping[str, Holdings]
"""Holdings by queue; those that hold no more are made anew when they are asked for."""


def holdings_of(record: QueueRecord, table: NodeTable, known: Known) -> Holdings:
    """Those of a queue as it is."""
    found = known.get(record.name)
    if (
        found is None
        or found.record is not record
        or found.generation != record.generation
        or found.table is not table
        or found.nodes != table.static_generation
    ):
        found = known[record.name] = Holdings(
            record, record.generation, table, table.static_generation, _added_up(record, table)
        )
    return found


def _added_up(record: QueueRecord, table: NodeTable) -> tuple[tuple[Holder, Held], ...]:
    rows: dict[Holder, dict[int, dict[str, int]]] = {}
    row_of, open_ = table.row, table.open
    for job in record.jobs.values():
        if not job.holding or not could_give(job):
            continue
        by_row = rows.setdefault(_holder(job), {})
        for task in job.tasks.values():
            row = row_of.get(task.node, -1) if task.holds else -1
            if row < 0 or not open_[row]:
                continue  # nothing is placed on a row that is not open
            found = by_row.get(row)
            if found is None:
                found = by_row[row] = {}
            for name, amount in task.cls.needs:
                found[name] = found.get(name, 0) + amount
    return tuple((holder, _columns(by_row)) for holder, by_row in sorted(rows.items()))


def _columns(by_row: dict[int, dict[str, int]]) -> Held:
    names = sorted({name for amounts in by_row.values() for name in amounts})
    columns = {
        name: np.fromiter((amounts.get(name, 0) for amounts in by_row.values()), np.int64, len(by_row))
        for name in names
    }  # fmt: skip
    return Held(np.fromiter(by_row, np.intp, len(by_row)), columns)


def could_give(job: Job) -> bool:
    """Whether a group that holds something may be left with less, now or later in a cycle: a gang that does not go as a
    whole needs more pods than its minimum for that, some of which may be placed yet.
    """
    if job.disruption == "Never":
        return False
    return bool(job.roles) or not _in_parts(job) or job.holding + job.succeeded + len(job.waiting) > job.minimum


def _holder(job: Job) -> Holder:
    return Holder(
        job.priority,
        alone=job.holding == 1 and not job.waiting,
        ends=_ends(job),
        minimal=_in_parts(job) and job.holding + job.succeeded <= job.minimum,
    )


def _in_parts(job: Job) -> bool:
    """Whether it is a gang that never goes as a whole."""
    return job.gang and job.disruption != "Whole" and not _ends(job)


def _ends(job: Job) -> bool:
    return job.group is not None and job.group.spec.lifetime_seconds is not None
