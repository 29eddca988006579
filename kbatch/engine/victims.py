"""Finding room where none is: which pods have to go so that a job's next step can be taken.

Victims are *units*: one pod above its group's minimum, or one whole group. Units on offer are ranked (the tier that
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
from functools import total_ordering
from typing import TYPE_CHECKING, Any, TypeAlias

from kbatch.engine.boundary import TURN, Turn
from kbatch.engine.pieces import finish
from kbatch.engine.placement import When
from kbatch.engine.planning import next_tasks, place_minimum, quotas, unplaced
from kbatch.engine.plugin import Claim, Unit
from kbatch.engine.state import JobState
from kbatch.engine.statement import Statement
from kbatch.model.tasks import Task
from kbatch.resources import PODS, Resources, add

if TYPE_CHECKING:
    from kbatch.engine.session import Session


Mark: TypeAlias = tuple[object, ...]
Hunts: TypeAlias = "dict[Mark, Hunt]"
"""An action's hunts that may go on, by what their claims have in common."""


@total_ordering
class _Last:
    """A name by which the later one in order comes first."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Last) and self.name == other.name

    def __lt__(self, other: _Last) -> bool:
        return self.name > other.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(eq=False, slots=True)
class _Offer:
    """A possible unit: one task, or (None) whatever its job still holds. `order` is its place among its like."""

    job: JobState
    task: Task | None
    order: tuple[Any, ...]
    rank: int

    def unit(self) -> Unit | None:
        """The unit as it is now; None where nothing of it is left."""
        if self.task is not None:
            if self.task.key in self.job.evicted:
                return None
            return Unit(self.job, (self.task,), whole=False, request=self.task.cls.request)
        tasks = tuple(task for task in holding(self.job) if task.key not in self.job.evicted)
        if not tasks:
            return None
        return Unit(self.job, tasks, whole=True, request=add(*(task.cls.request for task in tasks)))


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A unit that is to go: the tier that consented, and by how much its queue then lacks its share."""

    unit: Unit
    rank: int
    deficit: Resources

    @property
    def order(self) -> tuple[Any, ...]:
        """Its place among units of as many pods that may go as willingly."""
        return _order(self.unit)


def _order(unit: Unit) -> tuple[Any, ...]:
    """Who goes before whom, of one tier: by the job's priority, the pod alone, its priority, the youngest."""
    started, created, name = max((task.started, task.created, task.key) for task in unit.tasks)
    return unit.job.priority, unit.whole, unit.priority, -started, -created, _Last(name)


def holding(job: JobState) -> list[Task]:
    """Its pods that could be evicted at all, by key: on a node for sure, not leaving yet."""
    found = [task for task in job.job.tasks.values() if task.holds and not task.assumed]
    found.sort(key=lambda task: task.key)
    return found


class Hunt:
    """The search for the victims of one job's next step. `donors` are the jobs whose pods may be offered.

    A hunt may go on with the next claim of the same kind (`again`): what was found out about nodes stays true, because
    votes only turn against further victims.
    """

    def __init__(self, session: Session, action: str, claim: Claim, donors: Iterable[JobState]) -> None:
        self.session = session
        self.action = action
        self.claim = claim
        self._rows: dict[int, list[_Offer]] = {}
        self._heap: list[tuple[tuple[Any, ...], int]] = []
        self._chosen: list[_Chosen] = []
        self._alike = len({task.cls.id for task in claim.tasks}) == 1
        self.over = False
        self._dead: set[tuple[int, int]] = set()
        for donor in donors:
            self._offer(donor)
        for row, offers in self._rows.items():
            offers.sort(key=lambda offer: offer.order)
            priority, *others = offers[0].order[1:]
            self._heap.append(((offers[0].rank, 0, priority, 1, *others), row))
        heapq.heapify(self._heap)

    def again(self, claim: Claim) -> None:
        """Go on for the next pod."""
        self.claim = claim
        self._chosen = []

    @property
    def empty(self) -> bool:
        """Whether nothing is on offer."""
        return not self._rows

    def _offer(self, job: JobState) -> None:
        session, model = self.session, job.job
        if model.disruption == "Never" or model.holding == 0 or session.too_young(job):
            return
        tasks = holding(job)
        whole = not self.claim.ahead and model.gang and (model.disruption == "Whole" or session.expired(job))
        offers: list[_Offer] = []
        if not model.gang or job.ready > job.minimum or model.roles:
            offers.extend(_Offer(job, task, (), 0) for task in tasks)
        if whole and not self.claim.intra:
            offers.append(_Offer(job, None, (), 0))
        row_of = session.nodes.row
        for offer in offers:
            unit = offer.unit()
            rank = session.rank(self.action, self.claim, unit) if unit is not None else None
            if unit is None or rank is None:
                continue
            offer.rank = rank
            offer.order = (rank, *_order(unit))
            for row in {row_of.get(task.node, -1) for task in unit.tasks}:
                if row >= 0:
                    self._rows.setdefault(row, []).append(offer)

    # --- one pod ------------------------------------------------------------------------------------------------------

    def make_room(self, statement: Statement, task: Task) -> int | None:
        """Evict the cheapest set that lets this task wait for a node; its row, or None: there is no such set."""
        seen: list[tuple[tuple[Any, ...], int]] = []
        best: tuple[tuple[Any, ...], int] | None = None
        while self._heap and (best is None or self._heap[0] < best):
            bound, row = heapq.heappop(self._heap)
            units = None if (row, task.cls.id) in self._dead else self._try(statement, task, row)
            if units is None:
                self._dead.add((row, task.cls.id))
                if not self._alike:
                    seen.append((bound, row))
                continue
            cost = self._cost(units)
            seen.append((cost, row))
            if best is None or (cost, row) < best:
                best = (cost, row)
        for entry in seen:
            heapq.heappush(self._heap, entry)
        if best is None:
            return None
        chosen = self._try(statement, task, best[1])
        if chosen is None:
            return None
        for taken in chosen:
            self.evict(statement, taken)
        return best[1]

    def evict(self, statement: Statement, entry: _Chosen) -> None:
        """Take a unit."""
        _evict(statement, entry.unit, self.action)
        self._chosen.append(entry)

    @property
    def chosen(self) -> list[Unit]:
        """The units taken so far, in order."""
        return [entry.unit for entry in self._chosen]

    def _try(self, statement: Statement, task: Task, row: int) -> list[_Chosen] | None:
        """The units that would have to go from this row, found by evicting them and taking that back."""
        session = self.session
        fit = session.placement.fit(task.cls, When.LATER)
        if not session.placement.static(task.cls)[0][row]:
            return None
        mark = len(statement)
        units: list[_Chosen] = []
        done = bool(fit.refresh()[row] >= 0)
        for below_too in (False, True):
            if done:
                break
            for offer in self._rows[row]:
                unit = offer.unit()
                if unit is None or (offer.job is self.claim.job and not self.claim.intra):
                    continue
                rank = session.rank(self.action, self.claim, unit)
                if rank is None:
                    continue
                deficit = session.deficit(self.action, self.claim, unit)
                if deficit and not (below_too and self._bearable(deficit, units)):
                    continue
                if unit.whole and any(other.unit.job is unit.job for other in units):
                    statement.rollback(mark)  # the whole takes in its parts
                    units = [entry for entry in units if entry.unit.job is not unit.job]
                    for other in units:
                        _evict(statement, other.unit, self.action)
                    unit = offer.unit() or unit
                _evict(statement, unit, self.action)
                units.append(_Chosen(unit, rank, deficit))
                if self._room(task, row) and fit.refresh()[row] >= 0:
                    done = True
                    break
        if done and len(units) > 1:
            units = self._needed(task, row, units)
        statement.rollback(mark)
        return units if done else None

    def _bearable(self, deficit: Resources, units: Sequence[_Chosen]) -> bool:
        """Whether all that donors would lack in the end is at most what the claim gains, dimension by dimension."""
        gains = self.claim.request
        return all(
            amount + sum(entry.deficit.get(name, 0) for entry in (*self._chosen, *units)) <= gains.get(name, 0)
            for name, amount in deficit.items()
        )

    def _room(self, task: Task, row: int) -> bool:
        future = self.session.room.future
        return all(future[name][row] >= amount for name, amount in task.cls.needs)

    def _needed(self, task: Task, row: int, units: list[_Chosen]) -> list[_Chosen]:
        """Leave out what room alone does not need, the dearest first; what stands in the way otherwise stays."""
        room, names = self.session.room, self.session.nodes.names
        slack = {name: int(room.future[name][row]) - amount for name, amount in task.cls.needs}
        fit = self.session.placement.fit(task.cls, When.LATER)
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


def _evict(statement: Statement, unit: Unit, action: str) -> None:
    for task in unit.tasks:
        statement.evict(unit.job, task, action)


def plan(
    session: Session,
    action: str,
    claim: Claim,
    donors: Callable[[], Iterable[JobState]],
    *,
    single: Task | None,
    hunts: Hunts,
) -> Statement | None:
    """`planning`, without turns."""
    return finish(planning(session, action, claim, donors, single=single, hunts=hunts))


def planning(
    session: Session,
    action: str,
    claim: Claim,
    donors: Callable[[], Iterable[JobState]],
    *,
    single: Task | None,
    hunts: Hunts,
) -> Generator[Turn, None, Statement | None]:
    """A statement that places the claim (the job's minimum, or the one task) with an irreducible set of victims.

    None: no set of victims helps. The statement is open; nothing of it is left in the session where it is None. `hunts`
    is the action's own store of hunts that may go on.
    """
    job = claim.job
    statement = Statement(session, job)
    _place_without(statement, single)
    if single is None and not job.missing():
        statement.rollback()
        return None  # it fits as things are: nobody needs to go
    hunt = _hunt(session, action, claim, donors, hunts)
    if hunt.empty:
        statement.rollback()
        return None
    if not (yield from _place_with(statement, hunt, single)):
        statement.rollback()
        hunt.over = True  # what it found out held with victims that stay after all
        return None
    if _let_go(statement, hunt, single):
        hunt.over = True
    statement.nominate_instead()
    return statement


def _hunt(session: Session, action: str, claim: Claim, donors: Callable[[], Iterable[JobState]], hunts: Hunts) -> Hunt:
    """A hunt for the claim: that of the job's last claim, that of a claim no vote could tell from it, or a new one."""
    job = claim.job
    what = (frozenset(task.cls.id for task in claim.tasks), claim.lacks, claim.intra, claim.ahead)
    own: Mark = (job.key, *what)
    group = job.job.group
    endless = group is None or group.spec.lifetime_seconds is None
    alike: Mark = (job.queue, job.priority, claim.never, endless, tuple(sorted(claim.held.items())), *what)
    for mark in (own,) if claim.intra else (own, alike):
        found = hunts.get(mark)
        if found is not None and not found.over:
            found.again(claim)
            break
    else:
        found = Hunt(session, action, claim, donors())
    hunts[own] = found
    if not claim.intra:
        hunts[alike] = found
    return found


def _place_without(statement: Statement, single: Task | None) -> None:
    """Place what idle and releasing room takes."""
    if single is None:
        place_minimum(statement, (When.NOW, When.LATER))
        statement.nominate_instead()


def _place_with(statement: Statement, hunt: Hunt, single: Task | None) -> Generator[Turn, None, bool]:
    """Place the rest, evicting for each pod that finds no room."""
    session, job = statement.session, statement.job
    if single is not None:
        return _one(statement, hunt, single)
    stuck: set[int] = set()
    while job.missing():
        role, _ = quotas(job)[0]
        task = next(
            (task for task in unplaced(job) if (role is None or task.role == role) and task.cls.id not in stuck), None
        )
        if task is None:
            return False
        if not _one(statement, hunt, task):
            stuck.add(task.cls.id)
        elif session.room.idle:  # what one victim gave may hold several pods
            place_minimum(statement, (When.LATER,))
        yield TURN
    return True


def _one(statement: Statement, hunt: Hunt, task: Task) -> bool:
    row = hunt.make_room(statement, task)
    if row is None:
        return False
    statement.nominate(task, row)
    return True


def _let_go(statement: Statement, hunt: Hunt, single: Task | None) -> bool:
    """Drop every unit without which the step can still be taken, those that cost most first; whether there were any."""
    units = list(hunt.chosen)
    if len(units) < 2 and (single is not None or len(units) < 1):
        return False
    steps = statement.recorded()
    needed = list(units)
    dropped = False
    for unit in sorted(units, key=_order, reverse=True):
        if not unit.whole and any(other.whole and other.job is unit.job for other in needed):
            continue  # it is the rest of a group that goes as a whole
        statement.rollback()
        trial = [other for other in needed if other is not unit]
        if _again(statement, hunt, trial, single):
            needed, dropped = trial, True
            steps = statement.recorded()
    statement.rollback()
    if dropped:
        _again(statement, hunt, needed, single)
    else:
        statement.replay(steps)
    return dropped


def _again(statement: Statement, hunt: Hunt, units: Sequence[Unit], single: Task | None) -> bool:
    """Evict just these and place the step in what room there is then."""
    for unit in units:
        _evict(statement, unit, hunt.action)
    if single is None:
        return place_minimum(statement, (When.NOW, When.LATER))
    rows = statement.session.placement.fit(single.cls, When.LATER).choose(1)
    if not rows:
        return False
    statement.nominate(single, rows[0])
    return True


def lacking(session: Session, tasks: Sequence[Task]) -> frozenset[str]:
    """The dimensions in which there is no room for these tasks, each looked at by itself; if none, all they ask for."""
    counts: dict[int, list[Task]] = {}
    for task in tasks:
        counts.setdefault(task.cls.id, []).append(task)
    short: set[str] = set()
    asked: set[str] = set()
    for run in counts.values():
        cls = run[0].cls
        allowed = session.placement.static(cls)[0]
        session.room.ensure(cls)
        for name, amount in cls.request.items():
            if amount <= 0:
                continue
            asked.add(name)
            free = session.room.future[name]
            fitting = int((free[allowed & (free > 0)] // amount).sum())
            if fitting < len(run):
                short.add(name)
    return frozenset(short or asked)


def next_step(session: Session, job: JobState) -> tuple[Task | None, list[Task]] | None:
    """What the job claims next: the tasks of its minimum, or (first) the one task that is next of its surplus.

    None where there is nothing to claim, or nothing that even nodes without this scheduler's pods would hold.
    """
    if job.missing():
        if session.valid(job) is not None or session.emptied.hopeless(job):
            return None
        tasks = next_tasks(job, unplaced(job))
        return (None, tasks) if len(tasks) >= job.missing() else None
    single = next((task for task in unplaced(job) if not task.cls.best_effort), None)
    if single is None or job.full(single.role) or not session.emptied.most(single.cls):
        return None
    return single, [single]
