"""Planning a start: the earliest instant at which a job could start beside all that is planned, and on which nodes.

The instants at which anything ends are gone through, but for those that sums rule out, and at each it is tried to place
the job's minimum in the room of that instant.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.feasibility import Feasibility
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import When
from kbatch.engine.reservation.ageing import places_to_gather, waits_for_room
from kbatch.engine.reservation.ahead import Ahead
from kbatch.engine.reservation.bounds import Bounds
from kbatch.engine.reservation.ends import count_until
from kbatch.engine.reservation.kept import PlannedStart
from kbatch.engine.reservation.ledger import Ledger
from kbatch.engine.reservation.planned import PlannedStarts
from kbatch.engine.session.statement import Operation, Statement
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task


def reserve(
    planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger, job: JobState
) -> Generator[Turn, None, None]:
    """Plan the start of a job that cannot start now; nothing is kept from anybody afterwards, until `lay`."""
    found = yield from plan(planned, feasibility, ledger, job)
    if found is not None:
        planned.put(found)


def plan(
    planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger, job: JobState
) -> Generator[Turn, None, PlannedStart | None]:
    """The earliest start of a job that does not fit now, beside the other planned starts; None: none can be told.

    Nothing is kept from anybody afterwards.
    """
    planned.lift()
    found = yield from _earliest(planned, job)
    if found is not None or not waits_for_room(planned.session, feasibility, ledger, job):
        return found
    yield TURN
    if not (yield from feasibility.attempting(job)).fits:
        return None
    places = yield from places_to_gather(planned.session, feasibility, planned.rankings, job)
    return planned.entry(job, None, tuple(places)) if places else None


def _earliest(planned: PlannedStarts, job: JobState) -> Generator[Turn, None, PlannedStart | None]:
    """The same, as far as ends are known."""
    session = planned.session
    yield from planned.ends.preparing()
    heeds = planned.heeds(job)
    ends, coming = planned.ends.for_job(job, heeds=heeds)
    instants = {end.at for end in ends}
    instants |= {start.until for start in planned.starts.values() if start.until is not None}
    moments = [(at, count_until(ends, at)) for at in sorted(instants) if at > session.now]
    ahead = Ahead(session, job, ends, heeded=heeds)
    planned.ahead = True
    try:
        first = yield from _first(planned, job, ahead, [count for _, count in moments])
        ahead.to(moments[first][1] if first < len(moments) else 0)
        met = [start for start in planned.starts.values() if planned.minds(start, job, None)]
        bounds = Bounds(planned.rankings, planned.ends, job, met)
        freed_at = _rows_by_until(planned.starts.values())
        for at, count in moments[first:]:
            changed = [end.row for end in ends[ahead.gone : count]]
            ahead.to(count)
            if session.due():
                yield TURN
            if not bounds.could(at, planned.ends.after(job, at), [*changed, *freed_at.get(at, ())]):
                continue
            planned.keep(planned.beside(job, at), at)
            planned.turn_to(job)
            places = yield from _places(planned, job)
            if places:
                return planned.entry(job, at, tuple(places), ends, coming)
            planned.lift()
            yield TURN
    finally:
        planned.lift()
        ahead.to(0)
        planned.ahead = False
    return None


def _first(planned: PlannedStarts, job: JobState, ahead: Ahead, counts: Sequence[int]) -> Generator[Turn, None, int]:
    """From which of the moments on there might be room, were nothing planned: with more that has ended there is
    more room, so it is found by halving.
    """
    low, high = 0, len(counts)
    while low < high:
        middle = (low + high) // 2
        ahead.to(counts[middle])
        if could_fit(planned.rankings, job):
            high = middle
        else:
            low = middle + 1
        yield TURN
    return low


def _places(planned: PlannedStarts, job: JobState) -> Generator[Turn, None, list[tuple[Task, int]]]:
    """Where the job's minimum has room as the session stands; nothing stays in it."""
    if not could_fit(planned.rankings, job):
        return []
    statement = Statement(planned.session, job)
    try:
        fits = yield from placing(planned.rankings, statement, (When.LATER,), search=(When.LATER,))
        steps = statement.recorded() if fits else []
    finally:
        statement.rollback()
    return [(task, row) for operation, task, row, _, _ in steps if operation is Operation.PIPELINE]


def _rows_by_until(starts: Iterable[PlannedStart]) -> dict[int, list[int]]:
    """On which rows planned jobs will have ended, by the instant."""
    found: dict[int, list[int]] = {}
    for start in starts:
        if start.until is not None:
            found.setdefault(start.until, []).extend(start.needs)
    return found
