"""The ledger of the room that is kept: for pods that were promised and do not exist yet, and for a group that has
waited too long.

Both last for one run of `allocate`, and are worked out anew in the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbatch.api.reasons import Reason, Reserved
from kbatch.engine.placement.gang import place_minimum
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import Resources, total


class Ledger:
    """The room that one session keeps: the rows gathered for the one aged group, as if its pods were nominated there,
    and what was promised to groups in queue whose pods do not exist yet.
    """

    def __init__(self, session: Session, rankings: NodeRankings) -> None:
        self.session = session
        self.rankings = rankings
        self._promises: list[tuple[JobState, Resources]] | None = None
        self._holder: JobState | None = None
        self._rows: list[tuple[TaskClass, int]] = []
        self._lifted = False

    def __bool__(self) -> bool:
        return self._holder is not None

    def begin(self, holder: JobState, rows: list[tuple[TaskClass, int]]) -> None:
        """Keep these rows for the holder."""
        self._holder, self._rows = holder, rows
        self.session.set_aside = True
        self._apply(1)

    def end(self) -> None:
        """Give everything back."""
        if self._holder is not None:
            self._apply(-1)
            self._holder = None
            self.session.room_moves += 1
            self.session.set_aside = False

    def lift(self, job: JobState) -> bool:
        """Let a job take of what is kept if it is ahead of the holder in their queue; whether it is, until `lay`."""
        holder = self._holder
        if holder is not None and holder.key in self.session.failed:
            self.end()
            return False
        if holder is None or job is holder or job.queue != holder.queue:
            return False
        if self.session.job_key(job) > self.session.job_key(holder):
            return False
        self._apply(-1)
        self._lifted = True
        return True

    def lay(self) -> None:
        """Keep the rows again, less what the job has taken there."""
        self._apply(1)
        self._lifted = False

    def reason(self, job: JobState) -> Reason | None:
        """Reserved, where the job would fit but for what is kept."""
        if self._holder is None or self._lifted or job is self._holder:
            return None
        self._apply(-1)
        statement = Statement(self.session, job)
        try:
            fits = place_minimum(self.rankings, statement, (When.NOW, When.LATER))
            statement.rollback()
        finally:
            self._apply(1)
        if not fits:
            return None
        kept = total(cls.request for cls, _ in self._rows)
        name = next((name for name in sorted(kept) if name in job.asks), min(kept, default="cpu"))
        return Reserved(self._holder.name, name, kept.get(name, 0))

    def _apply(self, sign: int) -> None:
        for cls, row in self._rows:
            self.session.room.pipeline(cls, row, sign)

    def promises(self) -> Sequence[tuple[JobState, Resources]]:
        """What groups in queue were promised whose minimum's pods do not exist yet; nothing where nobody promises."""
        if self._promises is None and not self.session.policy.has("enqueue"):
            self._promises = []
        if self._promises is None:
            self._promises = [
                (job, job.job.outstanding) for job in self.session.live()
                if job.job.outstanding and job.in_queue and job.possible and not job.job.shadow
                and job.bound + len(job.job.waiting) < job.minimum
            ]  # fmt: skip
        if self.session.failed:
            self._promises = [(job, amounts) for job, amounts in self._promises if job.possible]
        return self._promises

    def refuses(self, job: JobState, tasks: Sequence[Task]) -> Reason | None:
        """Whether these pods would take room that was promised to groups whose pods do not exist yet."""
        promises = self.promises()
        if not promises:
            return None
        request = total(task.cls.request for task in tasks)
        free = self.session.usable()
        for name in sorted(request):
            kept = sum(amounts.get(name, 0) for holder, amounts in promises if holder is not job)
            if kept and request[name] > max(0, free.get(name, 0) - kept):
                holder = next(holder for holder, amounts in promises if amounts.get(name, 0) and holder is not job)
                return Reserved(holder.name, name, kept)
        return None
