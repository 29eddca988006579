"""Whether groups that were put off would be placed as things are."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from itertools import islice
from typing import Final

from kbatch.engine.actions.common import moments_of, rankings_of
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.gang import nearest, placing
from kbatch.engine.placement.ranking import When
from kbatch.engine.session.guarding import working
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import unplaced

_MOST: Final = 16
"""Each one that is tried may take as long as one that is placed."""


def any_fits(context: CycleContext, jobs: Iterable[JobState]) -> Generator[Turn, None, bool]:
    """Whether the next step of one of the jobs fits, were it tried now; of the first `_MOST` of them."""
    for job in list(islice(jobs, _MOST)):
        if (yield from working(context.session, job, partial(_fits, context, job), False)):
            return True
        yield TURN
    return False


def _fits(context: CycleContext, job: JobState) -> Generator[Turn, None, bool]:
    """Whether the job's next step fits; leaves no trace."""
    session = context.session
    if session.plugins.valid(job) is not None or context.feasibility.hopeless(job):
        return False
    if context.planned is not None:
        context.planned.lay(job)
    lifted = context.ledger.lift(job)
    rankings, statement = rankings_of(context), Statement(session, job)
    try:
        if job.missing():
            return (yield from placing(rankings, statement, moments_of(context), search=()))
        kinds = {task.cls.id: task for task in unplaced(job)}.values()
        return any(statement.place((task,), nearest(rankings, statement, task, When.NOW)) for task in kinds)
    finally:
        statement.rollback()
        if lifted:
            context.ledger.lay()
