"""The ledger: which job keeps which room, of what kind, and until when.

Five kinds of entries. *Assumed binds* are in the model, as pods that stand on their nodes. *Nominations* are in the
session, as pods that wait for a row (see `nominations`). *Planned starts* are in `planned`, where they are configured.
What is here is kept besides these:

* *promises*: a group in queue is promised its outstanding minResources, a sum without nodes. A promise ends pod by pod
  as these are placed; when all pods are there and have been tried in vain, since the group then waits for room like any
  other; and after scheduleTimeoutSeconds.
* *gathered room*: nodes that are kept for one group that has waited too long (see `ageing`), as though its pods were
  nominated there, for a run of `allocate`, and of `reclaim` before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kbatch.api.conditions import ENQUEUED
from kbatch.api.reasons import QueueCapabilityExceeded, Reason, Reserved
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.gang import place_minimum
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.reservation.clocks import PODS_GRACE, enqueued_since, fell, used_up
from kbatch.engine.session.limits import beyond_capability
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.cycle_state import GatheredRoom
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Column
from kbatch.model.tasks import Task
from kbatch.resources import Resources, add, add_to, subtract_from, total


class Ledger:
    """The room that one session keeps for groups whose pods are neither on nodes nor nominated.

    Attributes:
        released: how many promises have ended because the group's pods were tried in vain.
        in_vain: whether the job that `reason` was last asked about, which was tried in vain before, would not find room
            either if nothing was kept for others.
    """

    def __init__(self, session: Session, rankings: NodeRankings) -> None:
        self.session = session
        self.rankings = rankings
        self.released = 0
        self.in_vain = True
        self._promised: dict[str, tuple[JobState, Resources]] | None = None
        self._awaited: tuple[object, list[JobState]] | None = None
        """What was evicted when it was found out (how many, and the last), and whose pods do not all exist."""
        self._sum: Resources = {}
        self._capped: dict[str, Resources] = {}
        """The same sum by queue, of those that have a hard cap."""
        self._overtaken: dict[tuple[str, int], Resources] = {}
        """By queue and priority what was promised to those that such a job overtakes, until some promise moves, or a
        pod that stands is evicted or stays after all.
        """
        self._departures = 0
        self._cursor = 0
        self._tried: set[str] = set()
        self._expected: set[int] = set()
        """Until when pods are expected to be made that others leave room to."""
        self._holder: JobState | None = None
        self._gatherer: JobState | None = None
        self._gathered: list[tuple[Task, int]] = []
        self._begun = False
        self._places: list[tuple[Task, int]] = []
        self._rows: Index = np.zeros(0, np.intp)
        self._amounts: dict[str, Column] = {}
        self._lifted = False

    # --- promises -----------------------------------------------------------------------------------------------------

    def promises(self) -> Sequence[tuple[JobState, Resources]]:
        """What groups in queue were promised whose minimum's pods do not exist yet; nothing where nobody promises."""
        kept, leaving = self._kept(), self.session.leaving
        gone = len(leaving), next(reversed(leaving), "")
        if self._awaited is None or self._awaited[0] != gone:
            self._awaited = gone, [job for job, _ in kept.values() if job.bound + len(job.job.waiting) < job.minimum]
        return [kept[job.key] for job in self._awaited[1] if job.bound + len(job.job.waiting) < job.minimum]

    def promised_before(self, job: JobState) -> Sequence[tuple[JobState, Resources]]:
        """Those of `promises` that were made before that of the job, if it does not overtake them: it matters less, or
        is of another queue, or preempt is not configured.
        """
        own = self._let_in(job)
        return [
            (holder, amounts) for holder, amounts in self.promises()
            if self._let_in(holder) < own and not self._overtakes(job, holder)
        ]  # fmt: skip

    def promised_to_others(self, job: JobState, *, surplus: bool) -> Sequence[tuple[JobState, Resources]]:
        """Those of `promises` that were made to others; but for pods above its minimum (`surplus`) without those that
        the job overtakes.
        """
        return [
            each for each in self.promises()
            if each[0] is not job and (surplus or not self._overtakes(job, each[0]))
        ]  # fmt: skip

    def _overtakes(self, job: JobState, holder: JobState) -> bool:
        """Whether what a group was promised keeps the job out no more than its pods would, which could be evicted for
        the job: it matters less in the job's queue, holds nothing yet, and preempt is configured.
        """
        weaker = holder.queue == job.queue and holder.priority < job.priority
        return weaker and not holder.bound and self.session.policy.has("preempt")

    def promised_above(self, job: JobState) -> Sequence[tuple[JobState, Resources]]:
        """Those of `promises` that overtake the job: they matter more in its queue, and preempt is configured. Whoever
        takes their room is evicted for them once their pods are there. Of groups whose pods are not made within
        `PODS_GRACE` since they came in queue, or lost those that they had, nobody knows whether they ever are; but for
        the rest of a gang that runs.
        """
        session, found = self.session, []
        for holder, amounts in self.promises() if session.policy.has("preempt") else ():
            if holder.queue == job.queue and holder.priority > job.priority:
                if holder.bound:
                    found.append((holder, amounts))
                    continue
                until = max(self._let_in(holder)[0], fell(session, holder) or 0) + PODS_GRACE
                if session.now < until:
                    if until not in self._expected:
                        self._expected.add(until)
                        session.wake.append(until)
                    found.append((holder, amounts))
        return found

    def _let_in(self, job: JobState) -> tuple[int, int, str]:
        """When the job came in queue: in this cycle, if nobody has been told yet; then who is older."""
        session = self.session
        since = enqueued_since(session, job) if job.job.is_true(ENQUEUED) else None
        return session.now if since is None else since, job.job.created, job.key

    def robs(self, job: JobState, tasks: Sequence[Task], *, modest: bool) -> Reason | None:
        """Whether a job in queue, whose open statement has placed these pods, takes room that would do for what was
        `promised_above` it, or as much of their queue's hard cap; or (not `modest`) room that was `promised_before`.
        """
        others = list(self.promised_before(job)) if not modest else []
        above = self.promised_above(job)
        if not (others or above):
            return None
        request, free = total(task.cls.request for task in tasks), self.session.usable()
        others += _met([each for each in above if each not in others], request, free)
        taken = _taken(others, request, free)
        if taken is not None:
            return Reserved(*taken)
        if above and job.queue in self._capped:
            left = self._left_of_cap(job.queue)
            least = {name: min(amount, left.get(name, amount)) for name, amount in free.items()}
            taken = _taken(list(_met(above, request, least)), _within(request, left), left)
            if taken is not None:
                return self._over_capability(job.queue, request, request, *taken[1:])
        return None

    def refuses(self, job: JobState, tasks: Sequence[Task], *, surplus: bool = True) -> Reason | None:
        """Whether the job may not have these pods placed: they would take room that was promised to others; of its
        minimum, unless `surplus`, beside what it overtakes.
        """
        if not self._kept():
            return None
        return self._refusal(job, total(task.cls.request for task in tasks), {}, surplus=surplus)

    def broken(self, job: JobState, tasks: Sequence[Task], *, surplus: bool = False) -> Reason | None:
        """The same of pods that the open statement has placed already; of its minimum, unless `surplus`, beside what it
        overtakes.
        """
        if not self._kept():
            return None
        request = total(task.cls.request for task in tasks)
        return self._refusal(job, request, request, surplus=surplus)

    def forget(self) -> None:
        """Count what is promised anew from now on: enqueue is about to let more groups in."""
        self._promised = self._awaited = None
        self._sum, self._capped, self._overtaken = {}, {}, {}

    def tried(self, job: JobState) -> None:
        """The job's minimum was tried in vain: if all its pods are there, it waits like any other and blocks nobody."""
        kept = self._kept()
        if job.key in kept and job.key not in self._tried and job.bound + len(job.job.waiting) >= job.minimum:
            self._tried.add(job.key)
            self._set(job)
            self.released += 1

    def expired(self, job: JobState) -> bool:
        """Whether what the group was promised is kept no longer, since it has run for too long without using it."""
        return used_up(self.session, job)

    def _too_large(self, job: JobState) -> bool:
        """Whether its queue may never hold the group, since its capability was lowered."""
        return beyond_capability(self.session.queue(job.queue), job.job.outstanding)

    def _refusal(self, job: JobState, request: Resources, placed: Resources, *, surplus: bool) -> Reason | None:
        """What keeps the job from the room, or from what is left of its queue's hard cap; the open statement has placed
        so much of the request. What the job overtakes keeps none of it from the cap: who starts there is evicted for
        its pods at once, those above its minimum, too.
        """
        short = self._short(job, request, add(self.session.usable(), placed), self._sum, surplus=surplus)
        if short is not None:
            holder = next(
                each for each, amounts in self._kept().values()
                if amounts.get(short[0], 0) > 0 and each is not job and (surplus or not self._overtakes(job, each))
            )  # fmt: skip
            return Reserved(holder.name, *short)
        if job.queue in self._capped:
            left, promised = self._left_of_cap(job.queue), self._capped[job.queue]
            short = self._short(job, _within(request, left), add(left, placed), promised, surplus=False)
            if short is not None:
                return self._over_capability(job.queue, request, placed, *short)
        return None

    def _left_of_cap(self, name: str) -> Resources:
        """What a queue may hold more, of what its hard cap names."""
        queue = self.session.queue(name)
        held = queue.allocated
        return {name: most - held.get(name, 0) for name, most in (queue.record.capability or {}).items()}

    def _over_capability(
        self, name: str, request: Resources, placed: Resources, resource: str, kept: int
    ) -> QueueCapabilityExceeded:
        """That a queue's hard cap leaves no room for the request beside what is kept of it."""
        queue = self.session.queue(name)
        used, hard = queue.allocated.get(resource, 0) - placed.get(resource, 0), queue.record.capability or {}
        return QueueCapabilityExceeded(name, resource, request[resource], kept, used, hard[resource])

    def _short(
        self, job: JobState, request: Resources, free: Resources, promised: Resources, *, surplus: bool
    ) -> tuple[str, int] | None:
        """Of what there is too little for the request beside what was `promised` in all to others; how much that is."""
        own = self._kept().get(job.key)
        overtaken: Resources | None = {} if surplus else None
        for name in sorted(request):
            kept = promised.get(name, 0) - (own[1].get(name, 0) if own is not None else 0)
            if kept <= 0 or request[name] <= max(0, free.get(name, 0) - kept):
                continue
            overtaken = self._overtaken_by(job) if overtaken is None else overtaken
            kept -= overtaken.get(name, 0)
            if kept > 0 and request[name] > max(0, free.get(name, 0) - kept):
                return name, kept
        return None

    def _overtaken_by(self, job: JobState) -> Resources:
        """What was promised in all to those that the job overtakes."""
        kept = self._kept()
        if self._departures != self.session.departures:
            self._departures = self.session.departures
            self._overtaken.clear()
        found = self._overtaken.get((job.queue, job.priority))
        if found is None:
            found = self._overtaken[job.queue, job.priority] = total(
                amounts for holder, amounts in kept.values() if self._overtakes(job, holder)
            )
        return found

    def _kept(self) -> dict[str, tuple[JobState, Resources]]:
        """By key of the group what it was promised and has not used, in the order of `session.live`."""
        session = self.session
        if self._promised is None:
            self._promised = {}
            self._cursor = len(session.committed)
            if session.policy.has("enqueue"):
                for job in session.live():
                    promised = job.job.outstanding and job.in_queue and job.possible and not job.job.shadow
                    if promised and not self.expired(job) and not self._too_large(job):
                        self._promised[job.key] = job, {}
                        self._set(job)
        while self._cursor < len(session.committed):
            key = session.committed[self._cursor]
            self._cursor += 1
            if key in self._promised:
                self._set(self._promised[key][0])
        return self._promised

    def _set(self, job: JobState) -> None:
        """Take over what is left of a job's promise."""
        promised = self._promised
        if promised is None:
            return
        self._overtaken.clear()
        before = promised[job.key][1]
        left: Resources = {}
        if job.key not in self._tried:
            bound, allocated = job.job.bound, job.allocated
            for name, amount in job.job.outstanding.items():
                left[name] = max(0, amount - max(0, allocated.get(name, 0) - bound.get(name, 0)))
        sums = [self._sum]
        if self.session.queue(job.queue).record.capability:
            sums.append(self._capped.setdefault(job.queue, {}))
        for each in sums:
            subtract_from(each, before)
            add_to(each, left)
        promised[job.key] = job, left

    # --- gathered room ------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return self._holder is not None

    @property
    def gathered(self) -> GatheredRoom | None:
        """What is kept for an aged group, for the next cycle; None where it needs it no longer, or nothing is kept."""
        job = self._gatherer
        if job is None or not job.missing() or job.nominated or not job.in_queue:
            return None
        names = self.session.nodes.names
        return GatheredRoom(job.key, tuple((task.key, names[row]) for task, row in self._gathered))

    def begin(self, holder: JobState, places: Sequence[tuple[Task, int]]) -> None:
        """Keep these rows for these pods of the holder, and for the next cycle."""
        self.note(holder, places)
        self._begun = True
        self.keep(holder, places)

    def note(self, holder: JobState, places: Sequence[tuple[Task, int]]) -> None:
        """Have the next cycle know for whom room is kept, and where; by `begin`, or by a planned start."""
        self._gatherer, self._gathered = holder, list(places)

    def keep(self, holder: JobState, places: Sequence[tuple[Task, int]]) -> None:
        """Keep these rows for these pods of the holder, until `end`."""
        self._holder = holder
        self._places = list(places)
        self._rows, self._amounts = self._summed()
        self.session.set_aside = True
        self._apply(1)

    def resume(self) -> None:
        """Keep what is kept for the next cycle again, until `end`; what a planned start keeps is not kept here."""
        if self._gatherer is not None and self.gathered is not None and self._begun:
            self.keep(self._gatherer, self._gathered)

    def end(self) -> None:
        """Give everything back."""
        if self._holder is not None:
            self._apply(-1)
            self._holder = None
            self.session.room_given_back()

    def lift(self, job: JobState) -> bool:
        """Let a job take of what is kept if it is kept for it, or it is ahead of the holder in their queue; whether it
        may, until `lay`.
        """
        holder = self._holder
        if holder is not None and holder.key in self.session.failed:
            self.end()
            return False
        if holder is None or job.queue != holder.queue:
            return False
        if job is not holder and self.session.plugins.job_key(job) > self.session.plugins.job_key(holder):
            return False
        self._apply(-1)
        self._lifted = True
        return True

    def lay(self) -> None:
        """Keep the rows again, unless the holder has what it needs."""
        self._lifted = False
        holder = self._holder
        if holder is not None and not holder.missing():
            self._holder = None
            self.session.room_given_back()
            return
        self._apply(1)

    def reason(self, job: JobState) -> Reason | None:
        """Reserved, where the job would fit but for what is kept."""
        self.in_vain = self._holder is None or self._lifted
        if self._holder is None or self._lifted or job is self._holder:
            return None
        self._apply(-1)
        statement = Statement(self.session, job)
        try:
            fits = could_fit(self.rankings, job) and place_minimum(self.rankings, statement, (When.NOW, When.LATER))
            statement.rollback()
        finally:
            self._apply(1)
        self.in_vain = not fits and statement.refused is None
        if not fits:
            return None
        kept = total(task.cls.request for task, _ in self._places)
        name = next((name for name in sorted(kept) if name in job.asks), min(kept, default="cpu"))
        return Reserved(self._holder.name, name, kept.get(name, 0))

    def _summed(self) -> tuple[Index, dict[str, Column]]:
        """What is kept, row by row: the rows, and by dimension as much of each."""
        room = self.session.room
        index: dict[int, int] = {}
        for task, row in self._places:
            room.ensure(task.cls)
            index.setdefault(row, len(index))
        amounts: dict[str, Column] = {}
        for task, row in self._places:
            for name, amount in task.cls.needs:
                if name not in amounts:
                    amounts[name] = np.zeros(len(index), np.int64)
                amounts[name][index[row]] += amount
        return np.array(list(index), np.intp), amounts

    def _apply(self, sign: int) -> None:
        self.session.room.keep(self._rows, self._amounts, sign)
        if self.session.whole_nodes.active:
            for task, row in self._places:
                self.session.whole_nodes.hold(task, row, sign)


def _within(request: Resources, names: Resources) -> Resources:
    """What of the request is of these dimensions."""
    return {name: amount for name, amount in request.items() if name in names}


def _taken(
    others: Sequence[tuple[JobState, Resources]], request: Resources, free: Resources
) -> tuple[str, str, int] | None:
    """Of what a job that has this request placed leaves these others too little: the first of them, the dimension, and
    how much they were promised.
    """
    for name in sorted(request):
        holders = [(holder, amounts[name]) for holder, amounts in others if amounts.get(name, 0) > 0]
        kept = sum(amount for _, amount in holders)
        if kept > 0 and free.get(name, 0) < kept and request[name] > 0:
            return holders[0][0].name, name, kept
    return None


def _met(
    promises: Sequence[tuple[JobState, Resources]], request: Resources, free: Resources
) -> Iterator[tuple[JobState, Resources]]:
    """Those for which the room would do if it was not for this request, the more important ones first."""
    left = {name: amount + request.get(name, 0) for name, amount in free.items()}
    for holder, amounts in sorted(promises, key=lambda each: -each[0].priority):
        if all(amount <= left.get(name, 0) for name, amount in amounts.items()):
            subtract_from(left, amounts)
            yield holder, amounts
