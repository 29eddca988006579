"""The worst of the unions of sets of classes, where there are many of them: what `unions.py` says, by collections.

What must flow into the union of some sets, less its room, is supermodular: the more sets are there, the more one more
adds. So a set that adds nothing to all others is in no smallest worst collection, and one that adds something to those
that are surely in is surely in. What each adds is a few operations on columns; only the sets that are left undecided
are collected in all ways.

What must flow in, less the room, is a sum of functions that each depend on few of the sets that are *not* collected:
what a demand gets, less what those sets of its own ask for, if that is above 0; less all room, and the room of a class
again where no set with it is collected. Each function is put down as what a collection of left out sets adds to those
with one set less, and all are added up for all collections in as many steps as there are sets (the zeta transform and
its inverse: F. Yates, "The design and analysis of factorial experiments", 1937).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from kbatch.model.flow import bits

DECIDED_AT_ONCE: Final = 12
"""Up to how many undecided sets collecting them in all ways takes no longer than deciding about some."""
MOST_UNDECIDED: Final = 15
"""Of more, a flow takes less time; so many are left where each set has many classes, and a flow is found soon."""
WIDTHS: Final = (4, 8)
"""A demand of up to so many undecided sets is put down for all subsets of as many; one of more for all collections."""
MOST_WIDE: Final = 1 << 19
"""For how many collections, all demands of more sets together."""
RANGE: Final = 1 << 62
"""Where all amounts together are below, no sum leaves the range."""

Column = npt.NDArray[np.int64]


class Many:
    """The unions of some sets; see `unions.Unions`."""

    def __init__(self, sets: Sequence[int], room: Mapping[int, int], taken: Column, asks: Column, free: Column) -> None:
        self._sets = sets
        self._taken, self._asks, self._free = taken, asks, free
        self._total = sum(room.values()) + int(taken.sum()) + int(asks.sum()) + int(free.sum())
        having = dict.fromkeys(room, 0)
        for at, reach in enumerate(sets):
            for cls in bits(reach):
                having[cls] |= 1 << at
        alike: dict[int, int] = {}
        for cls, those in having.items():
            alike[those] = alike.get(those, 0) + room[cls]
        # Classes that are in the same sets are as one.
        self._having = np.array(list(alike), np.int64)
        self._room = np.array(list(alike.values()), np.int64)
        self._has = self._having >> np.arange(len(sets))[:, None] & 1

    def worst(self, whole: Column, over: Column, scale: int) -> tuple[int, int] | None:
        """See `unions.Unions`."""
        surely, maybe = self._narrowed(whole, whole + (over > 0))
        undecided = list(bits(maybe ^ surely))
        if len(undecided) > MOST_UNDECIDED:
            return None
        asks = self._asks[:, undecided]
        above = whole - self._free - self._asks @ self._but(maybe)
        # What gets at least all that it asks for of the undecided adds as much for each of them, whatever the others.
        straight = above >= asks.sum(axis=1)
        bent = np.flatnonzero(~straight & (above + (over > 0) > 0))
        functions = _functions(asks[bent])
        if functions is None:
            return None
        sets, amounts = self._taken_less_room(surely, maybe, undecided)
        amounts[0] += above[straight].sum()
        amounts[1 : 1 + len(undecided)] -= asks[straight].sum(axis=0)
        straight_over = over[straight].sum()
        above, over = above[bent, None], over[bent, None]
        if self._total * scale < RANGE:
            above = above * scale + over
            amounts *= scale
            amounts[0] += straight_over
            terms = [(each.sets, np.maximum(above[each.rows] - each.asks * scale, 0)) for each in functions]
            beyond = _added_up(len(undecided), sets, amounts, terms)
            short = int(beyond.max())
            found = beyond == short
        else:
            terms = [(each.sets, np.maximum(above[each.rows] - each.asks, 0)) for each in functions]
            beyond = _added_up(len(undecided), sets, amounts, terms)
            terms = [(each.sets, np.where(above[each.rows] >= each.asks, over[each.rows], 0)) for each in functions]
            parts = _added_up(len(undecided), sets[:1], np.array([straight_over]), terms)
            beyond += parts // scale
            parts %= scale
            found = beyond == beyond.max()
            parts[~found] = -1
            found = parts == parts.max()
            at = int(found.argmax())
            short = int(beyond[at]) * scale + int(parts[at])
        # What the worst collections have in common is one of them: what is left out of any is left out of it.
        left_out = _moved_back(int(np.bitwise_or.reduce(np.flatnonzero(found))), len(undecided))
        union = 0
        for at in bits(surely):
            union |= self._sets[at]
        for place, at in enumerate(undecided):
            if not left_out >> place & 1:
                union |= self._sets[at]
        return short, union

    def _narrowed(self, least: Column, most: Column) -> tuple[int, int]:
        """The sets that are surely in the smallest worst collection, and those that may be; as bits.

        Args:
            least: of what each demand gets, in whole units.
            most: of the same.
        """
        surely, maybe = 0, (1 << len(self._sets)) - 1
        while (maybe ^ surely).bit_count() > DECIDED_AT_ONCE:
            before = maybe ^ surely
            # What each adds to all others that may be in: what it asks for, as far as so much must flow there.
            must = np.maximum(most - self._free - self._asks @ self._but(maybe), 0)
            more = np.minimum(must[:, None], self._asks).sum(axis=0) + self._taken
            having = self._having & maybe
            more -= self._has @ (self._room * (having & having - 1 == 0))
            maybe ^= before & _bits_of(more <= 0)
            # What each adds to those that are surely in.
            must = least - self._free - self._asks @ self._but(surely)
            more = np.clip(must[:, None] + self._asks, 0, self._asks).sum(axis=0) + self._taken
            more -= self._has @ (self._room * (self._having & surely == 0))
            surely |= maybe & _bits_of(more > 0)
            if maybe ^ surely == before:
                break
        return surely, maybe

    def _but(self, sets: int) -> Column:
        """1 for each set but some, given as bits."""
        return 1 - (sets >> np.arange(len(self._sets)) & 1)

    def _taken_less_room(self, surely: int, maybe: int, undecided: Sequence[int]) -> tuple[Column, Column]:
        """What is taken of a collection less its room, by left out sets (as bits of the undecided): what each adds.

        First for none, then for each of the undecided by itself; then for all those that have a class.
        """
        there = self._having & maybe != 0
        open_ = there & (self._having & surely == 0)
        each = np.int64(1) << np.arange(len(undecided))
        all_taken = self._taken @ (1 - self._but(maybe)) - self._room[there].sum()
        sets = np.concatenate(([0], each, each @ self._has[undecided][:, open_]))
        return sets, np.concatenate(([all_taken], -self._taken[undecided], self._room[open_]))


@dataclass(frozen=True, slots=True)
class _Function:
    """What some demands ask for of left out sets, for all subsets of their own, in rows of as many.

    Attributes:
        rows: which demands.
        sets: the subsets, as bits; those of all these demands in one row where they are the same.
        asks: a row for each demand.
    """

    rows: Column
    sets: Column
    asks: Column


def _functions(asks: Column) -> list[_Function] | None:
    """Demands with others of about as many sets; None where too many ask for many."""
    counts = np.count_nonzero(asks, axis=1)
    found, least = [], 0
    for most in WIDTHS:
        rows = np.flatnonzero((counts > least) & (counts <= most))
        least = most
        if len(rows):
            of, sets = np.nonzero(asks[rows])
            places = np.arange(len(of)) - (np.cumsum(counts[rows]) - counts[rows])[of]
            width = int(counts[rows].max())
            ones, own = np.zeros((2, len(rows), width), np.int64)
            ones[of, places] = np.int64(1) << sets
            own[of, places] = asks[rows[of], sets]
            found.append(_Function(rows, _subset_sums(ones), _subset_sums(own)))
    rows = np.flatnonzero(counts > least)
    if len(rows):
        if len(rows) << asks.shape[1] > MOST_WIDE:
            return None
        found.append(_Function(rows, np.arange(1 << asks.shape[1]), _subset_sums(asks[rows])))
    return found


def _subset_sums(columns: Column) -> Column:
    """For each row the sums of all subsets of its columns: subset k has those of the bits of k."""
    rows, width = columns.shape
    found = np.zeros((rows, 1 << width), np.int64)
    for at in range(width):
        np.add(found[:, : 1 << at], columns[:, at, None], out=found[:, 1 << at : 2 << at])
    return found


def _added_up(count: int, sets: Column, amounts: Column, functions: Iterable[tuple[Column, Column]]) -> Column:
    """For each collection of so many sets the sum of what is added for its subsets, and of functions of subsets.

    Collections are numbered by the bits of their sets; in what is returned, the lower half of these bits is moved to
    the top: so each half of the bits makes long rows for the other.

    Args:
        count: of the sets.
        sets: subsets, as bits.
        amounts: what is added for each.
        functions: subsets, as `_Function` has them, and what each demand's function is of them.
    """
    parts = np.zeros(1 << count, np.int64)
    np.add.at(parts, sets, amounts)
    for those, values in functions:
        if those.ndim == 1:
            values = values.sum(axis=0, keepdims=True)
        for at in range(values.shape[1].bit_length() - 1):
            pairs = values.reshape(-1, 2, 1 << at)
            pairs[:, 1] -= pairs[:, 0]
        np.add.at(parts, those.ravel(), values.ravel())
    low = count // 2
    for at in range(low, count):
        pairs = parts.reshape(-1, 2, 1 << at)
        pairs[:, 1] += pairs[:, 0]
    parts = np.ascontiguousarray(parts.reshape(-1, 1 << low).T).ravel()
    for at in range(count - low, count):
        pairs = parts.reshape(-1, 2, 1 << at)
        pairs[:, 1] += pairs[:, 0]
    return parts


def _moved_back(moved: int, count: int) -> int:
    """The sets of a collection as `_added_up` numbers them."""
    low = count // 2
    high = count - low
    return (moved & (1 << high) - 1) << low | moved >> high


def _bits_of(flags: npt.NDArray[np.bool_]) -> int:
    """Flags as bits."""
    return sum([1 << at for at in np.flatnonzero(flags).tolist()])
