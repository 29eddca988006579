"""Whether groups would fit now, were nobody nominated anywhere: by counting, where that tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbatch.engine.context import CycleContext
from kbatch.engine.placement.enough import would_do
from kbatch.engine.placement.kinds import counts_of
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import unplaced
from kbatch.model.nodes import Column
from kbatch.model.tasks import TaskClass


class WithoutNominations:
    """The room that there would be. Asked while nothing is decided any more: what stands where stays as it is."""

    def __init__(self, context: CycleContext, nominated: Sequence[tuple[TaskClass, int]]) -> None:
        """`nominated`: the class of each pod that is nominated, and the row."""
        self._context = context
        self._nominated = nominated
        self._free: dict[str, Column] = {}
        self._most: dict[int, int] = {}

    def fits(self, job: JobState) -> bool | None:
        """Whether there would be room for what the job's minimum lacks; None: that is to be tried."""
        counts = counts_of(job)
        if not all(cls.needs for cls, _, _ in counts):
            return None
        if not would_do(self.most, counts, job):
            return False
        return True if len(counts) == 1 and self._by_number(job, counts[0][0]) else None

    def most(self, cls: TaskClass) -> int:
        """How many pods of the class would have room, as though no other pod was in the way."""
        found = self._most.get(cls.id)
        if found is None:
            least: Column | None = None
            self._context.session.room.ensure(cls)
            for name, amount in cls.needs:
                fitting: Column = np.maximum(self._column(name), 0) // amount
                least = fitting if least is None else np.minimum(least, fitting)
            allowed = self._context.rankings.static(cls)[0]
            found = self._most[cls.id] = int(least[allowed].sum()) if least is not None else 0
        return found

    def _column(self, name: str) -> Column:
        """What each row would have free of a dimension."""
        found = self._free.get(name)
        if found is None:
            room = self._context.session.room
            found = room.future[name].copy()
            for cls, row in self._nominated:
                for need, amount in cls.needs:
                    if need == name:
                        found[row] += amount
            found = self._free[name] = np.minimum(found, room.idle[name])
        return found

    def _by_number(self, job: JobState, cls: TaskClass) -> bool:
        """Whether nothing but how many of its pods rows hold, all of one class, decides about the job."""
        rankings = self._context.rankings
        if job.job.roles or job.together is not None or rankings.stepwise(cls):
            return False
        task = unplaced(job)[0]
        statement = Statement(self._context.session, job)
        return statement.rows(task) is None and statement.headroom(task) is None
