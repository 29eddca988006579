"""What one session knows of ends: of pods that stand on nodes or were bound in it, and of those that would start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final

from kbatch.engine.carryover.known_ends import KnownEnds
from kbatch.engine.decisions import Turn
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.timeline import Release, Timeline, released, releases_by_lifetime
from kbatch.model.expected import Expected
from kbatch.model.tasks import Task

_NONE: Final[Sequence[Release]] = ()
_NEVER: Final = 2**63


class Ends:
    """Worked out when it is first asked for, and brought up to date with what the session commits. `known`: what
    earlier cycles have found out.

    Attributes:
        come: of the pods that the session has bound. gone: of those that it has evicted, as they were expected before.
        leaving: of those that were terminating before. The room of a session counts as though these had gone already,
            and so do the sums of queues.
    """

    def __init__(self, session: Session, known: KnownEnds | None = None) -> None:
        self._session = session
        learned = session.plugins.run_time if session.plugins.learns else None
        self._expected = Expected(session.model, session.now, learned, session.snapshot.state.begun)
        self._lengths: dict[str, tuple[int, int | None]] = {}
        self._known = known if known is not None else KnownEnds()
        self._positions = session.model.changes.position, session.model.node_changes.position
        self._prepared = False
        self.come: list[Release] = []
        self.gone: list[Release] = []
        self.leaving: Sequence[Release] = _NONE
        self._leaving_on: dict[int, list[Release]] = {}
        self._come_on: dict[int, list[Release]] = {}
        self._by_row: dict[int, Sequence[Release]] = {}
        self._counted: set[str] = set()
        self._cursor = 0
        self._open: dict[str, Release] = {}
        """By key of the pod, of those that are placed in an open statement."""
        self._moves = 0
        """How often ends were added of pods that are placed in an open statement, or taken away."""

    @property
    def known(self) -> tuple[int, int]:
        """How many ends are known, and how often that of an open statement was; as long as both are so, they are the
        same.
        """
        return len(self._known) + len(self.come) if self._prepared else -1, self._moves

    def length(self, job: JobState) -> int | None:
        """How long the job's waiting pods run at most, in microseconds; None: of some nobody knows."""
        waiting = job.waiting
        known = self._lengths.get(job.key)
        if known is None or known[0] != len(waiting):  # it is fewer while others than its first are tried: `keeping_to`
            known = self._lengths[job.key] = len(waiting), self._longest(waiting)
        return known[1]

    def _longest(self, tasks: Sequence[Task]) -> int | None:
        if len(tasks) == 1:
            return self._expected.length(tasks[0])
        lengths = [self._expected.length(task) for task in tasks]
        known = [length for length in lengths if length is not None]
        return max(known, default=None) if len(known) == len(lengths) else None

    def after(self, job: JobState, start: int) -> int | None:
        """When the job would have ended that starts at an instant; None: nobody knows."""
        length = self.length(job)
        return None if length is None else start + length

    def sure(self, end: Release) -> bool:
        """Whether somebody sees to it that the pod has gone by then."""
        if end.task.terminating:
            return end.at == end.task.release_at
        return self._expected.sure(end.task)

    def preparing(self) -> Iterator[Turn]:
        """Find out what is known to end, in pieces."""
        if not self._prepared:
            session = self._session
            model, table = session.model, session.nodes
            yield from self._known.catching_up(model, table, session.now, self._expected, self._positions)
            self._look_at_terminating()
            self._prepared = True

    def _look_at_terminating(self) -> None:
        session = self._session
        if not session.room.awaits_any:
            return
        timeline = Timeline(session.nodes, session.now, session.policy.nomination_grace)
        self.leaving = sorted(timeline.departures(self._expected))
        for release in self.leaving:
            session.room.ensure(release.task.cls)
            self._leaving_on.setdefault(release.row, []).append(release)

    def follow(self) -> None:
        """Take over what the session has committed."""
        session = self._session
        for _ in self.preparing():
            pass
        if len(self.gone) < len(session.leaving):
            self._follow_evictions()
        committed = session.committed
        if self._cursor == len(committed):
            return
        for key in dict.fromkeys(committed[self._cursor :]):
            job = session.job(key)
            for task, row in job.placed.values():
                if task.key in self._counted:
                    continue
                self._counted.add(task.key)
                length = self.length(job) if len(job.waiting) == 1 else self._expected.length(task)
                if length is not None:
                    self.come.append(self._starting(task, row, length))
        self._cursor = len(committed)

    def expect(self, placed: Iterable[tuple[Task, int]]) -> list[Release]:
        """Count with the ends of pods of an open statement that start now, until `expect_no_more`."""
        self.follow()
        lengths = [(task, row, self._expected.length(task)) for task, row in placed]
        found = [self._starting(task, row, length) for task, row, length in lengths if length is not None]
        self._open.update({release.key: release for release in found})
        self._moves += len(found)
        return found

    def expect_no_more(self, expected: Iterable[Release]) -> None:
        """What `expect` has counted is given back."""
        for release in expected:
            del self._open[release.key]
            self._come_on[release.row].remove(release)
            self._by_row.pop(release.row, None)
            self._moves += 1

    def _starting(self, task: Task, row: int, length: int) -> Release:
        """The end of a pod that starts now on a row and runs for so long, counted there."""
        found = released(self._session.now + length, row, task.key, task)
        self._come_on.setdefault(row, []).append(found)
        self._by_row.pop(row, None)
        return found

    def _follow_evictions(self) -> None:
        nodes, tasks = self._session.nodes, self._session.model.tasks
        for key in sorted(self._session.leaving.keys() - {end.key for end in self.gone}):
            task = tasks[key]
            known = next(self._known.of((task,)), None)
            at = known.at if known is not None else _NEVER
            self.gone.append(released(at, nodes.row.get(task.node, -1), key, task))

    def on(self, row: int) -> Sequence[Release]:
        """What is known to end on a row, in order, as of the last `follow`, and is not evicted."""
        leaving = self._session.leaving
        ends = self._by_row.get(row)
        if ends is None:
            tasks = self._session.nodes.records[row].tasks.values() if self._prepared else ()
            ends = self._by_row[row] = sorted((*self._known.of(tasks), *self._come_on.get(row, ())))
        return [end for end in ends if end.key not in leaving] if leaving else ends

    def leaving_on(self, row: int) -> Sequence[Release]:
        """Those of `leaving` on a row, in order."""
        return self._leaving_on.get(row, _NONE)

    def all_on(self, row: int) -> Sequence[Release]:
        """`on`, and `leaving_on`: where the room is that of a later instant."""
        return [*self.on(row), *self.leaving_on(row)] if row in self._leaving_on else self.on(row)

    def first(self) -> int | None:
        """The first instant after now at which anything is known to end; None: nothing is."""
        self.follow()
        now = self._session.now
        found = [end.at for end in (*self.come, *self.leaving[:1]) if end.at > now]
        for end in self._known.near:  # in order
            if end.at > now:
                found.append(end.at)
                break
        return min(found, default=None)

    def left(self) -> KnownEnds:
        """What the next cycle may go on from."""
        return self._known

    def begun(self) -> dict[str, int]:
        """Since when the binds are under way that are, or were decided in this session; by key of the pod."""
        session = self._session
        since, now = session.snapshot.state.begun, session.now
        found = {key: since.get(key, now) for key in session.model.marks()[0]}
        for job in dict.fromkeys(session.committed):
            for task, _ in session.job(job).placed.values():
                found[task.key] = now
        return dict(sorted(found.items()))

    def for_job(self, job: JobState, *, heeds: bool) -> tuple[Upcoming, dict[int, list[Release]]]:
        """What comes free for a job, in order, each pod once; and of that, by row, what does for those alone that may
        take the place of groups that have outlived their lifetime. A job that heeds which pods stand where (`heeds`),
        or wants whole nodes, counts on none of other schedulers' pods: plugins follow only those that kbatch moves.
        """
        self.follow()
        leaving, known, come = self._session.leaving, self._known, [*self.come, *self._open.values(), *self.leaving]
        key, horizon = job.key, known.horizon
        ours = heeds or self._session.whole_nodes.active

        def those(some: Iterable[Release]) -> list[Release]:
            """Without the job's own, and those that do not count; what terminates counts in any case."""
            found = [end for end in some if end.task.job != key or end.task.terminating]
            if leaving:
                found = [end for end in found if end.key not in leaving]
            return [end for end in found if end.task.job or end.task.terminating] if ours else found

        soon = those([end for end in come if end.at < horizon])
        some_left_out = bool(leaving) or ours or known.any_of(key)
        near = those(known.near) if some_left_out else list(known.near)
        if soon:
            soon.sort()
            near += soon
            near.sort()
        by_row: dict[int, list[Release]] = {}
        lifetimes = [end for end in self._by_lifetime(job) if end.key not in leaving]
        if not lifetimes:
            return Upcoming(
                near, lambda: sorted(those(chain(known.far(), (end for end in come if end.at >= horizon))))
            ), by_row
        every = {end.key: end for end in those(chain(known.near, known.far(), come))}
        for end in lifetimes:
            other = every.get(end.key)
            if other is None or end.at < other.at:
                every[end.key] = end
                by_row.setdefault(end.row, []).append(end)
        return Upcoming(sorted(every.values())), by_row

    def _by_lifetime(self, job: JobState) -> list[Release]:
        session = self._session
        spec = job.job.group.spec if job.job.group is not None else None
        queue = session.queues.get(job.queue)
        ends_itself = spec is not None and spec.lifetime_seconds is not None
        if queue is None or ends_itself or not session.policy.has("preempt"):
            return []
        if not any(kind.ends for kind in queue.record.kinds):
            return []  # none of its groups that hold anything has a lifetime
        return [
            release
            for other in queue.record.holders.values() if other.key != job.key and other.priority <= job.priority
            for release in releases_by_lifetime(session.nodes, other, session.now)
        ]  # fmt: skip


class Upcoming:
    """Releases in order: the next of them, and `rest`, which is asked for only if anybody wants to know what is later.

    Attributes:
        ends: those that are known as yet.
    """

    def __init__(self, ends: list[Release], rest: Callable[[], list[Release]] | None = None) -> None:
        self.ends = ends
        self._rest = rest

    def more(self) -> bool:
        """Find out those that are not known yet; whether there were any."""
        if self._rest is None:
            return False
        more, self._rest = self._rest(), None
        self.ends += more
        return bool(more)

    def until(self, at: int) -> int:
        """How many are due by an instant."""
        count = bisect_right(self.ends, at, key=_at)
        return self.until(at) if count == len(self.ends) and self.more() else count


_at = attrgetter("at")
