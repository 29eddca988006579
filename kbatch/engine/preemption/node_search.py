"""Room for one pod, node by node: on each the cheapest set of units that stand in its way there.

First the candidates are taken in order until there is room, and those that turn out to be needless stay. Where consent
(a share, a disruption budget, a group's surplus) was spent on units that do not help, it is the other way round: all
that would go are thought away, whoever need not go stays, the dearest or the smallest first, and the rest is asked for
as a set; who is refused then stays too, and so on for a few rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeVar

from kbatch.engine.context import CycleContext
from kbatch.engine.placement.ranking import When
from kbatch.engine.preemption.candidate_index import CandidateIndex
from kbatch.engine.preemption.candidate_table import gives_of
from kbatch.engine.preemption.candidates import Candidate, Cost
from kbatch.engine.preemption.fewest import fewest, fewest_lowering
from kbatch.engine.preemption.polling import Poll, Victim, evict
from kbatch.engine.session.statement import Statement
from kbatch.model.tasks import Task
from kbatch.resources import PODS, Resources

_T = TypeVar("_T")

_ROUNDS: Final = 4
"""How often a set that is refused is made anew, on one node and in one order."""
_SETS: Final = 400
"""How many such sets are made in all for one pod."""


class NodeSearch:
    """The search for one task. All nodes are tried against the same state; the statement is left as it was."""

    def __init__(
        self, context: CycleContext, statement: Statement, poll: Poll, index: CandidateIndex, task: Task
    ) -> None:
        self._statement = statement
        self._poll = poll
        self._index = index
        self._task = task
        self._room = context.session.room
        self._names = context.session.nodes.names
        self._room.ensure(task.cls)
        self._whole = context.session.whole_nodes
        self._fit = context.rankings.of(task.cls, When.LATER)
        self._allowed = context.rankings.static(task.cls)[0]
        self._votes: dict[int, tuple[int | None, Resources]] = {}
        """What was said of the kinds of pods before any has gone: that is the same for each node."""
        self._shares: dict[str, Resources | None] = {}
        """By queue what it has above its share, likewise."""
        self._kept_out = self._fit.kept_out()
        """The rows that pods keep this one from, before any has gone."""
        self._heeded: dict[int, bool] = {}
        """By class of candidates whether it could help that one goes, besides by the room that it gives."""
        self._heeds = context.rankings.heeds
        self._own = None if poll.preemptor.intra else poll.preemptor.job.job
        """Whose pods are no candidates: the preemptor's, but where victims are sought among them."""
        self._sets = _SETS
        self._spent = self._lowers = False
        self._by_room = False
        """Whether room alone decides about the row that is looked at, whoever of its candidates goes."""

    def cheapest(self, row: int) -> list[Victim] | None:
        """The units that would have to go from this row, none where there is room; None: no set of them helps."""
        if not self._allowed[row]:
            return None
        if self._whole.active and self._task.cls.best_effort and not self._open(row):
            return None  # who asks for nothing has no better right to a node than who stands there
        if self._fits(row):
            return []
        if self.closed(row):
            return None
        candidates = self._index.on(row)
        self._by_room = self._decided_by_room(row)
        self._lowers = False
        for below in (False, True):
            found = self._in_order(row, candidates, below=below)
            if found is None and self._spent:
                found = self._in_the_way(row, candidates, below=below)
            if found is not None or not self._lowers:
                return found
        return None

    def at_least(self, row: int, bound: Cost) -> Cost | None:
        """What `cheapest` could cost on this row at least, by what is said of each candidate before any has gone: that
        only turns against them. None: no set of them helps. Empty: it cannot be told. The row stood by `bound`.
        """
        gaps = {name: amount - int(self._room.future[name][row]) for name, amount in self._task.cls.needs}
        short = {name: gap for name, gap in gaps.items() if gap > 0}
        if not short or not self._index.exact or not self._allowed[row]:
            return ()
        each: list[Candidate] = []
        willing: list[Candidate] = []
        for candidate in self._index.on(row):
            vote = self._said_of(candidate, short)
            if vote is None or vote[0] is None:
                continue
            if vote[0] != self._index.rank(candidate):
                return ()
            if not each and (quick := _with(candidate, vote[0], bound)) > bound:
                return quick
            each.append(candidate)
            if not vote[1]:
                willing.append(candidate)
        count = fewest(each, short)
        if count is None:
            return None
        lowered = fewest_lowering(each, short, self._poll.preemptor.lacks, self._above)
        alone = fewest(willing, short) if not lowered else None
        least = self._index.bound(willing, alone) if alone is not None else None
        if not lowered and len(willing) == len(each):
            return least
        # Where those who lower no queue below its share fail, the others may go too, and then one of them does.
        rank, _, *others = self._index.bound(each, count)
        below = (rank, max(1, lowered), *others)
        return below if least is None else min(least, below)

    def _said_of(self, candidate: Candidate, short: Collection[str]) -> tuple[int | None, Resources] | None:
        """The votes on a single pod before any has gone; None where it is not to be asked about, or is gone."""
        if candidate.model is self._own or not self._helps(candidate, short):
            return None
        if candidate.kind not in self._votes:
            self._ask(candidate, (), below=False)
        return self._votes.get(candidate.kind)

    def _above(self, queue: str) -> Resources | None:
        """What the queue has above its share, before any has gone."""
        if queue not in self._shares:
            self._shares[queue] = self._poll.above_share(queue)
        return self._shares[queue]

    def _is_heeded(self, candidate: Candidate) -> bool:
        """Whether the pod may be let onto a node, or kept from it, because the candidate goes, room aside."""
        if candidate.task is None:
            return True  # pods on other nodes go with it
        cls = candidate.task.cls
        found = self._heeded.get(cls.id)
        if found is None:
            found = self._heeded[cls.id] = self._heeds(self._task.cls, cls)
        return found

    def closed(self, row: int) -> bool:
        """Whether pods keep this one from the row, and still would, whoever of the candidates there went."""
        return self._is_kept_out(row) and not self._heeds_any(row)

    def _decided_by_room(self, row: int) -> bool:
        """Whether the pod fits the row as soon as there is room for it, whoever of the candidates there has gone."""
        if self._whole.active:
            return False
        if not self._fit.stepwise:
            return True
        return not (self._fit.asks_the_node or self._is_kept_out(row) or self._heeds_any(row))

    def _is_kept_out(self, row: int) -> bool:
        """Whether pods keep this one from the row, before any has gone."""
        return self._kept_out is not None and bool(self._kept_out[row])

    def _heeds_any(self, row: int) -> bool:
        """Whether it matters to the pod, room aside, that one of the candidates on the row goes."""
        return any(map(self._is_heeded, self._index.on(row)))

    # --- in order -----------------------------------------------------------------------------------------------------

    def _in_order(self, row: int, candidates: Iterable[Candidate], *, below: bool) -> list[Victim] | None:
        mark = len(self._statement)
        victims: list[Victim] = []
        done = self._spent = False
        short, told, own = self._short(row), self._votes.get, self._own
        for candidate in candidates:
            if candidate.model is own:
                continue
            if not victims and candidate.task is not None:  # most are told apart from here, so it must be quick
                known = told(candidate.kind)
                if known is not None and (known[0] is None or (known[1] and not below)):
                    self._lowers = self._lowers or (known[0] is not None and candidate.unit() is not None)
                    continue
            if not self._helps(candidate, short):
                continue
            victim = self._ask(candidate, victims, below=below)
            if victim is None:
                self._spent = self._spent or bool(victims)
                continue
            if not victims and self._is_enough(candidate, row):
                return [victim]
            if victim.unit.whole:
                victim = self._take_in_parts(candidate, victim, victims, mark)
            self._evict(victim)
            victims.append(victim)
            short = self._short(row)
            if not short and self._fits(row):
                done = True
                break
        if done and len(victims) > 1:
            victims = self._needed(row, victims, mark)
        self._statement.rollback(mark)
        return victims if done else None

    def _is_enough(self, candidate: Candidate, row: int) -> bool:
        """Whether the pod fits once this one has gone, where only room matters; False where that is to be tried."""
        if candidate.task is None or not self._by_room:
            return False
        cls, future = candidate.task.cls, self._room.future
        return all(future[name][row] + gives_of(cls, name) >= amount for name, amount in self._task.cls.needs)

    def _helps(self, candidate: Candidate, short: Collection[str]) -> bool:
        """Whether its going could help: where only room matters and some is short, it must give of that."""
        if candidate.task is None or self._fit.stepwise or self._whole.active or not short:
            return True
        request = candidate.task.cls.request
        return any(name == PODS or request.get(name, 0) for name in short)

    def _take_in_parts(self, candidate: Candidate, victim: Victim, victims: list[Victim], mark: int) -> Victim:
        """A whole group takes in its pods that were to go one by one."""
        if not any(other.unit.job is victim.unit.job for other in victims):
            return victim
        victims[:] = [other for other in victims if other.unit.job is not victim.unit.job]
        self._statement.rollback(mark)
        for other in victims:
            self._evict(other)
        whole = candidate.unit()
        return Victim(whole, victim.rank, victim.deficit) if whole is not None else victim

    def _needed(self, row: int, victims: list[Victim], mark: int) -> list[Victim]:
        """Leave out those that need not go, the dearest first."""
        if not self._by_room:
            return self._needed_of(row, victims, self._evict, mark)
        self._statement.rollback(mark)
        return self._needed_for_room(row, victims, [self._gives(victim.unit.tasks, row) for victim in victims])

    def _gives(self, tasks: Iterable[Task], row: int) -> list[int]:
        """What these pods give on the row of what the task needs."""
        here = [task.cls for task in tasks if task.node == self._names[row]]
        return [sum([gives_of(cls, name) for cls in here]) for name, _ in self._task.cls.needs]

    # --- as a set -----------------------------------------------------------------------------------------------------

    def _in_the_way(self, row: int, candidates: Iterable[Candidate], *, below: bool) -> list[Victim] | None:
        alone = [
            each for each in candidates if each.model is not self._own and self._ask(each, (), below=below) is not None
        ]
        for order in (alone, sorted(alone, key=self._size, reverse=True)):
            left = list(order)
            for _ in range(_ROUNDS):
                self._sets -= 1
                if self._sets < 0:
                    return None
                needed = self._needed_candidates(row, left)
                if not needed:
                    break
                victims, refused = self._as_set(row, needed, below=below)
                if refused is None:
                    return victims
                left.remove(refused)
        return None

    def _size(self, candidate: Candidate) -> tuple[int, ...]:
        """How much it gives of what the task asks for."""
        unit = candidate.unit()
        return tuple([unit.request.get(name, 0) if unit is not None else 0 for name, _ in self._task.cls.needs])

    def _needed_candidates(self, row: int, each: Sequence[Candidate]) -> list[Candidate]:
        """As `_needed_of`, of candidates none of which is evicted. The statement is left as it was."""
        alone = [candidate.task for candidate in each if candidate.task is not None]
        if self._by_room and len(alone) == len(each):  # the pods of a whole group may be candidates by themselves, too
            return self._needed_for_room(row, each, [self._gives((task,), row) for task in alone])
        mark = len(self._statement)
        needed = self._needed_of(row, each, self._evict_candidate, mark)
        self._statement.rollback(mark)
        return needed

    def _needed_for_room(self, row: int, each: Sequence[_T], gives: Sequence[Sequence[int]]) -> list[_T]:
        """As `_needed_of`, where room alone decides: of these, none of which has gone, and which give so much each."""
        spare = [
            int(self._room.future[name][row]) + sum([given[at] for given in gives]) - amount
            for at, (name, amount) in enumerate(self._task.cls.needs)
        ]
        needed: list[_T] = []
        if any(left < 0 for left in spare):
            return needed
        for one, given in zip(reversed(each), reversed(gives), strict=True):
            rest = [left - amount for left, amount in zip(spare, given, strict=True)]
            if any(left < 0 for left in rest):
                needed.append(one)
            else:
                spare = rest
        needed.reverse()
        return needed

    def _needed_of(self, row: int, each: Sequence[_T], go: Callable[[_T], None], mark: int) -> list[_T]:
        """Of these, without which there is room, those that must go: the last are let stay first. Empty: no room."""
        statement, marks = self._statement, list[int]()
        statement.rollback(mark)
        for one in each:
            marks.append(len(statement))
            go(one)
        needed: list[_T] = []
        if not self._fits(row):
            return needed
        for one, before in zip(reversed(each), reversed(marks), strict=True):
            statement.rollback(before)
            for other in needed:
                go(other)
            if not self._fits(row):
                needed.append(one)
        needed.reverse()
        return needed

    def _as_set(self, row: int, needed: Iterable[Candidate], *, below: bool) -> tuple[list[Victim], Candidate | None]:
        """Ask for all of them, whole groups first; the first that is refused, if any."""
        mark = len(self._statement)
        victims: list[Victim] = []
        refused = None
        for candidate in sorted(needed, key=lambda each: (each.task is not None, self._index.order(each))):
            if candidate.unit() is None:
                continue  # its group goes as a whole
            victim = self._ask(candidate, victims, below=below)
            if victim is None:
                refused = candidate
                break
            self._evict(victim)
            victims.append(victim)
        self._statement.rollback(mark)
        return victims, refused

    # --- small parts --------------------------------------------------------------------------------------------------

    def _ask(self, candidate: Candidate, victims: Sequence[Victim], *, below: bool) -> Victim | None:
        """The candidate as a victim, besides those that are evicted already."""
        known = self._votes.get(candidate.kind) if candidate.task is not None and not victims else None
        if known is not None and known[0] is None:
            return None
        unit = candidate.unit()
        if unit is None:
            return None
        rank, deficit = known or self._poll.vote(unit)
        if candidate.task is not None and not victims:
            self._votes[candidate.kind] = rank, deficit
        if rank is None:
            return None
        if deficit and not below:
            self._lowers = True
            return None
        if deficit and not self._poll.bearable(deficit, victims):
            return None
        return Victim(unit, rank, deficit)

    def _evict(self, victim: Victim) -> None:
        evict(self._statement, victim.unit, self._poll.evictor.name)

    def _evict_candidate(self, candidate: Candidate) -> None:
        unit = candidate.unit()
        if unit is not None:
            evict(self._statement, unit, self._poll.evictor.name)

    def _short(self, row: int) -> list[str]:
        """The dimensions in which the row lacks room."""
        future = self._room.future
        return [name for name, amount in self._task.cls.needs if future[name][row] < amount]

    def _fits(self, row: int) -> bool:
        """Whether the row, which the pod may use at all, takes it; scores do not matter here."""
        if self._whole.active and not self._open(row):
            return False
        return self._fit.fits(row)

    def _open(self, row: int) -> bool:
        """Whether the limits leave the row to the task. How many pods they allow is not for the row to mend."""
        rows = self._statement.rows(self._task, waits=True)
        return rows is None or bool(rows[row])


def _with(first: Candidate, rank: int, bound: Cost) -> Cost:
    """What any set costs at least in which nobody goes before this one, on a row where none costs less than `bound`."""
    priority, *others = first.order
    return rank, bound[1] if rank == bound[0] else 0, priority, 1, *others
