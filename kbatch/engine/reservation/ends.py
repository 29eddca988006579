"""What one session knows of ends: of pods that stand on nodes or were bound in it, and of those that would start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.timeline import Release, releases, releases_by_lifetime
from kbatch.model.expected import Expected

_AT_ONCE: Final = 500
"""Of so many pods it is found out in some milliseconds."""
_NONE: Final[Sequence[Release]] = ()


class Ends:
    """Worked out when it is first asked for, and brought up to date with what the session commits."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._expected = Expected(session.model, session.now, session.run_time if session.learns else None)
        self._lengths: dict[str, int | None] = {}
        self._ends: list[Release] | None = None
        self._by_row: dict[int, list[Release]] = {}
        self._counted: set[str] = set()
        self._cursor = 0
        self._sorted = False

    @property
    def known(self) -> int:
        """How many ends are known; as long as that is so, they are the same."""
        return len(self._ends) if self._ends is not None else -1

    def length(self, job: JobState) -> int | None:
        """How long the job's waiting pods run at most, in microseconds; None: of some nobody knows."""
        if job.key not in self._lengths:
            lengths = [self._expected.length(task) for task in job.waiting]
            known = [length for length in lengths if length is not None]
            self._lengths[job.key] = max(known, default=None) if len(known) == len(lengths) else None
        return self._lengths[job.key]

    def after(self, job: JobState, start: int) -> int | None:
        """When the job would have ended that starts at an instant; None: nobody knows."""
        length = self.length(job)
        return None if length is None else start + length

    def sure(self, end: Release) -> bool:
        """Whether somebody sees to it that the pod has gone by then."""
        return self._expected.sure(end.task)

    def preparing(self) -> Iterator[Turn]:
        """Find out what `all` tells, in pieces."""
        if self._ends is not None:
            return
        found: list[Release] = []
        for release in releases(self._session.nodes, self._expected):
            found.append(release)
            if not len(found) % _AT_ONCE:
                yield TURN
        self._ends, self._sorted = found, False

    def all(self) -> Sequence[Release]:
        """What is known to end, in order; pods that this cycle evicts, too, if it is known when they would have."""
        session = self._session
        for _ in self.preparing():
            pass
        found, changed = self._ends or [], not self._sorted
        for key in dict.fromkeys(session.committed[self._cursor :]):
            for task, row in session.job(key).placed.values():
                length = self._expected.length(task) if task.key not in self._counted else None
                self._counted.add(task.key)
                if length is not None:
                    found.append(Release(session.now + length, row, task))
                    changed = True
        self._cursor = len(session.committed)
        if changed:
            self._ends, self._sorted = found, True
            found.sort(key=_in_order)
            self._by_row = {}
            for release in found:
                self._by_row.setdefault(release.row, []).append(release)
        return found

    def on(self, row: int) -> Sequence[Release]:
        """What of `all`, as it was last asked for, stands on a row and is not evicted."""
        leaving = self._session.leaving
        ends = self._by_row.get(row, _NONE)
        return [end for end in ends if end.task.key not in leaving] if leaving else ends

    def for_job(self, job: JobState, *, heeds: bool) -> tuple[list[Release], dict[int, list[Release]]]:
        """What comes free for a job, in order, each pod once; and of that, by row, what does for those alone that may
        take the place of groups that have outlived their lifetime. A job that heeds which pods stand where (`heeds`),
        or wants whole nodes, counts on none of other schedulers' pods: plugins follow only those that kbatch moves.
        """
        leaving = self._session.leaving
        ends = [end for end in self.all() if end.task.job != job.key and end.task.key not in leaving]
        if heeds or self._session.whole_nodes.active:
            ends = [end for end in ends if end.task.job]
        by_row: dict[int, list[Release]] = {}
        lifetimes = [end for end in self._by_lifetime(job) if end.task.key not in leaving]
        if not lifetimes:
            return ends, by_row
        known = {end.task.key: end for end in ends}
        for end in lifetimes:
            other = known.get(end.task.key)
            if other is None or end.at < other.at:
                known[end.task.key] = end
                by_row.setdefault(end.row, []).append(end)
        return sorted(known.values(), key=_in_order), by_row

    def _by_lifetime(self, job: JobState) -> list[Release]:
        session = self._session
        spec = job.job.group.spec if job.job.group is not None else None
        queue = session.queues.get(job.queue)
        ends_itself = spec is not None and spec.lifetime_seconds is not None
        if queue is None or ends_itself or not session.policy.has("preempt"):
            return []
        return [
            release
            for other in queue.record.holders.values() if other.key != job.key and other.priority <= job.priority
            for release in releases_by_lifetime(session.nodes, other, session.now)
        ]  # fmt: skip


def count_until(ends: Sequence[Release], at: int) -> int:
    """How many of the ends, in order, are due by an instant."""
    return bisect_right(ends, at, key=_at)


_at = attrgetter("at")


def _in_order(release: Release) -> tuple[int, int, str]:
    return release.at, release.row, release.task.key
