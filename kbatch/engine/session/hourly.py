"""How often the groups of a queue may be evicted as wholes: `Queue.spec.evictionsPerHour`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbatch.engine.plugin import Unit
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task
from kbatch.times import HOUR


class HourlyLimit:
    """Keeps a queue's groups from being evicted as wholes more often than it allows, in any hour.

    `before` is what `after` gave in the cycle before: by queue, of those with a limit, when groups were evicted. A
    process that begins without it begins to count.
    """

    def __init__(self, session: Session, before: Mapping[str, tuple[int, ...]]) -> None:
        self._session = session
        self._limits = {
            queue.name: limit
            for queue in session.queues.values()
            if (limit := queue.record.evictions_per_hour) is not None
        }
        self._recent = {
            name: tuple(instant for instant in before.get(name, ()) if instant > session.now - HOUR)
            for name in self._limits
        }
        self._touched: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Whether any queue has a limit."""
        return bool(self._limits)

    def allow(self, unit: Unit) -> bool:
        """Whether the unit may go, with what the open statement evicts gone already."""
        limit = self._limits.get(unit.job.queue)
        if limit is None or not unit.whole:
            return True
        recent = self._recent[unit.job.queue]
        if len(recent) + self._gone(unit.job.queue, unit.job) < limit:
            return True
        if recent:
            self._session.wake.append(recent[0] + HOUR)
        return False

    def of(self, task: Task) -> None:
        """It says nothing of single pods."""

    def removed(self, task: Task, row: int) -> Callable[[], None]:
        """A pod is evicted; the answer takes that back."""
        key = task.job
        if not key or not task.holds or self._session.phase == "resume":  # there it is a gang's own bind that failed
            return _nothing
        self._touched[key] = self._touched.get(key, 0) + 1

        def undo() -> None:
            self._touched[key] -= 1

        return undo

    def _gone(self, queue: str, besides: JobState | None = None) -> int:
        """How many of the queue's groups this cycle evicts as wholes."""
        jobs = (self._session.job(key) for key, count in self._touched.items() if count)
        return sum(1 for job in jobs if job.queue == queue and job is not besides and _whole(job))

    def after(self) -> dict[str, tuple[int, ...]]:
        """For the next cycle: by queue when groups were evicted as wholes, in the last hour."""
        found = {name: (*recent, *[self._session.now] * self._gone(name)) for name, recent in self._recent.items()}
        return {name: instants for name, instants in found.items() if instants}


def _whole(job: JobState) -> bool:
    """Whether nothing is left of the gang."""
    return job.job.gang and len(job.evicted) >= job.job.holding


def _nothing() -> None:
    pass
