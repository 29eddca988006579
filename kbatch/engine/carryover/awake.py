"""Which groups a cycle looks at: those that changed, and those that have no row in the backlog."""

from __future__ import annotations

from kbatch.engine.carryover.backlog import Backlog
from kbatch.engine.carryover.memo import Memo
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.snapshot import Snapshot
from kbatch.model.jobs import Job


def backlog_of(memo: Memo, snapshot: Snapshot) -> Backlog:
    """The backlog that a cycle goes on from: an empty one where the memo has none, or another cycle has used it."""
    if memo.backlog is not None:
        backlog, stamp = memo.backlog
        if backlog.stamp == stamp and backlog.changes is snapshot.model.changes:
            backlog.stamp += 1
            return backlog
    return Backlog(snapshot.model.changes)


class Awake:
    """One cycle's choice.

    Attributes:
        jobs: the groups to look at. gone: keys of those that were looked at, or had a row, and are settled or gone now.
        whole: whether all that are not settled are looked at.
    """

    def __init__(self, memo: Memo, backlog: Backlog, snapshot: Snapshot) -> None:
        self._backlog = backlog
        live = snapshot.model.live
        changed = backlog.changes.since(backlog.position) if backlog.stamp else None
        self.whole = changed is None
        self.jobs: list[Job]
        gone: list[str] = []
        if changed is None:
            for key in list(backlog.keys()):
                backlog.remove(key)
            self.jobs = list(live.values())
            backlog.capacity = snapshot.capacity_generation
        else:
            keys = dict.fromkeys((*backlog.awake, *changed))
            known = set(backlog.awake)
            if backlog.capacity != snapshot.capacity_generation:
                roused = backlog.capacity_changed(snapshot.capacity_generation)
                keys.update(dict.fromkeys(roused))
                known.update(roused)
            self.jobs = []
            for key in keys:
                had = backlog.remove(key)
                job = live.get(key)
                if job is not None:
                    self.jobs.append(job)
                elif had or key in known:
                    gone.append(key)
        self.gone = tuple(gone)
        if backlog.generation != snapshot.generation:
            backlog.generation = snapshot.generation
            if snapshot.numbers_current:
                backlog.changed = snapshot.now
        backlog.position = backlog.changes.position

    def leave(self, memo: Memo, session: Session, resting: dict[str, JobState]) -> None:
        """Put the backlog, and the groups in queue that rest, into the next cycle's memo."""
        backlog = self._backlog
        backlog.resting = resting
        backlog.stamp = max(1, backlog.stamp)
        for name in backlog.levels.keys() - session.queues.keys():
            del backlog.levels[name]
        backlog.awake = tuple(job.key for job in session.live())
        memo.backlog = backlog, backlog.stamp
