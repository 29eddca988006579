"""What cannot flow from some demands to the classes of nodes that may serve them, where there are few sets of classes.

By the theorem of max-flow and min-cut that is the most, over all unions of sets, of what must flow into the union less
its room (P. Hall, "On representatives of subsets", Journal of the London Mathematical Society 10, 1935). A demand must
flow into a union as far as it gets more than its other sets, outside of the union, ask for.

Where there are few unions, each demand is looked at for each of them. Else what must flow into the union of some sets
is put down for that collection of sets, less what must flow into fewer of them, and added up for all collections in as
many steps as there are sets (the zeta transform: F. Yates, "The design and analysis of factorial experiments", 1937).

All is done in columns of int64, only where no result can leave their range. What is between may: sums and differences
that come back into the range are right again, for they are modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from kbatch.model.flow import bits

FEW_UNIONS: Final = 96
"""Up to how many of them are looked at one by one."""
MOST_SETS: Final = 16
MOST_OF_ONE: Final = 4
"""Of how many sets a demand may be where there are many unions: it stands for each subset of them."""
_RANGE: Final = 1 << 62

Column = npt.NDArray[np.int64]


class Unions(Protocol):
    """The unions of the sets of some demands.

    Attributes:
        few: whether there are so few that looking at all of them takes no time to speak of.
    """

    few: bool

    def worst(self, amounts: Sequence[int], scale: int) -> tuple[int, int] | None:
        """How much of some amounts cannot flow, and the classes (as bits) on the source's side of a minimum cut.

        Those are the smallest union into which that much more must flow than there is room; none if all can flow.

        Args:
            amounts: what each demand gets, no more than `scale` times what it asks for.
            scale: everything else counts so many times.

        Returns:
            None where the numbers are too large.
        """


def unions_of(
    room: Mapping[int, int], taken: Mapping[int, int], demands: Sequence[Mapping[int, int]], free: Sequence[int]
) -> Unions | None:
    """The unions of the sets of demands; None where there are too many, or the numbers are too large.

    Args:
        room: of each class, by its number.
        taken: what flows besides, by the set (as bits of classes) that may serve it.
        demands: what each asks for, by set.
        free: what each gets besides, from elsewhere.
    """
    sets = sorted({*taken, *(reach for demand in demands for reach in demand)})
    total = sum(room.values()) + sum(taken.values()) + sum([sum(demand.values()) for demand in demands]) + sum(free)
    if len(sets) > MOST_SETS or total >= _RANGE:
        return None
    found = {0}
    for reach in sets:
        found |= {union | reach for union in found}
        if len(found) > FEW_UNIONS:
            if len(demands) << 9 < 1 << len(sets) or max(map(len, demands)) > MOST_OF_ONE:
                return None
            return _Many(sets, room, taken, demands, free, total)
    return _Few(sets, sorted(found, key=lambda union: (union.bit_count(), union)), room, taken, demands, free, total)


class _Few:
    """Each demand is looked at for each union."""

    few = True

    def __init__(
        self,
        sets: Sequence[int],
        unions: Sequence[int],
        room: Mapping[int, int],
        taken: Mapping[int, int],
        demands: Sequence[Mapping[int, int]],
        free: Sequence[int],
        total: int,
    ) -> None:
        self._total = total
        self._unions = unions
        place = {reach: at for at, reach in enumerate(sets)}
        asks = np.zeros((len(demands), len(sets)), np.int64)
        rows = [at for at, demand in enumerate(demands) for _ in demand]
        asks[rows, [place[reach] for demand in demands for reach in demand]] = [
            amount for demand in demands for amount in demand.values()
        ]
        inside = np.array([[not reach & ~union for union in unions] for reach in sets], np.int64)
        self._asks = asks @ inside
        self._most = asks.sum(axis=1) + np.array(free, np.int64)
        rooms = np.array([sum([room[at] for at in bits(union)]) for union in unions], np.int64)
        self._room = rooms - np.array([taken.get(reach, 0) for reach in sets], np.int64) @ inside

    def worst(self, amounts: Sequence[int], scale: int) -> tuple[int, int] | None:
        if self._total * scale >= _RANGE:
            return None
        must = self._asks * scale
        must += (np.array(amounts, np.int64) - self._most * scale)[:, None]
        beyond = np.maximum(must, 0, out=must).sum(axis=0)
        beyond -= self._room * scale
        at = int(beyond.argmax())  # the first: no smaller union is as bad
        return int(beyond[at]), self._unions[at]


class _Many:
    """What must flow in is added up for all collections of sets at once.

    Collections are numbered by the bits of their sets; in columns, the lower half of these bits is moved to the top.
    """

    few = False

    def __init__(
        self,
        sets: Sequence[int],
        room: Mapping[int, int],
        taken: Mapping[int, int],
        demands: Sequence[Mapping[int, int]],
        free: Sequence[int],
        total: int,
    ) -> None:
        self._total = total
        self._low = len(sets) // 2
        self._high = len(sets) - self._low
        self._bit = bit = {reach: 1 << at for at, reach in enumerate(sets)}
        self._room = _rooms(sets[: self._low], sets[self._low :], room)
        self._width = width = max(map(len, demands))
        ones = np.zeros((len(demands), width), np.int64)
        asks = np.zeros((len(demands), width), np.int64)
        filled = np.array([len(demand) for demand in demands])[:, None] > np.arange(width)
        ones[filled] = [bit[reach] for demand in demands for reach in demand]
        asks[filled] = [amount for demand in demands for amount in demand.values()]
        subsets = np.arange(1 << width) >> np.arange(width)[:, None] & 1
        self._asks = asks @ subsets
        self._collections = (ones @ subsets).ravel()
        self._most = self._asks[:, -1] + np.array(free, np.int64)
        self._taken = np.zeros(1 << len(sets), np.int64)
        for reach, amount in taken.items():
            self._taken[bit[reach]] += amount

    def worst(self, amounts: Sequence[int], scale: int) -> tuple[int, int] | None:
        if self._total * scale >= _RANGE:
            return None
        must = self._asks * scale
        must += (np.array(amounts, np.int64) - self._most * scale)[:, None]
        np.maximum(must, 0, out=must)
        for at in range(self._width):
            pairs = must.reshape(-1, 2, 1 << at)
            pairs[:, 1] -= pairs[:, 0]
        loads = self._taken * scale
        np.add.at(loads, self._collections, must.ravel())
        beyond = self._sums(loads)
        beyond -= self._room * scale
        top = beyond.max()
        # What the worst collections have in common is one of them.
        moved = int(np.bitwise_and.reduce(np.flatnonzero(beyond == top)))
        smallest = (moved & (1 << self._high) - 1) << self._low | moved >> self._high
        union = 0
        for reach, one in self._bit.items():
            if smallest & one:
                union |= reach
        return int(top), union

    def _sums(self, parts: Column) -> Column:
        """For each collection, moved, what its parts add up to; each half of the bits makes long rows for the other."""
        for at in range(self._high):
            pairs = parts.reshape(-1, 2, 1 << at + self._low)
            pairs[:, 1] += pairs[:, 0]
        parts = np.ascontiguousarray(parts.reshape(1 << self._high, 1 << self._low).T).ravel()
        for at in range(self._low):
            pairs = parts.reshape(-1, 2, 1 << at + self._high)
            pairs[:, 1] += pairs[:, 0]
        return parts


def _rooms(low: Sequence[int], high: Sequence[int], room: Mapping[int, int]) -> Column:
    """For each collection, moved, the room of all its classes together; looked up for eight classes at once."""
    found = np.zeros(1 << len(low) + len(high), np.int64)
    classes = sorted(room)
    for first in range(0, len(classes), 8):
        those = classes[first : first + 8]
        sums = [0]
        for at in those:
            sums += [each + room[at] for each in sums]
        halves = []
        for sets in (low, high):
            unions = [0]
            for reach in sets:
                own = sum([1 << place for place, at in enumerate(those) if reach >> at & 1])
                unions += [each | own for each in unions]
            halves.append(np.array(unions, np.uint8))
        found += np.array(sums, np.int64)[np.bitwise_or.outer(*halves).ravel()]
    return found
