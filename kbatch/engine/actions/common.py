"""What several actions need: the jobs that want room, in line by queue, and which room each may have."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.reservation.planned import PlannedStarts
from kbatch.engine.reservation.planning import reserve
from kbatch.engine.session.guarding import key_of, sound
from kbatch.engine.session.session import Refusal, Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import likeness, next_request, next_tasks, unplaced
from kbatch.engine.state.queues import QueueState


class Line:
    """Jobs of one queue that want room; the first in order is the next."""

    def __init__(self, session: Session, queue: QueueState) -> None:
        self.queue = queue
        self._session = session
        self._heap: list[tuple[Any, JobState]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def stand(self, job: JobState) -> None:
        """Put the job at its place; nowhere if asking for its order raised, or it is left out."""
        key = key_of(self._session, job) if job.possible else None
        if key is not None:
            heapq.heappush(self._heap, (key, job))

    def key(self) -> tuple[Any, ...]:
        """The queue's place among those that have a job in line."""
        more = next_request(self._heap[0][1]) if self._session.looks_ahead else None
        return self._session.queue_key(self.queue, more)

    def first(self) -> JobState:
        """The job that `next` would take out."""
        return self._heap[0][1]

    def next(self) -> JobState:
        """Take the first job out of the line."""
        return heapq.heappop(self._heap)[1]


def rankings_of(context: CycleContext) -> NodeRankings:
    """The nodes by what plugins say; by their names alone for those who come after a planned start: see
    `PlannedStarts`.
    """
    planned = context.planned
    return planned.rankings if planned is not None and planned.behind else context.rankings


def moments_of(context: CycleContext) -> Sequence[When]:
    """Whether room that comes free later will do: not for those that are gone in time only if they start now."""
    planned = context.planned
    return (When.NOW,) if planned is not None and planned.hurried else (When.NOW, When.LATER)


def plan_start(context: CycleContext, planned: PlannedStarts, job: JobState) -> Generator[Turn, None, bool]:
    """Plan the start of a job whose minimum was tried in vain, if it lacks nothing but room; whether that was looked
    at.
    """
    if context.session.valid(job) is not None or context.feasibility.hopeless(job):
        return False
    if len(next_tasks(job, unplaced(job))) < job.missing():
        return False
    yield from reserve(planned, context.feasibility, context.ledger, job)
    return True


def wants_room(job: JobState) -> bool:
    """Whether a job that is in queue wants more: some pod waits, and its minimum is not just waiting for what ends."""
    return job.in_queue and not job.idle and not (job.nominated and not job.missing())


def lines_of(session: Session) -> Generator[Turn, None, dict[str, Line]]:
    """The jobs in queue that want room, by their queue."""
    lines: dict[str, Line] = {}
    for job in session.live():
        if session.due():
            yield TURN
        queue = session.queues.get(job.queue)
        if queue is None or not wants_room(job):
            continue
        if job.queue not in lines:
            lines[job.queue] = Line(session, queue)
        lines[job.queue].stand(job)
    return {name: line for name, line in lines.items() if line}


# --- jobs that are alike are judged as one ----------------------------------------------------------------------------


def tells_of_others(context: CycleContext, job: JobState) -> bool:
    """Whether others of its queue that are alike fail for certain where the job does, if `moment` stands still."""
    session, planned = context.session, context.planned
    if not (session.by_job and session.limits_alike) or context.ledger or not likeness(job):
        return False
    if planned is not None and (planned.keeps or planned.may_plan(job) or job.key in planned.starts):
        return False
    return sound(session, job)


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
    planned = context.planned
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
    while line and judged_alike(context, line.first(), job):
        told_alike(context.session, line.next(), job, refusals)
        if context.session.due():
            yield TURN
