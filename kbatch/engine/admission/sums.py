"""What decides who may come in queue: the room, shares, caps and quotas that are left beside what others were promised.

Asked of one group here, of all rows of the backlog at once in `rows`: the same comparisons. While groups come in queue
the sums only shrink, so that whoever was refused in a cycle stays so until its end.

What was promised to those that hold nothing yet keeps nobody of their queue out who would be placed before them: of a
higher priority, where preempt is configured. They stay in queue, behind it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

from kbatch.engine.admission.confined import Confined, Place
from kbatch.engine.admission.demand import Quotas
from kbatch.engine.admission.in_vain import InVain
from kbatch.engine.admission.weaker import Weaker
from kbatch.engine.carryover.backlog import Entry
from kbatch.engine.carryover.giving import Giving
from kbatch.engine.carryover.standing import Standing
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import Turn
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.model.quota import Excess
from kbatch.resources import Resources, add, add_to

_NOTHING: Final[Resources] = {}


class Sums:
    """One run of `enqueue`: what is left, and what groups in queue have coming (`promised`, in all and by queue)."""

    def __init__(self, context: CycleContext) -> None:
        session = self._session = context.session
        self._feasibility = context.feasibility
        self.room = session.usable()
        self.promised: Resources = {}
        self.by_queue: dict[str, Resources] = {}
        self.confined = Confined(session, context.feasibility)
        self.in_vain = InVain(context)
        self.quotas = Quotas(session)
        self.weaker = Weaker(session, context.backlog.levels)
        self.reclaims = session.policy.has("reclaim")
        self.preempts = session.policy.has("preempt")
        self.moves = 0
        """So many promises were counted."""
        self._by_priority: dict[str, dict[int, Resources]] = {}
        self._overtaken: dict[tuple[str, int], Resources] = {}

    def promise(self, job: JobState, kept: Mapping[str, int]) -> None:
        """A group is in queue: so much more is kept from others."""
        self.moves += 1
        add_to(self.promised, kept)
        add_to(self.by_queue.setdefault(job.queue, {}), kept)
        if self.preempts and not job.bound:
            add_to(self._by_priority.setdefault(job.queue, {}).setdefault(job.priority, {}), kept)
        self.confined.promise(job, kept)

    def all_are_in(self) -> None:
        """Nobody else is let in: what was said of whom others overtake is worked out anew."""
        self._overtaken.clear()

    def of(self, entry: Entry) -> Generator[Turn, None, Standing]:
        """What keeps a group out; `SENT_BACK` and ageing are no sums."""
        if entry.fixed is not None:
            return Standing.FIXED
        session, least = self._session, entry.least
        queue = session.queue(entry.job.queue)
        if self.over_capability(entry, queue) is not None:
            return Standing.CAPABILITY
        if self.over_quota(entry) is not None:
            return Standing.QUOTA
        job = session.job(entry.job.key)
        if session.plugins.admission(job, entry.kept) is not None:
            return Standing.LIMITED
        if self._feasibility.hopeless(job):
            return Standing.HOPELESS
        if entry.stated and any(amount > session.total.get(name, 0) for name, amount in least.items()):
            return Standing.TOO_LARGE
        if entry.strict and entry.triable and not (yield from self._feasibility.attempting(job)).fits:
            return Standing.UNFIT
        if self.short(job, least) is None:
            return Standing.PASSES
        beyond = self.beyond(queue, entry)
        if self.reclaims and beyond is None and self.out_of_reach(job, queue, entry) is None:
            return Standing.PASSES
        if self.preempts and self.short(job, least, self.freed(entry.giving), overtakes=True) is None:
            return Standing.PASSES
        if entry.triable and not (yield from self._feasibility.attempting(job)).fits:
            return Standing.UNFIT
        helped = self.reclaims and not entry.giving.never  # a larger share would help it
        if helped and beyond is not None and least[beyond] > queue.deserved.get(beyond, 0):
            return Standing.BEYOND_SHARE
        return Standing.WAITING

    def over_quota(self, entry: Entry) -> Excess | None:
        """The first limit of a quota of its namespace that it would pass."""
        job = entry.job
        return self.quotas.exceeded(self.quotas.asked_of(job)) if self.quotas.of(job.namespace) else None

    def over_capability(self, entry: Entry, queue: QueueState) -> str | None:
        """In which dimension it would pass its queue's hard cap, with what could be freed for it gone."""
        capability = queue.record.capability
        if not capability:
            return None
        promised = self.by_queue.get(queue.name, {})
        freed: Resources | None = None
        for name in sorted(entry.least):
            hard, amount = capability.get(name), entry.least[name]
            if hard is None or not amount:
                continue
            over = queue.allocated.get(name, 0) + promised.get(name, 0) + amount - hard
            if over > 0:
                if freed is None:
                    freed = add(self.freed(entry.giving), self.overtaken(queue.name, entry.giving.priority))
                if over > freed.get(name, 0):
                    return name
        return None

    def short(
        self, job: JobState, least: Mapping[str, int], more: Mapping[str, int] = _NOTHING, *, overtakes: bool = False
    ) -> str | None:
        """A dimension in which the room less what is promised, and `more`, is not enough: in all, or on the nodes that
        the group's pods may use. `overtakes`: not less what is promised to those that the group overtakes.
        """
        promised = self.overtaken(job.queue, job.priority) if overtakes else _NOTHING
        found = self.short_in_all(least, add(more, promised) if promised else more)
        place = self.confined.of(job) if found is None else None
        return found if place is None else self.short_there(place, job, least, more)

    def short_there(
        self, place: Place, job: JobState, least: Mapping[str, int], more: Mapping[str, int] = _NOTHING
    ) -> str | None:
        """The first dimension in which what is left to the group of its place, and `more`, is not enough."""
        short = (
            name for name in sorted(least)
            if 0 < least[name] > place.left(name, job.queue, job.priority) + more.get(name, 0)
        )  # fmt: skip
        return next(short, None)

    def short_in_all(self, least: Mapping[str, int], more: Mapping[str, int] = _NOTHING) -> str | None:
        """The first of these."""
        found: str | None = None
        room, promised = self.room, self.promised
        for name, amount in least.items():
            if amount > 0 and amount > room.get(name, 0) - promised.get(name, 0) + more.get(name, 0):
                found = name if found is None or name < found else found
        return found

    def free(self, name: str) -> int:
        """The room of a dimension less what is promised; below 0 where more is promised than there is."""
        return self.room.get(name, 0) - self.promised.get(name, 0)

    def overtaken(self, queue: str, priority: int) -> Resources:
        """What those in queue were promised, when this was first asked in the cycle, whom a group of this queue and
        priority overtakes: they matter less, and hold nothing yet.
        """
        promised = self._by_priority.get(queue)
        if not promised:
            return _NOTHING
        key = queue, priority
        found = self._overtaken.get(key)
        if found is None:
            found = self._overtaken[key] = add(*(each for theirs, each in promised.items() if theirs < priority))
        return found

    def freed(self, giving: Giving | None) -> Resources:
        """What could be freed for such a group by those that matter less, where they may be evicted for it."""
        return self.weaker.of(giving) if giving is not None and self.preempts else _NOTHING

    def beyond(self, queue: QueueState, entry: Entry) -> str | None:
        """The first dimension in which the queue's share, less what it holds and was promised, is not enough."""
        promised = self.by_queue.get(queue.name, {})
        overtaken = self.overtaken(queue.name, entry.giving.priority)
        for name, amount in sorted(entry.least.items()):
            left = queue.deserved.get(name, 0) - queue.allocated.get(name, 0) - promised.get(name, 0)
            if amount > max(0, left + overtaken.get(name, 0)):
                return name
        return None

    def out_of_reach(self, job: JobState, queue: QueueState, entry: Entry) -> str | None:
        """The first dimension in which all the room, with what other queues could give up, would not hold the group
        beside what its own queue was promised; or all the room on the nodes that its pods may use would not. What
        others were promised beyond their shares keeps no room from it.
        """
        least, names = entry.least, sorted(entry.least)
        given = _NOTHING if entry.giving.never else self.weaker.reclaimable(queue.name)
        overtaken = self.overtaken(job.queue, job.priority)
        reach = zip(names, self.within_reach(queue, names), strict=True)
        most = {name: there + given.get(name, 0) + overtaken.get(name, 0) for name, there in reach}
        found = next((name for name in names if least[name] > max(0, most[name])), None)
        place = self.confined.of(job) if found is None else None
        if place is None:
            return found
        own = ((name, place.left(name, queue.name, job.priority, own=True) + given.get(name, 0)) for name in names)
        return next((name for name, left in own if least[name] > max(0, left)), None)

    def within_reach(self, queue: QueueState | None, names: list[str]) -> list[int]:
        """The most that groups of a queue could get of the room if they overtook nobody: see `out_of_reach`. May be
        below 0.
        """
        if queue is None:
            return [0] * len(names)
        promised = self.by_queue.get(queue.name, {})
        return [self.room.get(name, 0) - promised.get(name, 0) for name in names]
