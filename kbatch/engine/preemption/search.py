"""Finding room for one pod where none is: over all nodes, the one on which the cheapest set of units makes some.

Victims are *units*: one pod above its group's minimum, or one whole group. Candidate units are ranked (the tier that
consented, then whether their queue would fall below its share, then the job's priority, single pods before groups, the
pod's priority, pods with which no group ends, lost work, the role furthest above its minimum, and age, the youngest
first: that which came last to its node, else the last created; see `kbatch.engine.state.shrinking`). Nodes are kept in
a heap by a lower bound of what room there would cost, and tried in earnest, against the state after the units already
taken, when they come up; since votes only turn against further victims as more are taken, a bound stays one.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from kbatch.api.reasons import Protection
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.plugin import Preemptor
from kbatch.engine.preemption.candidate_index import CandidateIndex
from kbatch.engine.preemption.candidates import Cost
from kbatch.engine.preemption.frontier import Frontier
from kbatch.engine.preemption.node_search import NodeSearch
from kbatch.engine.preemption.polling import Evictor, Poll, Victim
from kbatch.engine.session.statement import Statement
from kbatch.model.nodes import Mask
from kbatch.model.tasks import Task, TaskClass

_TRIAL: Final = 8
"""So many bounds are worked out again at least, before it is known whether that is worth it."""


class Search:
    """The search for the victims of one job's next step.

    A search may go on with the next step of the same kind (`again`): what was found out about nodes stays true, because
    votes only turn against further victims. Where pods elsewhere matter to the task (spread, affinity) it does not: a
    node that was refused may be open as soon as another pod has been placed or evicted, so each is tried again.

    Attributes:
        poll: whom the search asks, and what was taken.
        over: what was found out is true no more.
        protected: what keeps pods from being candidates.
        coupled: pods elsewhere matter to some of the tasks.
    """

    def __init__(
        self,
        context: CycleContext,
        evictor: Evictor,
        preemptor: Preemptor,
        index: CandidateIndex,
        among: Mask | None = None,
    ) -> None:
        self.context = context
        self._among = among
        self.session = context.session
        self.index = index
        self.poll = Poll(context, evictor, preemptor)
        classes = {task.cls.id: task.cls for task in preemptor.tasks}
        self.coupled = any(context.rankings.coupled(cls) for cls in classes.values())
        self.over = False
        self.protected: tuple[Protection, ...] = ()
        self._frontiers: dict[int, Frontier] = {}
        """By class of tasks: of what a node costs for one nothing follows for another."""
        self._tried: set[tuple[int, int]] = set()
        """Rows that were tried for a class."""
        self._looked = self._vain = 0
        """How many bounds were worked out again, and of how many of these rows the trial was not spared by that."""
        self._cursor = len(self.session.room.log)

    def again(self, preemptor: Preemptor) -> None:
        """Go on for the next pod. On rows that have changed since, less may have to go than it seemed."""
        self.poll = Poll(self.context, self.poll.evictor, preemptor)
        if self.index.exact:
            log = self.session.room.log
            rows = sorted(set(log[self._cursor :])) if self._frontiers else []
            for cls, frontier in self._frontiers.items():
                for row in rows:
                    if (row, cls) not in self._tried:
                        self._push(frontier, self.index.first(row), row)
            self._cursor = len(log)

    def _push(self, frontier: Frontier, bound: Cost, row: int) -> None:
        if bound and (self._among is None or self._among[row]):
            frontier.push(bound, row)

    def _frontier(self, cls: TaskClass) -> Frontier:
        """The rows that could be made to take a pod of the class. For pods that heed others always all of them anew."""
        found = self._frontiers.get(cls.id)
        if found is None or self.coupled:
            among = None if self.coupled else self._among
            found = self._frontiers[cls.id] = Frontier(self.index.bounds(self.context, (cls,), among))
        return found

    @property
    def empty(self) -> bool:
        """Whether there is no candidate."""
        return self.index.empty

    def make_room(self, statement: Statement, task: Task) -> Generator[Turn, None, int | None]:
        """Evict the cheapest set that lets this task wait for a node; its row, or None: there is no such set."""
        nodes = NodeSearch(self.context, statement, self.poll, self.index, task)
        frontier = self._frontier(task.cls)
        work = 40 if self.coupled else 1
        among = self._rows(statement, task)
        seen: list[tuple[Cost, int]] = []
        looked_at: set[int] = set()
        best: tuple[Cost, int] | None = None
        found: list[Victim] = []
        while (head := frontier.head) is not None and (best is None or head < best):
            bound, row = head
            frontier.take(row)
            if among is not None and not among[row]:
                seen.append((bound, row))
                continue
            closed = self.coupled and nodes.closed(row)
            if self.session.due(1 if closed else work):
                yield TURN
            if closed:
                continue
            self._tried.add((row, task.cls.id))
            if row in looked_at:
                self._vain += 1
            elif self._vain * 2 < max(self._looked, _TRIAL):
                looked_at.add(row)
                self._looked += 1
                least = nodes.at_least(row, bound)
                if least is None:
                    continue
                if least > bound:
                    self._push(frontier, least, row)  # others may come before it now
                    continue
                self._vain += 1
            victims = nodes.cheapest(row)
            if victims is None:
                continue
            cost = cost_of(victims)
            seen.append((cost, row))
            if best is None or (cost, row) < best:
                best, found = (cost, row), victims
        for bound, row in seen:
            self._push(frontier, bound, row)
        if best is None:
            return None
        for victim in found:
            self.poll.take(statement, victim)
        return best[1]

    def _rows(self, statement: Statement, task: Task) -> Mask | None:
        """The rows to which the statement, and what keeps pods together, binds the task; None: all."""
        among = statement.within(task) if statement.within is not None else None
        for limit in self.session.limits:
            if limit.keeps_together:
                rows = limit.rows(statement.job, task)
                among = rows if among is None else among if rows is None else among & rows
        return among


def cost_of(victims: Sequence[Victim]) -> tuple[Any, ...]:
    """What a set costs: the least willing tier, queues below their share, the highest priority, how many pods.

    Of sets that cost the same in all this, the one is taken whose last to go comes first in order.
    """
    if not victims:
        return (0, 0, -(2**63), 0)
    priority, *others = max(victim.order for victim in victims)
    return (
        max(victim.rank for victim in victims),
        sum(1 for victim in victims if victim.deficit),
        priority,
        sum(len(victim.unit.tasks) for victim in victims),
        *others,
    )
