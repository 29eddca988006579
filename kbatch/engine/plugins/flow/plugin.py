"""flow: queues in turn by what they have used, the past fading. In the place of proportion and drf."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Final

import msgspec
from pydantic import BaseModel

from kbatch.api.reasons import ExcessBudgetExceeded, InfiniteShareExceeded, Reason
from kbatch.engine.plugin import Key, Plugin, Preemptor, QueueStanding, Unit, View, Vote
from kbatch.engine.plugins.flow.arguments import FlowArguments, Score
from kbatch.engine.plugins.flow.instants import Curve, Pairs, first, overtaking, ratio
from kbatch.engine.plugins.flow.measure import Measure
from kbatch.engine.plugins.flow.state import Flows
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_request
from kbatch.engine.state.queues import QueueState
from kbatch.model.tasks import Task
from kbatch.model.usage import Anchor, read_anchor
from kbatch.resources import MILLION, Resources, add, subtract

_MINUTE = 60
_NOTHING: Final[Mapping[str, int]] = {}


class Flow(Plugin):
    """Progressive filling over flow. A queue's usage is the sum of what its placed and promised groups ask for, by
    `weights` (or, with `score` Dominant, the largest part of the cluster); its flow is the usage, and of what it was
    above that what has not faded yet: half of it after each `halfTime`.

    The next job is the first one of that queue whose flow over weight would be the smallest with it; jobs of a queue
    come by priority, then age. Reclaim: YES where proportion would say so, and the receiver's flow over weight, with
    what it asks for, is at most the donor's; else VETO. The queue with the largest flow over weight gives first.

    A queue's fair share is its weight over those of all open queues, of the cluster. With `infiniteFactor` the flow of
    its groups without a lifetime stays within so many times that. A group with a lifetime that takes its queue's usage
    above it is charged its lifetime times its usage, and the queue's excessBudget limits the sum of that.
    """

    name: ClassVar[str] = "flow"
    Arguments: ClassVar[type[BaseModel]] = FlowArguments
    State: ClassVar[type[msgspec.Struct] | None] = Flows
    reasons: ClassVar[tuple[type[Reason], ...]] = (InfiniteShareExceeded, ExcessBudgetExceeded)
    agrees: ClassVar[frozenset[str]] = frozenset({"reclaimable"})
    votes_by_class: ClassVar[bool] = True
    limits_alike: ClassVar[bool] = True
    by_priority: ClassVar[bool] = True
    minds_promises: ClassVar[bool] = True

    def __init__(self, arguments: FlowArguments, view: View) -> None:
        # Not the base's: nobody changes what is kept, so that it need not be copied.
        self.arguments: FlowArguments = arguments
        self.view = view
        kept = view.plugin_state(self.name)
        self.state: Any = kept if isinstance(kept, Flows) else Flows()
        self._half = arguments.half_time
        self._factor = Fraction(arguments.infinite_factor or 0)
        self._measure = Measure(arguments.weights, view.total, dominant=arguments.score is Score.DOMINANT)
        self._weighed: int | None = None
        self._before: dict[str, tuple[Anchor, int, int]] = {}
        self._after: dict[str, Anchor] | None = None
        self._parts: dict[tuple[str, bool], int] = {}
        """By queue its fair share, and (False) so many times that as the one factor says."""
        self._fading: dict[str, int] = {}
        """By queue the most that the flow of its groups without a lifetime may be, where only the past is above it."""
        self._outdone: dict[tuple[str, str], int] = {}
        """By receiver and donor, where the receiver has more flow: the least that its usage would be."""

    # --- usage and flow -----------------------------------------------------------------------------------------------

    def _known(self, name: str) -> tuple[Anchor, int, int]:
        """A queue's anchor as the cycle before left it, its flow now, and that of its groups without a lifetime; the
        flow is what it comes to without what the queue uses now, and is never less than that.
        """
        found = self._before.get(name)
        if found is None:
            anchor = self.state.queues.get(name)
            if anchor is None:  # nobody has decided since the process began: what was written last is known
                queue = self.view.queue(name).record.queue
                flow = queue.status.flow if queue is not None else None
                anchor = (read_anchor(flow) if flow is not None else None) or Anchor()
            if anchor.time > self.view.now:  # by a clock that was ahead; else nothing would fade until then
                anchor = msgspec.structs.replace(anchor, time=self.view.now)
            value, unlimited = anchor.at(self.view.now, self._half) if self._half > 0 else (0, 0)
            found = self._before[name] = anchor, value, unlimited
        return found

    def _flow(self, queue: QueueState, more: Mapping[str, int] = _NOTHING) -> int:
        """The queue's flow with so much more placed than now."""
        return max(self._known(queue.name)[1], self._measure.of(queue.allocated, more))

    def _endless(self, queue: QueueState, besides: JobState | None = None) -> Resources:
        """What the queue's groups without a lifetime hold and were promised, of what counts; but for one group's
        promise.
        """
        promises = self.view.promises
        found: Resources = {}
        promised, own, ending = promises.endless(queue.name), promises.part_of_endless(besides), queue.ending
        for name in self._measure.names:
            held = queue.allocated.get(name, 0) - ending.get(name, 0)
            found[name] = max(0, held) + promised.get(name, 0) - own.get(name, 0)
        return found

    def _all(self, queue: QueueState, besides: JobState | None = None) -> Resources:
        """The same of all its groups."""
        return add(queue.allocated, *self.view.promises.sums(queue.name, besides))

    def _weights(self) -> int:
        """The sum of the weights of all open queues; the default one counts only while it has work."""
        if self._weighed is None:
            self._weighed = sum(queue.weight for queue in self.view.queues.values() if self._counts(queue))
        return self._weighed

    def _counts(self, queue: QueueState) -> bool:
        record = queue.record
        if record.queue is None or not record.open:
            return False
        if record.name != self.view.model.default_queue:
            return True
        return bool(record.holders or record.request or record.ages.oldest() is not None)

    def _part(self, queue: QueueState, factor: Fraction | None = None) -> int:
        """The queue's fair share, or so many times that; nothing for one that is closed."""
        key = queue.name, factor is None
        found = self._parts.get(key)
        if found is None:
            top, bottom = (factor.numerator, factor.denominator) if factor is not None else (1, 1)
            weights = self._weights() if self._counts(queue) else 0
            found = top * queue.weight * self._measure.capacity // (bottom * weights) if weights else 0
            self._parts[key] = found
        return found

    # --- order --------------------------------------------------------------------------------------------------------

    def queue_order_key(self, queue: QueueState) -> Key:
        """Smallest flow over weight first."""
        return (ratio(self._flow(queue), queue.weight),)

    def queue_order_key_with(self, queue: QueueState, more: Mapping[str, int]) -> Key:
        """The same, with the first job."""
        return (ratio(self._flow(queue, more), queue.weight),)

    def job_order_key(self, job: JobState) -> Key:
        """By priority, then age."""
        return -job.priority, job.job.created

    # --- victims ------------------------------------------------------------------------------------------------------

    def reclaimable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        donor, receiver = self.view.queue(unit.job.queue), self.view.queue(preemptor.job.queue)
        if not donor.record.reclaimable or not donor.may_lose(unit.request, preemptor.lacks, preemptor.request):
            return Vote.VETO
        own = preemptor.job.allocated
        others = {name: amount - own.get(name, 0) for name, amount in receiver.allocated.items()}
        after = self._measure.of(others, preemptor.held, preemptor.request)
        return Vote.YES if self._gives(donor, receiver, after) else Vote.VETO

    def may_give(self, donor: QueueState, receiver: QueueState) -> bool:
        """Whether the receiver, as it is, has no more flow over weight than the donor."""
        return self._gives(donor, receiver, self._measure.of(receiver.allocated))

    def _gives(self, donor: QueueState, receiver: QueueState, after: int) -> bool:
        flow = max(self._known(receiver.name)[1], after)
        if ratio(flow, receiver.weight) <= ratio(self._flow(donor), donor.weight):
            return True
        pair = receiver.name, donor.name
        self._outdone[pair] = min(after, self._outdone.get(pair, after))
        return False

    def gives_first(self, queue: QueueState) -> Key:
        """The largest flow over weight first, as the cycle began."""
        flow = max(self._known(queue.name)[1], self._measure.of(queue.record.allocated))
        return (-ratio(flow, queue.weight),)

    def vote_key(self, ballot: str, unit: Unit) -> Hashable:
        """Its queue, and what it asks for."""
        return None

    # --- lifetimes and budgets ----------------------------------------------------------------------------------------

    def limits(self) -> bool:
        """Whether there is a factor, or a queue with a budget."""
        if self.arguments.infinite_factor is not None:
            return True
        return any(queue.record.excess_budget is not None for queue in self.view.queues.values())

    def admission(self, job: JobState, asked: Mapping[str, int]) -> Reason | None:
        """Whether the queue's groups without a lifetime may have so much more flow, or its budget covers the charge."""
        queue = self.view.queue(job.queue)
        if not self._measure.of(asked):
            return None
        if not job.ends:
            return self._beyond_factor(queue, job, self._endless(queue, job), asked)
        if not _lifetime(job) or queue.record.excess_budget is None:
            return None
        if self._measure.of(self._all(queue, job), asked) <= self._part(queue):
            return None
        charge = _charge(job, self._measure.of(job.allocated, asked))
        return self._beyond_budget(queue, job, charge) if charge > self._budget_left(queue, job) else None

    def headroom(self, job: JobState, task: Task) -> int | None:
        """By the same limits. What was promised is within the budget already, as far as the promise goes."""
        queue, request = self.view.queue(job.queue), task.cls.request
        if not job.ends:
            unpaid = self._unpaid(queue, request)
            if self.arguments.infinite_factor is None:
                return unpaid
            most, held = self._most(queue), self._endless(queue, job)
            more = self._measure.most(held, request, most)
            if more and not self.view.ever and self._known(queue.name)[2] > most:
                self._fading[queue.name] = most
                return 0
            return more if unpaid is None else unpaid if more is None else min(more, unpaid)
        if not _lifetime(job) or queue.record.excess_budget is None:
            return None
        promised: int | None = 0
        if job.key in self.view.promises and job.missing():
            promised = self._measure.most({}, request, self._measure.of(self.view.promises.of(job)))
        usage = self._budget_left(queue, job) * _MINUTE // _lifetime(job)
        charged = self._measure.most(job.allocated, request, usage)
        if charged is None or promised is None:
            return None
        if job.charged:
            return max(charged, promised)
        free = self._measure.most(self._all(queue, job), request, self._part(queue))
        return None if free is None else max(charged, free, promised)

    def too_much(self, job: JobState, task: Task) -> Reason:
        """Which of the limits, with the numbers."""
        queue = self.view.queue(job.queue)
        asked = next_request(job) or task.cls.request
        if not job.ends:
            held = self._endless(queue, job)
            if job.missing():  # the minimum is placed as a whole or not at all
                own = [placed.cls.request for placed, _ in (*job.placed.values(), *job.nominated.values())]
                held, asked = subtract(held, add(*own)), add(asked, *own)
            found = self._beyond_factor(queue, job, held, asked) or self._beyond_factor(
                queue, job, held, {}, told=asked
            )
            if found is None:
                raise LookupError(job.key)  # asked only where there is no headroom
            return found
        return self._beyond_budget(queue, job, _charge(job, self._measure.of(job.allocated, asked)))

    def charge(self, job: JobState) -> int:
        """Its lifetime times its usage, where that takes its queue above the fair share, or it was charged before."""
        if not _lifetime(job):
            return 0
        queue = self.view.queue(job.queue)
        if not job.charged and (
            self._measure.of(self._all(queue)) <= self._part(queue) or self._within_promise(job)
        ):  # fmt: skip
            return 0
        return max(job.charged, _charge(job, self._measure.of(job.allocated, self.view.promises.of(job))))

    def charge_with(self, job: JobState, more: Mapping[str, int]) -> int:
        """By the same rule, of what is to be placed besides."""
        queue = self.view.queue(job.queue)
        if not _lifetime(job) or queue.record.excess_budget is None:
            return job.charged
        return max(job.charged, _charge(job, self._measure.of(job.allocated, more)))

    def _within_promise(self, job: JobState) -> bool:
        """Whether the group has placed something since it was promised room, and no more than that."""
        if not (job.key in self.view.promises and job.pipelined <= job.minimum):
            return False
        had, promised = self.view.promises.terms(job)
        return self._measure.of(had) < self._measure.of(job.allocated) <= self._measure.of(had, promised)

    def _most(self, queue: QueueState) -> int:
        """The most that the flow of its groups without a lifetime may be."""
        return self._part(queue, self._factor)

    def _beyond_factor(
        self,
        queue: QueueState,
        job: JobState,
        held: Mapping[str, int],
        asked: Mapping[str, int],
        *,
        told: Mapping[str, int] | None = None,
    ) -> Reason | None:
        """The factor that would be passed with so much more; `told`: say that so much is asked, whether or not."""
        factor = self.arguments.infinite_factor
        if factor is None:
            return None
        most, past = self._most(queue), self._known(queue.name)[2]
        after = self._measure.of(held, asked)
        if told is None and max(past, after) <= most:
            return None
        if after <= most < past:
            self._fading[queue.name] = most
        flow = max(past, self._measure.of(held))
        share = self._part(queue)
        return InfiniteShareExceeded(queue.name, self._measure.of(told or asked), flow, share, most, f"{factor:f}")

    def _unpaid(self, queue: QueueState, request: Mapping[str, int]) -> int | None:
        """How many more pods keep the queue within its fair share beside planned starts for which its budget would not
        do above it; None: any number.
        """
        budget = queue.record.excess_budget
        if budget is None or queue.charged <= budget * MILLION or not self.view.promises.ending_besides:
            return None
        return self._measure.most(self._all(queue), request, self._part(queue))

    def _budget_left(self, queue: QueueState, job: JobState) -> int:
        """What is left of the queue's budget for the job, in millionths of a resource-minute."""
        return max(0, (queue.record.excess_budget or 0) * MILLION - (queue.charged - job.charged))

    def _beyond_budget(self, queue: QueueState, job: JobState, charge: int) -> Reason:
        budget = queue.record.excess_budget or 0
        return ExcessBudgetExceeded(queue.name, charge, queue.charged - job.charged, budget, self._part(queue))

    # --- what lasts ---------------------------------------------------------------------------------------------------

    def _left(self) -> dict[str, Anchor]:
        """The anchors when all is decided, of queues that have ever used anything."""
        if self._after is None:
            self._after = {}
            for name, queue in self.view.queues.items():
                usage, unlimited = self._measure.of(self._all(queue)), self._measure.of(self._endless(queue))
                anchor = self._known(name)[0].moved(self.view.now, self._half, usage, unlimited)
                if anchor != Anchor():
                    self._after[name] = anchor
        return self._after

    def left(self) -> Flows:
        """The anchors: moved where the usage has changed."""
        after = self._left()
        return self.state if after == self.state.queues else Flows(after)

    def standing(self, queue: QueueState) -> QueueStanding:
        """What the queue has used, its fair share, and what its groups are charged."""
        return QueueStanding(self._left().get(queue.name), self._part(queue), queue.charged, self._half)

    def wake(self) -> int | None:
        """The first instant at which fading makes another job the first, lets a queue give, or frees what a factor
        keeps from a queue.
        """
        if self._half <= 0:
            return None
        found = self._order_changes()
        now, after = self.view.now, self._left()
        for name, most in self._fading.items():
            anchor = after.get(name, Anchor())

            def freed(instant: int, anchor: Anchor = anchor, most: int = most) -> bool:
                return anchor.at(instant, self._half)[1] <= most

            excess = max(0, anchor.at(now, self._half)[1] - anchor.unlimited_usage)
            end = max(now, anchor.time) + self._half * (excess.bit_length() + 1)
            found = first(now, (end if found is None else min(end, found),), freed) or found
        return self._gives_next(found) or found

    def _gives_next(self, until: int | None) -> int | None:
        """When a queue first gives to one that has had more flow, if that is before an instant."""
        numbers: dict[tuple[str, int], int] = {}
        curves: list[Curve] = []

        def number(name: str, least: int) -> int:
            known = numbers.get((name, least))
            if known is None:
                known = numbers[name, least] = len(curves)
                curves.append(self._curve(self.view.queue(name), least))
            return known

        uses = {name: self._measure.of(self.view.queue(name).allocated) for _, name in self._outdone}
        pairs = [(number(name, least), number(donor, uses[donor])) for (name, donor), least in self._outdone.items()]
        gives = Pairs(self.view.now, curves, lambda some, other, at: some.ratio(at) <= other.ratio(at))
        return gives.first([receiver for receiver, _ in pairs], [donor for _, donor in pairs], until)

    def _order_changes(self) -> int | None:
        """When the order of the queues' first waiting jobs changes next."""
        heads: dict[str, tuple[Key, JobState]] = {}
        for job in self.view.live():
            if not job.in_queue or not job.possible or job.idle or job.queue not in self.view.queues:
                continue
            key = (-job.priority, job.job.created, job.key)
            head = heads.get(job.queue)
            if head is None or key < head[0]:
                heads[job.queue] = key, job
        if len(heads) < 2:
            return None
        curves = []
        for name, (_, job) in heads.items():
            queue = self.view.queue(name)
            curves.append(self._curve(queue, self._measure.of(queue.allocated, next_request(job))))
        return overtaking(self.view.now, curves)

    def _curve(self, queue: QueueState, least: int) -> Curve:
        return Curve(queue.name, self._left().get(queue.name, Anchor()), self._half, least, queue.weight)


def _lifetime(job: JobState) -> int:
    """Of the group, in seconds; 0 where it has none."""
    return (job.job.group.spec.lifetime_seconds or 0) if job.job.group is not None else 0


def _charge(job: JobState, usage: int) -> int:
    """What so much usage is charged for the group's lifetime, in millionths of a resource-minute, rounded down: what
    makes up the budget exactly is within it.
    """
    return usage * _lifetime(job) // _MINUTE
