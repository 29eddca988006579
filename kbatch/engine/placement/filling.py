"""Placing what a group's minimum lacks, kind by kind, within the rows that the statement keeps to."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.arrangement import arranging
from kbatch.engine.placement.kinds import Kind, chosen, hardest_first, kinds_of, wanted_of
from kbatch.engine.placement.node_sets import Unit
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.statement import Statement

_AT_ONCE: Final = 500
"""As many pods are placed between two turns: a few milliseconds."""


def filling(
    rankings: NodeRankings, statement: Statement, when: Sequence[When], *, search: Sequence[When]
) -> Generator[Turn, None, None]:
    """Place what the minimum lacks.

    Each of `when` is tried in turn. In the moments of `search` other arrangements are tried where the first does not
    hold all.
    """
    job = statement.job
    for moment in when:
        mark = len(statement)
        if len(job.waiting) == 1 and not job.job.roles:
            _place_only(rankings, statement, moment)
        else:
            yield from _place(rankings, statement, moment)
        if moment in search and job.missing():
            yield from arranging(rankings, statement, moment, mark)
        if not job.missing():
            break


def _place(rankings: NodeRankings, statement: Statement, when: When) -> Generator[Turn, None, None]:
    """Place what fits, the hardest kinds first; a kind that does not fit is made up for by others where that helps."""
    kinds = kinds_of(statement.job)
    if not kinds:
        return
    if len(kinds) == 1:
        kind = kinds[0]
        yield from fill(rankings, statement, kind, wanted_of(statement.job).of(kind.role), when)
        return
    most = {kind.cls.id: len(kind.tasks) if rankings.hardness(kind.cls)[0] else 0 for kind in kinds}
    counts = {id(kind): count for kind, count in zip(kinds, chosen(statement, kinds, most), strict=True)}
    order = hardest_first(rankings, statement, kinds)
    for kind in order:
        if counts[id(kind)]:
            yield from fill(rankings, statement, kind, counts[id(kind)], when)
    again = True
    while again and statement.job.missing():
        again = False
        for kind in order:
            more = min(len(kind.tasks), wanted_of(statement.job).of(kind.role))
            if more and (yield from fill(rankings, statement, kind, more, when)):
                again = True


def _place_only(rankings: NodeRankings, statement: Statement, when: When) -> None:
    """`_place`, of a job whose only kind is one pod, without roles."""
    job, waits = statement.job, when is When.LATER
    task = job.waiting[0]
    if task.key in job.placed or task.key in job.nominated or not job.missing():
        return
    if rankings.full(task.cls, when, job):
        return
    fit = rankings.for_job(task.cls, when, job)
    rows = fit.choose(1, statement.rows(task, waits=waits))
    if rows:
        statement.place((task,), rows, waits=waits)


def fill(
    rankings: NodeRankings, statement: Statement, kind: Kind, count: int, when: When
) -> Generator[Turn, None, int]:
    """Place up to `count` of a kind; how many were."""
    left = min(count, len(kind.tasks))
    if not left or rankings.full(kind.cls, when, statement.job):
        return 0
    fit = rankings.for_job(kind.cls, when, statement.job)
    placed = 0
    among = statement.rows(kind.tasks[0], waits=when is When.LATER)
    while placed < left:
        rows = fit.choose(min(left - placed, _AT_ONCE), among)
        if not rows:
            break
        done = statement.place(kind.tasks[placed : placed + len(rows)], rows, waits=when is When.LATER)
        placed += done
        if done < len(rows):
            break
        if len(rows) == _AT_ONCE:
            yield TURN
    del kind.tasks[:placed]
    return placed


def fill_unit(rankings: NodeRankings, statement: Statement, unit: Unit, when: When) -> Generator[Turn, None, int]:
    """Place what a unit needs at least, as far as it goes; how many of its pods were placed."""
    job = statement.job
    if unit.role is None:
        before = job.pipelined
        yield from filling(rankings, statement, (when,), search=())
        return job.pipelined - before
    left = unit.least
    for kind in hardest_first(rankings, statement, [each for each in kinds_of(job) if each.role == unit.role]):
        left -= yield from fill(rankings, statement, kind, left, when)
    return unit.least - left
