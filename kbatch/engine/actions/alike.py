"""Jobs of one pod that are alike are judged as one: where the first fails, and nothing has changed by that, so do those
that come next in line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbatch.engine.actions.common import Line
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.session.guarding import sound
from kbatch.engine.session.session import Refusal, Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import likeness


def before_trying(context: CycleContext, job: JobState) -> tuple[int, ...] | None:
    """The `moment`, if the job could tell of others should it fail; asked before it is tried. None: it could not."""
    if len(job.waiting) != 1:
        return None
    session, planned = context.session, context.planned
    if not (session.plugins.by_job and session.plugins.limits_alike) or context.ledger:
        return None
    if planned is not None and (planned.keeps or planned.may_plan(job) or job.key in planned.starts):
        return None
    return moment(context)


def tells_of_others(context: CycleContext, job: JobState, before: tuple[int, ...] | None) -> bool:
    """Whether others of its queue that are alike fail for certain where the job has failed; `before`: what
    `before_trying` said of it.
    """
    return before is not None and before == moment(context) and bool(likeness(job)) and sound(context.session, job)


def moment(context: CycleContext) -> tuple[int, ...]:
    """What moves whenever another job might be judged otherwise than before."""
    session, planned = context.session, context.planned
    searches = planned.rankings.searches if planned is not None else 0
    return session.commits, session.room_moves, len(session.failed), context.rankings.searches, searches


def judged_alike(context: CycleContext, job: JobState, other: JobState) -> bool:
    """Whether a job is alike to another one that has failed, and nobody sees a difference. False, too, where asking
    raises: who tries it is to see that.
    """
    if not job.possible or likeness(job) != likeness(other):
        return False
    planned, promises = context.planned, context.session.promises
    if promises.of(job) != promises.of(other):
        return False  # what others were promised counts to each
    try:
        return sound(context.session, job) and (planned is None or planned.finds_the_same(job, other))
    except Exception:  # noqa: BLE001 -- as in `guarding`
        return False


def told_alike(session: Session, job: JobState, other: JobState, refusals: Sequence[Refusal]) -> None:
    """Refuse a job for what another one was refused for that is alike."""
    for refused, reason, attempted in refusals:
        if refused is other and reason is None:
            session.refuse_room(job)
        elif refused is other and reason is not None:
            session.refuse(job, reason, attempted=attempted)


def pass_alike(context: CycleContext, line: Line, job: JobState, refusals: Sequence[Refusal] = ()) -> Iterator[Turn]:
    """Take those out of the line that come next and are alike to a job that has failed: they fail, and are told the
    same.
    """
    session = context.session
    protected = session.protected.get(job.key, ())
    while line and judged_alike(context, line.first(), job):
        other = line.next()
        told_alike(session, other, job, refusals)
        session.note_protected(other, protected)
        if session.due():
            yield TURN
