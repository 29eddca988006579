"""Room that is kept: for pods that were promised and do not exist yet, and for a group that has waited too long.

Both last for one run of `allocate`, and are worked out anew in the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kbatch.api.reasons import Reason, Reserved
from kbatch.engine.boundary import TURN, Turn
from kbatch.engine.placement import When
from kbatch.engine.planning import next_tasks, place_minimum, placing, unplaced
from kbatch.engine.state import JobState
from kbatch.engine.statement import Statement
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import total

if TYPE_CHECKING:
    from kbatch.engine.session import Session


class Holds:
    """The rows that are kept for the one aged group, as if its pods were nominated there."""

    def __init__(self) -> None:
        self._holder: JobState | None = None
        self._rows: list[tuple[TaskClass, int]] = []
        self._lifted = False

    def __bool__(self) -> bool:
        return self._holder is not None

    def begin(self, session: Session, holder: JobState, rows: list[tuple[TaskClass, int]]) -> None:
        """Keep these rows for the holder."""
        self._holder, self._rows = holder, rows
        self._apply(session, 1)

    def end(self, session: Session) -> None:
        """Give everything back."""
        if self._holder is not None:
            self._apply(session, -1)
            self._holder = None
            session.room_moves += 1

    def lift(self, session: Session, job: JobState) -> bool:
        """Let a job take of what is kept if it is ahead of the holder in their queue; whether it is, until `lay`."""
        holder = self._holder
        if holder is None or job is holder or job.queue != holder.queue:
            return False
        if session.job_key(job) > session.job_key(holder):
            return False
        self._apply(session, -1)
        self._lifted = True
        return True

    def lay(self, session: Session) -> None:
        """Keep the rows again, less what the job has taken there."""
        self._apply(session, 1)
        self._lifted = False

    def reason(self, session: Session, job: JobState) -> Reason | None:
        """Reserved, where the job would fit but for what is kept."""
        if self._holder is None or self._lifted or job is self._holder:
            return None
        self._apply(session, -1)
        statement = Statement(session, job)
        fits = place_minimum(statement, (When.NOW, When.LATER))
        statement.rollback()
        self._apply(session, 1)
        if not fits:
            return None
        kept = total(cls.request for cls, _ in self._rows)
        name = next((name for name in sorted(kept) if name in job.asks), min(kept, default="cpu"))
        return Reserved(self._holder.name, name, kept.get(name, 0))

    def _apply(self, session: Session, sign: int) -> None:
        for cls, row in self._rows:
            session.room.nominate(cls, row, sign)


def keep_for_the_aged(session: Session, holds: Holds) -> Iterator[Turn]:
    """Let room gather for the oldest group that has waited beyond the ageing time and does not fit as things are.

    Only a group that the cluster could hold, within its queue's capability and share, and only one at a time: while the
    oldest fits, order alone decides. Groups that no empty cluster would hold are passed over.
    """
    for job in session.live():
        if session.due():
            yield TURN
        if job.idle or job.nominated or not (job.in_queue and job.possible) or not job.missing():
            continue
        due = job.job.created + session.policy.ageing
        if session.now < due:
            session.wake.append(due)
            return  # the others are younger
        tasks = unplaced(job)
        if session.valid(job) is not None or session.limited(job, next_tasks(job, tasks)):
            continue
        if session.emptied.hopeless(job):
            continue
        statement = Statement(session, job)
        fits = yield from placing(statement, (When.NOW,))
        statement.rollback()
        if fits:
            return
        yield TURN
        if session.emptied.attempt(job).fits:
            rows = _rows_for(session, next_tasks(job, tasks))
            if rows:
                holds.begin(session, job, rows)
                return


def _rows_for(session: Session, tasks: Sequence[Task]) -> list[tuple[TaskClass, int]]:
    """Rows that could hold the tasks if they were empty of our pods: those with the most room already come first."""
    table, room = session.nodes, session.room
    left = {name: column.copy() for name, column in table.capacity.items()}
    found: list[tuple[TaskClass, int]] = []
    by_class: dict[int, list[Task]] = {}
    for task in tasks:
        by_class.setdefault(task.cls.id, []).append(task)
    for run in by_class.values():
        cls = run[0].cls
        room.ensure(cls)
        most = np.full(len(table), np.iinfo(np.int64).max)
        already = most.copy()
        for name, amount in cls.needs:
            column = left.get(name)
            most = np.minimum(most, (column if column is not None else np.zeros(len(table), np.int64)) // amount)
            already = np.minimum(already, np.maximum(room.future[name], 0) // amount)
        most[~session.placement.static(cls)[0]] = 0
        wanted = len(run)
        for row in np.lexsort((np.arange(len(table)), -np.minimum(already, most))).tolist():
            taken = min(wanted, int(most[row]))
            if taken <= 0:
                continue
            found.extend([(cls, row)] * taken)
            for name, amount in cls.needs:
                if name in left:
                    left[name][row] -= taken * amount
            wanted -= taken
            if not wanted:
                break
        if wanted:
            return []
    return found


def reserved(session: Session, job: JobState, tasks: Sequence[Task]) -> Reason | None:
    """Whether these pods would take room that was promised to groups whose pods do not exist yet."""
    promises = session.promises()
    if not promises:
        return None
    request = total(task.cls.request for task in tasks)
    free = session.usable()
    for name in sorted(request):
        kept = sum(amounts.get(name, 0) for holder, amounts in promises if holder is not job)
        if kept and request[name] > max(0, free.get(name, 0) - kept):
            holder = next(holder for holder, amounts in promises if amounts.get(name, 0) and holder is not job)
            return Reserved(holder.name, name, kept)
    return None
