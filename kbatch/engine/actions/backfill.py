"""backfill: pods that ask for nothing but a place, beyond their groups' minimums.

Its arguments say besides whose starts are planned, when they cannot start at once; then `allocate` starts those who
come after them only where that delays none of them (see `kbatch.engine.reservation.planned`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial

from kbatch.engine.actions.base import Action
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Transaction, Turn
from kbatch.engine.placement.gang import nearest
from kbatch.engine.placement.ranking import When
from kbatch.engine.reservation.backfilling import BackfillArguments
from kbatch.engine.session.guarding import working
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import unplaced


class Backfill(Action):
    """The action."""

    name = "backfill"
    Arguments = BackfillArguments

    def run(self, context: CycleContext) -> Iterator[Step]:
        """Run the action."""
        return _run(context)


def _run(context: CycleContext) -> Iterator[Transaction | Turn]:
    """Run the action. Shares do not matter: such pods take nothing that is shared."""
    session = context.session
    for job in session.live():
        if session.due():
            yield TURN
        if job.idle or not (job.in_queue and job.possible) or job.missing():
            continue
        yield from working(session, job, partial(_fill, context, job), None)


def _fill(context: CycleContext, job: JobState) -> Generator[Transaction | Turn, None, None]:
    session = context.session
    if context.planned is not None:
        context.planned.lay(job)
    statement = Statement(session, job)
    full: set[int] = set()
    for task in unplaced(job):
        if not task.cls.best_effort or task.cls.id in full or job.full(task.role):
            continue
        rows = nearest(context.rankings, statement, task, When.NOW)
        if not statement.place((task,), rows):
            full.add(task.cls.id)
        if session.due(10):
            yield TURN
    yield from statement.commit()
