"""Finding room for a group's minimum: which of its pods, on which nodes.

Pods are placed by kind, the hardest first (see `kinds`), each on the best node that takes it. Where that does not place
all although another arrangement might, a bounded search looks for one (see `arrangement`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

from kbatch.engine.cooperative import finish
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.arrangement import arranging
from kbatch.engine.placement.kinds import Kind, chosen, hardest_first, kinds_of, wanted_of
from kbatch.engine.placement.node_sets import Choice, choices
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.statement import Statement
from kbatch.model.nodes import Mask
from kbatch.model.tasks import Task

_AT_ONCE: Final = 500
"""As many pods are placed between two turns: a few milliseconds."""


def place_minimum(rankings: NodeRankings, statement: Statement, when: Sequence[When]) -> bool:
    """`placing`, without turns, and without the search: for plans that are tried by the dozen."""
    return finish(placing(rankings, statement, when, search=()))


def placing(
    rankings: NodeRankings, statement: Statement, when: Sequence[When], *, search: Sequence[When] = (When.NOW,)
) -> Generator[Turn, None, bool]:
    """Place what the job's minimum lacks; whether it is complete. What could be placed stays in the statement.

    Each of `when` is tried in turn for what is still missing. Where any pod has to wait for room, or waits already, all
    the others that the statement binds wait with it. In the moments of `search` other arrangements are tried where the
    first does not hold all.
    """
    job = statement.job
    if (yield from _together(rankings, statement, when, search=search)):
        statement.pipeline_all()
    return not job.missing()


def _together(
    rankings: NodeRankings, statement: Statement, when: Sequence[When], *, search: Sequence[When]
) -> Generator[Turn, None, bool]:
    """Keep to the sets of nodes that plugins ask for, if any does: the first that takes the minimum. Returns whether
    any pod waits for its room.
    """
    waits = bool(statement.job.nominated)
    sets = choices(statement.session, rankings, statement.job, when[-1]) if statement.job.missing() else None
    if sets is None:
        return (yield from _anywhere(rankings, statement, when, search=search)) or waits
    mark = len(statement)
    first: Choice | None = None
    for choice in sets:
        first = choice if first is None else first
        statement.within = _keeping_to(choice)
        waiting = yield from _anywhere(rankings, statement, when, search=search)
        statement.within = None
        if not statement.job.missing():
            return waiting or waits
        statement.rollback(mark)
        yield TURN
    if first is not None:  # none takes all: what the first takes says what is lacking
        statement.within = _keeping_to(first)
        waits = (yield from _anywhere(rankings, statement, when, search=())) or waits
        statement.within = None
    return waits


def _keeping_to(choice: Choice) -> Callable[[Task], Mask | None]:
    return lambda task: choice.get(task.role, choice.get(None))


def _anywhere(
    rankings: NodeRankings, statement: Statement, when: Sequence[When], *, search: Sequence[When]
) -> Generator[Turn, None, bool]:
    """Place what the minimum lacks; returns whether any pod waits for its room."""
    job = statement.job
    waits = False
    for moment in when:
        mark = len(statement)
        yield from _place(rankings, statement, moment)
        if moment in search and job.missing():
            yield from arranging(rankings, statement, moment, mark)
        waits = moment is When.LATER and len(statement) > mark
        if not job.missing():
            break
    return waits


def _place(rankings: NodeRankings, statement: Statement, when: When) -> Generator[Turn, None, None]:
    """Place what fits, the hardest kinds first; a kind that does not fit is made up for by others where that helps."""
    kinds = kinds_of(statement.job)
    if not kinds:
        return
    if len(kinds) == 1:
        kind = kinds[0]
        yield from _fill(rankings, statement, kind, wanted_of(statement.job).of(kind.role), when)
        return
    most = {kind.cls.id: len(kind.tasks) if rankings.hardness(kind.cls)[0] else 0 for kind in kinds}
    counts = {id(kind): count for kind, count in zip(kinds, chosen(statement, kinds, most), strict=True)}
    order = hardest_first(rankings, kinds)
    for kind in order:
        if counts[id(kind)]:
            yield from _fill(rankings, statement, kind, counts[id(kind)], when)
    again = True
    while again and statement.job.missing():
        again = False
        for kind in order:
            more = min(len(kind.tasks), wanted_of(statement.job).of(kind.role))
            if more and (yield from _fill(rankings, statement, kind, more, when)):
                again = True


def _fill(
    rankings: NodeRankings, statement: Statement, kind: Kind, count: int, when: When
) -> Generator[Turn, None, int]:
    """Place up to `count` of a kind; how many were."""
    fit = rankings.of(kind.cls, when)
    left = min(count, len(kind.tasks))
    if not left:
        return 0
    placed = 0
    among = statement.rows(kind.tasks[0])
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
