"""Ageing: room gathers for a group that has waited too long. It is kept for one run of `allocate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.feasibility import Feasibility
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.reservation.ledger import Ledger
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.minimum import next_tasks, unplaced
from kbatch.model.tasks import Task, TaskClass


def gather_for_the_aged(session: Session, feasibility: Feasibility, ledger: Ledger) -> Iterator[Turn]:
    """Let room gather for the oldest group that has waited beyond the ageing time and does not fit as things are.

    Only a group that the cluster could hold, within its queue's capability and share, and only one at a time: while the
    oldest fits, order alone decides. Groups that no empty cluster would hold are passed over.
    """
    for job in session.live():
        if session.due():
            yield TURN
        if job.idle or job.nominated or not (job.in_queue and job.possible) or not job.missing():
            continue
        due = job.job.created + session.policy.ageing
        if session.now < due:
            session.wake.append(due)
            return  # the others are younger
        tasks = unplaced(job)
        if session.valid(job) is not None or session.limited(job, next_tasks(job, tasks)):
            continue
        if feasibility.hopeless(job):
            continue
        statement = Statement(session, job)
        fits = yield from placing(ledger.rankings, statement, (When.NOW,))
        statement.rollback()
        if fits:
            return
        yield TURN
        if (yield from feasibility.attempting(job)).fits:
            rows = _rows_for(session, ledger.rankings, next_tasks(job, tasks))
            if rows:
                ledger.begin(job, rows)
                return


def _rows_for(session: Session, rankings: NodeRankings, tasks: Sequence[Task]) -> list[tuple[TaskClass, int]]:
    """Rows that could hold the tasks if they were empty of our pods: those with the most room already come first."""
    table, room = session.nodes, session.room
    left = {name: column.copy() for name, column in table.capacity.items()}
    found: list[tuple[TaskClass, int]] = []
    by_class: dict[int, list[Task]] = {}
    for task in tasks:
        by_class.setdefault(task.cls.id, []).append(task)
    for run in by_class.values():
        cls = run[0].cls
        room.ensure(cls)
        most = np.full(len(table), np.iinfo(np.int64).max)
        already = most.copy()
        for name, amount in cls.needs:
            column = left.get(name)
            most = np.minimum(most, (column if column is not None else np.zeros(len(table), np.int64)) // amount)
            already = np.minimum(already, np.maximum(room.future[name], 0) // amount)
        most[~rankings.static(cls)[0]] = 0
        wanted = len(run)
        for row in np.lexsort((np.arange(len(table)), -np.minimum(already, most))).tolist():
            taken = min(wanted, int(most[row]))
            if taken <= 0:
                continue
            found.extend([(cls, row)] * taken)
            for name, amount in cls.needs:
                if name in left:
                    left[name][row] -= taken * amount
            wanted -= taken
            if not wanted:
                break
        if wanted:
            return []
    return found
