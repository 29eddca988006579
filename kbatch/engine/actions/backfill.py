"""backfill: pods that ask for nothing but a place, beyond their groups' minimums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.placement.gang import unplaced
from kbatch.engine.placement.ranking import When
from kbatch.engine.session.statement import Statement

if TYPE_CHECKING:
    from kbatch.engine.session.session import Session


def backfill(session: Session) -> Iterator[Transaction | Turn]:
    """Run the action. Shares do not matter: such pods take nothing that is shared."""
    for job in session.live():
        if session.due():
            yield TURN
        if job.idle or not (job.in_queue and job.possible) or job.missing():
            continue
        statement = Statement(session, job)
        full: set[int] = set()
        for task in unplaced(job):
            if not task.cls.best_effort or task.cls.id in full or job.full(task.role):
                continue
            rows = session.placement.fit(task.cls, When.NOW).choose(1)
            if rows:
                statement.bind(task, rows[0])
            else:
                full.add(task.cls.id)
            if session.due(10):
                yield TURN
        yield from statement.commit()
