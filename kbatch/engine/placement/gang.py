"""Finding room for a group's minimum: which of its pods, on which nodes, and why not."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import groupby
from typing import Final

from kbatch.engine.cooperative import finish
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.minimum import shortfalls, unplaced
from kbatch.model.tasks import Task, TaskClass

_AT_ONCE: Final = 500
"""As many pods are placed between two turns: a few milliseconds."""


def place_minimum(rankings: NodeRankings, statement: Statement, when: Sequence[When]) -> bool:
    """`placing`, without turns."""
    return finish(placing(rankings, statement, when))


def placing(rankings: NodeRankings, statement: Statement, when: Sequence[When]) -> Generator[Turn, None, bool]:
    """Place what the job's minimum lacks; whether it is complete. What could be placed stays in the statement.

    Each of `when` is tried in turn for what is still missing. Where any pod has to wait for room, or waits already, all
    the others that the statement binds wait with it.
    """
    job = statement.job
    waits = bool(job.nominated)
    for moment in when:
        tasks = unplaced(job)
        for role, count in shortfalls(job):
            if role is None:
                candidates = [task for task in tasks if not job.full(task.role)]
            else:
                candidates = [task for task in tasks if task.role == role]
            placed = yield from _place(rankings, statement, candidates, count, moment, role is None)
            if placed and moment is When.LATER:
                waits = True
            if placed:
                tasks = unplaced(job)
        if not job.missing():
            break
    if waits:
        statement.pipeline_all()
    return not job.missing()


def _place(
    rankings: NodeRankings, statement: Statement, tasks: Sequence[Task], count: int, when: When, capped: bool
) -> Generator[Turn, None, int]:
    """Place up to `count` of the tasks, in order; a class that does not fit is passed over."""
    job = statement.job
    placed = 0
    full: set[int] = set()
    for cls, run in _runs(tasks):
        if placed == count:
            break
        if cls.id in full:
            continue
        fit = rankings.of(cls, when)
        todo = iter(run)
        left = min(count - placed, len(run))
        while left:
            rows = fit.choose(min(left, _AT_ONCE))
            if not rows:
                full.add(cls.id)
                break
            for row, task in zip(rows, todo, strict=False):
                if capped and job.full(task.role):
                    continue
                if when is When.NOW:
                    statement.allocate(task, row)
                else:
                    statement.pipeline(task, row)
                placed += 1
            left -= len(rows)
            if len(rows) == _AT_ONCE:
                yield TURN
    return placed


def _runs(tasks: Sequence[Task]) -> Iterator[tuple[TaskClass, list[Task]]]:
    for _, run in groupby(tasks, key=lambda task: task.cls.id):
        found = list(run)
        yield found[0].cls, found
