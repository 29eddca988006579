"""What groups that run could give up for one that waits to come in queue: the less important of its queue, and those of
other queues.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import partial
from typing import Final

from kbatch.engine.carryover.giving import Giving, Levels, Share
from kbatch.engine.preemption.prospective import behind, gives
from kbatch.engine.session.session import Session
from kbatch.engine.state.queues import QueueState
from kbatch.engine.state.timeline import lifetime_end
from kbatch.model.jobs import Job
from kbatch.resources import Resources, add, subtract

_NOTHING: Final[Resources] = {}


class Weaker:
    """One cycle's answers. `levels` are those of earlier cycles, by queue, as far as they hold; kept current here."""

    def __init__(self, session: Session, levels: MutableMapping[str, Levels]) -> None:
        self._session = session
        self._levels = levels
        self._current: dict[str, Levels] = {}
        self._behind: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._given: dict[str, Resources] | None = None
        self._all: Resources = {}
        self._for: dict[str, Resources] = {}

    def of(self, giving: Giving) -> Resources:
        """What could be freed: by the less important, by those that have outlived their lifetime for one that has none,
        and by the surplus of equals for pods that are sure to come.
        """
        queue = self._session.queues.get(giving.queue)
        if queue is None or giving.never:
            return _NOTHING
        ahead = bool(giving.foreseen) and not self._is_behind(giving)
        if not (ahead or _any_weaker(queue, giving)):
            return _NOTHING
        levels = self._current.get(giving.queue) or self._of(giving.queue)
        if levels is None:
            return _NOTHING
        key = giving.priority, giving.endless, ahead
        found = levels.sums.get(key)
        if found is None:
            found = levels.sums[key] = _sum(levels, giving, ahead)
        return found

    def reclaimable(self, name: str) -> Resources:
        """What other queues than this one could give up at most: those that hold more than they deserve, of groups that
        may go as a whole, have more than their minimum, or have outlived their lifetime.
        """
        if self._given is None:
            self._given = {queue.name: self._whole(queue) for queue in self._session.queues.values() if _gives(queue)}
            self._all = add(*self._given.values())
        if self._session.plugins.chooses_donors:
            return self._given_to(name)
        own = self._given.get(name)
        return subtract(self._all, own) if own else self._all

    def _given_to(self, name: str) -> Resources:
        """The same, where plugins say which queues give to which."""
        found = self._for.get(name)
        if found is None:
            session = self._session
            receiver = session.queue(name)
            donors = (each for each in self._given or {} if each != name)
            giving = [each for each in donors if session.plugins.may_give(session.queue(each), receiver)]
            found = self._for[name] = add(*((self._given or {})[each] for each in giving))
        return found

    def _whole(self, queue: QueueState) -> Resources:
        """What the groups of a queue could give up."""
        levels = self._current.get(queue.name) or self._of(queue.name)
        if levels is None:
            return _NOTHING
        return add(*(level.most for level in levels.by_priority.values()))

    def _is_behind(self, giving: Giving) -> bool:
        key = giving.queue, giving.foreseen
        found = self._behind.get(key)
        if found is None:
            found = self._behind[key] = behind(self._session, *key)
        return found

    def _of(self, name: str) -> Levels | None:
        """The levels of a queue as they are; None where there is no such queue."""
        queue = self._session.queues.get(name)
        if queue is None:
            return None
        found = self._levels.get(name)
        if found is None or found.record is not queue.record:
            found = self._levels[name] = Levels(queue.record)
        now = self._session.now
        found.follow(now, partial(_share, now))
        if found.until is not None:
            self._session.wake.append(found.until)
        self._current[name] = found
        return found


def _sum(levels: Levels, giving: Giving, ahead: bool) -> Resources:
    """What the levels come to for one that asks; `ahead`: surplus of its equals counts too."""
    parts: list[Mapping[str, int]] = []
    for priority, level in levels.by_priority.items():
        if priority < giving.priority:
            parts += (level.spare, level.late if giving.endless else level.late_spare)
        elif priority == giving.priority:
            parts += (level.late,) if giving.endless else ()
            if ahead:
                parts.append(level.surplus)
                parts += () if giving.endless else (level.late_surplus,)
    return add(*parts)


def _any_weaker(queue: QueueState, giving: Giving) -> bool:
    """Whether any group that holds something in the queue is less important, or may outlive its lifetime. Else nobody
    looks at what these could give up: where all are equals, that is each start and each end.
    """
    return any(kind.priority < giving.priority or kind.ends for kind in queue.record.kinds)


def _gives(queue: QueueState) -> bool:
    """Whether the queue may be asked for what it has beyond its share."""
    return queue.record.reclaimable and any(
        queue.allocated.get(name, 0) > amount for name, amount in queue.deserved.items()
    )


def _share(now: int, job: Job) -> Share:
    """What a group could give up as it is."""
    if not job.holding or job.disruption == "Never":
        return Share(job.priority)
    end = lifetime_end(job)
    late = end is not None and now >= end
    spare = job.holding if job.disruption == "Whole" or not job.gang else max(0, job.holding - job.minimum)
    part = job.bound
    if spare != job.holding:
        part = {name: amount * spare // job.holding for name, amount in job.bound.items()}
    most = job.bound if late or (spare and job.roles) else part  # those of a role may be larger than the average
    return Share(job.priority, late, None if late else end, part, gives(job), job.bound if late else {}, most)
