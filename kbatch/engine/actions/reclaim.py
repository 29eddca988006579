"""reclaim: a queue below its deserved share takes back what others hold beyond theirs.

The receiver ends at most at its share; donors give only what is above theirs. Where idle or releasing room serves, it
is set aside for the job until the action ends, so that nobody is evicted in its stead; allocate then gives it out in
order. Room that gathers for an aged group serves nobody whom allocate would not let have it; nor does the room that
allocate will keep for planned starts: where these are not kept from cycle to cycle, they are planned here as there.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Generator, Iterator, Sequence
from functools import partial
from typing import Final

from kbatch.api.reasons import GangExceedsReclaimableShare
from kbatch.engine.actions.alike import before_trying, pass_alike, tells_of_others
from kbatch.engine.actions.base import Action
from kbatch.engine.actions.common import lines_of, moments_of, plan_start, rankings_of
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Step, Transaction, Turn
from kbatch.engine.placement.enough import FEW, could_fit
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import When
from kbatch.engine.plugin import Preemptor
from kbatch.engine.preemption.candidates import Donors
from kbatch.engine.preemption.goal import Goal
from kbatch.engine.preemption.planning import making_room
from kbatch.engine.preemption.polling import Evictor
from kbatch.engine.preemption.reach import looking_around, within_reach
from kbatch.engine.preemption.reuse import Searches, asks_alike, likeness
from kbatch.engine.preemption.sparing import Decided
from kbatch.engine.preemption.steps import keeping_to, next_steps
from kbatch.engine.preemption.sums import cap_beside, promised, promises_to_keep
from kbatch.engine.preemption.within_queue import preemptor_of
from kbatch.engine.reservation.aged_starts import keep_start_of_the_aged
from kbatch.engine.reservation.ageing import keep_for_the_aged
from kbatch.engine.session.guarding import working
from kbatch.engine.session.limits import over_capability
from kbatch.engine.session.session import Refusal, Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import no_choice, signature, unplaced
from kbatch.engine.state.queues import QueueState
from kbatch.engine.state.timeline import Release
from kbatch.engine.state.wanted import Wanted
from kbatch.model.tasks import Task
from kbatch.resources import Resources, add_to, scale

_EVICTOR: Final = Evictor("reclaim", "reclaimable")


class Reclaim(Action):
    """The action."""

    name = "reclaim"
    victims = "reclaimable"
    example = "proportion"

    def run(self, context: CycleContext) -> Iterator[Step]:
        """Run the action."""
        return _run(context)


def _run(context: CycleContext) -> Iterator[Transaction | Turn]:
    """Run the action."""
    session = context.session
    aside, planned = _Aside(context), context.planned
    if not aside.any_gives():
        return
    lines = yield from lines_of(session)
    heap = [(line.key(), name) for name, line in lines.items()]
    heapq.heapify(heap)
    starts = dict(planned.starts) if planned is not None else {}
    searches, decided = Searches(context, _EVICTOR), Decided(context)
    session.caches.append(searches.forget)
    if planned is None:
        aged = yield from keep_for_the_aged(session, context.feasibility, context.ledger)
    else:
        aged = yield from keep_start_of_the_aged(planned, context.feasibility, context.ledger)
    if aged is not None:
        aside.keep(aged, first=False)
    decisions = 0
    while heap:
        _, name = heap[0]
        line = lines[name]
        job = line.next()
        if job.possible:
            step = partial(_beside_the_aged, context, line.queue, job, aside, searches)
            before = before_trying(context, job)
            refusals: list[Refusal] = []
            session.refusals = refusals if before is not None else None
            moved = yield from decided.keeping(working(session, job, step, False))
            session.refusals = None
            yield TURN
            if moved:
                if not job.idle:
                    line.stand(job)
                if aside.decisions > decisions and not aside.any_gives():
                    break  # whoever comes now finds what allocate would find
                decisions = aside.decisions
            elif tells_of_others(context, job, before):
                yield from pass_alike(context, line, job, refusals)
        if not job.possible:
            aside.give_back(job)
        if line:
            heapq.heapreplace(heap, (line.key(), name))
        else:
            heapq.heappop(heap)
    if planned is not None and not planned.keeps:
        planned.only(starts)  # allocate plans anew: it knows who has started
    yield from decided.sparing()
    kept = bool(context.ledger)
    context.ledger.end()
    aside.end(kept=kept)


class _Aside:
    """The room that is set aside while the action runs, by statements that stay open."""

    def __init__(self, context: CycleContext) -> None:
        self._context = context
        self._session = session = context.session
        self._since = session.commits
        self.kept_out: set[str] = set()
        """The keys of jobs that others were promised the room of: allocate plans no start for them."""
        self._count = 0
        """So many times room was set aside; `session.commits` has grown by as many."""
        self._statements: list[tuple[Statement, bool]] = []
        self._of: dict[str, Resources] = {}
        """By queue the sum of what is set aside for its jobs."""
        self._ends: dict[Statement, list[Release]] = {}
        """Where starts are planned, when those end that start at once: what they take may be there again by then."""

    def holds(self, job: JobState) -> bool:
        """Whether some is set aside for the job."""
        return any(each.job is job for each, _ in self._statements)

    @property
    def decisions(self) -> int:
        """How many statements the action has committed. What is set aside counts for none."""
        return self._session.commits - self._since - self._count

    def gives(self, queue: QueueState, dimensions: Collection[str]) -> bool:
        """Whether the queue holds more than it deserves in one of these dimensions, and may be asked for it. What is
        set aside for its jobs it does not hold: idle room that allocate may give it takes nothing from others yet.
        """
        beyond = queue.beyond
        if not queue.record.reclaimable or beyond.isdisjoint(dimensions):
            return False
        aside = self._of.get(queue.name)
        if aside is None:
            return True
        held, deserved = queue.allocated, queue.deserved
        return any(name in dimensions and held[name] - aside.get(name, 0) > deserved.get(name, 0) for name in beyond)

    def any_gives(self) -> bool:
        """Whether any queue does."""
        return any(self.gives(queue, queue.deserved) for queue in self._session.queues.values())

    def keep(self, statement: Statement, *, first: bool) -> None:
        """Set aside what the statement has placed: a step of its job. `first`: its first choice for its minimum."""
        self._statements.append((statement, first))
        self._count_in(statement, 1)
        planned = self._context.planned
        if planned is not None and (planned.starts or not planned.keeps):
            self._ends[statement] = planned.ends.expect(statement.starting())
        self._count += 1
        self._session.room_set_aside()

    def _count_in(self, statement: Statement, sign: int) -> None:
        aside = self._of.setdefault(statement.job.queue, {})
        for _, task, *_ in statement.recorded():
            add_to(aside, scale(task.cls.request, sign))

    def _roll_back(self, statement: Statement) -> None:
        self._count_in(statement, -1)
        statement.rollback()
        planned = self._context.planned
        if planned is not None:
            planned.ends.expect_no_more(self._ends.pop(statement, ()))

    def give_back(self, job: JobState) -> None:
        """Nothing is set aside any more for a job that failed."""
        for statement, _ in reversed(self._statements):
            if statement.job is job:
                self._roll_back(statement)
        self._statements = [each for each in self._statements if each[0].job is not job]

    def end(self, *, kept: bool) -> None:
        """Give everything back. If nothing was decided, and no work failed, the nodes are as they were before.

        `kept`: room was kept for an aged group meanwhile. What was found beside it need not be found again.
        """
        context, session = self._context, self._session
        unchanged = not (self.decisions or session.errors)
        found = [(each.job, each.recorded(), first) for each, first in self._statements] if unchanged else []
        for statement, _ in reversed(self._statements):
            self._roll_back(statement)
        session.room_set_aside()
        if unchanged:
            context.unschedulable.restored(self._since)
            if context.planned is None and not kept:
                context.foreknown.learn(found)


def _beside_the_aged(
    context: CycleContext, queue: QueueState, job: JobState, aside: _Aside, searches: Searches
) -> Generator[Transaction | Turn, None, bool]:
    """`_step`, beside the room that is kept for an aged group, if it is kept from the job. Where none can be taken, the
    job's start is planned, as allocate will.
    """
    ledger = context.ledger
    lifted = ledger.lift(job)
    try:
        moved = yield from _step(context, queue, job, aside, searches)
        if not moved:
            yield from _plan(context, queue, job, aside)
        return moved
    finally:
        if lifted:
            ledger.lay()


def _plan(context: CycleContext, queue: QueueState, job: JobState, aside: _Aside) -> Iterator[Turn]:
    """Plan the start of a job that was tried in vain, unless starts are kept from cycle to cycle: those behind it find
    the room that allocate will leave to them. Whose queue has had its share comes after all who may be helped here.
    """
    planned = context.planned
    if planned is None or planned.keeps or not (planned.wanted(job) and job.missing()) or job.key in aside.kept_out:
        return
    if queue.record.open and context.session.plugins.overused(queue, job) is None:
        yield from plan_start(context, planned, job)


def _step(
    context: CycleContext, queue: QueueState, job: JobState, aside: _Aside, searches: Searches
) -> Generator[Transaction | Turn, None, bool]:
    """One step of a job, the first that can be taken; returns whether room was found for one."""
    planned = context.planned
    if planned is not None:
        planned.lay(job, waits=not planned.starts)  # as `_set_aside` begins
    for wanted in next_steps(context, job):
        if over_capability(queue, wanted.tasks) is not None:
            continue
        if (yield from _set_aside(context, job, wanted, aside)):
            return True
        with keeping_to(job, wanted):
            if (yield from _take(context, queue, job, wanted, aside, searches)):
                return True
    return False


def _set_aside(context: CycleContext, job: JobState, wanted: Wanted, aside: _Aside) -> Generator[Turn, None, bool]:
    """Keep room that is there for the step until the action ends, if there is enough of it: what `allocate` would give
    out, or what is left to one that waits. Planned starts leave more to who starts at once than to who waits.
    """
    planned = context.planned
    if planned is not None and planned.starts:
        planned.lay(job)
        if (yield from _keep(context, job, wanted, aside, moments_of(context))):
            return True
        planned.lay(job, waits=True)
    return (yield from _keep(context, job, wanted, aside, (When.NOW, When.LATER)))


def _keep(
    context: CycleContext, job: JobState, wanted: Wanted, aside: _Aside, when: Sequence[When]
) -> Generator[Turn, None, bool]:
    """Keep the room, if there is enough of it in one of these moments, the last of which includes the others."""
    statement = Statement(context.session, job)
    surplus = wanted.single is not None
    minds = surplus or job.job.shadow or bool(promises_to_keep(context, context.session.queue(job.queue), job, None))
    with keeping_to(job, wanted):
        fits = yield from _fits(context, statement, wanted, when)
    if fits and context.planned is not None and context.planned.later(job):
        fits = False  # it was promised an earlier start
    if fits and minds and _promised(context, statement, surplus=surplus):
        aside.kept_out.add(job.key)
        fits = False
    if not fits:
        statement.rollback()
        return False
    aside.keep(statement, first=wanted.single is None and not wanted.instead)
    return True


def _fits(
    context: CycleContext, statement: Statement, wanted: Wanted, when: Sequence[When]
) -> Generator[Turn, None, bool]:
    """Place the step, if there is room; else some of it may be placed."""
    job, single, rankings = statement.job, wanted.single, rankings_of(context)
    if single is not None:
        waits = when[-1] is When.LATER
        rows = rankings.for_job(single.cls, when[-1], job).choose(1, statement.rows(single, waits=waits))
        return bool(statement.place((single,), rows, waits=waits))
    known = context.unschedulable.known(job, signature(job, unplaced(job)), unplaced(job))
    hopeless = known or (job.missing() > FEW and not could_fit(context.rankings, job))
    return not hopeless and (yield from placing(rankings, statement, when, search=()))


def _promised(context: CycleContext, statement: Statement, *, surplus: bool) -> bool:
    """Whether the room that the statement takes was promised to others: allocate would not give it out. `surplus`: the
    step is above the job's minimum.
    """
    tasks, ledger, job = [task for _, task, *_ in statement.recorded()], context.ledger, statement.job
    if surplus or job.job.shadow:  # it was promised nothing for the step
        return ledger.broken(job, tasks, surplus=surplus) is not None
    modest = context.session.plugins.overused(context.session.queue(job.queue), job) is None
    return ledger.robs(job, tasks, modest=modest) is not None


def _take(
    context: CycleContext,
    queue: QueueState,
    job: JobState,
    wanted: Wanted,
    aside: _Aside,
    searches: Searches,
) -> Generator[Transaction | Turn, None, bool]:
    """Take room for the step from other queues; returns whether there was any to take."""
    session, single = context.session, wanted.single
    if single is not None and (job.bound < job.minimum or job.job.roles) and aside.holds(job):
        return False  # its minimum is not decided yet: nobody is evicted for what stands on it
    exceeds = _exceeds(session, queue, wanted.request)
    possible = exceeds is None or (single is None and not no_choice(job, unplaced(job)))
    if possible and (yield from _take_from(context, queue, job, wanted, aside, searches)):
        return True
    if exceeds is not None and single is None and not wanted.instead:
        session.refuse(job, exceeds)
    return False


def _take_from(
    context: CycleContext, queue: QueueState, job: JobState, wanted: Wanted, aside: _Aside, searches: Searches
) -> Generator[Transaction | Turn, None, bool]:
    session, single = context.session, wanted.single
    asked = wanted.request  # only what is lacking of it counts in the end
    above = [other for other in session.queues.values() if other is not queue and aside.gives(other, asked)]
    if all(searches.barren(other) for other in above):
        return False
    preemptor = preemptor_of(context, job, wanted)
    above = [other for other in above if aside.gives(other, preemptor.lacks)]
    giving = [other.record for other in above if session.plugins.may_give(other, queue)]
    yield from looking_around(context, giving)
    if not giving or not within_reach(context, _EVICTOR.ballot, preemptor, single, giving):
        return False
    mark = (
        "reclaim", likeness(preemptor), asks_alike(context, job, wanted.tasks if single is not None else unplaced(job)),
        single is not None,
    )  # fmt: skip
    goal = partial(_goal, context, queue, preemptor, single)
    return (yield from making_room(context, _EVICTOR, job, mark, goal, Donors(tuple(giving)), searches))


def _goal(context: CycleContext, queue: QueueState, preemptor: Preemptor, single: Task | None) -> Goal:
    """The step, within the queue's share and capability; and beside what others were promised, if it was not."""
    job = preemptor.job
    names = {name for task in job.waiting for name, amount in task.cls.request.items() if amount}
    share = {name: queue.deserved[name] for name in sorted(names) if name in queue.deserved}
    keeps = promises_to_keep(context, queue, job, single)
    for name, most in cap_beside(queue, keeps).items():
        if name in names:
            share[name] = min(most, share.get(name, most))
    return Goal(preemptor, single, promised(context, keeps, sorted(names)), share)


def _exceeds(session: Session, queue: QueueState, request: dict[str, int]) -> GangExceedsReclaimableShare | None:
    """In which dimension the preemptor would take its queue past its share."""
    for name in sorted(request):
        deserved = queue.deserved.get(name)
        if deserved is not None and request[name] and queue.allocated.get(name, 0) + request[name] > deserved:
            return GangExceedsReclaimableShare(
                queue.name, name, request[name], queue.allocated.get(name, 0), deserved, session.idle(name)
            )
    return None
