"""Planned starts: when, and on which nodes, jobs are to start that cannot start now, and what is kept for them.

A start is planned by the code that places in earnest, on the room of later instants (`planning`): the earliest at which
the job fits, on the lowest nodes. From then on later jobs find less room (`kept`): what they find they can take without
delaying a planned start, on other nodes or beside it; and who is gone in time finds it all. Where nobody knows when the
job could start, nobody is in time, and only pods that could be evicted for it may use its room.

Mode `easy` plans the starts of the first jobs that cannot start, anew in each cycle. Mode `conservative` plans those of
all, and keeps to them (`promises`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from kbatch.api.reasons import Reason, Reserved
from kbatch.engine.carryover.known_ends import KnownEnds
from kbatch.engine.decisions import UNKNOWN, StartEstimate
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.reservation.backfilling import BackfillArguments
from kbatch.engine.reservation.ends import Ends, Upcoming
from kbatch.engine.reservation.kept import (
    NOTHING,
    Kept,
    PlannedStart,
    columns_of,
    kept_on,
    most_at_once,
    requests_of,
)
from kbatch.engine.reservation.returns import Returns
from kbatch.engine.session.limits import Limit
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import signature, unplaced
from kbatch.engine.state.queues import QueueState
from kbatch.engine.state.timeline import Release
from kbatch.model.nodes import Mask
from kbatch.model.tasks import Task
from kbatch.resources import Resources, add, subtract, total
from kbatch.times import MILLISECOND, SECOND

_REMEMBERED: Final = 64
_CHARGE: Final = "charge"


class PlannedStarts:
    """The planned starts of one session.

    Attributes:
        starts: by key of the job, in the order in which they were planned.
        depth: so many there may be, besides that of `aged`. keeps: what was planned in one cycle stands in the next.
        aged: the key of the group that has waited too long, if its start is planned before all others.
        mark: what is kept from others just now, in plain data; `()` where nothing is.
        backfilled: the keys of jobs that were started while others waited for their planned starts.
        hurried: the job that `lay` was last told of finds more room than is left to others, since it is gone in time if
            it starts now; it must not wait for any.
        behind: it comes after a job whose start is planned, and takes the lowest nodes.
        ends: what is known of ends. rankings: of the nodes, the lowest first.
        ahead: the session is at a later instant.
    """

    def __init__(self, session: Session, arguments: BackfillArguments, known: KnownEnds | None = None) -> None:
        self.session = session
        self.depth = arguments.starts
        self.keeps = arguments.mode == "conservative"
        self.aged: str | None = None
        self.starts: dict[str, PlannedStart] = {}
        self.mark: tuple[object, ...] = ()
        self.backfilled: set[str] = set()
        self.hurried = self.behind = False
        self.ends = Ends(session, known)
        self.rankings = NodeRankings(session.room, session.plugins.predicates, (), session.policy.fingerprint)
        self._laid: tuple[PlannedStart, ...] = ()
        self._kept = NOTHING
        self._since = session.now
        self._by_queue: dict[str, Resources] = {}
        self._besides: dict[str, tuple[Mapping[tuple[str, bool], Resources], bool, int]] = {}
        self._columns_of: dict[Hashable, Kept] = {}
        self._for: JobState | None = None
        self._shut: frozenset[int] = frozenset()
        self._barred: tuple[tuple[int, int], ...] = ()
        self.ahead = False
        self._entered = 0
        self._would_fit: dict[Hashable, bool] = {}
        session.limits.append(_Kept(self))
        session.caches.append(self.rankings.close)

    def close(self) -> None:
        """Let go of what holds this."""
        self.rankings.close()

    # --- what is kept from others -------------------------------------------------------------------------------------

    def lay(self, job: JobState | None, *, waits: bool = False) -> None:
        """From now on, until `lift` or the next call, keep from the job what planned starts need that it could delay.

        Args:
            job: None: any job.
            waits: it may start later than now, and others may be evicted for it.
        """
        if not (self.starts or self._laid):
            self.behind = False
            return
        waits = waits or job is None
        minded = [start for start in self.starts.values() if self.minds(start, job, None)]
        those = tuple(minded)
        until = self.ends.after(job, self.session.now) if minded and not waits and job is not None else None
        if until is not None:  # who is gone in time delays nobody
            those = tuple([start for start in minded if start.at is None or until > start.at])
        self.hurried, self.behind = len(those) < len(minded), bool(minded)
        mark = (waits, len(self.session.leaving), tuple([start.mark for start in those])) if those else ()
        if mark != self.mark:
            self.ends.follow()
            self.keep(those, self.session.now, counting=not waits)
            self.mark = mark
        self.turn_to(job)

    def finds_the_same(self, job: JobState, other: JobState) -> bool:
        """Whether `lay` would keep the same from a job as from another one that is alike, which it was last told of."""
        if not self.starts:
            return True
        if job.key in self.starts or other.key in self.starts:
            return False
        now, instants = self.session.now, [start.at for start in self.starts.values() if start.at is not None]
        if not instants:
            return True
        until, before = self.ends.after(job, now), self.ends.after(other, now)
        return all((until is None or until > at) == (before is None or before > at) for at in instants)

    @property
    def kept(self) -> tuple[object, ...]:
        """What is kept just now, in plain data: for which starts, and how much; that depends on what ends, too."""
        return self.mark, self._kept.mark

    def lift(self) -> None:
        """Keep nothing from anybody."""
        self.keep((), 0)
        self._for, self._shut, self._barred = None, frozenset(), ()
        self.mark, self.hurried, self.behind = (), False, False

    def keep(self, starts: tuple[PlannedStart, ...], since: int, *, counting: bool = True) -> None:
        """Keep the room of these starts, and of no others; `counting` on what ends until they are due."""
        room, whole = self.session.room, self.session.whole_nodes
        if len(self._kept.rows):
            room.keep(self._kept.rows, self._kept.amounts, -1)
        for laid, sign in ((self._laid, -1), (starts, 1)) if whole.active else ():
            for start in laid:
                for task, row in start.places:
                    whole.hold(task, row, sign)
        self._laid, self._kept, self._since = starts, NOTHING, since
        self._by_queue.clear()
        self._besides.clear()
        if starts:
            for cls in {task.cls.id: task.cls for start in starts for task, _ in start.places}.values():
                room.ensure(cls)
            self._kept = self._columns(starts, since, counting=counting)
            room.keep(self._kept.rows, self._kept.amounts)

    def _columns(self, starts: tuple[PlannedStart, ...], since: int, *, counting: bool) -> Kept:
        """What these starts keep; remembered while no other end is known, since jobs that find the same take turns."""
        marks, ends, ahead = tuple([start.mark for start in starts]), self.ends, self.ahead
        key = marks, since, counting, ahead, len(self.session.leaving), ends.known
        found = self._columns_of.get(key)
        if found is None:
            if len(self._columns_of) >= _REMEMBERED:
                self._columns_of.clear()
            coming = None if not counting else ends.all_on if ahead else ends.on
            found = columns_of(kept_on(starts, since, coming, None if ahead else ends.leaving_on))
            self._columns_of[key] = found
        return found

    def turn_to(self, job: JobState | None) -> None:
        """What is kept is kept from this job."""
        self._for, self._shut, self._barred = job, frozenset(), ()
        if job is not None:
            self._shut, self._barred = self._heeded(self._laid, job), self._excluded(self._laid, job)

    def minds(self, start: PlannedStart, job: JobState | None, until: int | None) -> bool:
        """Whether a job that would have ended by `until` (None: nobody knows) could delay a planned start."""
        holder = start.job
        if not self.stands(start):
            return False
        if job is None:
            return True
        if job.key == holder.key:
            return False
        if job.queue == holder.queue and job.priority > holder.priority:
            return False  # it comes first
        aged = holder.key == self.aged and job.queue == holder.queue
        if aged and self.session.plugins.job_key(job) < self.session.plugins.job_key(holder):
            return False  # it is ahead in their queue, and may take of what is kept, as of room that gathers
        if start.at is None:  # whoever was promised an instant before it goes first
            own = self.starts.get(job.key)
            return not (own is not None and own.place < start.place) and not self._could_go(job, holder)
        return until is None or until > start.at

    def stands(self, start: PlannedStart) -> bool:
        """Whether the job still waits for the start."""
        return start.job.seeks_minimum and start.job.key not in self.session.failed

    def _could_go(self, job: JobState, holder: JobState) -> bool:
        """Whether the job's pods could be evicted for the holder at any time."""
        if job.queue != holder.queue or not self.session.policy.has("preempt"):
            return False
        group, other = job.job.group, holder.job.group
        if group is not None and (group.spec.min_runtime_seconds or group.spec.disruption == "Never"):
            return False
        if any(task.never_preempts for task in holder.waiting):
            return False
        endless = other is None or other.spec.lifetime_seconds is None
        if endless and group is not None and group.spec.lifetime_seconds == 0 and job.priority <= holder.priority:
            return True
        return job.priority < holder.priority and (not job.job.gang or job.job.disruption == "Whole")

    def _heeded(self, starts: Sequence[PlannedStart], job: JobState) -> frozenset[int]:
        """The classes of those of the job's pods that, wherever they stand, might keep those of some start from their
        rows. Of a job that was promised a start before, such pods may wait above its minimum. At a later instant also
        those that pods would keep from theirs which are to stand by then: they stand nowhere yet, and are not seen.
        """
        standing = [start for start in starts if start.at is not None and start.at <= self._since] if self.ahead else []
        seen = standing if standing and self.heeds(job) else []
        heeding = [start for start in starts if start.heeds]
        if not (heeding or seen):
            return frozenset()
        mine = {task.cls.id: task.cls for task in job.waiting}.values()
        theirs, before = (
            {task.cls.id: task.cls for start in some for task, _ in start.places}.values() for some in (heeding, seen)
        )
        heeds = self.rankings.heeds_elsewhere
        return frozenset(
            [one.id for one in mine if any(heeds(cls, one) for cls in theirs) or any(heeds(one, cls) for cls in before)]
        )

    def _excluded(self, starts: Sequence[PlannedStart], job: JobState) -> tuple[tuple[int, int], ...]:
        """By class and row: where those of the job's pods cannot stand beside some of a start, whatever the room."""
        if not any(start.excludes for start in starts):
            return ()
        mine = {task.cls.id: task.cls for task in job.waiting}.values()
        theirs = {(task.cls.id, row): task.cls for start in starts if start.excludes for task, row in start.places}
        excludes = self.rankings.excludes
        return tuple([(other.id, row) for (_, row), cls in theirs.items() for other in mine if excludes(cls, other)])

    def apart(self, start: PlannedStart, beside: Sequence[PlannedStart]) -> bool:
        """Whether pods of a start may not be where they were to be, because of those of others, room aside."""
        shut, barred = self._heeded(beside, start.job), self._excluded(beside, start.job)
        return any(task.cls.id in shut or (task.cls.id, row) in barred for task, row in start.places)

    def later(self, job: JobState) -> bool:
        """Whether the job, as it is nominated just now, waits for pods that end later than it was promised to start."""
        own = self.starts.get(job.key) if self.keeps and job.nominated else None
        until = self.waits_until(job) if own is not None else None
        return own is not None and own.at is not None and until is not None and until > own.at

    def waits_until(self, job: JobState) -> int | None:
        """When the last of the pods will have gone that terminate on the nodes to which the job is nominated just now;
        None: there are none, or nobody knows.
        """
        rows = {row for _, row in job.nominated.values()}
        return max([end.at for row in rows for end in self.ends.leaving_on(row)], default=None)

    def shut_to(self, job: JobState) -> frozenset[int]:
        """The classes of those of the job's pods that may start nowhere: they matter to those of a planned start."""
        return self._shut if self._for is not None and job.key == self._for.key else frozenset()

    def barred_to(self, job: JobState) -> tuple[tuple[int, int], ...]:
        """By class and row, where the job's pods may not start, as those of a planned start could not stand there."""
        return self._barred if self._for is not None and job.key == self._for.key else ()

    def due_places(self, job: JobState) -> tuple[tuple[int, int], ...]:
        """By class and row, where the job's pods were promised to start by now: beside all other planned starts."""
        own = self.starts.get(job.key)
        if own is None or own.at is None or own.at > self.session.now:
            return ()
        return tuple([(task.cls.id, row) for task, row in own.places])

    def headroom(self, job: JobState, task: Task) -> int | None:
        """How many more such tasks the job may place without taking from planned starts what they need of its queue's
        hard cap, or of what plugins leave to the queue.
        """
        queue = self.session.queues.get(job.queue) if self._laid else None
        if queue is None:
            return None
        least, by_plugins = self._of_cap(queue, task), self._by_plugins(job, task)
        return by_plugins if least is None or (by_plugins is not None and by_plugins < least) else least

    def _by_plugins(self, job: JobState, task: Task) -> int | None:
        """The same of what plugins leave to the queue."""
        limit = self.session.plugins.limit
        if limit is None or not self._counts(job.queue):
            return None  # it is asked without what is kept, too
        with self._counted(job.queue):
            return limit.headroom(job, task)

    def _counts(self, name: str) -> bool:
        """Whether anything counts as promised, or charged, to a queue besides: see `_counted`."""
        promised, _, charged = self._beside(name)
        return bool(charged) or any(promised.values())

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        """Meanwhile what something is kept for just now counts as promised to the groups of a queue, and what these
        will be charged as charged.
        """
        queue, promises = self.session.queue(name), self.session.promises
        promises.besides, promises.ending_besides, charged = self._beside(name)
        queue.charged += charged
        try:
            yield
        finally:
            promises.besides, promises.ending_besides = {}, False
            queue.charged -= charged

    def _beside(self, name: str) -> tuple[Mapping[tuple[str, bool], Resources], bool, int]:
        """What counts as promised to the groups of a queue without a lifetime, and with one; whether any of them has
        one; and what counts as charged.

        Together the first two are the most that all hold at once, with what has ended by then: what either hold alone
        may be at different instants, so that the second may be below 0.
        """
        found = self._besides.get(name)
        if found is None:
            promises = self.session.promises
            mine = [each for each in self._laid if each.job.queue == name and each.job.key not in promises]
            endless = self._most([each for each in mine if not each.job.ends], False)
            most = self._most(mine, None)
            ending = {dimension: amount - endless.get(dimension, 0) for dimension, amount in most.items()}
            amounts = {(name, False): endless, (name, True): ending}
            found = self._besides[name] = amounts, any(each.job.ends for each in mine), self._most_charged(mine)
        return found

    def _of_cap(self, queue: QueueState, task: Task) -> int | None:
        if not queue.record.capability:
            return None
        kept = self._of_queue(queue.name)
        least: int | None = None
        for name, hard in queue.record.capability.items():
            amount = task.cls.request.get(name, 0)
            if amount and name in kept:
                more = max(0, (hard - queue.allocated.get(name, 0) - kept[name]) // amount)
                least = more if least is None else min(least, more)
        return least

    def within_limits(self, start: PlannedStart) -> bool:
        """Whether the queue's hard cap lets the job start as planned, beside the others that it would meet, with what
        has ended by then; where nobody knows when that is, whether it could ever. And whether plugins could ever.
        """
        job, session = start.job, self.session
        queue = session.queues.get(job.queue)
        if queue is None:
            return True
        hard = queue.record.capability or {}
        if hard:
            asked = self._asked_with(start, queue)
            if any(name in job.asks and asked.get(name, 0) > most for name, most in hard.items()):
                return False
        if session.plugins.limit is None:
            return True
        others, back = _of_others(queue, job), queue.charged - job.charged
        for ends, amounts in others.items():
            queue.add(amounts, -1, ends=ends)
        queue.charged -= back
        promises = session.promises
        besides, promises.besides, session.ever = promises.besides, promises.without(queue.name, job), True
        try:
            return not session.plugins.over_limits(job, [task for task, _ in start.places])
        finally:
            promises.besides, session.ever = besides, False
            for ends, amounts in others.items():
                queue.add(amounts, ends=ends)
            queue.charged += back

    def _asked_with(self, start: PlannedStart, queue: QueueState) -> Resources:
        """The most that the queue would have from the start on; where nobody knows when that is, what the job would."""
        job = start.job
        if start.at is None:
            return add(job.allocated, requests_of(start))
        mine = [start, *[other for other in self.beside(job, start.at) if other.job.queue == job.queue]]
        return add(queue.allocated, most_at_once(mine, start.at, lambda each: self._freed(each, None)))

    def _of_queue(self, queue: str) -> Resources:
        """How much of a queue's hard cap the planned starts need that something is kept for just now."""
        if queue not in self._by_queue:
            mine = [start for start in self._laid if start.job.queue == queue]
            self._by_queue[queue] = self._most(mine, None)
        return self._by_queue[queue]

    def _most(self, starts: Sequence[PlannedStart], ends: bool | None) -> Resources:
        nothing: Resources = {}
        return most_at_once(starts, self._since, lambda start: nothing if self.ahead else self._freed(start, ends))

    def _returns(self, start: PlannedStart) -> Returns | None:
        """What comes back to the queue of a start by then, by all that the session has decided."""
        if start.returns is not None:
            self.ends.follow()
            start.returns.follow(self.ends)
        return start.returns

    def _freed(self, start: PlannedStart, ends: bool | None) -> Resources:
        """What ends in the queue by a start."""
        returns = self._returns(start)
        return returns.freed[ends] if returns is not None else {}

    def _refunded(self, start: PlannedStart) -> int:
        """What comes back to the queue's excessBudget by a start."""
        returns = self._returns(start)
        return returns.refunded if returns is not None else 0

    def _most_charged(self, starts: Sequence[PlannedStart]) -> int:
        """What is to be left of a queue's excessBudget for these starts."""
        most = most_at_once(
            [start for start in starts if start.charge],
            self._since,
            lambda start: {_CHARGE: 0 if self.ahead else self._refunded(start)},
            lambda start: {_CHARGE: start.charge},
        )
        return max(0, most.get(_CHARGE, 0))

    def reserved(self) -> Reason:
        """What keeps a job from what is kept just now."""
        start, names = self._laid[0], self._for.asks if self._for is not None else ()
        asked = total(task.cls.request for task, _ in start.places)
        name = next((name for name in sorted(asked) if name in names), min(asked, default="cpu"))
        return Reserved(start.job.name, name, asked.get(name, 0))

    def reason(self, rankings: NodeRankings, job: JobState) -> Reason | None:
        """Reserved, where there might be room for a job that was tried in vain, but for what is kept from it."""
        if not self._laid or self._for is None or self._for.key != job.key:
            return None
        session = self.session
        mark = self.mark, signature(job, unplaced(job)), session.commits, session.room_moves
        fits = self._would_fit.get(mark)
        if fits is None:
            session.room.keep(self._kept.rows, self._kept.amounts, -1)
            fits = self._would_fit[mark] = could_fit(rankings, job)
            session.room.keep(self._kept.rows, self._kept.amounts)
        return self.reserved() if fits else None

    # --- planning -----------------------------------------------------------------------------------------------------

    def wanted(self, job: JobState) -> bool:
        """Whether the start of a job that was tried in vain is to be planned."""
        return self.may_plan(job) and not job.nominated

    def may_plan(self, job: JobState) -> bool:
        """Whether the start of a job could be planned besides the others: of that which has waited too long also where
        it was to start at once, and others came first.
        """
        own = self.starts.get(job.key)
        if own is not None:
            return job.key == self.aged and own.at == self.session.now
        return len(self.starts) - (self.aged in self.starts) < self.depth

    def put(self, start: PlannedStart) -> None:
        """Enter a planned start: in the place of that which its job has already, else behind all others."""
        known = self.starts.get(start.job.key)
        start.place = known.place if known is not None else self._entered
        self._entered += 1
        self.starts[start.job.key] = start

    def only(self, starts: Mapping[str, PlannedStart]) -> None:
        """From now on these starts are planned, and no others; nothing is kept until `lay`."""
        self.lift()
        self.starts = dict(starts)
        self.aged = self.aged if self.aged in self.starts else None

    def started(self, job: JobState) -> None:
        """A job was started."""
        if any(self.stands(start) for start in self.starts.values() if start.job.key != job.key):
            self.backfilled.add(job.key)

    def entry(
        self,
        job: JobState,
        at: int | None,
        places: tuple[tuple[Task, int], ...],
        ends: Upcoming | None = None,
        coming: Mapping[int, Sequence[Release]] | None = None,
        charge: int | None = None,
    ) -> PlannedStart:
        """A planned start of a job; `ends` and `coming` are what comes free for it (`Ends.for_job`), if known; and so
        `charge`.
        """
        heeds = self.heeds(job)
        excludes = any(
            self.rankings.excludes(cls, cls) for cls in {task.cls.id: task.cls for task, _ in places}.values()
        )
        if charge is None:
            charge = self._charge(job, places)
        if at is None:
            return PlannedStart(job, None, None, places, heeds=heeds, excludes=excludes, charge=charge)
        if ends is None or coming is None:
            ends, coming = self.ends.for_job(job, heeds=heeds)
        returns = Returns(self.session, job, at, self.ends, ends, coming)
        return PlannedStart(job, at, self.ends.after(job, at), places, coming, returns, heeds, excludes, charge)

    def _charge(self, job: JobState, places: Sequence[tuple[Task, int]]) -> int:
        """What a job would be charged above its queue's share that starts there, and is not charged yet."""
        if job.queue not in self.session.queues or job.key in self.session.promises:
            return 0
        return self.session.plugins.charge_with(job, total(task.cls.request for task, _ in places))

    def beside(self, job: JobState, at: int) -> tuple[PlannedStart, ...]:
        """The other planned starts that a job would meet that starts at an instant."""
        until = self.ends.after(job, at)
        return tuple(
            start for start in self.starts.values()
            if self.minds(start, job, until) and not (start.until is not None and start.until <= at)
        )  # fmt: skip

    def heeds(self, job: JobState) -> bool:
        """Whether it matters to the job's pods which others stand on nodes, besides the room that they take."""
        classes = {task.cls.id: task.cls for task in job.waiting}
        return any(self.rankings.of(cls, When.LATER).stepwise for cls in classes.values())

    # --- what is told -------------------------------------------------------------------------------------------------

    def wake(self) -> int | None:
        """When, with all as it is, the next pod will not have ended although it was expected to, a planned start comes
        due, or somebody is in time no longer who may wait then for what is on its way out; None: nobody waits.
        """
        waiting = [start for start in self.starts.values() if self.stands(start)]
        if not waiting:
            return None
        instants = [self.ends.first(), *[start.at for start in waiting]]
        if self.session.room.awaits_any:
            instants += self._too_late(waiting)
        return min((at for at in instants if at is not None and at > self.session.now), default=None)

    def _too_late(self, waiting: Sequence[PlannedStart]) -> Iterator[int]:
        """When each job that lacks room would be gone in time for none of these starts any more, but for its own.

        While some job waits for more than its planned instant, the starts behind it move on with time.
        """
        now = self.session.now
        soon = now + SECOND if any(start.at is not None and start.at <= now for start in waiting) else now
        instants = sorted([start.at for start in waiting if start.at is not None])
        for job in self.session.live():
            if job.idle or not (job.in_queue and job.possible):
                continue
            own = self.starts.get(job.key)
            last = instants[-2:-1] if own is not None and instants[-1:] == [own.at] else instants[-1:]
            length = self.ends.length(job)
            if last and length is not None:
                late = last[0] - length + MILLISECOND
                yield late if late <= now else max(late, soon)

    def estimate(self, key: str) -> StartEstimate | None:
        """When a waiting job is to start, as planned; None: nothing is planned for it."""
        start = self.starts.get(key)
        if start is None or not self.stands(start):
            return None
        if start.at is None:
            return self.session.plugins.starts.get(key, UNKNOWN)
        learned = None
        if self.session.plugins.learns and not self._sure(start, start.at):
            learned = self.session.plugins.start_planned(start.job.job, start.at)
        return learned or StartEstimate(start.at, start.at, "reservation")

    def _sure(self, start: PlannedStart, at: int) -> bool:
        """Whether somebody sees to it that all have gone by an instant on whose room a planned start counts."""
        return all(self.ends.sure(end) for row in start.needs for end in self.ends.all_on(row) if end.at <= at)


def _of_others(queue: QueueState, job: JobState) -> Mapping[bool, Resources]:
    """What others of its queue hold than the job: those with a lifetime (True), and without one."""
    ending = subtract(queue.ending, job.allocated if job.ends else {})
    return {True: ending, False: subtract(subtract(queue.allocated, ending), job.allocated)}


class _Kept(Limit):
    """What planned starts keep from jobs besides the room of their rows."""

    def __init__(self, planned: PlannedStarts) -> None:
        self._planned = planned

    def headroom(self, job: JobState, task: Task) -> int | None:
        """See `PlannedStarts.headroom`."""
        return self._planned.headroom(job, task)

    def rows(self, job: JobState, task: Task, *, waits: bool = False) -> Mask | None:
        """For pods that matter to those of a planned start wherever they stand: no row but those where they were
        planned to stand beside it; for pods that cannot stand beside those: no row of theirs but these.
        """
        planned, cls = self._planned, task.cls.id
        shut = cls in planned.shut_to(job)
        barred = [row for each, row in planned.barred_to(job) if each == cls]
        if not (shut or barred):
            return None
        open_rows = np.full(len(planned.session.nodes), not shut, np.bool_)
        open_rows[barred] = False
        open_rows[[row for each, row in planned.due_places(job) if each == cls]] = True
        return open_rows

    def refusal(self, job: JobState, task: Task) -> Reason:
        """See `PlannedStarts.reserved`."""
        return self._planned.reserved()
