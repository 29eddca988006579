"""Which plugins score nodes for a job's pods, and on which nodes the job stands already.

What a queue asks for (`Queue.spec.placement`) is carried out by the plugin that the configuration names for it, else by
a stand-in. Where no queue asks for anything and no plugin minds where a job stands, all this costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kbatch.api.placement import Placement
from kbatch.engine.plugin import Plugin, Undo
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task


class Scoring:
    """Of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._plugins: dict[Placement | None, Sequence[Plugin]] = {None: session.plugins.scores}
        asked = {queue.record.placement for queue in session.queues.values()}
        for placement in sorted(each for each in asked if each is not None):
            stand_in = session.policy.stand_ins.get(placement)
            more = [stand_in[0](stand_in[1], session)] if stand_in is not None else []
            self._plugins[placement] = [*session.plugins.scores, *more]
        self.by_job = len(self._plugins) > 1
        """Whether jobs of different queues may be placed in different ways."""
        self.own_nodes: JobNodes | None = None
        if any(plugin.own_nodes for plugins in self._plugins.values() for plugin in plugins):
            self.own_nodes = JobNodes(session)

    def placement(self, job: JobState) -> Placement | None:
        """What the job's queue asks for; None: nothing else than the configuration."""
        queue = self._session.queues.get(job.queue)
        return queue.record.placement if queue is not None else None

    def plugins(self, placement: Placement | None) -> Sequence[Plugin]:
        """Those that score nodes for it."""
        return self._plugins[placement]


class JobNodes:
    """On how many rows each job has pods, bound or nominated, as the open statement has it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._moved: dict[str, dict[int, int]] = {}
        self._before: dict[str, dict[int, int]] = {}
        session.plugins.following.append((lambda _: True, self._placed))
        session.plugins.removed_hooks.append(self._removed)

    def rows(self, job: JobState) -> list[int]:
        """The rows on which the job has pods, in order."""
        before = self._before.get(job.key)
        if before is None:
            before = self._before[job.key] = self._stood(job)
        moved: Mapping[int, int] = self._moved.get(job.key, {})
        return sorted(row for row in before.keys() | moved.keys() if before.get(row, 0) + moved.get(row, 0) > 0)

    def _stood(self, job: JobState) -> dict[int, int]:
        """Where the snapshot has its pods."""
        found: dict[int, int] = {}
        if not self._session.emptied:
            for task in job.job.tasks.values():
                row = self._session.nodes.row.get(task.node, -1) if task.holds else -1
                if row >= 0:
                    found[row] = found.get(row, 0) + 1
        return found

    def _move(self, task: Task, row: int, sign: int) -> None:
        moved = self._moved.setdefault(task.job, {})
        moved[row] = moved.get(row, 0) + sign

    def _placed(self, task: Task, row: int) -> Undo:
        self._move(task, row, 1)
        return lambda: self._move(task, row, -1)

    def _removed(self, task: Task, row: int) -> Undo:
        self._move(task, row, -1)
        return lambda: self._move(task, row, 1)
