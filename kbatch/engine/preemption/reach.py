"""A quick no to who wants room: were all gone that could go, it would still not do.

Room on each node, and what groups hold there that votes do not exclude beforehand, are added up. It counts how many
pods of each class that would hold, and what it is in all: more than victims could ever free. Nor could they free more
than votes leave to be taken of each queue (`Plugin.most_given`). So a no is final; a yes means only that victims are to
be sought.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from kbatch.engine.carryover.holdings import Holdings, QueueHoldings
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.plugin import Holder, Preemptor, Vote
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import no_choice, shortfalls, signature, unplaced
from kbatch.model.jobs import QueueRecord
from kbatch.model.nodes import Column, Mask, exact_sum
from kbatch.model.tasks import Task, TaskClass

_Free: TypeAlias = dict[str, Column]
_Kind: TypeAlias = tuple[int, str]

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
    context: CycleContext, ballot: str, preemptor: Preemptor, single: Task | None, queues: Iterable[QueueRecord]
) -> bool:
    """Whether the preemptor's step (one pod, `single`, or its minimum) could have room, were all gone from these queues
    that could go for it.
    """
    if preemptor.never:
        return False
    session, job = context.session, preemptor.job
    tasks = [single] if single is not None else unplaced(job)
    giving = [context.holdings.of(record, session.nodes) for record in queues]
    kinds = {holder for queue in giving for holder in queue.held}
    may_go = frozenset(holder for holder in kinds if _may_go(session, ballot, preemptor, holder))
    # Whoever asks for the same of the same finds the same, until something is placed or goes.
    names = tuple(queue.record.name for queue in giving)
    key = may_go, names, single is not None, signature(job, tasks), len(session.room.log)
    found = context.reached.get(key)
    if found is None:
        classes = {task.cls.id: task.cls for task in tasks}
        free = _free(session, classes.values(), context.holdings, may_go, giving)
        allowed = {key: context.rankings.static(cls)[0] for key, cls in classes.items()}
        found = context.reached[key] = _enough(job, single, tasks, classes, allowed, free)
    return found and _would_give(context, ballot, preemptor, tasks, giving, may_go)


def _would_give(
    context: CycleContext,
    ballot: str,
    preemptor: Preemptor,
    tasks: Sequence[Task],
    giving: Sequence[QueueHoldings],
    may_go: frozenset[Holder],
) -> bool:
    """Whether the queues together would let go of as much as these tasks lack, whichever units these are."""
    session, job = context.session, preemptor.job
    least = len(tasks) if len(tasks) == 1 else job.missing()
    if len(tasks) > 1 and not no_choice(job, tasks):
        return True  # which of them it takes is open, and so is how much they ask for
    most: dict[str, int] = dict.fromkeys(sorted(preemptor.lacks), 0)
    for queue in giving:
        given = session.voting.most_given(ballot, preemptor, session.queues[queue.record.name])
        for name in list(most):
            if name in given:
                most[name] += _in_units(given[name], queue.units(name, may_go))
            else:
                del most[name]
        if not most:
            return True
    classes = {task.cls.id: task.cls for task in tasks}
    for name, given_most in most.items():
        lacking = 0
        for cls in classes.values():
            count = min(least, sum(1 for task in tasks if task.cls.id == cls.id))
            lacking += _lacking(session, cls, context.rankings.static(cls)[0], name, count)
        if lacking > given_most:
            return False
    return True


def _in_units(least: int, units: Collection[int]) -> int:
    """What units of these amounts may come to where less than so much went before the last one."""
    step = math.gcd(*units)
    return (least - 1 + max(units)) // step * step if step else 0


def _lacking(session: Session, cls: TaskClass, allowed: Mask, name: str, count: int) -> int:
    """How much so many pods of the class ask for beyond what is free at most, on the rows where they need least more:
    on a row with room for two and a half of them the third lacks half of what it asks for.
    """
    amount = cls.request.get(name, 0)
    if amount <= 0:
        return 0
    free = np.maximum(session.room.future[name][allowed], 0)
    short = count - exact_sum(free // amount)
    if short <= 0:
        return 0
    rest = free % amount
    if len(rest) > short:
        rest = np.partition(rest, len(rest) - short)[len(rest) - short :]
    return short * amount - exact_sum(rest)


def _enough(
    job: JobState,
    single: Task | None,
    tasks: Sequence[Task],
    classes: Mapping[int, TaskClass],
    allowed: Mapping[int, Mask],
    free: _Free,
) -> bool:
    """Whether what is free would be enough for the one pod, or for the job's minimum."""
    most = {
        key: _fitting(cls, allowed[key], free, sum(1 for task in tasks if task.cls.id == key))
        for key, cls in classes.items()
    }  # fmt: skip
    if single is not None:
        return most[single.cls.id] > 0
    return _hold(job, tasks, most) and _suffice(job, tasks, allowed.values(), free)


def _free(
    session: Session,
    classes: Iterable[TaskClass],
    holdings: Holdings,
    may_go: frozenset[Holder],
    giving: Sequence[QueueHoldings],
) -> _Free:
    """What is free on nodes with what may go, once all has ended that is about to, in what the classes ask for."""
    found: _Free = {}
    for cls in classes:
        session.room.ensure(cls)
        for name, _ in cls.needs:
            found.setdefault(name, session.room.future[name])
    if len(giving) == 1:
        found = {name: column.copy() for name, column in found.items()}
        for holder, held in giving[0].held.items():
            if holder in may_go:
                held.add_to(found, 1)
        return found
    given = holdings.together(may_go, giving)
    return {name: column + given[name] if name in given else column for name, column in found.items()}


def _may_go(session: Session, ballot: str, preemptor: Preemptor, holder: Holder) -> bool:
    """Whether units of such groups could have consent, as far as it can be told beforehand."""
    votes = session.voting.best(ballot, preemptor, holder)
    if Vote.VETO in votes:
        return False
    return Vote.YES in votes or holder.ends or preemptor.ahead  # some need no consent


def _fitting(cls: TaskClass, allowed: Mask, free: _Free, most: int) -> int:
    """How many pods of the class, up to `most`, the rows would hold, were no others placed."""
    fitting = np.where(allowed, np.int64(most), np.int64(0))
    for name, amount in cls.needs:
        np.minimum(fitting, np.maximum(free[name], 0) // amount, out=fitting)
    return min(most, int(fitting.sum()))


def _hold(job: JobState, tasks: Sequence[Task], most: dict[int, int]) -> bool:
    """Whether there would be place for as many pods as are missing, of each role and of the group."""
    counts: dict[_Kind, int] = {}
    for task in tasks:
        counts[task.cls.id, task.role] = counts.get((task.cls.id, task.role), 0) + 1
    for role, wanted in shortfalls(job):
        if role is not None and wanted > sum(
            min(count, most[cls]) for (cls, of), count in counts.items() if of == role
        ):
            return False
    return sum(most.values()) >= job.missing()


def _suffice(job: JobState, tasks: Sequence[Task], allowed: Iterable[Mask], free: _Free) -> bool:
    """Whether there would be as much in all as the missing pods ask for at least, whichever of them are taken."""
    together = np.logical_or.reduce(list(allowed))
    for name, column in free.items():
        least = 0
        for role, wanted in shortfalls(job):
            asked = sorted(_asked(task, name) for task in tasks if role is None or task.role == role)
            least = least + sum(asked[:wanted]) if role is not None else max(least, sum(asked[: job.missing()]))
        if least > exact_sum(np.maximum(column[together], 0)):
            return False
    return True


def _asked(task: Task, name: str) -> int:
    return next((amount for needed, amount in task.cls.needs if needed == name), 0)
