"""A part of a division in columns of int64, where there are few sets of classes: their unions tell what can flow.

`division.py` says how a part is divided, `unions.py` how the unions tell. All is exact: whole units and what is over
are held apart, and products with weights are Python's integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from kbatch.model.division_flow import Flow, FlowPart
from kbatch.model.unions import RANGE, Column, Unions, unions_of

MOST_SETS: Final = 16


def columns_of(part: FlowPart) -> ColumnPart | None:
    """A part in columns; None where it has too many sets, or the numbers are too large."""
    demands, wants, free, taken = part.demands, part.wants, part.free, part.taken
    sets = {*taken}.union(*demands.values())
    if len(sets) > MOST_SETS:
        return None
    total = sum(part.room.values()) + sum(taken.values()) + sum([sum(each.values()) for each in demands.values()])
    weights = [part.weights[at] for at in wants]
    # No denominator is larger than all weights together; a part of a unit of each member must fit in together.
    if total + sum(free.values()) >= RANGE or sum(weights) * len(weights) >= RANGE:
        return None
    ordered = sorted(sets)
    place = {reach: at for at, reach in enumerate(ordered)}
    asks = np.zeros((len(wants), len(sets)), np.int64)
    rows = [row for row, at in enumerate(wants) for _ in demands[at]]
    columns = [place[reach] for at in wants for reach in demands[at]]
    asks[rows, columns] = [amount for at in wants for amount in demands[at].values()]
    kinds = sorted(set(weights))
    kind = {weight: at for at, weight in enumerate(kinds)}
    members = _Members(
        np.array(list(wants), np.int64),
        np.array([kind[weight] for weight in weights], np.int64),
        np.array(list(wants.values()), np.int64),
        np.array([free.get(at, 0) for at in wants], np.int64),
        asks,
    )
    held = np.array([taken.get(reach, 0) for reach in ordered], np.int64)
    return ColumnPart(np.array(kinds, np.int64), members, ordered, part.room, held, part.amount)


@dataclass(frozen=True, slots=True)
class _Members:
    """Some queues.

    Attributes:
        at: their places in the claims, ascending.
        kind: of their weights: a place in the list of all that there are.
        wants: the most that each can get.
        free: what each gets besides, from classes that are not full.
        asks: by member and set.
    """

    at: Column
    kind: Column
    wants: Column
    free: Column
    asks: Column

    def those(self, which: npt.NDArray[np.bool_], free: Column, asks: Column) -> _Members:
        """Some of the members, who get and ask for this; nobody can get more than that together."""
        wants = np.minimum(self.wants[which], free + asks.sum(axis=1))
        return _Members(self.at[which], self.kind[which], wants, free, asks)


class ColumnPart:
    """Queues that are raised together, and the classes that are theirs to fill; see `division.Part`.

    Args:
        weights: all that there are; a member has one by its kind.
        members: the queues; each of them asks for some of the sets.
        sets: as bits of classes; ascending.
        room: by class.
        taken: by set, what those who are fixed take of its classes.
        amount: what the members get together, what they get from elsewhere included.
    """

    def __init__(
        self,
        weights: Column,
        members: _Members,
        sets: Sequence[int],
        room: Mapping[int, int],
        taken: Column,
        amount: int,
    ) -> None:
        used = members.asks.any(axis=0)
        self.amount = amount
        self.plain = bool(np.count_nonzero(used) == 1 and not members.free.any())
        self._weights, self._members, self._sets, self._room, self._taken = weights, members, sets, room, taken
        self._heaviest = int(weights.max())
        self._unions: Unions | None = None
        self._flows: FlowPart | None = None

    def wanted(self) -> dict[int, int]:
        """By member, the most that it can get."""
        return dict(zip(self._members.at.tolist(), self._members.wants.tolist(), strict=True))

    def most(self) -> int:
        """The most that the members can get together."""
        wants = self._members.wants
        lack = self._lack(wants, np.zeros_like(wants), 1)
        return self._as_flows().most() if lack is None else int(wants.sum()) - lack[0]

    def level(self) -> Fraction:
        """The amount for each unit of weight at which the members, none above what it wants, get all together."""
        rest, wants, kind = self.amount, self._members.wants, self._members.kind
        while True:
            weight = int(self._weights[kind].sum())
            unmet = wants > self._multiples(rest, weight)[0][kind]  # no more than whole units: no more than a fraction
            if unmet.all():
                return Fraction(rest, weight)
            rest -= int(wants[~unmet].sum())
            wants, kind = wants[unmet], kind[unmet]

    def raised(self, level: Fraction) -> dict[int, tuple[int, int]]:
        """What members are raised to: whole units, and what is over, in parts by the denominator of the level."""
        whole, over = self._raised(level)
        amounts = zip(whole.tolist(), over.tolist(), strict=True)
        return dict(zip(self._members.at.tolist(), amounts, strict=True))

    def split(self, level: Fraction) -> tuple[ColumnPart | FlowPart, ColumnPart | FlowPart] | None:
        """The two parts of a minimum cut, the one with the full classes first; None where all can be raised so far."""
        whole, over = self._raised(level)
        lack = self._lack(whole, over, level.denominator)
        if lack is None:
            return self._as_flows().split(level)
        short, classes = lack
        return self._split(whole, over, classes) if short else None

    def serves(self, amounts: Mapping[int, int]) -> bool:
        """Whether amounts for all members, together `amount`, can flow."""
        whole = np.array([amounts[at] for at in self._members.at.tolist()], np.int64)
        lack = self._lack(whole, np.zeros_like(whole), 1)
        return self._as_flows().serves(amounts) if lack is None else not lack[0]

    def flow(self, amounts: Mapping[int, int]) -> Flow:
        """Amounts for all members, that flow."""
        return self._as_flows().flow(amounts)

    def _raised(self, level: Fraction) -> tuple[Column, Column]:
        wants, kind = self._members.wants, self._members.kind
        whole, over = self._multiples(level.numerator, level.denominator)
        whole, over = whole[kind], over[kind]
        over[wants <= whole] = 0
        return np.minimum(wants, whole), over

    def _multiples(self, top: int, bottom: int) -> tuple[Column, Column]:
        """By kind of weight, its multiple by a fraction: whole units, at most `RANGE` of them, and what is over."""
        if top * self._heaviest < RANGE:
            whole, over = np.divmod(self._weights * top, bottom)
            return whole, over
        amounts = [divmod(weight * top, bottom) for weight in self._weights.tolist()]
        whole = np.array([min(each, RANGE) for each, _ in amounts], np.int64)
        return whole, np.array([each for _, each in amounts], np.int64)

    def _lack(self, whole: Column, over: Column, scale: int) -> tuple[int, int] | None:
        if self._unions is None:
            members = self._members
            self._unions = unions_of(self._sets, self._room, self._taken, members.asks, members.free)
        return self._unions.worst(whole, over, scale)

    def _split(self, whole: Column, over: Column, classes: int) -> tuple[ColumnPart, ColumnPart]:
        """Along a minimum cut: the members that ask for more than they can get outside of some classes; and the rest.

        Args:
            whole: what the members are raised to, in whole units.
            over: and parts of a unit.
            classes: those on the source's side of the cut, as bits; the first of the parts fills them.
        """
        members, taken = self._members, self._taken
        left = [reach & ~classes for reach in self._sets]
        outside = np.array([each != 0 for each in left])
        least = members.free + members.asks[:, outside].sum(axis=1)
        above = (whole > least) | (whole == least) & (over > 0)
        fixed = members.asks[above]
        sets, asks, held = _by_set(self._sets, ~outside, fixed, taken)
        within = members.those(above, least[above], asks)
        room = {at: amount for at, amount in self._room.items() if classes >> at & 1}
        amount = sum(room.values()) - int(held.sum()) + int(within.free.sum())
        first = ColumnPart(self._weights, within, sets, room, held, amount)
        sets, asks, held = _by_set(left, outside, members.asks[~above], taken + fixed.sum(axis=0))
        rest = members.those(~above, members.free[~above], asks)
        room = {at: amount for at, amount in self._room.items() if not classes >> at & 1}
        return first, ColumnPart(self._weights, rest, sets, room, held, self.amount - amount)

    def _as_flows(self) -> FlowPart:
        """The same part for flows."""
        if self._flows is not None:
            self._flows.amount = self.amount
            return self._flows
        members = self._members
        places = members.at.tolist()
        demands: dict[int, dict[int, int]] = {at: {} for at in places}
        rows, columns = np.nonzero(members.asks)
        amounts = members.asks[rows, columns].tolist()
        for row, column, asked in zip(rows.tolist(), columns.tolist(), amounts, strict=True):
            demands[places[row]][self._sets[column]] = asked
        weights = dict(zip(places, self._weights[members.kind].tolist(), strict=True))
        free = {at: each for at, each in zip(places, members.free.tolist(), strict=True) if each}
        taken = {reach: each for reach, each in zip(self._sets, self._taken.tolist(), strict=True) if each}
        self._flows = FlowPart(self.wanted(), weights, demands, dict(self._room), free, taken, self.amount)
        return self._flows


def _by_set(
    sets: Sequence[int], which: npt.NDArray[np.bool_], asks: Column, taken: Column
) -> tuple[list[int], Column, Column]:
    """Which of some sets are asked for or taken, ascending, and how much; what is asked of equal ones is added up."""
    columns = np.vstack((asks, taken))
    used = np.flatnonzero(columns.any(axis=0) & which).tolist()
    used.sort(key=sets.__getitem__)
    starts = [at for at, each in enumerate(used) if not at or sets[each] != sets[used[at - 1]]]
    columns = np.add.reduceat(columns[:, used], starts, axis=1) if len(starts) < len(used) else columns[:, used]
    return [sets[used[at]] for at in starts], columns[:-1], columns[-1]
