"""Why groups wait, in numbers that describe one state: the cluster as the cycle leaves it.

A group is tried somewhere in the middle of a cycle; were its reason made then, the numbers would depend on who was
tried before, and on whether it was tried at all or known to fail. So an action only notes that there was no room, and
what is lacking is worked out when the cycle has decided everything. Then the next cycle, if nothing happens, finds the
very cluster that this one has left, and says the same. (Admission is different: why a group is not let in queue is said
of the cluster as the cycle found it, because that is what it was kept out by.)
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from kbatch.api.reasons import (
    ClusterTooSmall,
    GangExceedsReclaimableShare,
    NotEnoughResources,
    QueueCapabilityExceeded,
    QueueOverused,
    Reason,
    Reserved,
)
from kbatch.engine.carryover.backlog import OLDEST
from kbatch.engine.carryover.memo import Memo, Stated
from kbatch.engine.carryover.unschedulable import classes_of
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import Turn
from kbatch.engine.diagnosis.without_nominations import WithoutNominations
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.feasibility import Trial
from kbatch.engine.placement.gang import placing, why_apart
from kbatch.engine.placement.kinds import easiest_first
from kbatch.engine.placement.ranking import When
from kbatch.engine.placement.shortage import shortage
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, shortfalls, signature, unplaced
from kbatch.model.tasks import Task
from kbatch.resources import total
from kbatch.times import SECOND

_PARTS: Final = 6
"""In so many parts the numbers are worked out again, in the last cycles before they must, a second apart."""


class Shortages:
    """What groups lack to be placed, the same for all that are alike; kept while the nodes stay as they are.

    Where they do not, and there is still not enough room, the numbers are worked out again before they are older than
    numbers may be: a part of them in each cycle of the last seconds, that no cycle has all of them to work out.
    """

    def __init__(self, context: CycleContext, before: Memo) -> None:
        self._context = context
        session = self._session = context.session
        self._nodes = session.snapshot.standing_generation if context.unschedulable.as_found else None
        self._before = before.shortages
        self._early = -(-len(self._before) // (_PARTS * (2 if session.leaving else 1)))
        """Of so many more the numbers may be worked out again before they must: of half as many where victims were
        sought and found, which is work enough."""
        self._found: dict[object, Stated] = {}
        self._nominated = [job for job in session.live() if job.nominated]
        self._rows = [(task.cls, row) for other in self._nominated for task, row in other.nominated.values()]
        self._without = WithoutNominations(context, self._rows)

    def of(self, job: JobState) -> Generator[Turn, None, Reason]:
        """Why there is no room for what the job's minimum lacks."""
        context = self._context
        if context.feasibility.hopeless(job):
            return too_small(context.session, job, (yield from context.feasibility.attempting(job)))
        tasks = unplaced(job)
        key = (
            signature(job, tasks), context.unschedulable.beyond(job, classes_of(tasks)), job.pipelined,
            context.feasibility.mark(job),
        )  # fmt: skip
        found = self._found.get(key)
        if found is None:
            found = self._before.get(key)
            if found is None or found.nodes is None or found.nodes != self._nodes:
                found = yield from self._work_out(job, found)
            self._found[key] = found
        return found.reason

    def _work_out(self, job: JobState, before: Stated | None) -> Generator[Turn, None, Stated]:
        """What it lacks; `before`: what it did when the nodes were different."""
        context, session = self._context, self._session
        alone = yield from context.feasibility.attempting(job)
        if not alone.fits:
            return self._stated(too_small(session, job, alone))
        reserved = yield from self._reserved(job)
        if reserved is not None:
            return self._stated(reserved)
        if before is not None and self._may_stand(job, before):
            if session.snapshot.numbers_current:
                session.wake.append(before.at + OLDEST)
            return before
        return self._stated((yield from explaining(context, job, (When.NOW, When.LATER))))

    def _stated(self, reason: Reason) -> Stated:
        return Stated(reason, self._session.now, self._nodes)

    def _may_stand(self, job: JobState, before: Stated) -> bool:
        """Whether numbers may be told again although the nodes have changed."""
        age = self._session.now - before.at
        if type(before.reason) is not NotEnoughResources or job.together is not None or age < 0:
            return False
        if age < OLDEST - _PARTS * SECOND or not self._session.snapshot.numbers_current:
            return True
        self._early -= 1
        return age < OLDEST and self._early < 0

    def _reserved(self, job: JobState) -> Generator[Turn, None, Reason | None]:
        """Reserved, where the job would fit but for what others are nominated to."""
        rows = self._rows
        if not rows:
            return None
        fits = self._without.fits(job)
        if fits is None:
            fits = yield from self._tried_without(job)
        if fits:
            for other in self._nominated:
                kept = total(task.cls.request for task, _ in other.nominated.values())
                for name in job.asks:
                    if kept.get(name):
                        return Reserved(other.name, name, kept[name])
        return None

    def _tried_without(self, job: JobState) -> Generator[Turn, None, bool]:
        """Whether it can be placed where nobody is nominated."""
        session, rows = self._session, self._rows
        for cls, row in rows:
            session.room.pipeline(cls, row, -1)
        statement = Statement(session, job)
        try:
            fits = could_fit(self._context.rankings, job)
            if fits:
                fits = yield from placing(self._context.rankings, statement, (When.NOW,), search=())
            statement.rollback()
        finally:
            for cls, row in rows:
                session.room.pipeline(cls, row)
        return fits

    def keep(self, memo: Memo) -> None:
        """Put into the next cycle's memo what may hold then."""
        memo.shortages = self._found


def restated(session: Session, job: JobState, reason: Reason) -> Reason:
    """The reason with the numbers of now."""
    queue = session.queues.get(job.queue)
    if queue is None:
        return reason
    if isinstance(reason, QueueOverused):
        now = session.plugins.overused(queue, job)
        return now if isinstance(now, QueueOverused) else reason
    if isinstance(reason, GangExceedsReclaimableShare):
        allocated = queue.allocated.get(reason.resource, 0)
        return replace(reason, allocated=allocated, idle=session.idle(reason.resource))
    if isinstance(reason, QueueCapabilityExceeded) and job.in_queue:
        return replace(reason, used=queue.allocated.get(reason.resource, 0))
    return reason


def explaining(context: CycleContext, job: JobState, when: Sequence[When]) -> Generator[Turn, None, Reason]:
    """Why the job's minimum does not fit, with the most that could be placed; leaves no trace in the session."""
    session = context.session
    plan = Statement(session, job)
    needed = job.missing()
    tasks = unplaced(job)
    if job.together is not None and job.strict:
        plan.apart = True
        yield from placing(context.rankings, plan, when, search=when[:1])
        fits = not job.missing()
        plan.rollback()
        plan.apart = False
        apart = (yield from why_apart(context.rankings, plan, when[-1])) if fits else None
        if apart is not None:
            return apart
        plan.apart = True
    yield from placing(context.rankings, plan, when, search=())  # a search was made in vain
    if not job.missing() and len(when) > 1:
        # It could wait for what terminates, and does not: it was promised an earlier start, or that is on its way out
        # since it was tried. What it lacks is room now.
        plan.rollback()
        yield from placing(context.rankings, plan, when[:1], search=())
    left = easiest_first(context.rankings, job)
    placeable = len(tasks) - len(left)
    stuck = _stuck(job, left) or (left or tasks)[0]
    fitting, counts = context.rankings.histogram(stuck.cls, session.whole_nodes.rows(job, stuck))
    short, missing = shortage(session.nodes, session.room, next_tasks(job, left))
    plan.rollback()
    role = stuck.role if any(known.name == stuck.role for known in job.job.roles) else ""
    held = job.pipelined
    return NotEnoughResources(
        held + needed, held + placeable, short, missing, len(session.nodes), fitting, counts, role
    )  # fmt: skip


def too_small(session: Session, job: JobState, alone: Trial) -> Reason:
    """What a group lacks that would not fit even were the cluster empty of this scheduler's pods."""
    if alone.apart is not None:
        return alone.apart
    role = alone.role if any(known.name == alone.role for known in job.job.roles) else ""
    return _too_small(alone, len(session.nodes), role)


@lru_cache(maxsize=256)
def _too_small(alone: Trial, nodes: int, role: str) -> ClusterTooSmall:
    """Groups that are alike, of which there may be thousands, share it."""
    return ClusterTooSmall(
        alone.needed, alone.placeable, alone.short, alone.missing, nodes, alone.fitting, alone.counts, role
    )  # fmt: skip


def _stuck(job: JobState, left: Sequence[Task]) -> Task | None:
    """The first task that the minimum still lacks."""
    for role, _ in shortfalls(job):
        for task in left:
            if role is None or task.role == role:
                return task
    return None
