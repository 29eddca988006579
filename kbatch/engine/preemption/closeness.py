"""Where room could be made for pods that must stand together: the sets of nodes in which victims are sought.

Nobody is evicted where the pods could not stand even if all went that might go.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import numpy as np

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.clearable import clearable
from kbatch.engine.placement.kinds import Kind
from kbatch.engine.placement.together import Choice
from kbatch.engine.plugin import Preemptor
from kbatch.engine.preemption.candidate_index import CandidateIndex
from kbatch.engine.preemption.candidate_pool import CandidatePool
from kbatch.engine.preemption.candidates import Candidate, Donors
from kbatch.engine.preemption.polling import Evictor
from kbatch.engine.preemption.reach import free_at_most
from kbatch.engine.preemption.reuse import rows_of
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import unplaced
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import PODS

_PLANS: Final = 16
"""In so many sets of nodes room is sought at most."""
_SMALL_PART: Final = 4
"""One row of so many: candidates on just these are found for one plan in much less time than all that there are."""


def choosing(context: CycleContext, job: JobState, index: CandidateIndex) -> Generator[Turn, None, Iterator[Choice]]:
    """The rows in which room is sought for the job's minimum, one choice after the other; none if no set holds it."""
    gains = yield from _gains(context, {task.cls.id: task.cls for task in unplaced(job)}.values(), index)
    return islice(_choices(context, job, gains), _PLANS)


def surely_first(
    context: CycleContext, evictor: Evictor, preemptor: Preemptor, donors: Donors
) -> Generator[Turn, None, tuple[Choice, CandidatePool] | None]:
    """The first choice, with the candidates on its rows, where it is found without any others: were all gone that could
    go, it would be the first too, and the candidates on its rows do give the room. None: that is not so.
    """
    session, job = context.session, preemptor.job
    if not all(plugin.shrinks for plugin in session.plugins.gathering):
        return None  # what these rows give may decide about sets elsewhere
    free = free_at_most(context, evictor.ballot, preemptor, unplaced(job), donors.queues)
    gains = {name: column - session.room.future[name] for name, column in free.items()}
    choice = next(_choices(context, job, gains), None)
    rows = rows_of(choice, job) if choice is not None else None
    if choice is None or rows is None or not few(rows):
        return None
    pool = CandidatePool(context, evictor.ballot, rows)
    index = yield from pool.index(preemptor, donors)
    first = next((yield from choosing(context, job, index)), None)
    return (choice, pool) if first is not None and _alike(first, choice) else None


def few(rows: Mask) -> bool:
    """Whether so few of all rows are meant that candidates on these alone are found in much less time than all."""
    return int(rows.sum()) * _SMALL_PART <= len(rows)


def _alike(one: Choice, other: Choice) -> bool:
    """Whether two choices are of the same rows."""
    return one.keys() == other.keys() and all(np.array_equal(rows, other[role]) for role, rows in one.items())


def _choices(context: CycleContext, job: JobState, gains: Mapping[str, Column]) -> Iterator[Choice]:
    """The choices, were so much gained on each row."""

    def emptied(kind: Kind) -> Column:
        """How many pods of a kind each row would hold were all candidates gone."""
        allowed = context.rankings.static(kind.cls)[0]
        standing = context.session.whole_nodes.in_the_way(job, kind.role)
        if standing is not None:
            allowed = allowed & (standing <= gains[PODS])
        found = np.where(allowed, np.int64(1) << 32, np.int64(0))
        for name, amount in kind.cls.needs:
            free = np.maximum(context.session.room.future[name], 0) + gains[name]
            found = np.minimum(found, free // amount)
        return found

    return clearable(context.session, context.rankings, job, emptied)


def _gains(
    context: CycleContext, classes: Iterable[TaskClass], index: CandidateIndex
) -> Generator[Turn, None, dict[str, Column]]:
    """What each row would gain of what the classes ask for, dimension by dimension, were all candidates gone."""
    session = context.session
    found: dict[str, Column] = {}
    for cls in classes:
        session.room.ensure(cls)
        found.update({name: np.zeros(len(session.nodes), np.int64) for name, _ in cls.needs})
    yield from index.preparing(classes)
    if index.exact:
        for name, column in found.items():
            rows, gives = index.gives(name)
            column[rows] = gives
        return found
    for row in index.rows:
        candidates = index.on(row)
        if session.due(1 + len(candidates)):
            yield TURN
        for candidate in candidates:
            for task in _on(candidate, session.nodes.names[row]):
                for name, column in found.items():
                    column[row] += 1 if name == PODS else task.cls.request.get(name, 0)
    return found


def _on(candidate: Candidate, node: str) -> Iterable[Task]:
    """Those of its pods that stand on the node."""
    if candidate.task is not None:
        return (candidate.task,)
    return (task for task in candidate.job.job.tasks.values() if task.node == node and task.holds)
