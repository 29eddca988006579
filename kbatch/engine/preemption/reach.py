"""A quick no to who wants room: were all gone that could go, it would still not do.

Room on each node, and what groups hold there that votes do not exclude beforehand, are added up. It counts how many
pods of each class that would hold, and what it is in all: more than victims could ever free. Nor could they free more
than votes leave to be taken of each queue (`given`). So a no is final; a yes means only that victims are to
be sought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from kbatch.engine.carryover.holdings import QueueHoldings
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.kept_counts import Counts, KeptCounts
from kbatch.engine.placement.kinds import counts_of
from kbatch.engine.placement.set_room import most_anywhere
from kbatch.engine.plugin import Holder, Preemptor, Vote
from kbatch.engine.preemption.given import reachable, would_give
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import shortfalls, signature, unplaced
from kbatch.model.jobs import QueueRecord
from kbatch.model.nodes import Column, Mask, exact_sum
from kbatch.model.tasks import Task, TaskClass

_Free: TypeAlias = Mapping[str, Column]
_Pods: TypeAlias = tuple[TaskClass, str, int]
"""So many pods of a class and role."""

_PODS: Final = 10
"""So many pods are counted in a unit of work."""


def looking_around(context: CycleContext, queues: Iterable[QueueRecord]) -> Iterator[Turn]:
    """Find out what the groups of these queues hold, in pieces: `within_reach` asks for it."""
    session = context.session
    for record in queues:
        for pods in context.holdings.following(record, session.nodes):
            if session.due(1 + pods // _PODS):
                yield TURN
        if session.due():
            yield TURN


def within_reach(
    context: CycleContext, ballot: str, preemptor: Preemptor, single: Task | None, queues: Sequence[QueueRecord]
) -> bool:
    """Whether the preemptor's step (one pod, `single`, or its minimum) could have room, were all gone from these queues
    that could go for it.
    """
    if preemptor.never:
        return False
    session, job = context.session, preemptor.job
    tasks = [single] if single is not None else unplaced(job)
    giving, may_go = _givers(context, ballot, preemptor, queues)
    # Whoever asks for the same of the same finds the same, until something is placed or goes.
    names = tuple(queue.record.name for queue in giving)
    key = may_go, names, single is not None, signature(job, tasks), len(session.room.log)
    found = context.reached.get(key)
    if found is None:
        counts = [(single.cls, single.role, 1)] if single is not None else counts_of(job)
        room = reachable(context, [cls for cls, *_ in counts], may_go, giving)
        found = context.reached[key] = _enough(context, job, single, counts, room)
    return found and would_give(context, ballot, preemptor, tasks, giving, may_go)


def clearable(
    context: CycleContext, ballot: str, preemptor: Preemptor, tasks: Sequence[Task], queues: Sequence[QueueRecord]
) -> Mask:
    """The rows on which one of these tasks could have room, were all gone from these queues that could go for it."""
    giving, may_go = _givers(context, ballot, preemptor, queues)
    classes = dict.fromkeys(task.cls for task in tasks)
    room = reachable(context, classes, may_go, giving)
    found: Mask = np.zeros(len(context.session.nodes), np.bool_)
    for cls in classes:
        found |= room.fitting(cls, context.rankings.static(cls)[0], 1)[0] > 0
    return found


def free_at_most(
    context: CycleContext, ballot: str, preemptor: Preemptor, tasks: Iterable[Task], queues: Sequence[QueueRecord]
) -> _Free:
    """What would be free on nodes of what these tasks ask for, were all gone from these queues that could go for it."""
    giving, may_go = _givers(context, ballot, preemptor, queues)
    classes = {task.cls.id: task.cls for task in tasks}.values()
    return reachable(context, classes, may_go, giving).free(classes)


def _givers(
    context: CycleContext, ballot: str, preemptor: Preemptor, queues: Sequence[QueueRecord]
) -> tuple[list[QueueHoldings], frozenset[Holder]]:
    """What these queues hold, and the kinds of groups there that could go for the preemptor."""
    session, holdings = context.session, context.holdings
    if len(queues) == 1 and not any_may_go(session, ballot, preemptor, queues[0]):
        return [holdings.nothing(queues[0], session.nodes)], frozenset()
    giving = [holdings.of(record, session.nodes) for record in queues]
    kinds = {holder for queue in giving for holder in queue.held}
    return giving, frozenset(holder for holder in kinds if _may_go(session, ballot, preemptor, holder))


def any_may_go(session: Session, ballot: str, preemptor: Preemptor, record: QueueRecord) -> bool:
    """Whether any group that holds something in the queue could go for the preemptor. Else what they hold need not be
    known, and is not followed: in a queue where all are alike, that is each start and each end.
    """
    return any(_may_go(session, ballot, preemptor, Holder(*kind)) for kind in record.kinds)


def _enough(context: CycleContext, job: JobState, single: Task | None, pods: Sequence[_Pods], room: KeptCounts) -> bool:
    """Whether what is free would be enough for the one pod, or for the job's minimum; `pods`: by class and role."""
    classes = {cls.id: cls for cls, *_ in pods}
    counts = dict.fromkeys(classes, 0)
    for cls, _, count in pods:
        counts[cls.id] += count
    allowed = {key: context.rankings.static(cls)[0] for key, cls in classes.items()}
    fitting = {key: room.fitting(cls, allowed[key], counts[key]) for key, cls in classes.items()}
    most = {key: min(counts[key], together) for key, (_, together) in fitting.items()}
    if single is not None:
        return most[single.cls.id] > 0
    if not _hold(job, pods, most):
        return False
    together = {key: many for key, (_, many) in fitting.items()}
    if len(classes) > 1 and not _suffice(job, pods, together, allowed, room):
        return False  # of one class, what so many would fit is as much as they ask for
    limited = _limited(context, classes, {key: column for key, (column, _) in fitting.items()}, most)
    return limited == most or _hold(job, pods, limited)


def _limited(
    context: CycleContext, classes: Mapping[int, TaskClass], fitting: Mapping[int, Counts], most: Mapping[int, int]
) -> dict[int, int]:
    """The numbers of pods, lowered to what these demand of one another by domains.

    Only by demands for which no pod counts yet: where some do, fewer may count once victims are gone.
    """
    found = dict(most)
    for key, cls in classes.items():
        for limit in context.rankings.domain_limits(cls, [other for other in classes.values() if other is not cls]):
            if not limit.counts.any():
                found[key] = min(found[key], most_anywhere(fitting[key], limit))
    return found


def _may_go(session: Session, ballot: str, preemptor: Preemptor, holder: Holder) -> bool:
    """Whether units of such groups could have consent, as far as it can be told beforehand."""
    votes = session.plugins.voting.best(ballot, preemptor, holder)
    if Vote.VETO in votes:
        return False
    return Vote.YES in votes or holder.ends or preemptor.ahead  # some need no consent


def _hold(job: JobState, pods: Sequence[_Pods], most: Mapping[int, int]) -> bool:
    """Whether there would be place for as many pods as are missing, of each role and of the group."""
    for role, wanted in shortfalls(job):
        if role is not None and wanted > sum([min(count, most[cls.id]) for cls, of, count in pods if of == role]):
            return False
    return sum(most.values()) >= job.missing()


def _suffice(
    job: JobState,
    pods: Sequence[_Pods],
    together: Mapping[int, int],
    allowed: Mapping[int, Mask],
    room: KeptCounts,
) -> bool:
    """Whether there would be as much in all as the missing pods ask for at least, whichever of them are taken. There is
    as much as pods of any class ask for, as many as would fit `together`.
    """
    anywhere: Mask | None = None
    masks = list({id(mask): mask for mask in allowed.values()}.values())
    for name, column in room.free([cls for cls, *_ in pods]).items():
        least = 0
        for role, wanted in shortfalls(job):
            if role is not None:
                least += _least(pods, role, name, wanted)
            else:
                least = max(least, _least(pods, None, name, job.missing()))
        if any(together[cls.id] * _amount(cls, name) >= least for cls, *_ in pods):
            continue
        if any(found is not None and found.sum >= least for found in [room.amounts(name, each) for each in masks]):
            continue  # so it is on the rows of one class alone
        if anywhere is None:
            anywhere = np.logical_or.reduce(masks)
        if least > exact_sum(np.maximum(column[anywhere], 0)):
            return False
    return True


def _least(pods: Sequence[_Pods], role: str | None, name: str, wanted: int) -> int:
    """What so many of these pods ask for of a dimension at least, of one role or (None) of all."""
    found = 0
    for amount, count in sorted([(_amount(cls, name), count) for cls, of, count in pods if role in {None, of}]):
        taken = min(count, wanted)
        found += taken * amount
        wanted -= taken
    return found


def _amount(cls: TaskClass, name: str) -> int:
    return next((amount for needed, amount in cls.needs if needed == name), 0)
