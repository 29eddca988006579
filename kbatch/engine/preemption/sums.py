"""Sums that a plan may not pass, and that victims free: a queue's capability, room that was promised."""

from __future__ import annotations

from collections.abc import Iterable

from kbatch.engine.context import CycleContext
from kbatch.engine.preemption.goal import Bound
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.queues import QueueState
from kbatch.resources import Resources


def capability(queue: QueueState, names: Iterable[str]) -> tuple[Bound, ...]:
    """The queue's hard cap in these dimensions; its own victims free it."""
    most = {name: amount for name, amount in (queue.record.capability or {}).items() if name in set(names)}
    if not most:
        return ()

    def over(more: Resources) -> Resources:
        held = {name: queue.allocated.get(name, 0) + more.get(name, 0) for name in most}
        return {name: held[name] - amount for name, amount in most.items() if held[name] > amount}

    return (over,)


def promised(context: CycleContext, job: JobState, names: Iterable[str]) -> tuple[Bound, ...]:
    """What other groups were promised in these dimensions, as far as there is room for it now: that much is left."""
    kept: Resources = {}
    for holder, amounts in context.ledger.promises():
        if holder is not job:
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
