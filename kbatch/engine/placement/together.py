"""The search for the sets of nodes that a job and its roles are kept to.

Looked for is, in this order: the least of the roles' largest spread, the least sum of their spreads, the least spread
of the job. So combinations of spreads are gone through in that order (`_spreads`), and for each the sets of such
spreads, those of the job first, then role by role, the largest first (`_deeper`). A role's pods are placed on trial
before the next role's sets are counted. What seems to do is placed as any gang is; where that fails other sets are
tried, those chosen last first, up to a number of tries.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.filling import fill_unit
from kbatch.engine.placement.node_sets import Unit, count, enough, in_order
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.placement.set_room import Counted, sums
from kbatch.engine.plugin import NodeSets
from kbatch.engine.session.statement import Statement
from kbatch.model.nodes import Column, Mask, exact_sum
from kbatch.model.tasks import Task

TRIES: Final = 256
"""Combinations of sets that are tried at most for one gang, where there are searches left; else `_FEW`."""
_FEW: Final = 8
_SEARCHES: Final = 8
"""In so many of them other arrangements are looked for."""
_MOST_SPREADS: Final = 4_096

Choice: TypeAlias = "dict[str | None, Mask]"
"""The rows of the whole job (None), and of single roles within them."""
Try: TypeAlias = Callable[[Choice], Generator[Turn, None, bool]]
"""Places all that the minimum lacks within a choice; whether it could. What it placed stays in the statement."""


def keeping_to(choice: Choice) -> Callable[[Task], Mask | None]:
    """What a statement is told (`Statement.within`) to keep to the choice."""
    return lambda task: choice.get(task.role, choice.get(None))


class Together:
    """The search for one job; what it found stays in the statement."""

    def __init__(
        self,
        rankings: NodeRankings,
        statement: Statement,
        units: Sequence[Unit],
        when: When,
        place: Try,
        *,
        tries: int | None = None,
    ) -> None:
        self._rankings = rankings
        self._statement = statement
        self._units = units
        self._when = when
        self._place = place
        self._base = len(statement)
        self._sets = [_by_spread(unit) for unit in units]
        self._able: dict[tuple[int, int], bool] = {}
        self._left = (TRIES if rankings.searches > 0 else _FEW) if tries is None else tries

    def run(self) -> Generator[Turn, None, bool]:
        """Search; whether the minimum is complete. Else the statement is left as it was."""
        rankings = self._rankings
        kept = rankings.searches
        rankings.searches = min(kept, _SEARCHES)
        before = self._left
        try:
            for spreads in self._spreads():
                if (yield from self._deeper(spreads, 0, {})):
                    return True
                if self._left <= 0:
                    break
            if before - self._left > _FEW:
                kept -= 1
        finally:
            rankings.searches = kept
        if self._left <= 0:
            self._statement.searched = False
        return False

    @property
    def hopeful(self) -> bool:
        """Whether each unit has a set in which, by sums, there seems to be room for it."""
        return all(self._next_able(at, 0) is not None for at in range(len(self._units)))

    def masks(self) -> Iterator[Choice]:
        """The choices that would be tried, none of them placed, while nothing is."""
        for spreads in self._spreads():
            yield from self._plain(spreads, 0, {})

    # --- spreads ------------------------------------------------------------------------------------------------------

    def _spreads(self) -> Iterator[tuple[int, ...]]:
        """For each unit the place of a spread among its own, the best combinations first; those by themselves in vain
        are left out.
        """
        first = tuple(self._next_able(at, 0) for at in range(len(self._units)))
        if any(place is None for place in first):
            return
        begin = tuple(place for place in first if place is not None)
        heap = [(self._rank(begin), begin)]
        seen = {begin}
        while heap and len(seen) < _MOST_SPREADS:
            _, spreads = heapq.heappop(heap)
            yield spreads
            for at, place in enumerate(spreads):
                more = self._next_able(at, place + 1)
                if more is not None:
                    other = (*spreads[:at], more, *spreads[at + 1 :])
                    if other not in seen:
                        seen.add(other)
                        heapq.heappush(heap, (self._rank(other), other))

    def _rank(self, spreads: tuple[int, ...]) -> tuple[int, int, int]:
        of_roles, of_job = [], 0
        for at, place in enumerate(spreads):
            spread = self._sets[at][place][0].spread if self._sets[at] else 0
            if self._units[at].role is None:
                of_job = spread
            else:
                of_roles.append(spread)
        return max(of_roles, default=0), sum(of_roles), of_job

    def _next_able(self, at: int, place: int) -> int | None:
        """The first spread of a unit, from this place on, of which some set has room enough; None: there is none."""
        sets = self._sets[at]
        if not self._units[at].least and place == 0 and not any(self._has_room(at, each) for each in range(len(sets))):
            self._sets[at] = []  # its pods are not needed, and nowhere to be placed
            return 0
        return next((each for each in range(place, len(sets)) if self._has_room(at, each)), None)

    def _has_room(self, at: int, place: int) -> bool:
        found = self._able.get((at, place))
        if found is None:
            unit = self._units[at]
            found = self._able[at, place] = any(len(enough(each, unit, unit.counted)) for each in self._sets[at][place])
        return found

    # --- sets ---------------------------------------------------------------------------------------------------------

    def _deeper(self, spreads: Sequence[int], at: int, choice: Choice) -> Generator[Turn, None, bool]:
        """Choose for the unit `at` and all after it; whether all is placed then."""
        if at == len(self._units):
            return (yield from self._all(choice))
        unit = self._units[at]
        for mask in self._candidates(spreads, at, choice):
            if self._left <= 0:
                return False
            further = {**choice, unit.role: mask}
            if not self._may_hold(further):
                continue
            mark = len(self._statement)
            if unit.role is not None and at + 1 < len(self._units):
                self._statement.within = keeping_to(further)
                yield from fill_unit(self._rankings, self._statement, unit, self._when)
                self._statement.within = None
            if (yield from self._deeper(spreads, at + 1, further)):
                return True
            self._statement.rollback(mark)
        return False

    def _all(self, choice: Choice) -> Generator[Turn, None, bool]:
        """Place all within the choice: beside what is placed on trial, else all anew."""
        statement = self._statement
        for mark in dict.fromkeys((len(statement), self._base)):
            self._left -= 1
            statement.rollback(mark)
            statement.within = keeping_to(choice)
            done = yield from self._place(choice)
            statement.within = None
            if done:
                return True
            statement.rollback(mark)
            yield TURN
        return False

    def _candidates(self, spreads: Sequence[int], at: int, choice: Choice) -> Iterator[Mask]:
        """The sets of a unit, those first in which there is room beside what is placed on trial."""
        unit = self._units[at]
        if not self._sets[at]:
            yield np.zeros(len(self._rankings.every), np.bool_)
            return
        whole = choice.get(None)
        sets = self._sets[at][spreads[at]]
        seen: set[tuple[int, int]] = set()
        for live in (True, False) if len(self._statement) > self._base else (False,):
            counted = self._now(at, whole) if live else self._before(at, whole)
            for each, number in in_order(self._rankings, sets, unit, counted, self._when):
                if (id(each), number) not in seen:
                    seen.add((id(each), number))
                    yield _mask(each, number, whole)
        if not (unit.least or seen):
            yield np.zeros(len(self._rankings.every), np.bool_)  # its pods are not needed: none of them stands here

    def _now(self, at: int, whole: Mask | None) -> Counted:
        """The room for a unit's pods, within the rows of the job, beside what is placed on trial."""
        counted = count(self._statement.session, self._rankings, self._units[at], self._when)
        return counted if whole is None else counted.on(whole)

    def _before(self, at: int, whole: Mask | None) -> Counted:
        """The same without that."""
        counted = self._units[at].counted
        return counted if whole is None else counted.on(whole)

    def _plain(self, spreads: Sequence[int], at: int, choice: Choice) -> Iterator[Choice]:
        if at == len(self._units):
            yield choice
            return
        for mask in self._candidates(spreads, at, choice):
            further = {**choice, self._units[at].role: mask}
            yield from self._plain(spreads, at + 1, further)

    def _may_hold(self, choice: Choice) -> bool:
        """Whether by sums there is room for all roles chosen so far; true where in doubt."""
        roles = [(unit, choice[unit.role]) for unit in self._units if unit.role is not None and unit.role in choice]
        if len(roles) < 2:
            return True
        room = self._statement.session.room
        columns = room.idle if self._when is When.NOW else room.future
        mark = len(self._statement)
        steps = self._statement.recorded()[self._base :] if mark > self._base else []
        _, last = roles[-1]
        for _, mask in roles:
            if not (mask & last).any():
                continue
            inside = [unit for unit, other in roles if not (other & ~mask).any()]
            if len(inside) < 2:
                continue
            for name in sorted({name for unit in inside for kind in unit.kinds for name, _ in kind.cls.needs}):
                asked = sum(
                    unit.least * min(dict(kind.cls.needs).get(name, 0) for kind in unit.kinds) for unit in inside
                )
                there = exact_sum(np.maximum(columns[name][mask], 0))
                there += sum(dict(step[1].cls.needs).get(name, 0) for step in steps if mask[step[2]])
                if asked > there:
                    return False
        return True


def _by_spread(unit: Unit) -> list[list[NodeSets]]:
    found: dict[int, list[NodeSets]] = {}
    for each in unit.sets:
        found.setdefault(each.spread, []).append(each)
    return list(found.values())


def _mask(sets: NodeSets, number: int, whole: Mask | None) -> Mask:
    rows: Mask = sets.of == number
    return rows if whole is None else rows & whole


def fullest(unit: Unit, fitting: Column, among: Mask | None = None) -> tuple[Mask, int] | None:
    """Of a unit's widest sets that in which the most of its pods seem to have room (on the rows `among`), with one of
    its rows; None: it has no sets.
    """
    sets = [each for each in unit.sets if each.spread == max(other.spread for other in unit.sets) and len(each.of)]
    best: tuple[int, Mask] | None = None
    for each in sets:
        amounts = sums(each.of, fitting if among is None else np.where(among, fitting, np.int64(0)))
        if len(amounts):
            number = int(amounts.argmax())
            if best is None or int(amounts[number]) > best[0]:
                best = int(amounts[number]), each.of == number
    return (best[1], int(np.flatnonzero(best[1])[0])) if best is not None else None
