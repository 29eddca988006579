"""Ageing where starts are planned anew in each cycle: that of a group which has waited too long is planned before all
others, and besides as many as there may be. Room gathers for nobody here: who is gone in time may use it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial

from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.placement.feasibility import Feasibility
from kbatch.engine.reservation.ageing import first_aged, fitting_now, waits_for_room
from kbatch.engine.reservation.kept import PlannedStart
from kbatch.engine.reservation.ledger import Ledger
from kbatch.engine.reservation.planned import PlannedStarts
from kbatch.engine.reservation.planning import plan
from kbatch.engine.session.guarding import working
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState


def plan_for_the_aged(planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger) -> Iterator[Transaction | Turn]:
    """Plan the start of the first group that has waited beyond the ageing time and does not fit as things are.

    One at a time: that of the cycle before, if room is still all that it lacks; where it fits, it is started.
    """
    again = yield from _again(planned, feasibility, ledger)
    if isinstance(again, Statement):
        yield from again.commit()
        return
    if again is not None:
        _enter(planned, again)
        ledger.note(again.job, again.places)
        return
    beside = partial(_beside, planned, feasibility, ledger)
    found = yield from first_aged(planned.session, feasibility, ledger, beside)
    if found is not None:
        job, start = found
        _enter(planned, start)
        ledger.note(job, start.places)


def keep_start_of_the_aged(
    planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger
) -> Generator[Turn, None, Statement | None]:
    """Plan again the start of the group that had one in the cycle before, if room is still all that it lacks, for an
    action that runs before the room is given out. Its placement, open, where it fits as things are: then it needs none.
    """
    again = yield from _again(planned, feasibility, ledger)
    if isinstance(again, Statement):
        return again
    if again is not None:
        _enter(planned, again)
    return None


def plan_behind(
    planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger, job: JobState
) -> Generator[Turn, None, None]:
    """A job's start was planned: if it is ahead, in their queue, of the group that has waited too long, and so may take
    of its room, plan the start of that group again, behind it.
    """
    start = planned.starts.get(planned.aged) if planned.aged is not None else None
    if start is None or start.job is job or start.job.queue != job.queue or job.key not in planned.starts:
        return
    session, aged = planned.session, start.job
    if not planned.stands(start) or session.plugins.job_key(job) > session.plugins.job_key(aged):
        return
    again = yield from working(session, aged, partial(plan, planned, feasibility, ledger, aged), None)
    if again is not None:
        planned.put(again)


def _again(
    planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger
) -> Generator[Turn, None, Statement | PlannedStart | None]:
    """Of the group whose start was planned in the cycle before, if room is still all that it lacks, the placement,
    open, where it fits as things are, else the start. None: of none.
    """
    session = planned.session
    kept = session.snapshot.state.gathered
    if kept is None or kept.job not in session.model.live:
        return None
    job = session.job(kept.job)

    def work() -> Generator[Turn, None, Statement | PlannedStart | None]:
        # What backfills its room may take its queue past its share, for a while: it keeps its turn all the same.
        if not waits_for_room(session, feasibility, ledger, job, by_share=False):
            return None
        statement = yield from fitting_now(session, ledger, job)
        if statement is None:
            return (yield from _beside(planned, feasibility, ledger, job, ()))
        if not (yield from _passed_by(session, job)):
            return statement
        places = tuple(statement.starting())
        statement.rollback()
        yield from planned.ends.preparing()
        return planned.entry(job, session.now, places)  # it starts in its turn

    return (yield from working(session, job, work, None))


def _passed_by(session: Session, job: JobState) -> Generator[Turn, None, bool]:
    """Whether anybody waits who is ahead of the job in its queue, and so may take its room."""
    key = session.plugins.job_key(job)
    for other in session.live():
        if session.due():
            yield TURN
        waits = other.queue == job.queue and other.seeks_minimum and not other.idle
        if waits and session.plugins.job_key(other) < key:
            return True
    return False


def _beside(
    planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger, job: JobState, fitting: Sequence[Statement]
) -> Generator[Turn, None, PlannedStart | None]:
    """The job's earliest start, beside those that would start now."""
    yield from planned.ends.preparing()
    expected = planned.ends.expect([each for statement in fitting for each in statement.starting()])
    try:
        return (yield from plan(planned, feasibility, ledger, job))
    finally:
        planned.ends.expect_no_more(expected)


def _enter(planned: PlannedStarts, start: PlannedStart) -> None:
    planned.aged = start.job.key
    planned.put(start)
