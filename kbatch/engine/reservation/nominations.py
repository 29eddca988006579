"""Nominations: nodes that pods wait for while what terminates there goes.

At the start of a cycle those that the API server has are *confirmed*, all of them together and each where it stands: a
pod is asked about with all the others in their places, its own gang's included. Where some may not stand so, an order
is looked for in which the gang's pods may take their places one after the other, as they were planned (`sequence`).
What is valid writes nothing. What is not valid any more ends, of several that have no room together the one that comes
last in order. A gang that lost part of its nominations keeps the others while the actions look for other room for that
part; in the end it has all, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

import numpy as np

from kbatch.engine.decisions import TURN, Nomination, Transaction, Turn
from kbatch.engine.placement.capacity import fitting_on
from kbatch.engine.placement.gang import placing
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.reservation.sequence import sequence
from kbatch.engine.session.guarding import attempt, key_of, working
from kbatch.engine.session.limits import over_capability
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, unplaced
from kbatch.engine.state.queues import QueueState
from kbatch.engine.state.timeline import Timeline
from kbatch.model.nodes import Mask
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import Resources, add_to

_AT_ONCE: Final = 200
"""So many steps of a statement take a few milliseconds."""


def confirm(session: Session, rankings: NodeRankings) -> Iterator[Turn]:
    """Restore the nominations that stand; `session.withdrawn` has the others."""
    jobs = [job for job in session.live() if job.job.nominees]
    _expect(session, jobs)
    keys = {job.key: key for job in jobs if (key := key_of(session, job)) is not None}
    for job in jobs:
        queue = session.queues.get(job.queue)
        if queue is not None:  # the model's sums contain them; those that stand are counted again
            for number, task in enumerate(job.job.nominees, start=1):
                queue.add(task.cls.request, -1, ends=job.ends)
                if not number % (10 * _AT_ONCE):
                    yield TURN
        if job.key not in keys:
            _give_up(session, job)
    jobs = sorted((job for job in jobs if job.key in keys), key=lambda job: keys[job.key])
    for job in jobs:
        yield from working(session, job, partial(_restore, session, job), None)
        if job.key in session.failed:
            _give_up(session, job)
    again = bool(jobs)
    while again:  # what ends may have been what another sought the company of
        again = False
        for job in reversed(jobs):
            if not job.nominated or job.key in session.failed:
                continue
            if (yield from working(session, job, partial(_drop_invalid, session, rankings, job), True)):
                again = True
        yield TURN


def _give_up(session: Session, job: JobState) -> None:
    """End the nominations of a job that cannot be worked on."""
    session.withdrawn.update({task.key: task for task in job.job.nominees})
    session.room_moves += 1


def whole_or_none(session: Session) -> Iterator[Turn]:
    """When the actions are over: a gang waits as a whole or not at all."""
    for job in session.live():
        if job.nominated and job.missing():
            yield from working(session, job, partial(_give_up_all, session, job), None)


def _give_up_all(session: Session, job: JobState) -> Generator[Turn, None, None]:
    """End what the job is nominated to."""
    statement = Statement(session, job)
    for number, (task, _) in enumerate(list(job.nominated.values()), start=1):
        statement.withdraw(job, task)
        if not number % _AT_ONCE:
            yield TURN
    statement.commit()
    session.refuse_room(job)


def parts_beyond_capability(session: Session) -> None:
    """A gang of which only a part can stay nominated within its queue's capability, since a victim could not be
    evicted, gives that part up. Else others of the queue would wait, or go, for what its end frees.
    """
    for job in sorted(session.nominees.values(), key=attrgetter("key")):
        if job.missing() and job.possible and not job.job.holding:
            attempt(session, job, partial(_give_up_part, session, job), None)


def _give_up_part(session: Session, job: JobState) -> None:
    """The same of one gang."""
    queue = session.queues.get(job.queue)
    if queue is not None and over_capability(queue, next_tasks(job, unplaced(job))) is not None:
        statement = Statement(session, job)
        statement.withdraw_all(job)
        statement.commit()


def ending(session: Session) -> Iterator[Transaction]:
    """The end of a cycle, after which nothing may fail any more: what ended and was not replaced is told."""
    by_job: dict[str, list[Nomination]] = {}
    for key in sorted(session.withdrawn):
        task = session.withdrawn[key]
        by_job.setdefault(task.job, []).append(Nomination(key, task.uid, None))
    session.withdrawn.clear()
    for key, found in sorted(by_job.items()):
        yield Transaction(session.job(key).name, nominations=tuple(found), job=key)


def _expect(session: Session, jobs: Sequence[JobState]) -> None:
    """Count no more on the room of pods that should have been gone for long, unless who waits there waits for others
    too: a nomination ends that long after the last of its victims should be gone.
    """
    timeline = Timeline(session.nodes, session.now, session.policy.nomination_grace)
    waited: set[int] = set()
    for job in jobs:
        if not (job.in_queue and job.possible):
            continue
        rows = {session.nodes.row[task.nominated] for task in job.job.nominees if task.nominated in session.nodes.row}
        until = timeline.latest(rows)
        if until is None or until > session.now:
            waited |= rows
            if until is not None:
                session.wake.append(until)
    stuck: list[str] = []
    for row, task in timeline.stuck():
        if row not in waited:
            session.room.expect_no_more(task.cls, row)
            stuck.append(task.key)
    session.stuck = tuple(stuck)
    following = timeline.next_stuck()
    if following is not None:
        session.wake.append(following)


def _restore(session: Session, job: JobState) -> Generator[Turn, None, None]:
    """Put the job's pods where they are nominated to, whether or not they fit there."""
    statement = Statement(session, job)
    known = {task.key for task in job.waiting} if job.in_queue and job.possible else set()
    for number, task in enumerate(sorted(job.job.nominees, key=lambda task: task.key), start=1):
        row = session.nodes.row.get(task.nominated, -1)
        if row >= 0 and task.key in known:
            session.room.ensure(task.cls)
            statement.pipeline(task, row)
        if task.key not in job.nominated:
            session.withdrawn[task.key] = task
            session.room_moves += 1
        if not number % _AT_ONCE:
            yield TURN
    statement.commit()


def _drop_invalid(session: Session, rankings: NodeRankings, job: JobState) -> Generator[Turn, None, bool]:
    """End the nominations of the job that it could not use; whether there were any."""
    places: dict[tuple[int, int], list[Task]] = {}
    classes: dict[int, TaskClass] = {}
    for task, row in job.nominated.values():
        classes[task.cls.id] = task.cls
        places.setdefault((task.cls.id, row), []).append(task)
    over = _overcommitted(session)
    statement = Statement(session, job)
    heedful: list[tuple[list[Task], int]] = []
    in_order = sorted(places.items(), key=lambda place: (classes[place[0][0]].order, place[0][1]))
    for number, ((cls_id, row), tasks) in enumerate(in_order, start=1):
        cls = classes[cls_id]
        fit = rankings.of(cls, When.LATER)
        if not rankings.static(cls)[0][row]:
            for task in tasks:
                statement.withdraw(job, task)
            continue
        while tasks and over[row] and _short(session, cls, row):
            statement.withdraw(job, tasks.pop())
        if fit.stepwise:
            heedful.append((tasks, row))
        if not number % _AT_ONCE:
            yield TURN
    yield from _drop_strangers(rankings, statement, heedful)
    changed = len(statement) > 0
    statement.commit()
    return changed


def _drop_strangers(
    rankings: NodeRankings, statement: Statement, heedful: Sequence[tuple[list[Task], int]]
) -> Iterator[Turn]:
    """Of pods that heed others, given by class and row, end the nominations of those that may not stand with all others
    where they are; unless in some order each may take its place.
    """
    mark = len(statement)
    for tasks, row in heedful:
        while tasks and not _stands(rankings, statement, tasks[-1], row):
            statement.withdraw(statement.job, tasks.pop())
        yield TURN
    if len(statement) == mark:
        return
    steps = statement.recorded()[mark:]
    statement.rollback(mark)
    if (yield from sequence(rankings, statement, When.LATER)) is None:
        statement.replay(steps)


def _overcommitted(session: Session) -> Mask:
    """The rows that cannot hold what stands, terminates and waits there."""
    over = np.zeros(len(session.nodes), np.bool_)
    for column in session.room.future.values():
        over |= column < 0
    return over


def _short(session: Session, cls: TaskClass, row: int) -> bool:
    return any(session.room.future[name][row] < 0 for name, _ in cls.needs)


def _stands(rankings: NodeRankings, statement: Statement, task: Task, row: int) -> bool:
    """Whether a pod that waits for a row may stand there, with all others where they are."""
    mark = len(statement)
    statement.withdraw(statement.job, task)
    stands = rankings.allows(task.cls, row, When.LATER)
    statement.rollback(mark)
    return stands


# --- bound where room has come free -----------------------------------------------------------------------------------


def settle(
    session: Session,
    rankings: NodeRankings,
    *,
    elsewhere: bool = True,
    lay: Callable[[JobState], None] | None = None,
    behind: Callable[[JobState], bool] | None = None,
) -> Iterator[Transaction | Turn]:
    """Bind what is nominated wherever idle room now serves; the others keep waiting where they are.

    Without `elsewhere`, or where it is `behind` somebody, a job is bound only where all of it can be bound to the nodes
    that it was promised. `lay` keeps room from a job. Those for whom this cycle evicts wait for that room: who was to
    have the idle room when the victims were chosen is to have it still, else these go for nobody who needs it.
    """
    waiting = [
        job for job in session.live()
        if job.nominated and job.key not in session.beneficiaries and not awaits_capability(session, job)
    ]  # fmt: skip
    keys = {job.key: key for job in waiting if (key := key_of(session, job)) is not None}
    session.settling = True
    for job in sorted((job for job in waiting if job.key in keys), key=lambda job: keys[job.key]):
        if job.key not in session.failed:
            if lay is not None:
                lay(job)
            work = partial(_settle, session, rankings, job, elsewhere, behind)
            yield from working(session, job, work, None)
        yield TURN
    session.settling = False


def _settle(
    session: Session,
    rankings: NodeRankings,
    job: JobState,
    elsewhere: bool,
    behind: Callable[[JobState], bool] | None,
) -> Generator[Transaction | Turn, None, None]:
    """The same for one job."""
    moves = elsewhere and not (behind is not None and behind(job))
    if job.whole:
        yield from _settle_each(session, rankings, job, elsewhere=moves)
    elif _may_bind(rankings, job):
        yield from _settle_whole(session, rankings, job, elsewhere=moves)


def awaits_capability(session: Session, job: JobState) -> bool:
    """Whether the nominated pods of the job have to wait until others of its queue are gone: with both there, the
    queue would hold more than its hard cap. Whom this cycle evicts is there until the eviction is made, if it is made.
    """
    queue = session.queues.get(job.queue)
    if queue is None or not queue.record.capability:
        return False
    asked = {name for task, _ in job.nominated.values() for name in task.cls.request}
    leaving: Resources = {}
    for task in leaving_of(session, queue):
        add_to(leaving, task.cls.request)
    return any(
        leaving.get(name, 0) and queue.allocated.get(name, 0) + leaving[name] > hard
        for name, hard in queue.record.capability.items() if name in asked
    )  # fmt: skip


def leaving_of(session: Session, queue: QueueState) -> Iterator[Task]:
    """The queue's pods that are still there, and leave."""
    for other in queue.record.holders.values():
        if other.terminating or (session.leaving and other.holding):
            for task in other.tasks.values():
                goes = task.terminating or task.key in session.leaving
                if goes and task.node and not task.terminal:
                    yield task


def _may_bind(rankings: NodeRankings, job: JobState) -> bool:
    """Whether idle room is enough for what the minimum needs of each class by itself; cheap, and never wrong in no."""
    spare = len(job.nominated) - _waited_for(job)
    counts: dict[int, int] = {}
    classes: dict[int, TaskClass] = {}
    for task, _ in job.nominated.values():
        counts[task.cls.id] = counts.get(task.cls.id, 0) + 1
        classes[task.cls.id] = task.cls
    return all(
        count <= spare or _idle_for(rankings, classes[number], count - spare) for number, count in counts.items()
    )


def _waited_for(job: JobState) -> int:
    """How many of its nominated pods the minimum needs at least."""
    placed = len(job.nominated)
    return max(0, placed - max(0, job.pipelined - job.minimum))


def _idle_for(rankings: NodeRankings, cls: TaskClass, count: int) -> bool:
    room = rankings.room
    room.ensure(cls)
    return int(fitting_on(cls.needs, rankings.allowed(cls), room.idle, count).sum()) >= count


def _withdrawing(
    statement: Statement, job: JobState, promised: Sequence[tuple[Task, int]]
) -> Generator[Turn, None, None]:
    """Withdraw these nominations, in pieces."""
    for number, (task, _) in enumerate(promised, start=1):
        statement.withdraw(job, task)
        if not number % _AT_ONCE:
            yield TURN


def _settle_whole(
    session: Session, rankings: NodeRankings, job: JobState, *, elsewhere: bool
) -> Generator[Transaction | Turn, None, None]:
    """Bind all that the job's minimum waits for, each where it was promised if it can be; or leave all as it is. What
    waits above the minimum and finds no room now waits on.
    """
    promised = list(job.nominated.values())
    statement = Statement(session, job)
    yield from _withdrawing(statement, job, promised)
    mark = len(statement)
    for number, (task, row) in enumerate(promised, start=1):
        _bind_there(rankings, statement, task, row)
        if not number % _AT_ONCE:
            yield TURN
    if not elsewhere:
        whole = job.whole and all(task.key in job.placed for task, _ in promised)
    else:
        whole = yield from placing(rankings, statement, (When.NOW,))
    if elsewhere and not whole and len(statement) > mark:
        yield from _undo(statement, mark)  # it may be that only other nodes leave room for all
        whole = yield from placing(rankings, statement, (When.NOW,))
    if not whole:
        yield from _undo(statement, 0)
        return
    for number, (task, row) in enumerate(promised, start=1):
        bound = task.key in job.placed or _bind_one(rankings, statement, task, row)
        if not bound:
            _wait_on(rankings, statement, task, (row, *(other for _, other in promised)))
        if not number % _AT_ONCE:
            yield TURN
    yield from statement.commit()


def moving(
    session: Session, rankings: NodeRankings, job: JobState, waiting: Sequence[tuple[Task, int]]
) -> Generator[Turn, None, Statement | None]:
    """An open statement that binds these nominated pods of a job, its minimum's or others, to idle room now; None where
    there is not enough for all of them. They are given with their rows.
    """
    counts: dict[TaskClass, int] = {}
    for task, _ in waiting:
        counts[task.cls] = counts.get(task.cls, 0) + 1
    if not (counts and all(_idle_for(rankings, cls, count) for cls, count in counts.items())):
        return None
    statement = Statement(session, job)
    yield from _withdrawing(statement, job, waiting)
    if not job.missing() or (yield from placing(rankings, statement, (When.NOW,))):
        for number, (task, row) in enumerate(waiting, start=1):
            if task.key not in job.placed and not _bind_one(rankings, statement, task, row):
                break
            if not number % _AT_ONCE:
                yield TURN
        else:
            return statement
    yield from _undo(statement, 0)
    return None


def _settle_each(
    session: Session, rankings: NodeRankings, job: JobState, *, elsewhere: bool
) -> Generator[Transaction | Turn, None, None]:
    """Bind those beyond the minimum that can be, one by one; a class that finds no room is not tried again."""
    none: set[int] = set()
    for number, (task, row) in enumerate(list(job.nominated.values()), start=1):
        if not number % _AT_ONCE:
            yield TURN
        if task.cls.id in none:
            continue
        if not _idle_for(rankings, task.cls, 1):
            none.add(task.cls.id)
            continue
        statement = Statement(session, job)
        statement.withdraw(job, task)
        bind = _bind_one if elsewhere else _bind_there
        if bind(rankings, statement, task, row):
            yield from statement.commit()
        else:
            statement.rollback()


def _wait_on(rankings: NodeRankings, statement: Statement, task: Task, rows: Sequence[int]) -> None:
    """Let a pod wait on where it did, for it others may have gone from there; or where another pod of its job has
    waited that took its room.
    """
    for row in dict.fromkeys(rows):
        if rankings.allows(task.cls, row, When.LATER) and statement.pipeline(task, row):
            return


def _undo(statement: Statement, mark: int) -> Iterator[Turn]:
    while len(statement) > mark:
        statement.rollback(max(mark, len(statement) - _AT_ONCE))
        yield TURN


def _bind_there(rankings: NodeRankings, statement: Statement, task: Task, row: int) -> bool:
    """Bind a pod to the node that it was promised, if there is room now: what users and autoscalers were told holds."""
    fits = rankings.allows(task.cls, row, When.NOW)
    if fits:
        statement.allocate(task, row)
    return task.key in statement.job.placed


def _bind_one(rankings: NodeRankings, statement: Statement, task: Task, promised: int) -> bool:
    if _bind_there(rankings, statement, task, promised):
        return True
    rows = rankings.for_job(task.cls, When.NOW, statement.job).choose(1, statement.rows(task))
    if rows:
        statement.allocate(task, rows[0])
    return task.key in statement.job.placed
