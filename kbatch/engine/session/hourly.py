"""How often the groups of a queue may be evicted as wholes: `Queue.spec.evictionsPerHour`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from kbatch.api.objects import timestamp_us
from kbatch.api.reasons import Protector
from kbatch.engine.decisions import Transaction
from kbatch.engine.plugin import Unit
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task
from kbatch.times import HOUR


class HourlyLimit:
    """Keeps a queue's groups from being evicted as wholes more often than it allows, in any hour.

    `before` is what `after` gave in the cycle before: by queue, of those with a limit, when groups were evicted; by
    its uid, since a Queue that is made again under a name has evicted nobody. What stands in the Queues' status counts
    too, so that nothing is forgotten when another process goes on.
    """

    def __init__(self, session: Session, before: Mapping[str, tuple[int, ...]]) -> None:
        self._session = session
        self._limits = {
            queue.name: limit
            for queue in session.queues.values()
            if (limit := queue.record.evictions_per_hour) is not None
        }
        self._recent = {
            name: tuple(
                instant
                for instant in _both(_before(session, name, before), _written(session, name))
                if self._counts(instant)
            )
            for name in self._limits
        }
        self._touched: dict[str, int] = {}
        self._told: dict[str, int] = {}

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

    def protecting(self, unit: Unit) -> list[tuple[Protector, str]]:
        """The queue."""
        return [(Protector.HOURLY, unit.job.queue)]

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

    def _counts(self, instant: int) -> bool:
        """Whether it was in the last hour, or by clocks that differ by less than an hour might have been: one that a
        wrong clock wrote days ahead would keep the queue's groups from being evicted for days.
        """
        return abs(instant - self._session.now) < HOUR

    def telling(self, found: Transaction) -> Transaction:
        """The transaction, decided just now, with what is to be written down of it."""
        if not (self._limits and found.evictions):
            return found
        gone = {name: self._gone(name) for name in self._limits}
        after = self._instants()
        more = {name: after[name] for name, count in gone.items() if count > self._told.get(name, 0)}
        self._told = gone
        return msgspec.structs.replace(found, evicted=more) if more else found

    def after(self) -> dict[str, tuple[int, ...]]:
        """For the next cycle: by the queue's uid when groups were evicted as wholes, in the last hour."""
        return {_key(self._session, name): instants for name, instants in self._instants().items()}

    def _instants(self) -> dict[str, tuple[int, ...]]:
        """The same by the queue's name."""
        found = {name: (*recent, *[self._session.now] * self._gone(name)) for name, recent in self._recent.items()}
        return {name: instants for name, instants in found.items() if instants}


def _written(session: Session, name: str) -> list[int]:
    """What the Queue's status says; nothing of it that cannot be read."""
    queue = session.model.queues[name].queue if name in session.model.queues else None
    found: list[int] = []
    for text in (queue.status.evicted or ()) if queue is not None else ():
        with suppress(msgspec.ValidationError):
            instant = timestamp_us(text)
            if instant is not None:
                found.append(instant)
    return found


def _key(session: Session, name: str) -> str:
    """A Queue's uid; its name, where nobody has given it one."""
    queue = session.model.queues[name].queue if name in session.model.queues else None
    return (queue.metadata.uid if queue is not None else "") or name


def _before(session: Session, name: str, before: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """What the cycle before has left of a Queue; older decision logs name it."""
    return before.get(_key(session, name), before.get(name, ()))


def _both(one: Iterable[int], other: Iterable[int]) -> list[int]:
    """What either says, in order; an instant as often as the one that says it more often."""
    return sorted((Counter(one) | Counter(other)).elements())


def _whole(job: JobState) -> bool:
    """Whether nothing is left of the gang."""
    return job.job.gang and len(job.evicted) >= job.job.holding


def _nothing() -> None:
    pass
