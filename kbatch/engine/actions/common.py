"""What several actions need: the jobs that want room, in line by queue, and which room each may have."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from typing import Any

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.reservation.aged_starts import plan_behind
from kbatch.engine.reservation.planned import PlannedStarts
from kbatch.engine.reservation.planning import reserve
from kbatch.engine.session.guarding import key_of
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_request, next_tasks, unplaced
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
        more = next_request(self._heap[0][1]) if self._session.plugins.looks_ahead else None
        return self._session.plugins.queue_key(self.queue, more)

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
    if context.session.plugins.valid(job) is not None or context.feasibility.hopeless(job):
        return False
    if len(next_tasks(job, unplaced(job))) < job.missing():
        return False
    yield from reserve(planned, context.feasibility, context.ledger, job)
    yield from plan_behind(planned, context.feasibility, context.ledger, job)
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
