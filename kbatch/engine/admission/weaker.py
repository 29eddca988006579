"""What less important groups of a queue could give up for one that waits to come in queue."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from kbatch.engine.carryover.giving import Giving, Level, Levels
from kbatch.engine.preemption.prospective import behind, gives
from kbatch.engine.session.consent import lifetime_end
from kbatch.engine.session.session import Session
from kbatch.model.jobs import QueueRecord
from kbatch.resources import Resources, add, add_to


class Weaker:
    """One cycle's answers. `levels` are those of earlier cycles, by queue, as far as they hold; kept current here."""

    def __init__(self, session: Session, levels: MutableMapping[str, Levels]) -> None:
        self._session = session
        self._levels = levels
        self._behind: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._found: dict[Giving, Resources] = {}

    def of(self, giving: Giving) -> Resources:
        """What could be freed: by the less important, by those that have outlived their lifetime for one that has none,
        and by the surplus of equals for pods that are sure to come.
        """
        found = self._found.get(giving)
        if found is None:
            found = self._found[giving] = self._sum(giving)
        return found

    def _sum(self, giving: Giving) -> Resources:
        queue = self._session.queues.get(giving.queue)
        if queue is None:
            return {}
        ahead = bool(giving.foreseen) and not self._is_behind(giving)
        parts: list[Mapping[str, int]] = []
        for priority, level in self._of(queue.record).by_priority:
            if priority > giving.priority:
                break
            if priority < giving.priority:
                parts += (level.spare, level.late if giving.endless else level.late_spare)
            else:
                parts += (level.late,) if giving.endless else ()
                if ahead:
                    parts.append(level.surplus)
                    parts += () if giving.endless else (level.late_surplus,)
        return add(*parts)

    def _is_behind(self, giving: Giving) -> bool:
        key = giving.queue, giving.foreseen
        found = self._behind.get(key)
        if found is None:
            found = self._behind[key] = behind(self._session, *key)
        return found

    def _of(self, record: QueueRecord) -> Levels:
        now = self._session.now
        found = self._levels.get(record.name)
        if (
            found is None
            or found.record is not record
            or found.generation != record.generation
            or (found.until is not None and now >= found.until)
        ):
            found = self._levels[record.name] = _levels(record, now)
        if found.until is not None:
            self._session.wake.append(found.until)
        return found


def _levels(record: QueueRecord, now: int) -> Levels:
    """The sums of a queue's groups as they are."""
    levels: dict[int, Level] = {}
    until: int | None = None
    for job in record.holders.values():
        if not job.holding or job.disruption == "Never":
            continue
        level = levels.get(job.priority)
        if level is None:
            level = levels[job.priority] = Level()
        end = lifetime_end(job)
        late = end is not None and now >= end
        if end is not None and not late:
            until = end if until is None else min(until, end)
        spare = job.holding if job.disruption == "Whole" or not job.gang else max(0, job.holding - job.minimum)
        part = job.bound
        if spare != job.holding:
            part = {name: amount * spare // job.holding for name, amount in job.bound.items()}
        add_to(level.late_spare if late else level.spare, part)
        add_to(level.late_surplus if late else level.surplus, gives(job))
        if late:
            add_to(level.late, job.bound)
    return Levels(record, record.generation, until, tuple(sorted(levels.items(), key=lambda pair: pair[0])))
