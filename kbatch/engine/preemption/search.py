"""Finding room where none is: which pods have to go so that a job's next step can be taken.

Victims are *units*: one pod above its group's minimum, or one whole group. Candidate units are ranked (the tier that
consented, then whether their queue would fall below its share, then the job's priority, single pods before groups, the
pod's priority, and age, the youngest first: that which came last to its node, else the last created). For each
pod that finds no room, the node is taken on which the cheapest set of units makes some: nodes are kept in a heap by a
lower bound of that cost, and tried in earnest, against the state after the units already chosen, when they come up;
since votes only turn against further victims as more are chosen, a bound stays one. In the end every unit that proves
unnecessary is let go: the set is irreducible.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.gang import place_minimum
from kbatch.engine.placement.ranking import NodeRanking, When
from kbatch.engine.plugin import Preemptor, Unit
from kbatch.engine.preemption.candidates import CandidateIndex, CandidatePool, Cost, order_of
from kbatch.engine.preemption.reprieve import evict, reprieve
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, shortfalls, unplaced
from kbatch.model.tasks import Task
from kbatch.resources import PODS, Resources, add


@dataclass(frozen=True, slots=True)
class Evictor:
    """On whose behalf units are evicted: the action's name, and the plugin method that votes on them."""

    name: str
    ballot: str


Mark: TypeAlias = tuple[object, ...]

_Votes: TypeAlias = dict[tuple[str, object], tuple[int | None, Resources]]
"""By job and kind of pod: how willingly such a pod goes, and what its queue would lack then."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A unit that is to go: the tier that consented, and by how much its queue then lacks its share."""

    unit: Unit
    rank: int
    deficit: Resources

    @property
    def order(self) -> tuple[Any, ...]:
        """Its place among units of as many pods that may go as willingly."""
        return order_of(self.unit)


class Search:
    """The search for the victims of one job's next step.

    A search may go on with the next step of the same kind (`again`): what was found out about nodes stays true, because
    votes only turn against further victims.
    """

    def __init__(self, context: CycleContext, action: Evictor, preemptor: Preemptor, index: CandidateIndex) -> None:
        self.context = context
        self.session = context.session
        self.action = action
        self.preemptor = preemptor
        self._index = index
        self._chosen: list[_Chosen] = []
        classes = {task.cls.id: task.cls for task in preemptor.tasks}
        self._alike = len(classes) == 1
        self.over = False
        self._dead: set[tuple[int, int]] = set()
        self._heap: list[tuple[Cost, int]] = index.bounds(context, classes.values())
        heapq.heapify(self._heap)
        self._stands: dict[int, Cost] = {row: bound for bound, row in self._heap}
        """By what each row stands in the heap; entries with anything else are left over."""
        self._tried: set[int] = set()
        self._cursor = len(self.session.room.log)

    def again(self, preemptor: Preemptor) -> None:
        """Go on for the next pod. On rows that have changed since, less may have to go than it seemed."""
        self.preemptor = preemptor
        self._chosen = []
        if self._index.exact:
            log = self.session.room.log
            for row in sorted(set(log[self._cursor :])):
                if row in self._index.rows and row not in self._tried:
                    self._push(self._index.first(row), row)
            self._cursor = len(log)

    def _push(self, bound: Cost, row: int) -> None:
        if bound and self._stands.get(row) is not bound:
            self._stands[row] = bound
            heapq.heappush(self._heap, (bound, row))

    @property
    def empty(self) -> bool:
        """Whether there is no candidate."""
        return not self._index.rows

    # --- one pod ------------------------------------------------------------------------------------------------------

    def make_room(self, statement: Statement, task: Task) -> int | None:
        """Evict the cheapest set that lets this task wait for a node; its row, or None: there is no such set."""
        seen: list[tuple[tuple[Any, ...], int]] = []
        best: tuple[tuple[Any, ...], int] | None = None
        votes: _Votes = {}
        while self._heap and (best is None or self._heap[0] < best):
            bound, row = heapq.heappop(self._heap)
            if self._stands.get(row) is not bound:
                continue
            del self._stands[row]
            self._tried.add(row)
            units = None if (row, task.cls.id) in self._dead else self._try(statement, task, row, votes)
            if units is None:
                self._dead.add((row, task.cls.id))
                if not self._alike:
                    seen.append((bound, row))
                continue
            cost = self._cost(units)
            seen.append((cost, row))
            if best is None or (cost, row) < best:
                best = (cost, row)
        for bound, row in seen:
            self._push(bound, row)
        if best is None:
            return None
        chosen = self._try(statement, task, best[1], votes)
        if chosen is None:
            return None
        for taken in chosen:
            self.evict(statement, taken)
        return best[1]

    def evict(self, statement: Statement, entry: _Chosen) -> None:
        """Take a unit."""
        evict(statement, entry.unit, self.action.name)
        self._chosen.append(entry)

    @property
    def chosen(self) -> list[Unit]:
        """The units taken so far, in order."""
        return [entry.unit for entry in self._chosen]

    def _try(self, statement: Statement, task: Task, row: int, votes: _Votes) -> list[_Chosen] | None:
        """The units that would have to go from this row, found by evicting them and taking that back.

        `votes` holds what was said of the kinds of pods before any has gone: that is the same for each row.
        """
        rankings = self.context.rankings
        fit = rankings.of(task.cls, When.LATER)
        if not rankings.static(task.cls)[0][row]:
            return None
        mark = len(statement)
        units: list[_Chosen] = []
        done = self._fits(fit, task, row)
        for below_too in (False, True):
            if done:
                break
            for candidate in self._index.rows[row]:
                known = (
                    votes.get((candidate.job.key, candidate.kind)) if candidate.task is not None and not units else None
                )
                if known is not None and (known[0] is None or (known[1] and not below_too)):
                    continue
                unit = candidate.unit()
                if unit is None or (candidate.job is self.preemptor.job and not self.preemptor.intra):
                    continue
                rank, deficit = known or self._vote(unit)
                if candidate.task is not None and not units:
                    votes[candidate.job.key, candidate.kind] = rank, deficit
                if rank is None or (deficit and not (below_too and self._bearable(deficit, units))):
                    continue
                if unit.whole and any(other.unit.job is unit.job for other in units):
                    statement.rollback(mark)  # the whole takes in its parts
                    units = [entry for entry in units if entry.unit.job is not unit.job]
                    for other in units:
                        evict(statement, other.unit, self.action.name)
                    unit = candidate.unit() or unit
                evict(statement, unit, self.action.name)
                units.append(_Chosen(unit, rank, deficit))
                if self._fits(fit, task, row):
                    done = True
                    break
        if done and len(units) > 1:
            units = self._needed(task, row, units)
        statement.rollback(mark)
        return units if done else None

    def _vote(self, unit: Unit) -> tuple[int | None, Resources]:
        """How willingly the unit goes, None: not at all; and by how much its queue would then be below its share."""
        rank = self.context.consent.rank(self.action.ballot, self.preemptor, unit)
        return rank, self.context.consent.deficit(self.action.ballot, self.preemptor, unit) if rank is not None else {}

    def _bearable(self, deficit: Resources, units: Sequence[_Chosen]) -> bool:
        """Whether all that donors would lack in the end is at most what the preemptor gains, dimension by dimension."""
        gains = self.preemptor.request
        return all(
            amount + sum(entry.deficit.get(name, 0) for entry in (*self._chosen, *units)) <= gains.get(name, 0)
            for name, amount in deficit.items()
        )

    def _fits(self, fit: NodeRanking, task: Task, row: int) -> bool:
        """Whether the row, which the pod may use at all, has room; scores do not matter here."""
        future = self.session.room.future
        if not all(future[name][row] >= amount for name, amount in task.cls.needs):
            return False
        return not fit.stepwise or bool(fit.refresh()[row] >= 0)

    def _needed(self, task: Task, row: int, units: list[_Chosen]) -> list[_Chosen]:
        """Leave out what room alone does not need, the dearest first; what stands in the way otherwise stays."""
        room, names = self.session.room, self.session.nodes.names
        slack = {name: int(room.future[name][row]) - amount for name, amount in task.cls.needs}
        fit = self.context.rankings.of(task.cls, When.LATER)
        if fit.stepwise:
            return units
        kept = list(units)
        for entry in reversed(units[:-1]):
            gives: Resources = {}
            for victim in entry.unit.tasks:
                if victim.node == names[row]:
                    gives = add(gives, victim.cls.request, {PODS: 1})
            if all(gives.get(name, 0) <= left for name, left in slack.items()):
                kept.remove(entry)
                slack = {name: left - gives.get(name, 0) for name, left in slack.items()}
        return kept

    def _cost(self, units: Sequence[_Chosen]) -> tuple[Any, ...]:
        """What a set costs: the least willing tier, queues below their share, the highest priority, how many pods.

        Of sets that cost the same in all this, the one is taken whose last to go comes first in order.
        """
        if not units:
            return (0, 0, -(2**63), 0)
        priority, *others = max(entry.order for entry in units)
        return (
            max(entry.rank for entry in units),
            sum(1 for entry in units if entry.deficit),
            priority,
            sum(len(entry.unit.tasks) for entry in units),
            *others,
        )


def planning(
    context: CycleContext,
    action: Evictor,
    preemptor: Preemptor,
    donors: Callable[[], Iterable[JobState]],
    *,
    single: Task | None,
    searches: Searches,
) -> Generator[Turn, None, Statement | None]:
    """A statement that places the preemptor (the job's minimum, or the one task) with an irreducible set of victims.

    None: no set of victims helps. The statement is open; nothing of it is left in the session where it is None.
    `searches` is the action's own store of searches that may go on.
    """
    job = preemptor.job
    statement = Statement(context.session, job)
    _place_without(context, statement, single)
    if single is None and not job.missing():
        statement.rollback()
        return None  # it fits as things are: nobody needs to go
    search = _search(context, action, preemptor, donors, searches)
    if search.empty:
        statement.rollback()
        return None
    if not (yield from _place_with(context, statement, search, single)):
        statement.rollback()
        search.over = True  # what it found out held with victims that stay after all
        return None
    if (yield from reprieve(context, statement, action.name, search.chosen, single)):
        search.over = True
    statement.pipeline_all()
    return statement


class Searches:
    """The searches of one run of an action, by what their preemptors have in common."""

    def __init__(self, context: CycleContext, action: Evictor) -> None:
        self.pool = CandidatePool(context, action.ballot)
        self.known: dict[Mark, Search] = {}


def _search(
    context: CycleContext,
    action: Evictor,
    preemptor: Preemptor,
    donors: Callable[[], Iterable[JobState]],
    searches: Searches,
) -> Search:
    """A search for the preemptor: that of the job's last step, of a step which no vote tells from it, or a new one."""
    job = preemptor.job
    what = (frozenset(task.cls.id for task in preemptor.tasks), preemptor.lacks, preemptor.intra, preemptor.ahead)
    own: Mark = (job.key, *what)
    group = job.job.group
    endless = group is None or group.spec.lifetime_seconds is None
    alike: Mark = (job.queue, job.priority, preemptor.never, endless, tuple(sorted(preemptor.held.items())), *what)
    for mark in (own,) if preemptor.intra else (own, alike):
        found = searches.known.get(mark)
        if found is not None and not found.over:
            searches.pool.refresh()
            found.again(preemptor)
            break
    else:
        found = Search(context, action, preemptor, searches.pool.index(preemptor, donors()))
    searches.known[own] = found
    if not preemptor.intra:
        searches.known[alike] = found
    return found


def _place_without(context: CycleContext, statement: Statement, single: Task | None) -> None:
    """Place what idle and releasing room takes."""
    if single is None:
        place_minimum(context.rankings, statement, (When.NOW, When.LATER))
        statement.pipeline_all()


def _place_with(
    context: CycleContext, statement: Statement, search: Search, single: Task | None
) -> Generator[Turn, None, bool]:
    """Place the rest, evicting for each pod that finds no room."""
    session, job = statement.session, statement.job
    if single is not None:
        return _one(statement, search, single)
    stuck: set[int] = set()
    while job.missing():
        role, _ = shortfalls(job)[0]
        task = next(
            (
                task for task in unplaced(job)
                if task.cls.id not in stuck and (not job.full(task.role) if role is None else task.role == role)
                and context.feasibility.most(task.cls)
            ), None,
        )  # fmt: skip
        if task is None:
            return False
        if not _one(statement, search, task):
            stuck.add(task.cls.id)
        elif session.room.idle:  # what one victim gave may hold several pods
            place_minimum(context.rankings, statement, (When.LATER,))
        yield TURN
    return True


def _one(statement: Statement, search: Search, task: Task) -> bool:
    row = search.make_room(statement, task)
    if row is None:
        return False
    return statement.pipeline(task, row)


def lacking(context: CycleContext, tasks: Sequence[Task]) -> frozenset[str]:
    """The dimensions in which there is no room for these tasks, each looked at by itself; if none, all they ask for."""
    counts: dict[int, list[Task]] = {}
    for task in tasks:
        counts.setdefault(task.cls.id, []).append(task)
    short: set[str] = set()
    asked: set[str] = set()
    for run in counts.values():
        cls = run[0].cls
        allowed = context.rankings.static(cls)[0]
        context.session.room.ensure(cls)
        for name, amount in cls.request.items():
            if amount <= 0:
                continue
            asked.add(name)
            free = context.session.room.future[name]
            fitting = int(np.minimum(free[allowed & (free > 0)] // amount, len(run)).sum())
            if fitting < len(run):
                short.add(name)
    return frozenset(short or asked)


def next_step(context: CycleContext, job: JobState) -> tuple[Task | None, list[Task]] | None:
    """What the job preemptors next: the tasks of its minimum, or (first) the one task that is next of its surplus.

    None where there is nothing to preemptor, or nothing that even nodes without this scheduler's pods would hold.
    """
    if job.missing():
        if context.session.valid(job) is not None or context.feasibility.hopeless(job):
            return None
        tasks = next_tasks(job, [task for task in unplaced(job) if context.feasibility.most(task.cls)])
        return (None, tasks) if len(tasks) >= job.missing() else None
    single = next(
        (
            task for task in unplaced(job)
            if not (task.cls.best_effort or job.full(task.role)) and context.feasibility.most(task.cls)
        ), None,
    )  # fmt: skip
    return (single, [single]) if single is not None else None
