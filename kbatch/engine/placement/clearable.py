"""The sets of nodes in which room could be made, or gathered, for pods that must stand together.

Of the widest sets that are allowed those come first in which the fewest pods still lack room: there the fewest have to
go, or the least is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from typing import Final

import numpy as np

from kbatch.engine.placement.node_sets import Capacity, Unit, count, enough, units_of
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.placement.set_room import sums
from kbatch.engine.placement.together import Choice
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Column, Mask

_OPTIONS: Final = 64
"""For each role so many sets are looked at."""
_MOST_LOOKED_AT: Final = 4_096


def clearable(session: Session, rankings: NodeRankings, job: JobState, capacity: Capacity) -> Iterator[Choice]:
    """The choices that would hold the job's minimum, pods counted by themselves, were there as much room as `capacity`
    says; none where no set does.
    """
    units = units_of(session, rankings, job, When.LATER, capacity=capacity)
    if units is None:
        return
    options = [_options(session, rankings, unit) for unit in units]
    for masks in islice(product(*options), _MOST_LOOKED_AT):
        choice = _choice(units, masks)
        if choice is not None:
            yield choice


def _options(session: Session, rankings: NodeRankings, unit: Unit) -> list[Mask]:
    """Of a unit's widest sets those that could hold it, the fewest lacking first."""
    now = count(session, rankings, unit, When.LATER).fitting
    widest = max((each.spread for each in unit.sets), default=0)
    found: list[tuple[int, int, int, Column]] = []
    for place, each in enumerate(each for each in unit.sets if each.spread == widest):
        there = sums(each.of, now) if len(each.of) else np.zeros(0, np.int64)
        numbers = enough(each, unit, unit.counted).tolist()
        found.extend((max(0, unit.least - int(there[number])), place, number, each.of) for number in numbers)
    if not (found or unit.least):
        return [np.zeros(len(rankings.every), np.bool_)]  # its pods are not needed, and have room nowhere
    found.sort(key=lambda each: each[:3])
    return [of == number for _, _, number, of in found[:_OPTIONS]]


def _choice(units: list[Unit], masks: tuple[Mask, ...]) -> Choice | None:
    """One set for each unit, those of roles within that of the job; None where some is too small then."""
    found: Choice = {}
    for unit, mask in zip(units, masks, strict=True):
        rows = mask & found[None] if None in found else mask
        if int(unit.counted.fitting[rows].sum()) < unit.least:
            return None
        found[unit.role] = rows
    return found
