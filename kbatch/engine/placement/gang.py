"""Finding room for a group's minimum: which of its pods, on which nodes.

Pods are placed by kind, the hardest first (see `kinds`), each on the best node that takes it (see `filling`). Where
that does not place all although another arrangement might, a bounded search looks for one (see `arrangement`). Pods
that plugins keep together are placed within their sets of nodes (see `together`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from kbatch.api.reasons import Reason
from kbatch.engine.cooperative import finish
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.filling import fill_unit, filling
from kbatch.engine.placement.node_sets import Unit, count, units_of, units_of_one
from kbatch.engine.placement.one_pod import place_one
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.placement.together import Choice, Together, fullest, keeping_to
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.model.nodes import Mask
from kbatch.model.tasks import Task

_SETS: Final = 64
"""In so many sets of nodes room is looked for at most for one pod above the minimum."""


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

    Pods that are kept together are placed in the sets that plugins ask for, unless the statement keeps to some rows
    already. Where no sets take all, what the best of them takes is left in the statement: it says what is lacking.
    """
    job = statement.job
    if job.together is not None and statement.within is None and not statement.apart and job.missing():
        yield from _together(rankings, statement, when, search=search)
    else:
        yield from filling(rankings, statement, when, search=search)
    if job.nominated:
        statement.pipeline_all()
    return not job.missing()


def _together(
    rankings: NodeRankings, statement: Statement, when: Sequence[When], *, search: Sequence[When]
) -> Generator[Turn, None, None]:
    """Keep to sets of nodes: with the room that is there now, else with what comes free."""
    session = statement.session
    yield from comparing(session, statement.job)
    if place_one(rankings, statement, when[0]):
        return
    units: list[Unit] = []

    def attempt(_: Choice) -> Generator[Turn, None, bool]:
        yield from filling(rankings, statement, moments, search=search)
        return not statement.job.missing()

    for last in range(1, len(when) + 1):
        moments = when[:last]
        units = units_of(session, rankings, statement.job, moments[-1]) or []
        if not units:
            yield from filling(rankings, statement, when, search=search)
            return
        sets = Together(rankings, statement, units, moments[-1], attempt)
        if (yield from sets.run()):
            return
        if not (sets.hopeful or rankings.room.awaits_any or session.whole_nodes.active):
            break  # what comes free later is no more
    choice: Choice = {}
    for unit in units:
        best = fullest(unit, unit.counted.fitting, choice.get(None))
        if best is None:
            return
        choice[unit.role] = best[0] & choice[None] if None in choice else best[0]
    statement.within = keeping_to(choice)
    yield from filling(rankings, statement, when, search=())
    statement.within = None


def comparing(session: Session, job: JobState) -> Generator[Turn, None, None]:
    """Work out where the job would stand in the emptied cluster, if a plugin compares with that."""
    if session.trying is not None and any(plugin.compares(job) for plugin in session.plugins.gathering):
        yield from session.trying(job)


def nearest(rankings: NodeRankings, statement: Statement, task: Task, when: When) -> list[int]:
    """The row for one pod above the minimum, in the first set of nodes that takes it; empty: there is none."""
    among = statement.rows(task, waits=when is When.LATER)
    job, session = statement.job, statement.session
    fit = rankings.for_job(task.cls, when, job)
    if job.together is None:
        return fit.choose(1, among)
    # The sets around those that stand only grow, and those without room stay so, until something goes.
    mark = job.key, task.role, task.cls.id, when
    moves, masks = session.surroundings.get(mark, (-1, []))
    if moves != session.room_moves or job.anchor(task.role) is None:
        masks = _surroundings(rankings, statement, task, when)
    while masks:
        rows = fit.choose(1, masks[0] if among is None else masks[0] & among)
        if rows:
            break
        masks = masks[1:]
    else:
        rows = []
    if job.anchor(task.role) is not None:
        session.surroundings[mark] = session.room_moves, masks
    return rows


def _surroundings(rankings: NodeRankings, statement: Statement, task: Task, when: When) -> list[Mask]:
    """The sets for one more pod, one after the other."""
    units = units_of_one(statement.session, rankings, statement.job, task, when)
    if units is None:
        return [np.ones(len(rankings.every), np.bool_)]
    choices = Together(rankings, statement, units, when, _nothing).masks()
    found = [choice.get(task.role, choice.get(None)) for choice in islice(choices, _SETS)]
    masks = [mask for mask in found if mask is not None]
    return masks if statement.job.strict else [*masks, np.ones(len(rankings.every), np.bool_)]


def _nothing(_: Choice) -> Generator[Turn, None, bool]:
    yield TURN
    return False


def why_apart(rankings: NodeRankings, statement: Statement, when: When) -> Generator[Turn, None, Reason | None]:
    """Why the job's minimum, for which there is room, cannot be placed as its plugins want it together; None where none
    of them has a word for it. Leaves no trace.
    """
    job, session, plugins = statement.job, statement.session, statement.session.plugins.gathering
    yield from comparing(session, job)
    units = units_of(session, rankings, job, when) or []
    roles = [unit for unit in units if unit.role is not None] or units
    standing = {unit.role: job.pipelined if unit.role is None else job.role_count(unit.role) for unit in units}
    mark = len(statement)
    for beside, some in ((False, units), (True, roles)):  # each by itself, then each beside those before it
        for unit in some:
            if not beside:
                statement.rollback(mark)
            best = fullest(unit, count(session, rankings, unit, when).fitting)
            placed = 0
            if best is not None:
                statement.within = keeping_to({unit.role: best[0]})
                placed = yield from fill_unit(rankings, statement, unit, when)
                statement.within = None
            if placed < unit.least or (beside and unit is some[-1]):
                statement.rollback(mark)
                there, row = standing[unit.role], best[1] if best is not None else -1
                said = [plugin.apart(job, unit.role, there + unit.least, there + placed, row) for plugin in plugins]
                return next((reason for reason in said if reason is not None), None)
        statement.rollback(mark)
    return None
