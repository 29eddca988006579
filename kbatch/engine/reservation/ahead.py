"""The room of a session as it will be at later instants: what is expected to have ended by then has gone.

The session itself is taken there and back, so what looks for room finds it with the numbers, caps and neighbours of
that instant, and is the same code that places in earnest.
"""

from __future__ import annotations

from collections.abc import Sequence

from kbatch.engine.plugin import Undo
from kbatch.engine.reservation.charges import Refunds
from kbatch.engine.session.hooks import take_back, tell
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.timeline import Release


class Ahead:
    """One journey, on behalf of one job; whoever makes it begins it with `begin` and ends it with `end`.

    Args:
        session: what is taken ahead.
        job: whose queue's sums are followed, where there is a limit to them.
        releases: the pods that end, in the order in which they do; none of them the job's own.
        leaving: those of them that terminate: the session counts as though they had gone already.
        heeded: whether it matters to the job which pods stand on nodes, besides the room that they take.
    """

    def __init__(
        self,
        session: Session,
        job: JobState,
        releases: Sequence[Release],
        leaving: Sequence[Release] = (),
        *,
        heeded: bool,
    ) -> None:
        self._session = session
        self._releases = releases
        self._leaving = leaving
        self._heeded = heeded or session.whole_nodes.active
        queue = session.queues.get(job.queue)
        limited = queue is not None and (queue.record.capability or session.plugins.limit is not None)
        capped = self._capped = queue if limited else None
        self._refunds = Refunds(session) if capped is not None and capped.record.excess_budget is not None else None
        self._jobs = session.model.jobs
        self._undos: list[Sequence[Undo]] = []
        self._there: list[tuple[Release, Sequence[Undo]]] = []
        self.gone = 0

    def begin(self) -> None:
        """Let what terminates be there until it has ended."""
        for release in self._leaving:
            hooks = self._session.plugins.followers(release.task.cls) if self._heeded else ()
            undos = tell(hooks, release.task, release.row)
            self._session.room.pipeline(release.task.cls, release.row)
            self._there.append((release, undos))

    def end(self) -> None:
        """Let all be as it was."""
        self.to(0)
        while self._there:
            release, undos = self._there.pop()
            self._session.room.pipeline(release.task.cls, release.row, -1)
            take_back(undos)

    def to(self, count: int) -> None:
        """Let so many of the pods have ended, the first of them."""
        while self.gone < count:
            release = self._releases[self.gone]
            hooks = self._session.plugins.removed_hooks if self._heeded else ()
            self._undos.append(tell(hooks, release.task, release.row))
            self._move(release, 1)
            self.gone += 1
        while self.gone > count:
            self.gone -= 1
            self._move(self._releases[self.gone], -1)
            take_back(self._undos.pop())

    def _move(self, release: Release, sign: int) -> None:
        task = release.task
        self._session.room.pipeline(task.cls, release.row, -sign)
        job = self._jobs.get(task.job)
        if job is not None and self._capped is not None and job.queue == self._capped.name and not task.terminating:
            self._capped.add(task.cls.request, -sign, ends=job.ends)
            if self._refunds is not None:
                self._capped.charged -= self._refunds.moved(job, sign)
