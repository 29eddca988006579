"""What could be evicted for a preemptor: the candidates, pods and groups, by the node that they would leave.

Which units the plugins would let go depends on the preemptor; who comes before whom does not. So the pods of a job are
sorted into *kinds* (alike in all that a vote may depend on), one vote is taken for each kind, and what is made of the
answers (a `CandidateIndex`) serves every further preemptor that is answered the same.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.plugin import Preemptor, Unit
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.node_resources import Index
from kbatch.engine.state.shrinking import cost_of, turn_of
from kbatch.model.jobs import Job
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import PODS, add

Cost: TypeAlias = tuple[Any, ...]
"""What a set of units costs, or a lower bound of it; see `cost_of_one`."""

_INDEXES: Final = 4
"""How many indexes are kept: the latest."""
_LEAST: Final = -(2**63)
_MOST: Final = 2**62
"""As much as a column holds: more than any gap, for rooms and requests are within 2^53."""


@dataclass(eq=False, slots=True)
class Candidate:
    """A possible unit: one task, or (None) whatever its job still holds. `order` is its place among its like; tasks of
    the same `kind`, all of one job, get the same votes.
    """

    job: JobState
    task: Task | None
    order: tuple[Any, ...]
    rank: int
    kind: int = -1

    def unit(self) -> Unit | None:
        """The unit as it is now; None where nothing of it is left."""
        if self.task is not None:
            return None if self.task.key in self.job.evicted else _single(self.job, self.task)
        return _whole(self.job)


def order_of(unit: Unit) -> tuple[Any, ...]:
    """Who goes before whom, of one tier: by the job's priority, the pod alone, its priority, the pod with which no
    group ends, what is lost, the role furthest above its minimum, the latest; see `kbatch.engine.state.shrinking`.
    """
    job = unit.job
    if unit.whole:
        return job.priority, True, unit.priority, True, *cost_of(job, *unit.tasks)
    return job.priority, False, unit.priority, *turn_of(job, unit.tasks[0])


def may_give(job: Job) -> bool:
    """Whether anything of the group could be a candidate in this cycle, whoever asks: a quick no, without votes.

    A gang that has no pod beyond its minimum, and is not to go as a whole, gives nothing. One of which the time decides
    is looked at in earnest.
    """
    if job.disruption == "Never" or not job.holding:
        return False
    if not job.gang or job.disruption == "Whole" or job.holding + job.succeeded + len(job.waiting) > job.minimum:
        return True
    spec = job.group.spec if job.group is not None else None
    return spec is not None and (spec.lifetime_seconds is not None or spec.min_runtime_seconds > 0)


def _single(job: JobState, task: Task) -> Unit:
    return Unit(job, (task,), whole=False, request=task.cls.request)


def _whole(job: JobState) -> Unit | None:
    """All that its group holds; None where that is nothing, or a bind under way would outlast it."""
    tasks = tuple(task for task in _holding(job) if task.key not in job.evicted)
    if not tasks or job.placed or any(task.holds and task.assumed for task in job.job.tasks.values()):
        return None
    return Unit(job, tasks, whole=True, request=add(*(task.cls.request for task in tasks)))


def _holding(job: JobState) -> list[Task]:
    """Its pods that could be evicted at all, by key: on a node for sure, not leaving yet."""
    found = [task for task in job.job.tasks.values() if task.holds and not task.assumed]
    found.sort(key=lambda task: task.key)
    return found


def _gives(candidate: Candidate, name: str) -> int:
    """What a single pod gives back of a dimension."""
    if candidate.task is None:
        return 0
    return 1 if name == PODS else candidate.task.cls.request.get(name, 0)


class CandidateIndex:
    """Candidates by row, each row sorted, with lower bounds of what it costs to make room on a row.

    Shrinks as pods are evicted.
    """

    def __init__(self, rows: dict[int, list[Candidate]], *, exact: bool) -> None:
        self.rows = rows
        self.exact = exact
        """Whether all candidates are single pods, so that `bounds` may look at what they give."""
        self._ordered: list[Candidate] | None = None
        self._place = {row: at for at, row in enumerate(rows)}
        self._index: Index = np.fromiter(rows, np.intp, len(rows))
        self._first: list[Cost] = [_bound(candidates, 1) for candidates in rows.values()]
        self._more: dict[int, dict[int, Cost]] = {}
        self._columns: dict[str, tuple[Column, Column]] = {}

    def ordered(self) -> list[Candidate]:
        """All candidates, each once, those that go first at the front; some may be gone by now."""
        if self._ordered is None:
            each = {id(candidate): candidate for candidates in self.rows.values() for candidate in candidates}
            self._ordered = sorted(each.values(), key=lambda candidate: candidate.order)
        return self._ordered

    def first(self, row: int) -> Cost:
        """The least that any set from the row could cost."""
        return self._first[self._place[row]]

    def drop(self, row: int, key: str) -> None:
        """A pod is gone for good."""
        candidates = self.rows.get(row)
        if candidates is None:
            return
        candidates[:] = [candidate for candidate in candidates if candidate.task is None or candidate.task.key != key]
        at = self._place[row]
        self._first[at] = _bound(candidates, 1)
        self._more.pop(row, None)
        for name, (most, whole) in self._columns.items():
            most[at], whole[at] = _most_and_sum(candidates, name)

    def preparing(self, classes: Iterable[TaskClass]) -> Iterator[Turn]:
        """Work out what `bounds` will ask for, in pieces."""
        yield TURN
        for name in dict.fromkeys(name for cls in classes for name, _ in cls.needs) if self.exact else ():
            self._column(name)
            yield TURN

    def bounds(self, context: CycleContext, classes: Iterable[TaskClass]) -> list[tuple[Cost, int]]:
        """For each row that could be made to take a pod of one of the classes, the least that this could cost there.

        At least as many pods must go as it takes of the largest to fill the gap.
        """
        if not self.exact:
            return [(bound, row) for bound, row in zip(self._first, self.rows, strict=True) if bound]
        least: Column = np.zeros(len(self._index), np.int64)
        for cls in classes:
            count, possible = self._counts(context, cls)
            count[~possible] = 0
            least = np.where((least == 0) | ((count > 0) & (count < least)), count, least)
        found: list[tuple[Cost, int]] = []
        for at, (row, count) in enumerate(zip(self.rows, least.tolist(), strict=True)):
            if count == 1:
                if self._first[at]:
                    found.append((self._first[at], row))
            elif 1 < count <= len(self.rows[row]):
                known = self._more.setdefault(row, {})
                bound = known.get(count)
                if bound is None:
                    bound = known[count] = _bound(self.rows[row], count)
                found.append((bound, row))
        return found

    def _counts(self, context: CycleContext, cls: TaskClass) -> tuple[Column, Mask]:
        """How many pods must go at least, and where that could be enough."""
        index = self._index
        possible: Mask = context.rankings.static(cls)[0][index].copy()
        count: Column = np.ones(len(index), np.int64)
        for name, amount in cls.needs:
            short = amount - context.session.room.future[name][index]
            most, whole = self._column(name)
            possible &= whole >= short
            count = np.maximum(count, -(-short // np.maximum(most, 1)))
        return count, possible

    def gives(self, name: str) -> tuple[Index, Column]:
        """The rows, and for each what its candidates, if they are single pods, give of a dimension together."""
        return self._index, self._column(name)[1]

    def _column(self, name: str) -> tuple[Column, Column]:
        """By row the most that one candidate gives of a dimension, and what all give."""
        found = self._columns.get(name)
        if found is None:
            pairs = [_most_and_sum(candidates, name) for candidates in self.rows.values()]
            table: npt.NDArray[np.int64] = np.array(pairs, np.int64).reshape(-1, 2)
            found = self._columns[name] = table[:, 0].copy(), table[:, 1].copy()
        return found


def _most_and_sum(candidates: list[Candidate], name: str) -> tuple[int, int]:
    gives = [_gives(candidate, name) for candidate in candidates]
    return max(gives, default=0), min(sum(gives), _MOST)


def _bound(candidates: list[Candidate], count: int) -> Cost:
    """The least that `count` of the sorted candidates, or more, could cost; empty where there are none.

    The last of any such set to go comes no earlier than the candidate of that number.
    """
    if not candidates:
        return ()
    last = candidates[count - 1]
    if last.rank != candidates[0].rank:
        return last.rank, 0, _LEAST
    priority, *others = last.order[1:]
    return last.rank, 0, priority, count, *others


@dataclass(slots=True)
class _Kinds:
    """The pods of one job, by what votes on them may depend on."""

    tasks: dict[object, dict[str, tuple[Task, tuple[Any, ...]]]] = field(default_factory=dict)


class CandidatePool:
    """All that could be evicted in one run of an action."""

    def __init__(self, context: CycleContext, ballot: str) -> None:
        self._session = context.session
        self._consent = context.consent
        self._ballot = ballot
        self._kinds: dict[str, _Kinds] = {}
        self._indexes: dict[tuple[tuple[str, object, int], ...], CandidateIndex] = {}
        """By job, kind and rank of the candidates."""
        self._gone: set[str] = set()
        self._numbers: dict[tuple[str, object], int] = {}
        """One for each job and kind of its pods: searches look them up by the hundred thousand."""

    def refresh(self) -> None:
        """Leave out what was evicted since, by decisions that stand."""
        session = self._session
        new = session.leaving - self._gone
        if not new:
            return
        self._gone |= new
        emptied: set[tuple[str, object]] = set()
        for key in new:
            task = session.model.tasks[key]
            kinds = self._kinds.get(task.job)
            if kinds is not None:
                kind = self._consent.vote_key(self._ballot, task)
                kinds.tasks.get(kind, {}).pop(key, None)
                if not kinds.tasks.get(kind, True):
                    del kinds.tasks[kind]
                    emptied.add((task.job, kind))
            row = session.nodes.row.get(task.node, -1)
            for index in self._indexes.values():
                index.drop(row, key)
        if emptied:
            self._indexes = {
                tuple([each for each in mark if each[:2] not in emptied]): index
                for mark, index in self._indexes.items()
            }

    def index(self, preemptor: Preemptor, donors: Iterable[JobState]) -> Generator[Turn, None, CandidateIndex]:
        """The candidates among the donors for a preemptor; in pieces."""
        self.refresh()
        consent, ballot = self._consent, self._ballot
        found: list[tuple[JobState, object, int]] = []
        groups: list[Candidate] = []
        for job in donors:
            model = job.job
            if model.disruption == "Never" or model.holding == 0 or consent.too_young(job):
                continue
            if not model.gang or job.ready > job.minimum:
                kinds = yield from self._kinds_of(job)
                for kind, tasks in kinds.tasks.items():
                    task, _ = next(iter(tasks.values()))
                    rank = consent.rank(ballot, preemptor, _single(job, task))
                    if rank is not None:
                        found.append((job, kind, rank))
            whole = model.gang and (model.disruption == "Whole" or consent.expired(job))
            if whole and not preemptor.intra and not preemptor.ahead:
                unit = _whole(job)
                rank = consent.rank(ballot, preemptor, unit) if unit is not None else None
                if unit is not None and rank is not None:
                    groups.append(Candidate(job, None, (rank, *order_of(unit)), rank))
        mark = tuple([(job.key, kind, rank) for job, kind, rank in found])
        index = None if groups else self._indexes.pop(mark, None)
        if index is None:
            index = yield from self._make(found, groups)
        if not groups:
            self._indexes[mark] = index  # again the latest
            if len(self._indexes) > _INDEXES:
                del self._indexes[next(iter(self._indexes))]
        return index

    def _kinds_of(self, job: JobState) -> Generator[Turn, None, _Kinds]:
        kinds = self._kinds.get(job.key)
        if kinds is None:
            kinds = self._kinds[job.key] = _Kinds()
            for task in _holding(job):
                if self._session.due():
                    yield TURN
                if task.key not in job.evicted:
                    kind = self._consent.vote_key(self._ballot, task)
                    kinds.tasks.setdefault(kind, {})[task.key] = task, order_of(_single(job, task))
        return kinds

    def _make(
        self, found: list[tuple[JobState, object, int]], groups: list[Candidate]
    ) -> Generator[Turn, None, CandidateIndex]:
        row_of = self._session.nodes.row
        rows: dict[int, list[Candidate]] = {}
        for job, kind, rank in found:
            if self._session.due(1 + len(self._kinds[job.key].tasks[kind]) // 5):
                yield TURN
            number = self._numbers.setdefault((job.key, kind), len(self._numbers))
            for task, order in self._kinds[job.key].tasks[kind].values():
                row = row_of.get(task.node, -1)
                if row >= 0:
                    rows.setdefault(row, []).append(Candidate(job, task, (rank, *order), rank, number))
        for candidate in groups:
            for node in sorted(
                {task.node for task in _holding(candidate.job) if task.key not in candidate.job.evicted}
            ):
                row = row_of.get(node, -1)
                if row >= 0:
                    rows.setdefault(row, []).append(candidate)
        for candidates in rows.values():
            candidates.sort(key=lambda candidate: candidate.order)
            if self._session.due(1 + len(candidates) // 4):
                yield TURN
        return CandidateIndex(rows, exact=not groups)
