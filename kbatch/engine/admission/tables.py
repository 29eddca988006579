"""Amounts and answers for many groups at once: columns with an element for each, and tables of such columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from kbatch.engine.carryover.backlog import MOST, Index
from kbatch.model.nodes import Column, Mask

LIMIT: Final = MOST - 1
"""No more than this is said to be left: it is less than the most that a column holds, and twice of it fits beside."""


def all_of(masks: Iterable[Mask], count: int) -> Mask:
    """Where all of the masks hold, each of so many."""
    found = np.ones(count, np.bool_)
    for mask in masks:
        found &= mask
    return found


def any_of(masks: Iterable[Mask], count: int) -> Mask:
    """Where any of the masks holds, each of so many."""
    found = np.zeros(count, np.bool_)
    for mask in masks:
        found |= mask
    return found


def first_of_each(
    shapes: Index, known: npt.NDArray[np.int8] | npt.NDArray[np.int32], rows: Index
) -> list[tuple[int, int]]:
    """Of each shape of which nothing is known one row."""
    unknown = known[shapes] < 0
    if not unknown.any():
        return []
    numbers, first = np.unique(shapes[unknown], return_index=True)
    return list(zip(rows[unknown][first].tolist(), numbers.tolist(), strict=True))


def clip(amount: int) -> int:
    """An amount as a column holds it, with room for one more beside it."""
    return amount if -LIMIT <= amount <= LIMIT else LIMIT if amount > 0 else -LIMIT


def table(rows: list[list[int]]) -> Column:
    """Amounts as a table; at least one row, so that it can be asked for."""
    try:
        found = np.array(rows or [[]], np.int64)
    except OverflowError:
        found = np.array([[clip(amount) for amount in row] for row in rows], np.int64)
    np.minimum(found, LIMIT, out=found)
    return np.maximum(found, -LIMIT, out=found)
