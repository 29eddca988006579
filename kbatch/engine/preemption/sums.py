"""Sums that a plan may not pass, and that victims free: a queue's capability, room that was promised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from kbatch.engine.context import CycleContext
from kbatch.engine.preemption.goal import Bound
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.model.tasks import Task
from kbatch.resources import Resources, subtract, total

Promises: TypeAlias = Sequence[tuple[JobState, Resources]]
"""Groups, each with what it was promised."""


def cap_beside(queue: QueueState, promises: Promises) -> Resources:
    """The queue's hard cap, less what groups of the queue were promised as far as so much of it is left now."""
    hard = queue.record.capability
    if not hard:
        return {}
    kept = total(amounts for holder, amounts in promises if holder.queue == queue.name)
    left = subtract(hard, queue.allocated)
    return {name: most - min(left[name], kept.get(name, 0)) for name, most in hard.items()}


def capability(queue: QueueState, names: Iterable[str], promises: Promises = ()) -> tuple[Bound, ...]:
    """The queue's hard cap in these dimensions, beside what groups of it were promised; its own victims free it."""
    most = {name: amount for name, amount in cap_beside(queue, promises).items() if name in set(names)}
    if not most:
        return ()

    def over(more: Resources) -> Resources:
        held = {name: queue.allocated.get(name, 0) + more.get(name, 0) for name in most}
        return {name: held[name] - amount for name, amount in most.items() if held[name] > amount}

    return (over,)


def promises_to_keep(context: CycleContext, queue: QueueState, job: JobState, single: Task | None) -> Promises:
    """What other groups were promised that this step of the job must leave to them: all of it where the step is above
    its minimum; where the job was promised nothing, all that it does not overtake; else what more important ones of its
    queue were, and what was promised before where its queue has had its share.
    """
    ledger = context.ledger
    if single is not None or job.job.shadow:
        return ledger.promised_to_others(job, surplus=single is not None)
    if not ledger.promises():
        return ()
    above = ledger.promised_above(job)
    if context.session.plugins.overused(queue, job) is None:
        return above
    before = ledger.promised_before(job)
    return [*before, *[each for each in above if each not in before]]


def promised(context: CycleContext, promises: Promises, names: Collection[str]) -> tuple[Bound, ...]:
    """What these groups were promised in these dimensions, as far as there is room for it now: that much is left."""
    kept: Resources = {}
    for _, amounts in promises:
        for name in names:
            kept[name] = kept.get(name, 0) + amounts.get(name, 0)
    if not any(kept.values()):
        return ()
    session = context.session
    free = session.usable()
    least = {name: min(amount, free.get(name, 0)) for name, amount in kept.items()}

    def taken(more: Resources) -> Resources:
        left = session.usable()
        lacks = {name: amount - left.get(name, 0) + more.get(name, 0) for name, amount in least.items()}
        return {name: amount for name, amount in lacks.items() if amount > 0}

    return (taken,)
