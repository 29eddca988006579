"""What queues would give up, beside what a step lacks: another quick no to who wants room.

Plugins say how much goes of a queue before its last unit (`Plugin.most_given`). What the step's pods ask for beyond the
free room of their nodes must come from there: from all queues together, and what some of them do not hold on these
nodes from the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from kbatch.engine.carryover.holdings import QueueHoldings
from kbatch.engine.context import CycleContext
from kbatch.engine.placement.kept_counts import Counts, KeptCounts
from kbatch.engine.plugin import Holder, Preemptor
from kbatch.engine.session.session import Session
from kbatch.engine.state.minimum import no_choice
from kbatch.model.nodes import Column, Mask, exact_sum
from kbatch.model.tasks import Task, TaskClass

_DISTINCT: Final = 4
"""So many different amounts are looked for one by one; to sort more takes less time."""
_QUEUES: Final = 8
"""Of so many queues at most it is asked what the others must give beside them."""


def would_give(
    context: CycleContext,
    ballot: str,
    preemptor: Preemptor,
    tasks: Sequence[Task],
    giving: Sequence[QueueHoldings],
    may_go: frozenset[Holder],
) -> bool:
    """Whether the queues would let go of as much as these tasks lack, whichever units of these groups these are."""
    session, job = context.session, preemptor.job
    if len(tasks) > 1 and not no_choice(job, tasks):
        return True  # which of them it takes is open, and so is how much they ask for
    most = _most_given(session, ballot, preemptor, giving, may_go)
    if not most:
        return True
    least = len(tasks) if len(tasks) == 1 else job.missing()
    counts = {cls: min(least, count) for cls, count in _counted(tasks).items()}
    allowed = {cls.id: context.rankings.static(cls)[0] for cls in counts}
    for name, by_queue in most.items():
        if len(by_queue) == len(giving) and _lacking(context, counts, allowed, name) > sum(by_queue.values()):
            return False
    room = reachable(context, counts, may_go, giving)
    fitting = {cls.id: room.fitting(cls, allowed[cls.id], counts[cls])[0] for cls in counts}
    return not any(
        _fall_short(session, counts, fitting, name, by_queue, giving, may_go) for name, by_queue in most.items()
    )


def reachable(
    context: CycleContext, classes: Iterable[TaskClass], may_go: frozenset[Holder], giving: Sequence[QueueHoldings]
) -> KeptCounts:
    """What is free on nodes with what may go, once all has ended that is about to; of the dimensions of these classes
    at least.
    """
    for cls in classes:
        context.session.room.ensure(cls)
    return context.holdings.reachable(may_go, giving, context.session.room)


def _counted(tasks: Iterable[Task]) -> dict[TaskClass, int]:
    """How many of them are of each class."""
    found: dict[TaskClass, int] = {}
    for task in tasks:
        found[task.cls] = found.get(task.cls, 0) + 1
    return found


def _most_given(
    session: Session, ballot: str, preemptor: Preemptor, giving: Sequence[QueueHoldings], may_go: frozenset[Holder]
) -> dict[str, dict[str, int]]:
    """By dimension what each queue gives at most. Queues are left out for which there is no bound, and dimensions in
    which there is none for any.
    """
    found: dict[str, dict[str, int]] = {name: {} for name in sorted(preemptor.lacks)}
    for queue in giving:
        given = session.plugins.voting.most_given(ballot, preemptor, session.queues[queue.record.name])
        for name, by_queue in found.items():
            if name in given:
                by_queue[queue.record.name] = _in_units(given[name], queue.units(name, may_go))
    return {name: by_queue for name, by_queue in found.items() if by_queue}


def _in_units(least: int, units: Collection[int]) -> int:
    """What units of these amounts may come to where less than so much went before the last one."""
    step = math.gcd(*units)
    return (least - 1 + max(units)) // step * step if step else 0


def _lacking(context: CycleContext, counts: Mapping[TaskClass, int], allowed: Mapping[int, Mask], name: str) -> int:
    """How much the pods ask for beyond what is free at most, on the rows where they need least more."""
    found = 0
    room = context.session.room
    for cls, count in counts.items():
        amount = cls.request.get(name, 0)
        if amount > 0:
            room.ensure(cls)
            amounts = context.holdings.free(room).amounts(name, allowed[cls.id])
            if amounts is not None:
                found += beyond_amounts(amounts.rows, amount, count)
            else:
                free = np.maximum(room.future[name][allowed[cls.id]], 0)
                found += beyond(free, amount, free // amount, count)
    return found


def beyond_amounts(rows: Mapping[int, int], amount: int, count: int) -> int:
    """`beyond`, where so many rows have so much free (`rows`), and pods find room by this dimension alone."""
    short = count - sum([free // amount * number for free, number in rows.items() if free > 0])
    if short <= 0:
        return 0
    found = short * amount
    for left, number in sorted([(free % amount, number) for free, number in rows.items() if free > 0], reverse=True):
        taken = min(short, number)
        found -= left * taken
        short -= taken
        if not short:
            break
    return found


def beyond(free: Column, amount: int, fitting: Column, count: int) -> int:
    """What is lacking for so many pods of this amount, on the rows where they need least more. `fitting` of them have
    room as it is, of the free room there: on a row with room for two and a half the third lacks half of the amount.
    """
    short = count - exact_sum(fitting)
    if short <= 0:
        return 0
    return short * amount - _largest(free - fitting * amount, short)


def _largest(amounts: Column, count: int) -> int:
    """What so many of these amounts, none below 0, come to at most. Often few differ, as nodes and pods are alike."""
    found = 0
    for _ in range(_DISTINCT):
        most = int(amounts.max(initial=0))
        there = min(count, int(np.count_nonzero(amounts == most)))
        if most == 0 or there == count:
            return found + there * most
        found, count = found + there * most, count - there
        amounts = amounts[amounts < most]
    if len(amounts) > count:
        amounts = np.partition(amounts, len(amounts) - count)[len(amounts) - count :]
    return found + exact_sum(amounts)


def _fall_short(
    session: Session,
    counts: Mapping[TaskClass, int],
    fitting: Mapping[int, Counts],
    name: str,
    most: Mapping[str, int],
    giving: Sequence[QueueHoldings],
    may_go: frozenset[Holder],
) -> bool:
    """Whether some queues would have to give more of a dimension than they do, were all gone of the other queues.

    The others are those without a bound, and then one more each time: that which gives most. Only rows count on which
    pods would find room at all (`fitting` so many of each class), and on those what the others hold there.
    """
    queues = sorted(giving, key=lambda queue: (queue.record.name in most, -most.get(queue.record.name, 0)))
    left = sum(most.values())
    columns = {name: session.room.future[name].copy()}
    for number, queue in enumerate(queues):
        bounded = queue.record.name in most
        if bounded:
            free = np.maximum(columns[name], 0)
            if sum(_least(free, cls, fitting[cls.id], name, count) for cls, count in counts.items()) > left:
                return True
            if number == _QUEUES:
                return False
            left -= most[queue.record.name]
        _add_held(columns, queue, may_go)
    return False


def _least(free: Column, cls: TaskClass, fitting: Counts, name: str, count: int) -> int:
    """What so many pods of the class ask for beyond what is free, on rows that would hold `fitting` of them."""
    amount = cls.request.get(name, 0)
    if amount <= 0:
        return 0
    now = np.minimum(free // amount, fitting)
    more = now < fitting
    return beyond(free[more], amount, now[more], count - exact_sum(now[~more]))


def _add_held(columns: Mapping[str, Column], queue: QueueHoldings, may_go: Collection[Holder]) -> None:
    """Add what groups of these kinds hold in a queue."""
    for holder, held in queue.held.items():
        if holder in may_go:
            held.add_to(columns, 1)
