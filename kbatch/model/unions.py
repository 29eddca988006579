"""What cannot flow from some demands to the classes of nodes that may serve them, where there are few sets of classes.

By the theorem of max-flow and min-cut that is the most, over all unions of sets, of what must flow into the union less
its room (P. Hall, "On representatives of subsets", Journal of the London Mathematical Society 10, 1935). A demand must
flow into a union as far as it gets more than its other sets, outside of the union, ask for.

Where there are few unions, each demand is looked at for each of them; else see `unions_many.py`.

All is done in columns of int64. What a demand gets is in whole units and what is over, a part of a unit. The two are
added up apart, so that nothing is multiplied by the denominator: no sum leaves the range of the column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from kbatch.model.flow import bits
from kbatch.model.unions_many import RANGE, Many

FEW_UNIONS: Final = 96
"""Up to how many of them are looked at one by one."""
__all__ = ["RANGE", "Column", "Unions", "unions_of"]

Column = npt.NDArray[np.int64]
"""Of one dimension; or of two, a row for each demand."""


class Unions(Protocol):
    """The unions of the sets of some demands."""

    def worst(self, whole: Column, over: Column, scale: int) -> tuple[int, int] | None:
        """How much of some amounts cannot flow, and the classes (as bits) on the source's side of a minimum cut.

        Those are the smallest union into which that much more must flow than there is room; none if all can flow.

        Args:
            whole: what each demand gets, no more than it asks for and gets besides.
            over: what it gets besides these whole units: so many parts of a unit, 0 to `scale` - 1.
            scale: how many parts a unit has.

        Returns:
            How much, in such parts. None where finding out would take too long.
        """


def unions_of(sets: Sequence[int], room: Mapping[int, int], taken: Column, asks: Column, free: Column) -> Unions:
    """The unions of the sets of demands; all amounts together must be below `RANGE`.

    Args:
        sets: as bits of classes; all different.
        room: of each class, by its number.
        taken: by set, what flows besides.
        asks: by demand and set.
        free: what each demand gets besides, from elsewhere.
    """
    found = {0}
    for reach in sets:
        found |= {union | reach for union in found}
        if len(found) > FEW_UNIONS:
            return Many(sets, room, taken, asks, free)
    return _Few(sets, sorted(found, key=lambda union: (union.bit_count(), union)), room, taken, asks, free)


class _Few:
    """Each demand is looked at for each union."""

    def __init__(
        self,
        sets: Sequence[int],
        unions: Sequence[int],
        room: Mapping[int, int],
        taken: Column,
        asks: Column,
        free: Column,
    ) -> None:
        self._unions = unions
        outside = np.array([[reach & ~union != 0 for union in unions] for reach in sets], np.int64)
        self._outside = asks @ outside
        self._outside += free[:, None]
        rooms = np.array([sum([room[at] for at in bits(union)]) for union in unions], np.int64)
        self._room = rooms - taken @ (1 - outside)

    def worst(self, whole: Column, over: Column, scale: int) -> tuple[int, int] | None:
        must = whole[:, None] - self._outside
        parts = over @ (must >= 0)
        beyond = np.maximum(must, 0, out=must).sum(axis=0)
        beyond += parts // scale
        beyond -= self._room
        parts %= scale
        top = int(beyond.max())
        parts[beyond != top] = -1
        at = int(parts.argmax())  # the first: no smaller union is as bad
        return top * scale + int(parts[at]), self._unions[at]
