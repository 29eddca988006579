"""Planned starts that are kept from cycle to cycle, in mode `conservative`: promises.

A promise stands until its job has started, is gone, or waits for something else than room; it moves later only where
what it counts on does not come: pods that run past their expected end, nodes that go, jobs of higher priority that come
first. It is then made again beside those before it, and those behind it give way. When anything has ended, each is made
again, by itself beside all others: for an earlier instant, or lower nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import numpy as np

from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.feasibility import Feasibility
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.reservation.kept import PlannedStart, kept_on
from kbatch.engine.reservation.ledger import Ledger
from kbatch.engine.reservation.planned import PlannedStarts
from kbatch.engine.reservation.planning import plan
from kbatch.engine.session.guarding import working
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.cycle_state import PromisedStart
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, unplaced
from kbatch.model.nodes import Column, Mask, exact_sum
from kbatch.model.tasks import Task
from kbatch.resources import PODS, add_to


def renew(
    planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger, rankings: NodeRankings
) -> Iterator[Transaction | Turn]:
    """Take over the promises of the cycle before; start the jobs whose turn has come, and make again what must be.

    They are taken over in the order in which they were made, each beside those before it: what cannot be kept moves no
    further than these make it, and those behind it are made again after it.
    """
    session = planned.session
    state = session.snapshot.state
    if state.planned:
        yield from planned.ends.preparing()
    moved, overdue = False, set[str]()
    for kept in state.planned:
        job = session.job(kept.job) if kept.job in session.model.live else None
        if job is None or not _waits(session, job):
            continue
        start = _kept(planned, rankings, job, kept)
        if start is not None:
            planned.put(start)
            if start.at is not None and start.at <= session.now:
                overdue.add(job.key)
        if start is None or (start.at != kept.at and job.key not in overdue):
            rows = tuple(start.needs) if start is not None else ()
            again = partial(_again, planned, feasibility, ledger, job, rows, start, due=job.key in overdue)
            yield from working(session, job, again, None)
            planned.lift()
            moved = moved or start is None or planned.starts.get(job.key) is not start
            yield TURN
        if moved:  # what has moved was put where one of a higher priority behind it was to start, which goes first
            yield from taken_over(planned, feasibility, ledger, rankings, job)
        if session.due(5):
            yield TURN
    ended = state.free is not None and _free_at_first(session) > state.free
    if state.offered is not None and offered_of(session) < state.offered:
        ended = True  # with a node that goes there is less room, whatever has ended besides
    for key in _in_turn(planned) if ended else list(planned.starts):
        start = planned.starts.get(key)
        if start is None:
            continue  # what it was promised has been taken over
        due = key in overdue
        if ended or due:
            stands = start if not due or _clearing(session, start) else None
            rows = () if ended else tuple(start.needs)
            again = partial(_again, planned, feasibility, ledger, start.job, rows, stands, due=due)
            yield from working(session, start.job, again, None)
            planned.lift()
            yield TURN
            if planned.starts.get(key) is not start:
                if start.at is None and not start.job.missing():
                    _give_way(planned, start)
                yield from taken_over(planned, feasibility, ledger, rankings, start.job)
    ledger.forget()


def _give_way(planned: PlannedStarts, started: PlannedStart) -> None:
    """Of those of its queue that matter less than a job that has started, and were promised room before it that nobody
    knows when comes free, each takes the place of the next, and the last its own: it had the turn of the first.
    """
    job, place = started.job, started.place
    weaker = [
        start for start in planned.starts.values()
        if start.at is None and start.job.queue == job.queue and start.job.priority < job.priority
        and start.place < place
    ]  # fmt: skip
    for start in sorted(weaker, key=lambda each: -each.place):
        start.place, place = place, start.place
    planned.starts = dict(sorted(planned.starts.items(), key=lambda each: each[1].place))


def _in_turn(planned: PlannedStarts) -> list[str]:
    """The keys of those that were promised a start, in the order in which they were; but of a queue's promises without
    an instant those of higher priority first: where something has ended, they take it before those that matter less.
    """
    found = list(planned.starts.values())
    by_queue: dict[str, list[int]] = {}
    for at, start in enumerate(found):
        if start.at is None:
            by_queue.setdefault(start.job.queue, []).append(at)
    for places in by_queue.values():
        some = sorted((found[at] for at in places), key=lambda start: -start.job.priority)
        for at, start in zip(places, some, strict=True):
            found[at] = start
    return [start.job.key for start in found]


def known_by_now(planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger) -> Iterator[Transaction | Turn]:
    """Promise instants to those that were promised room without one; of nominated pods it is known from their binds on
    when they end.
    """
    for start in list(planned.starts.values()):
        if start.at is None and planned.stands(start):
            again = partial(_anew, planned, feasibility, ledger, start.job, start)
            yield from working(planned.session, start.job, again, None)
            yield TURN


def taken_over(
    planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger, rankings: NodeRankings, by: JobState
) -> Iterator[Transaction | Turn]:
    """Promise others starts that they can keep, whose rooms a job of a higher priority in their queue was promised, or
    starts in.

    From each of them on the promises of the queue are made again in their order: it loses its place to that job alone,
    and to none of its queue that was promised its start later. Those of other queues stand.
    """
    seen: set[str] = set()
    while True:
        taken = planned.starts.get(by.key) if by.missing() else None
        rows: AbstractSet[int] = taken.needs.keys() if taken is not None else {row for _, row in by.placed.values()}
        if not rows:
            return
        heeds = taken is not None and taken.heeds
        losers = [
            start for start in planned.starts.values()
            if start.job.queue == by.queue and start.job.priority < by.priority and start.job.key not in seen
            and _loses(planned, rankings, start, rows, heeds=heeds)
        ]  # fmt: skip
        if not losers:
            return
        first = max(losers, key=lambda start: start.job.priority)  # of equal priority that which was planned first
        seen.add(first.job.key)
        yield from _from(planned, feasibility, ledger, rankings, first, by)


def _from(
    planned: PlannedStarts,
    feasibility: Feasibility,
    ledger: Ledger,
    rankings: NodeRankings,
    first: PlannedStart,
    by: JobState,
) -> Iterator[Transaction | Turn]:
    """Make the promise of a job again, and those after it in its queue, but for that of one job and of all that come
    first there whenever they were planned.
    """
    every = list(planned.starts.values())
    behind = deque(
        start for start in every[every.index(first) :]
        if start.job is not by and start.job.queue == first.job.queue and start.job.priority <= first.job.priority
    )  # fmt: skip
    for start in behind:
        del planned.starts[start.job.key]
    try:
        while behind:
            start = behind.popleft()
            if planned.stands(start) and _confirmed(planned, rankings, start):
                planned.put(start)
            else:
                again = partial(_anew, planned, feasibility, ledger, start.job)
                yield from working(planned.session, start.job, again, None)
                yield TURN
            yield from taken_over(planned, feasibility, ledger, rankings, start.job)  # of a lower priority each time
    finally:
        for start in behind:  # left off half-way
            planned.put(start)


def _loses(
    planned: PlannedStarts, rankings: NodeRankings, start: PlannedStart, rows: AbstractSet[int], *, heeds: bool
) -> bool:
    """Whether a start cannot be kept beside another, on these rows, that may heed which pods stand where."""
    if rows.isdisjoint(start.needs) and not (heeds or start.heeds):
        return False
    return planned.stands(start) and not _confirmed(planned, rankings, start)


def _anew(
    planned: PlannedStarts, feasibility: Feasibility, ledger: Ledger, job: JobState, stands: PlannedStart | None = None
) -> Generator[Transaction | Turn, None, None]:
    """Promise the job the earliest start that there is, but for one that `stands` and is no later."""
    found = yield from plan(planned, feasibility, ledger, job)
    if found is not None and not (stands is not None and _before(stands, found)):
        planned.put(found)
    elif found is None and stands is None:
        planned.starts.pop(job.key, None)


def promised(planned: PlannedStarts) -> tuple[PromisedStart, ...]:
    """What is promised, for the next cycle."""
    names = planned.session.nodes.names
    return tuple(
        PromisedStart(
            start.job.key, start.at, tuple([(task.key, names[row]) for task, row in start.places]), start.charge
        )
        for start in planned.starts.values() if planned.stands(start)
    )  # fmt: skip


def free_of(session: Session) -> int:
    """How many more pods all nodes would take, now and once what terminates has gone: it grows with each pod that ends,
    and with each that begins to terminate.
    """
    return _free(session.room.idle, session.room.releasing)


def _free_at_first(session: Session) -> int:
    """The same as the cycle began: nominated pods may be bound by now where others have ended."""
    return _free(session.nodes.idle, session.nodes.releasing) - len(session.stuck)


def _free(idle: Mapping[str, Column], releasing: Mapping[str, Column]) -> int:
    return 2 * exact_sum(idle[PODS]) + exact_sum(releasing[PODS]) if PODS in idle and PODS in releasing else 0


def offered_of(session: Session) -> int:
    """How many pods all nodes would take, were they empty."""
    column = session.nodes.allocatable.get(PODS)
    return exact_sum(column) if column is not None else 0


def _waits(session: Session, job: JobState) -> bool:
    """Whether a job that was promised its start still waits for it, and could use it."""
    if not job.seeks_minimum:
        return False
    return len(next_tasks(job, unplaced(job))) >= job.missing() and session.plugins.valid(job) is None


def _kept(planned: PlannedStarts, rankings: NodeRankings, job: JobState, kept: PromisedStart) -> PlannedStart | None:
    """A promise as it can be kept; one that is due, from when its nodes are clear. None: it cannot be kept."""
    start = _restored(planned, job, kept)
    if start is None or not _confirmed(planned, rankings, start):
        return None
    clear = _clear(planned, start)
    if start.at is None or clear <= start.at:
        return start
    start = planned.entry(job, clear, start.places, charge=kept.charge)
    return start if _confirmed(planned, rankings, start) else None


def _restored(planned: PlannedStarts, job: JobState, kept: PromisedStart) -> PlannedStart | None:
    """A promise with the pods and rows of today; None where it is not one for what the job's minimum lacks.

    One that has come due is one for now: its job runs from now on at the earliest.
    """
    session = planned.session
    waiting = {task.key: task for task in unplaced(job)}
    rows = session.nodes.row
    if any(pod not in waiting or node not in rows for pod, node in kept.places):
        return None
    places = tuple((waiting[pod], rows[node]) for pod, node in kept.places)
    at = kept.at if kept.at is None else max(kept.at, session.now)
    return planned.entry(job, at, places, charge=kept.charge) if len(places) == job.missing() else None


def _confirmed(planned: PlannedStarts, rankings: NodeRankings, start: PlannedStart) -> bool:
    """Whether its room will be there, by numbers, beside the promises that come before it, and its queue may have it;
    one that is due may wait for what terminates.
    """
    session = planned.session
    for task, row in start.places:
        session.room.ensure(task.cls)
        if not rankings.static(task.cls)[0][row]:
            return False
    if not planned.within_limits(start):
        return False
    if start.at is None:
        return True
    beside = planned.beside(start.job, start.at)
    if planned.apart(start, beside):
        return False
    ends = planned.ends
    ends.follow()
    due = start.at <= session.now
    others = dict(kept_on(beside, start.at, ends.on if due else ends.all_on))
    for row, needs in start.needs.items():
        more = {name: -amount for name, amount in others.get(row, {}).items()}
        for end in (*ends.on(row), *start.coming.get(row, ())):
            if end.at <= start.at:
                add_to(more, dict(end.task.cls.needs))
        for end in () if due else ends.leaving_on(row):
            if end.at > start.at:
                add_to(more, {name: -amount for name, amount in end.task.cls.needs})
        if any(session.room.future[name][row] + more.get(name, 0) < amount for name, amount in needs.items()):
            return False
    return True


def _clear(planned: PlannedStarts, start: PlannedStart) -> int:
    """From when on there is room for a start that is due, as pods go that were to be gone; now, if there is now, or
    nobody knows.
    """
    session, ends = planned.session, planned.ends
    idle, at = session.room.idle, session.now
    for row, wanted in start.needs.items() if start.at == at else ():
        lacks = {name: amount - int(idle[name][row]) for name, amount in wanted.items()}
        for end in sorted(ends.all_on(row)):
            if max(lacks.values()) <= 0:
                break
            at = max(at, end.at)
            add_to(lacks, {name: -amount for name, amount in end.task.cls.needs if name in lacks})
    return at


def _clearing(session: Session, start: PlannedStart) -> bool:
    """Whether pods are on their way out of the room of a start that is due."""
    idle = session.room.idle
    return any(idle[name][row] < amount for row, needs in start.needs.items() for name, amount in needs.items())


def _again(
    planned: PlannedStarts,
    feasibility: Feasibility,
    ledger: Ledger,
    job: JobState,
    rows: Sequence[int],
    stands: PlannedStart | None,
    *,
    due: bool,
) -> Generator[Transaction | Turn, None, None]:
    """Start the job now, if it can be on these rows, or promise it a start: see `_anew`. Before it is `due`, it takes
    no room that groups in queue were promised; and of which nobody knew when it would start leaves that to `allocate`
    where those that matter more wait.
    """
    statement = yield from _now(planned, job, rows)
    if statement is not None and stands is not None and stands.at is None and _more_important_wait(planned, job):
        statement.rollback()
        statement = None
    if statement is not None and not due and _robs(ledger, job):
        statement.rollback()
        if stands is None:
            planned.starts.pop(job.key, None)  # as allocate, which plans no start for whom it keeps out
        return
    if statement is None:
        yield from _anew(planned, feasibility, ledger, job, stands)
        return
    planned.starts.pop(job.key, None)
    yield from statement.commit()


def _robs(ledger: Ledger, job: JobState) -> bool:
    """Whether the job, as it is placed just now, takes room that groups in queue were promised: as allocate asks."""
    return job.job.shadow and ledger.broken(job, [task for task, _ in job.placed.values()]) is not None


def _more_important_wait(planned: PlannedStarts, job: JobState) -> bool:
    """Whether others of its queue wait for a start, whose pods could evict those of the job at once: `allocate` starts
    it, which asks that.
    """
    return planned.session.policy.has("preempt") and any(
        other.job.queue == job.queue and other.job.priority > job.priority and planned.stands(other)
        for other in planned.starts.values()
    )


def _now(planned: PlannedStarts, job: JobState, rows: Sequence[int]) -> Generator[Turn, None, Statement | None]:
    """A statement that starts the job, if it can be on these rows, else on the lowest; None: it cannot start now."""
    rankings = planned.rankings
    planned.lay(job)
    if not could_fit(rankings, job):
        return None
    for among in (rows, ()) if rows else ((),):
        statement = Statement(planned.session, job)
        if among:
            mask = np.zeros(len(planned.session.nodes), np.bool_)
            mask[list(among)] = True
            statement.within = partial(_only, mask)
        if (yield from placing(rankings, statement, (When.NOW,))):
            statement.within = None
            return statement
        statement.rollback()
    return None


def _only(mask: Mask, _: Task) -> Mask:
    return mask


def _before(one: PlannedStart, other: PlannedStart) -> bool:
    """Whether the one start is at an earlier instant than the other, or, at the same, on lower rows."""
    if one.at is None or other.at is None:
        return other.at is None
    return (one.at, _rows(one)) < (other.at, _rows(other))


def _rows(start: PlannedStart) -> Sequence[int]:
    return sorted(row for _, row in start.places)
