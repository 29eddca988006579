"""Where room could be made for pods that must stand together: the sets of nodes in which victims are sought.

Nobody is evicted where the pods could not stand even if all went that might go.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np

from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.clearable import clearable
from kbatch.engine.placement.kinds import Kind
from kbatch.engine.placement.together import Choice
from kbatch.engine.preemption.candidate_index import CandidateIndex
from kbatch.engine.preemption.candidates import Candidate
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import unplaced
from kbatch.model.nodes import Column
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import PODS

_PLANS: Final = 16
"""In so many sets of nodes room is sought at most."""


def choosing(context: CycleContext, job: JobState, index: CandidateIndex) -> Generator[Turn, None, Iterator[Choice]]:
    """The rows in which room is sought for the job's minimum, one choice after the other; none if no set holds it."""
    gains = yield from _gains(context, {task.cls.id: task.cls for task in unplaced(job)}.values(), index)

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

    return islice(clearable(context.session, context.rankings, job, emptied), _PLANS)


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
