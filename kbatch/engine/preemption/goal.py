"""What is to be placed for a preemptor, and whether it can be once some units are gone."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import Turn
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import When
from kbatch.engine.plugin import Preemptor, Unit
from kbatch.engine.preemption.polling import evict
from kbatch.engine.session.statement import Statement
from kbatch.model.tasks import Task
from kbatch.resources import Resources

Bound: TypeAlias = Callable[[Resources], Resources]
"""By how much a sum would be passed with so much more placed than now; empty where it would not."""

_STEPS: Final = 100
"""Placements that one search in a plan tries at most: there are many such searches for one gang."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One step of a job.

    Attributes:
        preemptor: for whom.
        single: the one pod that is to be placed; None: the job's minimum.
        bounds: sums that the session, as it stands and with so much more placed, would pass, and which victims of the
            preemptor free: by how much, dimension by dimension.
        share: what the job's queue may hold in all, of what is asked for; victims change nothing about that.
    """

    preemptor: Preemptor
    single: Task | None = None
    bounds: tuple[Bound, ...] = ()
    share: Resources = field(default_factory=dict)

    @property
    def asked(self) -> tuple[Task, ...]:
        """The pods of the job that may be placed."""
        return (self.single,) if self.single is not None else tuple(self.preemptor.job.waiting)

    def short(self, more: Resources) -> Resources:
        """What victims would still have to free for so much more to be placed, beside room on nodes."""
        found: Resources = {}
        for bound in self.bounds:
            for name, amount in bound(more).items():
                found[name] = max(amount, found.get(name, 0))
        return found


@dataclass(slots=True)
class Budget:
    """The work that is left to an action for plans that take more than one look.

    Attributes:
        left: pods evicted or placed in trials of many victims at once: half a second in all.
        searches: for how many trials another arrangement of the gang may be searched.
    """

    left: int = 15_000
    searches: int = 40


class Attempt:
    """Tries to reach a goal with some units gone. What is tried stays in the statement.

    Where the pods heed others (`coupled`), they are placed as though those who leave were gone already: they all wait.
    `thorough` says that other arrangements are tried where the first does not hold all.
    """

    def __init__(self, context: CycleContext, statement: Statement, goal: Goal, action: str, budget: Budget) -> None:
        self.context = context
        self.budget = budget
        self.coupled = any(context.rankings.of(task.cls, When.LATER).stepwise for task in classes(goal.asked))
        self._when = (When.LATER,) if self.coupled else (When.NOW, When.LATER)
        self.statement = statement
        self.goal = goal
        self.action = action
        self.thorough = False

    def works(self, units: Sequence[Unit]) -> Generator[Turn, None, bool]:
        """Evict just these, place the step in what room there is then, and stay within the limits; in pieces."""
        self.evict(units)
        return self._could() and (yield from self._fits())

    def works_at_all(self, units: Sequence[Unit]) -> Generator[Turn, None, bool]:
        """The same, and from now on with all effort if it takes that; what is tried first is undone then."""
        self.evict(units)
        if not self._could():
            return False
        mark = len(self.statement)
        if (yield from self._fits()):
            return True
        if self.thorough or self.goal.single is not None:
            return False
        self.statement.rollback(mark)
        self.thorough = True
        if (yield from self._fits()):
            return True
        self.thorough = False
        return False

    def _could(self) -> bool:
        """Whether by counting there could be room for the minimum; a single pod is as quickly placed."""
        return self.goal.single is not None or could_fit(self.context.rankings, self.statement.job)

    def _fits(self) -> Generator[Turn, None, bool]:
        """Place the step; whether all of it is placed, within the limits."""
        return (yield from self._place()) and self.within()

    def within(self) -> bool:
        """Whether all that limits the step is kept, as the session stands."""
        return self.within_share() and not self.goal.short({})

    def within_share(self) -> bool:
        """Whether the job's queue holds no more than its share of what the placed pods ask for, as the session stands.

        What holds now holds with fewer pods placed, too; victims of other queues change nothing about it.
        """
        job, share = self.statement.job, self.goal.share
        if not share:
            return True
        allocated = self.statement.session.queue(job.queue).allocated
        over = [name for name, most in share.items() if allocated.get(name, 0) > most]
        return not over or not any(task.cls.request.get(name) for task, _ in job.nominated.values() for name in over)

    def evict(self, units: Sequence[Unit]) -> None:
        """Evict all of these."""
        for unit in units:
            evict(self.statement, unit, self.action)

    def _place(self) -> Generator[Turn, None, bool]:
        """Place the step, or of a minimum as much as there is room for; whether all is placed."""
        rankings, statement, single = self.context.rankings, self.statement, self.goal.single
        if single is not None:
            among = statement.rows(single, waits=True)
            rows = rankings.for_job(single.cls, When.LATER, statement.job).choose(1, among)
            if rows:
                statement.pipeline(single, rows[0])
            return single.key in statement.job.nominated
        if not self.thorough:
            return (yield from placing(rankings, statement, self._when, search=()))
        kept = rankings.searches, rankings.steps  # those of allocate: what it finds must not depend on plans
        rankings.searches, rankings.steps = self.budget.searches, _STEPS
        try:
            placed = yield from placing(rankings, statement, self._when, search=self._when[:1])
        finally:
            self.budget.searches = rankings.searches
            rankings.searches, rankings.steps = kept
        statement.pipeline_all()
        return placed


def classes(tasks: Iterable[Task]) -> list[Task]:
    """One task of each class, in order."""
    found: dict[int, Task] = {}
    for task in tasks:
        found.setdefault(task.cls.id, task)
    return list(found.values())
