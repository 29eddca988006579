"""Victims for pods that heed others, where the search pod by pod finds none: away with many, then back with most.

Where pods spread, keep apart or stay together, a unit may stand in the way of a pod on another node, the first pod
decides where the rest can go, and a unit may even be company that is needed. So sets of candidates are taken away at
once, growing from those that go first, then all of them but for some that share a node or labels, and the gang is
placed as any other. Of the first set with which that succeeds all are let stay that can. Consent is asked for what is
left, as a set; who is refused stays, and it begins anew.

The work is bounded, for each search and for all of an action together.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.plugin import Unit
from kbatch.engine.preemption.candidates import CandidateIndex
from kbatch.engine.preemption.goal import Attempt
from kbatch.engine.preemption.polling import Poll

_EACH: Final = 3_000
_ALL: Final = 60_000
"""Pods evicted or placed in trials, for one search and for all of one action: a tenth of a second, and two."""
_ONE_BY_ONE: Final = 40
"""Up to so many candidates, sets without one of them, or without two, are tried as well."""
_REFUSALS: Final = 16


@dataclass(slots=True)
class Budget:
    """The work that is left to an action for such searches."""

    left: int = _ALL


def clearing(
    attempt: Attempt, poll: Poll, index: CandidateIndex, budget: Budget
) -> Generator[Turn, None, list[Unit] | None]:
    """Units without which the goal can be reached and that may all go; None: none were found. Leaves no trace."""
    search = _Clearing(attempt, poll, budget)
    units = search.candidates(index)
    refused: list[Unit] = []
    while len(refused) <= _REFUSALS and units:
        found = yield from search.first(units)
        if found is None:
            return None
        no = poll.assents(attempt.statement, found)
        if no is None:
            return found
        refused.append(no)
        units = [unit for unit in units if unit is not no]
    return None


class _Clearing:
    """One such search."""

    def __init__(self, attempt: Attempt, poll: Poll, budget: Budget) -> None:
        self._attempt = attempt
        self._poll = poll
        self._budget = budget
        self._left = min(_EACH, budget.left)

    def candidates(self, index: CandidateIndex) -> list[Unit]:
        """The units that would go, were each the only one; those that go first at the front."""
        preemptor = self._poll.preemptor
        found: list[Unit] = []
        for candidate in index.ordered():
            unit = candidate.unit()
            if unit is None or (candidate.job is preemptor.job and not preemptor.intra):
                continue
            if self._poll.ask(unit, (), below=True) is not None:
                found.append(unit)
                if len(found) * 2 > self._left:
                    break
        return found

    def first(self, units: Sequence[Unit]) -> Generator[Turn, None, list[Unit] | None]:
        """Of the first set that works, those that must go."""
        for some in _sets(units):
            if self._left <= 0:
                break
            if (yield from self._works(some, hard=True)):
                return (yield from self._needed(some))
        return None

    def _needed(self, units: Sequence[Unit]) -> Generator[Turn, None, list[Unit] | None]:
        """Let stay whoever can, the dearest first: many at once, then ever fewer."""
        kept = list(reversed(units))
        size = max(1, len(kept) // 2)
        while True:
            at, before = 0, len(kept)
            while at < len(kept):
                if self._left <= 0:
                    return None
                trial = kept[:at] + kept[at + size :]
                if (yield from self._works(trial, hard=False)):
                    kept = trial
                else:
                    at += size
            if size == 1 and len(kept) == before:
                return list(reversed(kept))
            size = (size + 1) // 2

    def _works(self, units: Sequence[Unit], *, hard: bool) -> Generator[Turn, None, bool]:
        attempt = self._attempt
        work = 5 + attempt.statement.job.missing() + sum(len(unit.tasks) for unit in units)
        self._left -= work
        self._budget.left -= work
        units = _without_parts(units)
        works = (yield from attempt.working(units)) if hard else attempt.works(units)
        attempt.statement.rollback()
        yield TURN
        return works


def _without_parts(units: Sequence[Unit]) -> list[Unit]:
    """Of a group that goes as a whole, no part besides."""
    whole = {unit.job.key for unit in units if unit.whole}
    return [unit for unit in units if unit.whole or unit.job.key not in whole]


def _sets(units: Sequence[Unit]) -> Iterator[Sequence[Unit]]:
    """The first of them, twice as many each time; all; all but those alike in labels, node; but one, but two."""
    size = 2
    while size < len(units):
        yield units[:size]
        size *= 2
    yield units
    groups: dict[Hashable, set[int]] = {}
    for at, unit in enumerate(units):
        for task in unit.tasks:
            groups.setdefault(("labels", *sorted(task.cls.labels.items())), set()).add(at)
            groups.setdefault(("node", task.node), set()).add(at)
    if len(units) <= _ONE_BY_ONE:
        for at in range(len(units)):
            groups.setdefault(at, {at})
        for at in range(len(units)):
            for other in range(at):
                groups.setdefault((other, at), {other, at})
    tried: set[frozenset[int]] = set()
    for group in groups.values():
        kept = frozenset(group)
        if len(kept) < len(units) and kept not in tried:
            tried.add(kept)
            yield [unit for at, unit in enumerate(units) if at not in kept]
