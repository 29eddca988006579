"""The candidates among the donors of a preemptor: who of them would be let go.

Which units the plugins would let go depends on the preemptor; who comes before whom does not. So pods are sorted into
*kinds*, alike in all that a vote may depend on: those of one job, and the only pods of groups that are alike. One vote
is taken for each kind, and what is made of the answers (a `CandidateIndex`) serves every further preemptor that is
answered the same.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final, TypeAlias

import numpy as np

from kbatch.api.reasons import Protector
from kbatch.engine.carryover.by_group import ByGroup
from kbatch.engine.carryover.lone_pods import LonePod
from kbatch.engine.context import CycleContext
from kbatch.engine.cooperative import emptying
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.plugin import Preemptor, Unit
from kbatch.engine.preemption.candidate_index import NEVER, CandidateIndex
from kbatch.engine.preemption.candidate_table import CandidateTable, tabulating
from kbatch.engine.preemption.candidates import (
    Candidate,
    Donors,
    holding,
    may_give,
    order_of,
    order_of_pod,
    single,
    whole,
)
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.shrinking import working_out
from kbatch.model.jobs import Job, QueueRecord
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import Task

_INDEXES: Final = 4
"""How many indexes of a table are kept: the latest."""
_TABLES: Final = 2
"""How many tables are kept: the latest."""

_PIECE_OF_TURNS: Final = 100
"""A millisecond, in units of work."""
_SOME: Final = 32
"""Of so many pods of a kind that may not go it is asked what protects them."""
_AT_ONCE: Final = 2048
"""So many candidates are looked at between two turns."""

_Mark: TypeAlias = tuple[tuple[int, int], ...]
"""Kinds and the ranks of their candidates."""


@dataclass(eq=False, slots=True)
class _Part:
    """The pods of a queue, or of one job, that could be candidates.

    Attributes:
        kinds: of groups of one pod that share kinds.
        jobs: the other groups, each with the kinds of its pods.
        candidates: all of these pods on nodes that exist.
    """

    kinds: list[int] = field(default_factory=list)
    jobs: list[tuple[JobState, list[int]]] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _Indexed:
    """A table and the indexes that were made of it."""

    table: CandidateTable
    indexes: dict[_Mark, CandidateIndex] = field(default_factory=dict)


class CandidatePool:
    """All that could be evicted in one run of an action. With `among`, groups are left out that have no pod on any of
    these rows.
    """

    def __init__(self, context: CycleContext, ballot: str, among: Mask | None = None) -> None:
        self._among = among
        self._context = context
        self._session = context.session
        self._consent = context.consent
        self._ballot = ballot
        self._numbers: dict[Hashable, int] = {}
        self._kinds: list[dict[str, Candidate]] = []
        """By number the candidates of the kind that are left, by key."""
        self._parts: dict[str, _Part] = {}
        self._tables: dict[frozenset[str], _Indexed] = {}
        self._candidates: dict[str, Candidate] = {}
        self._gone: set[str] = set()
        self._failed = 0

    def refresh(self) -> None:
        """Leave out what was evicted since by decisions that stand, and groups that were left out for an error."""
        new = self._session.leaving.keys() - self._gone
        left_out = len(self._session.failed) != self._failed  # their pods are there, and no candidates all the same
        if left_out:
            self._failed = len(self._session.failed)
            for key in self._session.failed:
                new.update(self._session.model.jobs[key].tasks.keys() - self._gone)
        if not new:
            return
        self._gone |= new
        for key in new:
            candidate = self._candidates.pop(key, None)
            if candidate is not None:
                del self._kinds[candidate.kind][key]
                for each in self._tables.values():
                    each.table.drop(candidate)
        for each in self._tables.values():
            for index in each.indexes.values():
                index.refresh(at_once=left_out)
            each.indexes = {
                tuple([part for part in mark if self._kinds[part[0]]]): index for mark, index in each.indexes.items()
            }

    def index(self, preemptor: Preemptor, donors: Donors) -> Generator[Turn, None, CandidateIndex]:
        """The candidates among the donors for a preemptor; in pieces."""
        self.refresh()
        parts: dict[str, _Part] = {}
        if donors.only is not None:
            name = f"job {donors.only.key}"
            parts[name] = yield from self._part(name, (donors.only.job,))
        for record in donors.queues:
            name = f"queue {record.name}"
            parts[name] = yield from self._part(name, record.holders.values(), record)
        own = preemptor.job.key if donors.only is None else ""
        found: dict[int, int] = {}
        groups: list[tuple[Candidate, int]] = []
        for part in parts.values():
            yield from self._poll(preemptor, part, own, found, groups)
        held = yield from self._table_of(frozenset(parts))
        mark = tuple(found.items())
        if groups:
            return (yield from self._with_groups(held.table, found, groups))
        index = held.indexes.pop(mark, None)
        if index is None:
            index = CandidateIndex(held.table, self._ranks(found), len(self._session.nodes))
            yield TURN
        held.indexes[mark] = index  # again the latest
        if len(held.indexes) > _INDEXES:
            del held.indexes[next(iter(held.indexes))]
        return index

    def let_go(self) -> Iterator[None]:
        """Let go of the candidates, in pieces. Nothing is asked any more."""
        self._tables.clear()
        self._kinds.clear()
        yield
        self._parts.clear()
        yield
        yield from emptying(self._candidates)

    def _ranks(self, found: dict[int, int], groups: int = 0) -> Column:
        ranks: Column = np.full(len(self._kinds) + groups, NEVER, np.int64)
        for kind, rank in found.items():
            ranks[kind] = rank
        return ranks

    def _with_groups(
        self, table: CandidateTable, found: dict[int, int], groups: list[tuple[Candidate, int]]
    ) -> Generator[Turn, None, CandidateIndex]:
        """An index with groups that may go as wholes: for this preemptor alone."""
        ranks = self._ranks(found, len(groups))
        for kind, (group, rank) in enumerate(groups, len(self._kinds)):
            group.kind = kind
            ranks[kind] = rank
        table = yield from table.with_groups([group for group, _ in groups], self._session.nodes.row)
        return CandidateIndex(table, ranks, len(self._session.nodes))

    def _poll(
        self,
        preemptor: Preemptor,
        part: _Part,
        own: str,
        found: dict[int, int],
        groups: list[tuple[Candidate, int]],
    ) -> Generator[Turn, None, None]:
        """Ask about each kind of pods, and about the groups that may go as wholes."""
        consent, ballot, due = self._consent, self._ballot, self._session.due
        for kind in part.kinds:
            if due():
                yield TURN
            self._ask(preemptor, kind, found)
        for job, kinds in part.jobs:
            if due():
                yield TURN
            if job.key == own:
                continue
            if consent.too_young(job):
                self._note_young(preemptor, job, kinds)
                continue
            model = job.job
            if _goes_by_pods(job):
                for kind in kinds:
                    self._ask(preemptor, kind, found)
            wholly = model.gang and (model.disruption == "Whole" or consent.expired(job))
            if wholly and not preemptor.intra and not preemptor.ahead:
                unit = whole(job)
                rank = consent.rank(ballot, preemptor, unit) if unit is not None else None
                if unit is not None and rank is not None:
                    groups.append((Candidate(model, self._session.job, None, order_of(unit), -1), rank))

    def _ask(self, preemptor: Preemptor, kind: int, found: dict[int, int]) -> None:
        candidate = next(iter(self._kinds[kind].values()), None)
        if candidate is None or candidate.task is None:
            return
        rank = self._consent.rank(self._ballot, preemptor, single(candidate.job, candidate.task))
        if rank is not None:
            found[kind] = rank
        elif self._consent.guards:
            for unit in islice(self._some(kind), 1, None):  # the first may stand where it is of no use
                if not self._consent.protected(self._ballot, preemptor, unit):
                    break

    def _some(self, kind: int) -> Iterator[Unit]:
        """Some pods of a kind."""
        for candidate in islice(self._kinds[kind].values(), _SOME):
            if candidate.task is not None:
                yield single(candidate.job, candidate.task)

    def _note_young(self, preemptor: Preemptor, job: JobState, kinds: Iterable[int]) -> None:
        """Note that the group is within its minRuntimeSeconds, if pods of it, or all of them, would go but for that."""
        if not self._consent.protections.wants(Protector.RUNTIME, job.name):
            return
        units: Iterable[Unit] = ()
        if _goes_by_pods(job):
            units = chain.from_iterable(map(self._some, kinds))
        elif job.job.disruption == "Whole" and not preemptor.intra and not preemptor.ahead:
            group = whole(job)
            units = (group,) if group is not None else ()
        for unit in units:
            self._consent.note(self._ballot, preemptor, unit, ((Protector.RUNTIME, job.name),))

    def _part(self, name: str, jobs: Iterable[Job], record: QueueRecord | None = None) -> Generator[Turn, None, _Part]:
        """What these groups (all that hold something in the queue of the record, if there is one) could give."""
        found = self._parts.get(name)
        if found is None:
            found = self._parts[name] = _Part()
            kinds: dict[int, None] = {}
            known = (yield from self._lone(record)) if record is not None else None
            for model in jobs:
                if self._session.due():
                    yield TURN
                lone = known.of(model.key) if known is not None else None
                if lone is not None and model.key not in self._session.failed:
                    self._add_lone(found, model, lone, kinds)
                    continue
                if model.disruption == "Never" or model.holding == 0:
                    continue
                if model.gang and model.disruption != "Never" and not may_give(model):
                    continue  # whoever asks, in this cycle
                if not self._counts(model):
                    continue
                shared = _only_pod(model) and model.key not in self._session.failed
                job = self._session.job(model.key)
                own = kinds if shared else dict[int, None]()
                for _ in working_out(job):
                    if self._session.due(_PIECE_OF_TURNS):
                        yield TURN
                for task in holding(job):
                    if self._session.due():
                        yield TURN
                    if task.key not in self._gone and task.key not in job.evicted:
                        key = self._consent.vote_key(self._ballot, job, task, shared=shared)
                        self._add(found, model, task, own, order_of_pod(job, task), key)
                if not shared:
                    found.jobs.append((job, list(own)))
            found.kinds = list(kinds)
        return found

    def _lone(self, record: QueueRecord) -> Generator[Turn, None, ByGroup[LonePod | None] | None]:
        """What is known of the only pods of the queue's groups; None: it depends on more than that."""
        if not self._consent.keys_stand(self._ballot) or self._session.counts_lost_work:
            return None
        lone_pods = self._context.lone_pods
        for _ in lone_pods.following(record, self._ballot, self._lone_of):
            if self._session.due():
                yield TURN
        return lone_pods.of(record, self._ballot)

    def _lone_of(self, model: Job) -> LonePod | None:
        if model.disruption == "Never" or not _only_pod(model):
            return None
        job = self._session.job(model.key)
        tasks = holding(job)
        if len(tasks) != 1 or job.evicted:
            return None
        key = self._consent.vote_key(self._ballot, job, tasks[0], shared=True)
        return LonePod(tasks[0], order_of_pod(job, tasks[0]), key)

    def _add_lone(self, part: _Part, model: Job, lone: LonePod, kinds: dict[int, None]) -> None:
        task, among = lone.task, self._among
        if among is not None:
            row = self._session.nodes.row.get(task.node, -1)
            if row < 0 or not among[row]:
                return
        if task.key not in self._gone and not self._session.evicts(model.key, task):
            self._add(part, model, task, kinds, lone.order, lone.key)

    def _counts(self, job: Job) -> bool:
        """Whether any pod of a group stands where candidates are wanted."""
        row_of, among = self._session.nodes.row, self._among
        if among is None:
            return True
        return any(task.node in row_of and among[row_of[task.node]] for task in job.tasks.values() if task.holds)

    def _add(
        self, part: _Part, model: Job, task: Task, kinds: dict[int, None], order: tuple[Any, ...], key: Hashable
    ) -> None:
        kind = self._numbers.setdefault(key, len(self._numbers))
        if kind == len(self._kinds):
            self._kinds.append({})
        row = self._session.nodes.row.get(task.node, -1)
        candidate = Candidate(model, self._session.job, task, order, kind, row)
        self._kinds[kind][task.key] = candidate
        self._candidates[task.key] = candidate
        kinds[kind] = None
        if row >= 0:
            part.candidates.append(candidate)

    def _table_of(self, names: frozenset[str]) -> Generator[Turn, None, _Indexed]:
        """A table with the candidates of these parts, and perhaps of others."""
        for known, held in self._tables.items():
            if names <= known:
                self._tables[known] = self._tables.pop(known)  # again the latest
                return held
            if len(names) > 1 and len(known) > 1:
                names |= known  # who asks many queues asks others of them the next time
        there = self._candidates
        candidates: list[Candidate] = []
        for name in sorted(names):
            for each in self._parts[name].candidates:
                if each.task is not None and each.task.key in there:
                    candidates.append(each)
                    if len(candidates) % _AT_ONCE == 0:
                        yield TURN
        found = self._tables[names] = _Indexed((yield from tabulating(candidates)))
        yield TURN
        for known in list(self._tables)[:-_TABLES]:
            del self._tables[known]
        return found


def _goes_by_pods(job: JobState) -> bool:
    """Whether single pods of the group may go: it is no gang, or above its minimum."""
    return not job.job.gang or job.ready > job.minimum


def _only_pod(job: Job) -> bool:
    """Whether it has just one pod, which nothing but its going changes in this cycle: no gang, not bound to a time."""
    if job.gang or job.holding != 1 or job.waiting or job.to_come:
        return False
    spec = job.group.spec if job.group is not None else None
    return spec is None or (spec.lifetime_seconds is None and not spec.min_runtime_seconds)
