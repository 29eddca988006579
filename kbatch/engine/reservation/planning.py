"""Planning a start: the earliest instant at which a job could start beside all that is planned, and on which nodes.

The instants at which anything ends are gone through, but for those that sums rule out, and at each it is tried to place
the job's minimum in the room of that instant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence

from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.feasibility import Feasibility
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import When
from kbatch.engine.reservation.ageing import places_to_gather, waits_for_room
from kbatch.engine.reservation.ahead import Ahead
from kbatch.engine.reservation.bounds import Bounds
from kbatch.engine.reservation.ends import Upcoming
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
    upcoming, coming = planned.ends.for_job(job, heeds=heeds)
    untils = sorted({start.until for start in planned.starts.values() if start.until is not None})
    ahead = Ahead(session, job, upcoming.ends, planned.ends.leaving, heeded=heeds)
    planned.ahead = True
    try:
        ahead.begin()
        since = yield from _first(planned, job, ahead, upcoming)
        if since is None:
            return None
        met = [start for start in planned.starts.values() if planned.minds(start, job, None)]
        bounds = Bounds(planned.rankings, planned.ends, job, met)
        freed_at = _rows_by_until(planned.starts.values())
        for at, count in _moments(upcoming, untils, since):
            changed = [end.row for end in upcoming.ends[ahead.gone : count]]
            ahead.to(count)
            if session.due():
                yield TURN
            if not bounds.could(at, planned.ends.after(job, at), [*changed, *freed_at.get(at, ())]):
                continue
            planned.keep(planned.beside(job, at), at)
            planned.turn_to(job)
            places = yield from _places(planned, job)
            if places:
                return planned.entry(job, at, tuple(places), upcoming, coming)
            planned.lift()
            yield TURN
    finally:
        planned.lift()
        ahead.end()
        planned.ahead = False
    return None


def _first(
    planned: PlannedStarts, job: JobState, ahead: Ahead, upcoming: Upcoming
) -> Generator[Turn, None, int | None]:
    """From which instant on there might be room, were nothing planned; None: never, as far as is known.

    With more that has ended there is more room: so it is found in steps that double, and then by halving.
    """
    now, ends = planned.session.now, upcoming.ends

    def enough(count: int) -> bool:
        """Whether so many of the ends are, with all others of the last one's instant."""
        ahead.to(upcoming.until(ends[count - 1].at) if count else 0)
        return could_fit(planned.rankings, job)

    low, step = upcoming.until(now), 1
    if enough(low):
        return now + 1
    while True:
        if low == len(ends) and not upcoming.more():
            return None
        high, step = min(low + step, len(ends)), step * 2
        yield TURN
        if enough(high):
            break
        low = high
    while high - low > 1:
        middle = (low + high) // 2
        yield TURN
        if enough(middle):
            high = middle
        else:
            low = middle
    return ends[high - 1].at


def _moments(upcoming: Upcoming, untils: Sequence[int], since: int) -> Iterator[tuple[int, int]]:
    """The instants from one on at which anything ends, or a planned job will have ended (`untils`), in order, each with
    how many of the ends are due then.
    """
    ends, count, at = upcoming.ends, upcoming.until(since - 1), bisect_left(untils, since)
    while count < len(ends) or upcoming.more() or at < len(untils):
        instant = min([*untils[at : at + 1], *[end.at for end in ends[count : count + 1]]])
        count = upcoming.until(instant)
        while at < len(untils) and untils[at] == instant:
            at += 1
        yield instant, count


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
