"""Victims for pods that heed others, where the search pod by pod finds none: away with many, then back with most.

Where pods spread, keep apart or stay together, a unit may stand in the way of a pod on another node, the first pod
decides where the rest can go, and a unit may even be company that is needed. So several are taken away at once: those
that must go by counting (`counting`), then ever more, in the end all, or all but some that share a node or labels; and
the gang is placed as any other. Where that succeeds all are let stay that can, the dearest first. Consent is asked for
what is left, as a set; who is refused stays, and it begins anew.

The work is bounded, for each search and for all of an action together.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from typing import Final

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.plugin import Preemptor, Unit
from kbatch.engine.preemption.candidate_index import CandidateIndex
from kbatch.engine.preemption.candidates import Candidate
from kbatch.engine.preemption.counting import Counting
from kbatch.engine.preemption.goal import Attempt, Budget
from kbatch.engine.preemption.polling import Poll
from kbatch.model.tasks import Task

_EACH: Final = 3_000
"""Pods evicted or placed in trials for one search: a tenth of a second."""
_ONE_BY_ONE: Final = 40
"""Up to so many candidates, sets without one of them, or without two, are tried as well."""
_GROWTH: Final = 2
"""Of the first units so many times as many are tried each time."""
_REFUSALS: Final = 16
_THOROUGH: Final = 100
"""What it costs besides to place a gang with all effort."""


def clearing(
    attempt: Attempt, poll: Poll, index: CandidateIndex, budget: Budget
) -> Generator[Turn, None, list[Unit] | None]:
    """Units without which the goal can be reached and that may all go; None: none were found. Leaves no trace."""
    search = _Clearing(attempt, poll, budget)
    candidates = search.candidates(index)
    refused = 0
    while refused <= _REFUSALS and candidates:
        found = yield from search.first(candidates)
        if found is None:
            return None
        no = poll.assents(attempt.statement, found)
        if no is None:
            return found
        refused += 1
        left = _without(no, candidates, found, poll.preemptor)
        search.less(len(candidates) - len(left))
        candidates = left
    return None


def _without(
    refused: Unit, candidates: Sequence[Candidate], found: Sequence[Unit], preemptor: Preemptor
) -> list[Candidate]:
    """All but the one that may not go. Where they are many, none of its queue either (in the preemptor's own queue none
    of its group) but those that were found besides: what more would go of it would be refused, too.
    """
    if len(candidates) <= _ONE_BY_ONE:
        return [candidate for candidate in candidates if not _is(candidate, refused)]
    others = [unit for unit in found if unit is not refused]
    stay = {unit.job.key for unit in others if unit.whole}, {unit.tasks[0].key for unit in others if not unit.whole}
    inside = refused.job.queue == preemptor.job.queue

    def may_go(candidate: Candidate) -> bool:
        model, task = candidate.model, candidate.task
        if model.key in stay[0] if task is None else task.key in stay[1]:
            return True
        return model.key != refused.job.key if inside else model.queue != refused.job.queue

    return [candidate for candidate in candidates if may_go(candidate)]


def _is(candidate: Candidate, unit: Unit) -> bool:
    """Whether the unit is that of the candidate."""
    if candidate.model.key != unit.job.key or (candidate.task is None) is not unit.whole:
        return False
    return candidate.task is None or candidate.task.key == unit.tasks[0].key


def _units(candidates: Iterable[Candidate]) -> list[Unit]:
    """The units of these candidates, as far as anything of them is left."""
    return [unit for candidate in candidates if (unit := candidate.unit()) is not None]


class _Clearing:
    """One such search."""

    def __init__(self, attempt: Attempt, poll: Poll, budget: Budget) -> None:
        self._attempt = attempt
        self._poll = poll
        self._budget = budget
        self._left = min(_EACH, budget.left)
        self._failed = 0
        """So many of the first units are not enough."""
        self._rows: frozenset[int] = frozenset()
        """Where the goal's pods were placed in the last trial that worked."""

    def candidates(self, index: CandidateIndex) -> list[Candidate]:
        """Those that would go, were each the only one; those that go first at the front. Of pods of one kind one is
        asked about.
        """
        preemptor = self._poll.preemptor
        own = preemptor.job.key if not preemptor.intra else ""
        goes: dict[int, bool] = {}
        found: list[Candidate] = []
        for candidate in index.ordered():
            if candidate.model.key == own:
                continue
            may = goes.get(candidate.kind) if candidate.task is not None else None
            if may is None:
                unit = candidate.unit()
                if unit is None:
                    continue
                may = goes[candidate.kind] = self._poll.ask(unit, (), below=True) is not None
            if may:
                found.append(candidate)
                if len(found) * 2 > self._left:
                    break
        return found

    def less(self, count: int) -> None:
        """So many candidates are asked no more: so many fewer of the first are not enough."""
        self._failed = max(0, self._failed - count)

    def first(self, candidates: Sequence[Candidate]) -> Generator[Turn, None, list[Unit] | None]:
        """Of the first set that works, those that must go."""
        self._attempt.thorough = False
        counting = Counting(self._attempt, candidates)
        size = counting.least(self._failed)
        if size is None:
            return None  # nor do some of them, whoever is company to whom
        few = _units(counting.needed(size))
        if few and (yield from self._works(few)):
            return few
        while size < len(candidates):
            useful = _units(counting.useful(size))
            if (yield from self._works(useful)):
                return (yield from self._needed(useful))
            self._failed = size
            size *= _GROWTH
        useful = _units(counting.useful(len(candidates)))
        if (yield from self._works(useful, at_all=True)):
            return (yield from self._needed(useful))
        units = _units(candidates)
        if not self._company(units):
            return None  # what all of them would not make room for, some of them do not
        for at_all in (False, True):
            for some in _leaving_some(units, pairs=not at_all):
                if self._left <= 0:
                    return None
                if (yield from self._works(some, at_all=at_all)):
                    return (yield from self._needed(some))
        return None

    def _company(self, units: Sequence[Unit]) -> bool:
        """Whether some pod that is to be placed may need one of the units where it stands."""
        wanting = {task.cls.id: task.cls for task in self._attempt.goal.asked if _wants_company(task)}.values()
        if not wanting:
            return False
        heeds = self._attempt.context.rankings.heeds
        theirs = {task.cls.id: task.cls for unit in units for task in unit.tasks}.values()
        return any(heeds(cls, other) for other in theirs for cls in wanting)

    def _needed(self, units: Sequence[Unit]) -> Generator[Turn, None, list[Unit] | None]:
        """Let stay whoever can, after a trial in which all of these were away and that worked: those at whose places
        nobody was placed, then the dearest first, many at once, then ever fewer.
        """
        row = self._attempt.statement.session.nodes.row
        near = [unit for unit in units if any(row.get(task.node, -1) in self._rows for task in unit.tasks)]
        if len(near) < len(units) and (yield from self._works(near)):
            units = near
        kept = list(reversed(units))
        size = max(1, len(kept) // 2)
        while True:
            at, before = 0, len(kept)
            while at < len(kept):
                if self._left <= 0:
                    return None
                trial = kept[:at] + kept[at + size :]
                if (yield from self._works(trial, at_all=False)):
                    kept = trial
                else:
                    at += size
            if size == 1 and len(kept) == before:
                return list(reversed(kept))
            size = (size + 1) // 2

    def _works(self, units: Sequence[Unit], *, at_all: bool = False) -> Generator[Turn, None, bool]:
        attempt = self._attempt
        work = 5 + attempt.statement.job.missing() + sum(len(unit.tasks) for unit in units)
        if at_all or attempt.thorough:
            work += _THOROUGH
        self._left -= work
        self._budget.left -= work
        units = _without_parts(units)
        works = yield from (attempt.works_at_all(units) if at_all else attempt.works(units))
        if works:
            self._rows = frozenset([row for _, row in attempt.statement.job.nominated.values()])
        attempt.statement.rollback()
        yield TURN
        return works


def _without_parts(units: Sequence[Unit]) -> list[Unit]:
    """Of a group that goes as a whole, no part besides."""
    whole = {unit.job.key for unit in units if unit.whole}
    return [unit for unit in units if unit.whole or unit.job.key not in whole]


def _wants_company(task: Task) -> bool:
    """Whether others have to stand where the pod can go: then to evict more may make less of it."""
    affinity = task.cls.spec.affinity
    return bool(task.cls.spec.topology_spread_constraints or (affinity is not None and affinity.pod_affinity))


def _leaving_some(units: Sequence[Unit], *, pairs: bool) -> Iterator[Sequence[Unit]]:
    """All but those on a node, all but those alike in labels; where they are few, all but one, and all but two."""
    groups: dict[Hashable, set[int]] = {}
    for at, unit in enumerate(units):
        for task in unit.tasks:
            groups.setdefault(("node", task.node), set()).add(at)
            groups.setdefault(("labels", *sorted(task.cls.labels.items())), set()).add(at)
    if len(units) <= _ONE_BY_ONE:
        groups.update({at: {at} for at in range(len(units))})
        if pairs:
            groups.update({(one, other): {one, other} for one in range(len(units)) for other in range(one)})
    for kept in dict.fromkeys(frozenset(group) for group in groups.values()):
        if len(kept) < len(units):
            yield [unit for at, unit in enumerate(units) if at not in kept]
