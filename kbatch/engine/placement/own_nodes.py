"""The next pods of a class for one job, where it matters on which nodes the job stands already.

Keys are those of `NodeRanking` but for the rows on which the job has pods, and for how many of its like pods would come
to a row that it has not opened: as many as are left to be placed, and have room. While more are left than any row takes
the keys are a row's own affair, and the ladders give the sequence as they do without a job. As soon as fewer are left
the keys are worked out again before each further row that is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Column, Mask

if TYPE_CHECKING:
    from kbatch.engine.placement.ranking import NodeRanking


class JobRanking:
    """A ranking as one job sees it. `own` says on which rows it has pods just now, in order."""

    def __init__(self, ranking: NodeRanking, own: Callable[[], list[int]]) -> None:
        self._ranking = ranking
        self._own = own

    def choose(self, count: int, among: Mask | None = None) -> list[int]:
        """The rows of the next pods, in order; up to `count`, which is how many are left to be placed.

        Fewer where the next one must be asked for anew; empty: none fits.
        """
        ranking = self._ranking
        own: Index = np.array(self._own(), np.intp)
        most = ranking.capacity_now()
        key = ranking.keys_for(np.clip(most, 1, count), own)
        if among is not None:
            key = np.where(among, key, np.int64(-1))
        rows = ranking.best_of(key, 1 if ranking.stepwise else count)
        fitting: Column = most[key >= 0]
        return _while_alike(rows, set(own.tolist()), int(fitting.max(initial=0)))


def _while_alike(rows: list[int], opened: set[int], reach: int) -> list[int]:
    """The rows up to the first for which the keys must be worked out again; `reach`: of the row that takes most."""
    for at, row in enumerate(rows):
        if row not in opened:
            if at and len(rows) - at < reach:
                return rows[:at]
            opened.add(row)
    return rows
