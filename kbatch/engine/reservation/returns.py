"""What comes back to a queue by the instant of a planned start: what its pods hold that have ended by then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbatch.engine.reservation.charges import Refunds
from kbatch.engine.reservation.ends import Ends, Upcoming
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.timeline import Release
from kbatch.model.jobs import Job
from kbatch.model.tasks import Task
from kbatch.resources import Resources


class Returns:
    """What comes back to the queue of one job; `follow` adds what follows from the session's decisions since.

    Args:
        session: that plans the start.
        job: whose start is planned; its own pods do not count.
        at: when it is to start.
        upcoming: what is known to end, as of the last `Ends.follow`.
        by_lifetime: what ends for this job alone, by row.

    Attributes:
        freed: what ends in the queue, where it has a hard cap or plugins limit what it has; and of that what groups
            with a lifetime (True) and without one hold.
        refunded: what comes back to its excessBudget, in millionths of a resource-minute.
    """

    def __init__(
        self,
        session: Session,
        job: JobState,
        at: int,
        ends: Ends,
        upcoming: Upcoming,
        by_lifetime: Mapping[int, Sequence[Release]],
    ) -> None:
        queue = session.queues.get(job.queue)
        self._jobs = session.model.jobs
        self._job = job
        self._at = at
        self._by_lifetime = by_lifetime
        self._limited = queue is not None and bool(queue.record.capability or session.plugins.limit is not None)
        self._refunds = Refunds(session) if queue is not None and queue.record.excess_budget is not None else None
        self._come, self._gone = len(ends.come), len(ends.gone)
        self.freed: dict[bool | None, Resources] = {None: {}, True: {}, False: {}}
        self.refunded = 0
        if self._limited or self._refunds is not None:
            for end in upcoming.ends[: upcoming.until(at)]:
                self._ends(end.task)

    def follow(self, ends: Ends) -> None:
        """Count what the session has started since, and no more what it has evicted: that is no part of the queue's
        sums as they are.
        """
        gone, come = ends.gone[self._gone :], ends.come[self._come :]
        self._come, self._gone = len(ends.come), len(ends.gone)
        for end in gone:
            self._evicted(end)
        for end in come:
            if end.at <= self._at:
                self._ends(end.task)

    def _ends(self, task: Task) -> None:
        owner = self._owner(task)
        if owner is None:
            return
        self._free(task, owner, 1)
        if self._refunds is not None:
            self.refunded += self._refunds.moved(owner, 1)

    def _evicted(self, end: Release) -> None:
        owner = self._owner(end.task)
        if owner is None:
            return
        others = (other.at for other in self._by_lifetime.get(end.row, ()) if other.key == end.key)
        if min([end.at, *others]) <= self._at:
            self._free(end.task, owner, -1)
        elif self._refunds is not None and self._refunds.follows(owner):
            self.refunded += self._refunds.moved(owner, 1)

    def _free(self, task: Task, owner: Job, sign: int) -> None:
        if self._limited:
            for sums in (self.freed[None], self.freed[owner.ends]):
                for name, amount in task.cls.request.items():
                    sums[name] = sums.get(name, 0) + sign * amount

    def _owner(self, task: Task) -> Job | None:
        """The group of a pod, if that is another one of the queue, whose sums the pod is in."""
        owner = self._jobs.get(task.job) if not task.terminating else None
        return owner if owner is not None and owner.queue == self._job.queue and owner.key != self._job.key else None
