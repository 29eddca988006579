"""A plan for one step of a job: where its pods will stand, and which units have to go for that.

Pods are placed where there is room; for each that finds none the cheapest set on one node is evicted (`search`), and
units anywhere for what a sum is short of, such as the queue's capability. Where pods heed others and this fails,
`clearing` looks further. In the end whoever need not go stays (`reprieve`), and what is left was consented to for the
very pods that are placed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.placement.filling import fill
from kbatch.engine.placement.gang import comparing, nearest, placing
from kbatch.engine.placement.kinds import Kind, hardest_first, kinds_of
from kbatch.engine.placement.ranking import When
from kbatch.engine.placement.together import Choice, keeping_to
from kbatch.engine.plugin import Unit
from kbatch.engine.preemption.candidate_pool import CandidatePool
from kbatch.engine.preemption.candidates import Donors
from kbatch.engine.preemption.clearing import clearing
from kbatch.engine.preemption.closeness import choosing, few, surely_first
from kbatch.engine.preemption.goal import Attempt, Goal
from kbatch.engine.preemption.polling import Evictor, Poll
from kbatch.engine.preemption.reach import clearable, within_reach
from kbatch.engine.preemption.reprieve import reprieve
from kbatch.engine.preemption.reuse import Searches
from kbatch.engine.preemption.search import Search
from kbatch.engine.reservation.sequence import sequence
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import shortfalls, unplaced
from kbatch.model.nodes import Mask
from kbatch.model.tasks import Task
from kbatch.resources import Resources, total

_FEW: Final = 16
"""Of so many victims it is looked for other arrangements with which one of them could stay."""
_PIECE: Final = 40
"""The work that making a search, or placing one pod with its victims, is counted as (see `Pace.due`)."""


def planning(
    context: CycleContext,
    evictor: Evictor,
    goal: Goal,
    donors: Donors,
    searches: Searches,
) -> Generator[Turn, None, Statement | None]:
    """A statement that reaches the goal with an irreducible set of victims; open, and all of it waits.

    None: no set of victims was found that helps, or none is needed, for a minimum or by other queues; nothing is left
    in the session.
    `searches` is the action's own store of searches that may go on.
    """
    statement = Statement(context.session, goal.preemptor.job)
    plan = _Plan(Attempt(context, statement, goal, evictor.name, searches.budget), evictor, donors, searches)
    units = yield from plan.units()
    others = all(queue.name != goal.preemptor.job.queue for queue in donors.queues) and donors.only is None
    if units is None or (others and not units):
        statement.rollback()
        return None
    statement.pipeline_all()
    return statement


def making_room(
    context: CycleContext,
    evictor: Evictor,
    job: JobState,
    mark: object,
    goal: Callable[[], Goal],
    donors: Donors,
    searches: Searches,
) -> Generator[Transaction | Turn, None, bool]:
    """Carry out a plan for the goal, a step of the job; whether there is one. None is sought where that was in vain for
    the like of it (of equal `mark`) since the last decision. Where pods are protected that could make room otherwise,
    that is noted of the job.
    """
    protections = context.consent.protections
    if not context.unschedulable.hopeless(mark):
        sought = goal()
        protections.begin(_concerning(context, evictor, sought, donors))
        try:
            found = yield from planning(context, evictor, sought, donors, searches)
        finally:
            protections.end()
        if found is not None:
            yield from found.commit()
            return True
        context.unschedulable.note_hopeless(mark, protections.found)
    context.session.note_protected(job, context.unschedulable.protected(mark))
    return False


def _concerning(context: CycleContext, evictor: Evictor, goal: Goal, donors: Donors) -> Callable[[Unit], bool]:
    """Whether a unit would be of use, were it gone: it holds some of what lacks, where room could be made by that."""
    preemptor = goal.preemptor
    anywhere = donors.only is not None or bool(goal.short(preemptor.request))
    rows: list[Mask] = []

    def concerns(unit: Unit) -> bool:
        if not any(unit.request.get(name) for name in preemptor.lacks):
            return False
        if anywhere:
            return True
        if not rows:
            tasks = [goal.single] if goal.single is not None else unplaced(preemptor.job)
            rows.append(clearable(context, evictor.ballot, preemptor, tasks, donors.queues))
        row_of = context.session.nodes.row
        return any(task.node in row_of and rows[0][row_of[task.node]] for task in unit.tasks)

    return concerns


class _Plan:
    """One plan in the making."""

    def __init__(self, attempt: Attempt, evictor: Evictor, donors: Donors, searches: Searches) -> None:
        self._attempt = attempt
        self._evictor = evictor
        self._context = attempt.context
        self._statement = attempt.statement
        self._goal = attempt.goal
        self._donors = donors
        self._searches = searches

    def units(self) -> Generator[Turn, None, list[Unit] | None]:
        """The victims of the plan that the statement then holds; None: there is none.

        Pods that must stand together are planned for in one set of nodes after the other, and victims sought there. For
        those that only wish to, nobody goes: they stand where there is room, or can be made most cheaply.
        """
        goal, statement, job = self._goal, self._statement, self._statement.job
        statement.apart = job.together is not None and not job.strict
        if not job.strict or goal.single is not None:
            return (yield from self._units())
        if (yield from self._place((When.NOW, When.LATER))) and self._attempt.within():
            return None
        statement.rollback()
        yield from comparing(self._context.session, job)
        units = yield from self._in_the_first()
        if units:
            return units
        statement.rollback()
        index = yield from self._searches.pool.index(goal.preemptor, self._donors)
        for choice in (yield from choosing(self._context, job, index)):
            statement.within = keeping_to(choice)
            units = yield from self._units(choice)
            if units:
                return units
            statement.rollback()
            yield TURN
        return None

    def _in_the_first(self) -> Generator[Turn, None, list[Unit] | None]:
        """The victims in the first set of nodes, if it is sure which that is without all candidates; None: it is not,
        or not enough go there.
        """
        if not self._by_rows():
            return None
        first = yield from surely_first(self._context, self._evictor, self._goal.preemptor, self._donors)
        if first is None:
            return None
        choice, pool = first
        self._statement.within = keeping_to(choice)
        return (yield from self._units(choice, pool))

    def _units(
        self, choice: Choice | None = None, pool: CandidatePool | None = None
    ) -> Generator[Turn, None, list[Unit] | None]:
        """The victims, on the rows of the choice if there is one; of the pool if there is one."""
        goal, statement = self._goal, self._statement
        placed = goal.single is None and (yield from self._place((When.NOW, When.LATER)))
        if placed and self._attempt.within():
            return None  # it fits as things are: nobody needs to go
        statement.pipeline_all()
        search, found = None, False
        if placed or goal.single is not None or self._attempt.coupled or self._within_reach():
            only = pool if pool is not None else self._few_candidates()
            search = yield from self._searches.search(goal.preemptor, self._donors, choice, only)
            if search.empty:
                return None
            if self._context.session.due(_PIECE):
                yield TURN
            found = yield from self._node_by_node(search)
            search.over = search.over or not found  # what it found out held with victims that stay after all
        # Else beside the pods that are placed now there is no room for the others, whoever goes.
        if not found and self._of_several_kinds():
            search, found = yield from self._again(choice)
        if search is None:
            return None
        units = search.poll.units
        if found and self._attempt.coupled and units:
            statement.rollback()  # pods were placed before the last had gone, and some may have been their company
            found = yield from self._attempt.works_at_all(units)
        if not found:
            units = yield from self._clear(search)
            if not units:
                return None
        left = yield from reprieve(self._attempt, units)
        if left and self._attempt.coupled and not self._attempt.thorough and len(left) <= _FEW:
            self._attempt.thorough = True
            left = yield from reprieve(self._attempt, left)
        search.over = search.over or len(left) < len(units)
        if not self._hold(search.poll, left):
            return None
        if goal.single is not None and self._attempt.coupled and len(self._statement.job.nominated) > 1:
            stands = yield from sequence(self._context.rankings, self._statement, When.LATER)
            return left if stands is not None else None  # one of the victims is company to who waits already
        return left

    def _few_candidates(self) -> CandidatePool | None:
        """The candidates on the rows on which room could be made for what is not placed yet, where others need not be
        looked for. None: they must be, or there are too many such rows to gain by it.
        """
        goal, donors = self._goal, self._donors
        if not self._by_rows():
            return None
        tasks = [goal.single] if goal.single is not None else unplaced(self._statement.job)
        rows = clearable(self._context, self._evictor.ballot, goal.preemptor, tasks, donors.queues)
        return CandidatePool(self._context, self._evictor.ballot, rows) if few(rows) else None

    def _by_rows(self) -> bool:
        """Whether candidates matter only where room is to be made: no sum is short and no pod heeds others. Nor is it
        gained by where it is not the first search of the action: others may follow that can share one.
        """
        goal, donors = self._goal, self._donors
        return self._searches.first and not (self._attempt.coupled or goal.bounds or donors.only is not None)

    def _within_reach(self) -> bool:
        goal, ballot = self._goal, self._evictor.ballot
        return within_reach(self._context, ballot, goal.preemptor, None, self._donors.queues)

    def _clear(self, search: Search) -> Generator[Turn, None, list[Unit]]:
        """The other way, for pods that heed others; the plan is in the statement then."""
        if not self._attempt.coupled or self._goal.preemptor.ahead:
            return []
        self._statement.rollback()
        search.over = True
        search.poll.taken.clear()
        units = yield from clearing(self._attempt, search.poll, search.index, self._searches.budget)
        if units is None or not (yield from self._attempt.works_at_all(units)):
            return []
        return units

    def _hold(self, poll: Poll, units: Sequence[Unit]) -> bool:
        """Whether all of them may go for the very pods that are placed."""
        placed = [task for task in self._goal.asked if task.key in self._statement.job.nominated]
        request = total(task.cls.request for task in placed)
        if request == poll.preemptor.request:
            return True
        steps = self._statement.recorded()
        self._statement.rollback()
        exactly = Poll(
            self._context, poll.evictor, replace(poll.preemptor, tasks=tuple(placed), request=request)
        )  # fmt: skip
        refused = exactly.assents(self._statement, units)
        self._statement.replay(steps)
        return refused is None

    # --- node by node -------------------------------------------------------------------------------------------------

    def _node_by_node(self, search: Search) -> Generator[Turn, None, bool]:
        """Place the rest, evicting for each pod that finds no room."""
        goal, job = self._goal, self._statement.job
        if goal.single is not None:
            return (yield from self._one(search, goal.single))
        if not self._attempt.within_share() or not self._free(search, {}):
            return False  # what is placed beyond the share already, victims cannot mend
        stuck: set[tuple[int, str]] = set()
        while job.missing():
            role, _ = shortfalls(job)[0]
            task = next((task for task in unplaced(job) if self._may(task, role, stuck)), None)
            if task is None:
                return False
            if not (yield from self._one(search, task)):
                stuck.add((task.cls.id, task.role))
            else:  # what one victim gave may hold several pods
                mark = len(self._statement)
                yield from self._place((When.LATER,))
                if not self._attempt.within_share():
                    self._statement.rollback(mark)  # of the others some may still be within the share
                if not self._free(search, {}):
                    return False
            if self._context.session.due(_PIECE):
                yield TURN
        return True

    def _of_several_kinds(self) -> bool:
        """Whether it matters which kind of pods is placed first, and the order is free."""
        goal = self._goal
        if goal.single is not None or self._attempt.coupled:
            return False
        return len({(task.cls.id, task.role) for task in goal.preemptor.tasks}) > 1

    def _again(self, choice: Choice | None) -> Generator[Turn, None, tuple[Search, bool]]:
        """Begin anew, kind by kind: easy pods may have taken the only room that could be made for hard ones. The search
        that was made, and whether all is placed.
        """
        goal, statement = self._goal, self._statement
        statement.rollback()
        yield TURN
        search = yield from self._searches.search(goal.preemptor, self._donors, choice)
        found = yield from self._kind_by_kind(search)
        search.over = search.over or not found
        return search, found

    def _kind_by_kind(self, search: Search) -> Generator[Turn, None, bool]:
        """Place the hardest kind first, with room or victims, and only then the next."""
        rankings, statement, goal = self._context.rankings, self._statement, self._goal
        if not self._free(search, {}):
            return False
        job, keys = statement.job, {task.key for task in goal.preemptor.tasks}
        kinds = [Kind(kind.cls, kind.role, [task for task in kind.tasks if task.key in keys]) for kind in kinds_of(job)]
        order = hardest_first(rankings, statement, [kind for kind in kinds if kind.tasks])
        for kind in sorted(order, key=self._width):
            while kind.tasks:
                yield from fill(rankings, statement, kind, len(kind.tasks), When.LATER)
                if not self._attempt.within_share() or not self._free(search, {}):
                    return False
                if kind.tasks:
                    if not (yield from self._one(search, kind.tasks[0])):
                        return False
                    del kind.tasks[0]
                yield TURN
        return not job.missing()

    def _width(self, kind: Kind) -> int:
        """To how many rows the statement keeps a kind; 0 where it keeps none to any."""
        within = self._statement.within
        mask = within(kind.tasks[0]) if within is not None else None
        if mask is None:
            return len(self._context.rankings.every) if within is not None else 0
        return int(np.count_nonzero(mask & self._context.rankings.allowed(kind.cls)))

    def _place(self, when: Sequence[When]) -> Generator[Turn, None, bool]:
        """Place what there is room for; whether the minimum is complete."""
        return (yield from placing(self._context.rankings, self._statement, when, search=()))

    def _may(self, task: Task, role: str | None, stuck: set[tuple[int, str]]) -> bool:
        """Whether the task may be the next of the minimum: of the role that lacks some, and not of one that is full."""
        job = self._statement.job
        of_role = not job.full(task.role) if role is None else task.role == role
        tried = (task.cls.id, task.role) in stuck
        return of_role and not tried and bool(self._context.feasibility.most(task.cls))

    def _one(self, search: Search, task: Task) -> Generator[Turn, None, bool]:
        """Let one task wait for the node where that costs least; nothing is done where that cannot be.

        Nor where it would take its queue past its share: another task of the minimum may be within it.
        """
        statement, taken = self._statement, search.poll.taken
        mark, before = len(statement), len(taken)
        row = yield from search.make_room(statement, task)
        if row is None and self._goal.short(task.cls.request):  # of room alone, where it stands, there may be enough
            statement.rollback(mark)
            del taken[before:]
            if self._free(search, task.cls.request):
                row = next(iter(nearest(self._context.rankings, statement, task, When.LATER)), None)
        if row is not None and self._free(search, task.cls.request):
            statement.pipeline(task, row)
            if task.key in statement.job.nominated and self._attempt.within_share():
                return True
        statement.rollback(mark)
        del taken[before:]
        return False

    def _free(self, search: Search, more: Resources) -> bool:
        """Evict units, wherever they stand, until sums allow so much more; whether they do then."""
        short = self._goal.short(more)
        if not short:
            return True
        poll, statement = search.poll, self._statement
        for candidate in search.index.ordered():
            unit = candidate.unit()
            if unit is None or (candidate.job is poll.preemptor.job and not poll.preemptor.intra):
                continue
            if not any(unit.request.get(name, 0) for name in short):
                continue
            victim = poll.ask(unit, (), below=False)
            if victim is None:
                continue
            mark = len(statement)
            poll.take(statement, victim)
            now = self._goal.short(more)
            if not now:
                return True
            if now == short:
                statement.rollback(mark)
                poll.taken.pop()
            short = now
        return False
