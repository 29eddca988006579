"""Ageing: room gathers for a group that has waited too long.

Looked at is each group, in order, that waits for nothing but room; one that waits for anything else (its pods, a share,
a promise to others), or could not use the room, is passed over. The room is that of certain nodes, as much as each of
the group's pods needs there. It is kept from cycle to cycle while the group could use it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import numpy as np

from kbatch.engine.decisions import TURN, Transaction, Turn
from kbatch.engine.placement.clearable import clearable
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.feasibility import Feasibility
from kbatch.engine.placement.gang import comparing, placing
from kbatch.engine.placement.kinds import Kind
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.placement.together import keeping_to
from kbatch.engine.reservation.ledger import Ledger
from kbatch.engine.session.guarding import working
from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.cycle_state import GatheredRoom
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, shortfalls, unplaced
from kbatch.engine.state.node_resources import Rows
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import total

_T = TypeVar("_T")

_SETS: Final = 64
"""In so many sets of nodes room is looked for at most, for pods that must stand together."""


def waits_for_room(
    session: Session, feasibility: Feasibility, ledger: Ledger, job: JobState, *, by_share: bool = True
) -> bool:
    """Whether room is all that a group in queue lacks: its pods are there, and may be placed. `by_share`: so its
    queue's share says, too.
    """
    if job.idle or not job.seeks_minimum:
        return False
    following = next_tasks(job, unplaced(job))
    if len(following) < job.missing() or session.plugins.valid(job) is not None or feasibility.hopeless(job):
        return False
    if job.job.shadow and ledger.refuses(job, following, surplus=False) is not None:
        return False
    return not limited(session, feasibility, job, following, by_share=by_share)


def limited(
    session: Session, feasibility: Feasibility, job: JobState, tasks: Sequence[Task], *, by_share: bool = True
) -> bool:
    """Whether its queue's share (where that counts: `by_share`) or capability keeps the job waiting, and not room.

    A share does only where others come first that could use what the job asks for.
    """
    queue = session.queue(job.queue)
    asked = total(task.cls.request for task in tasks)
    hard = queue.record.capability or {}
    if any(queue.allocated.get(name, 0) + asked.get(name, 0) > hard[name] for name in hard if asked.get(name)):
        return True
    if session.plugins.over_limits(job, tasks):
        return True
    if not by_share or not session.others_first(job) or session.plugins.overused(queue, job) is None:
        return False
    below = session.below_share()
    before = {name: below.get(name, set()) - {job.queue} for name in job.asks}
    return any(
        other.queue in before.get(name, ())
        for other in session.live()
        if other.in_queue and other.possible and (other.nominated or not other.idle)
        for name in other.asks
        if other.queue in before.get(name, ()) and not feasibility.hopeless(other)
    )


def gather_for_the_aged(session: Session, feasibility: Feasibility, ledger: Ledger) -> Iterator[Transaction | Turn]:
    """Let room gather for the first group that has waited beyond the ageing time and does not fit as things are.

    One at a time: that for which room was kept in the cycle before, if it could still use it.
    """
    kept = session.snapshot.state.gathered
    if kept is not None and (yield from _goes_on(session, feasibility, ledger, kept)):
        return

    def places(job: JobState, fitting: Sequence[Statement]) -> Generator[Turn, None, list[tuple[Task, int]]]:
        return places_to_gather(session, feasibility, ledger.rankings, job)

    found = yield from first_aged(session, feasibility, ledger, places)
    if found is not None:
        ledger.begin(*found)


def first_aged(
    session: Session,
    feasibility: Feasibility,
    ledger: Ledger,
    keep: Callable[[JobState, Sequence[Statement]], Generator[Turn, None, _T | None]],
) -> Generator[Turn, None, tuple[JobState, _T] | None]:
    """The first group that has waited beyond the ageing time, does not fit as things are, and for which something can
    be kept: with what `keep` says that is. It is told of the open statements of those before it that fit, too.
    """
    fitting: list[Statement] = []
    found: tuple[JobState, _T] | None = None
    for job in session.live():
        if session.due():
            yield TURN
        if job.idle or not (job.in_queue and job.possible and job.missing()):
            continue
        due = job.job.created + session.policy.ageing
        if session.now < due:
            session.wake.append(due)
            break  # the others are younger
        work = partial(_look, session, feasibility, ledger, job, fitting, keep)
        kept = yield from working(session, job, work, None)
        if kept:
            found = job, kept
            break
    for statement in reversed(fitting):
        statement.rollback()
    return found


def keep_for_the_aged(
    session: Session, feasibility: Feasibility, ledger: Ledger
) -> Generator[Turn, None, Statement | None]:
    """Keep what has gathered in earlier cycles, if its group could still use it, until `ledger.end`: for an action that
    runs before the room is given out. The group's placement, open, where it fits as things are: then nothing is kept.
    """
    kept = session.snapshot.state.gathered
    if kept is None or kept.job not in session.model.live:
        return None
    job = session.job(kept.job)
    work = partial(_keep, session, feasibility, ledger, job, kept)
    return (yield from working(session, job, work, None))


def _keep(
    session: Session, feasibility: Feasibility, ledger: Ledger, job: JobState, kept: GatheredRoom
) -> Generator[Turn, None, Statement | None]:
    """The same, for the group for which it has gathered."""
    if not waits_for_room(session, feasibility, ledger, job):
        return None
    statement = yield from fitting_now(session, ledger, job)
    if statement is None:
        places = _confirmed(session, ledger.rankings, job, kept)
        if places:
            ledger.keep(job, places)
    return statement


def _look(
    session: Session,
    feasibility: Feasibility,
    ledger: Ledger,
    job: JobState,
    fitting: list[Statement],
    keep: Callable[[JobState, Sequence[Statement]], Generator[Turn, None, _T | None]],
) -> Generator[Turn, None, _T | None]:
    """What is to be kept for the job; None: nothing. One that fits now is left open in `fitting`: its turn comes, and
    what it will take is not kept for another.
    """
    if not waits_for_room(session, feasibility, ledger, job):
        return None
    statement = Statement(session, job)
    fits = could_fit(ledger.rankings, job)
    if fits and (yield from placing(ledger.rankings, statement, (When.NOW, When.LATER))):
        fitting.append(statement)
        return None
    statement.rollback()
    yield TURN
    if not (yield from feasibility.attempting(job)).fits:
        return None
    return (yield from keep(job, fitting))


def _goes_on(
    session: Session, feasibility: Feasibility, ledger: Ledger, kept: GatheredRoom
) -> Generator[Transaction | Turn, None, bool]:
    """Whether the group for which room was kept is served, or its room is kept as before."""
    if kept.job not in session.model.live:
        return False
    job = session.job(kept.job)
    if not waits_for_room(session, feasibility, ledger, job):
        return False
    statement = yield from fitting_now(session, ledger, job)
    if statement is not None:
        yield from statement.commit()
        return True
    places = _confirmed(session, ledger.rankings, job, kept)
    if not places:
        return False
    ledger.begin(job, places)
    return True


def fitting_now(session: Session, ledger: Ledger, job: JobState) -> Generator[Turn, None, Statement | None]:
    """The job's placement, open, where it fits as things are."""
    statement = Statement(session, job)
    if could_fit(ledger.rankings, job) and (yield from placing(ledger.rankings, statement, (When.NOW,))):
        return statement
    statement.rollback()
    return None


def _confirmed(session: Session, rankings: NodeRankings, job: JobState, kept: GatheredRoom) -> list[tuple[Task, int]]:
    """The places that were kept, if they still hold the minimum; else nothing."""
    waiting = {task.key: task for task in unplaced(job)}
    row_of = session.nodes.row
    if any(pod not in waiting or node not in row_of for pod, node in kept.places):
        return []
    places = [(waiting[pod], row_of[node]) for pod, node in kept.places]
    for role, count in shortfalls(job):
        if sum(1 for task, _ in places if role is None or task.role == role) < count:
            return []
    if len(places) != job.missing():
        return []
    capacity = session.nodes.capacity
    open_ = session.whole_nodes.gatherable(job)
    taken: dict[tuple[str, int], int] = {}
    for (cls, row), count in Counter((task.cls, row) for task, row in places).items():
        if not rankings.static(cls)[0][row] or not (open_ is None or open_[row]):
            return []
        for name, amount in cls.needs:
            taken[name, row] = taken.get((name, row), 0) + amount * count
    if any(name not in capacity or capacity[name][row] < amount for (name, row), amount in taken.items()):
        return []
    stepwise = any(rankings.stepwise(cls) for cls in {task.cls.id: task.cls for task, _ in places}.values())
    if not (stepwise or job.strict):
        return places
    statement = Statement(session, job)
    with session.whole_nodes.gathering():
        stand = all(statement.pipeline(task, row) for task, row in places)
    # Of like pods on one node one tells of all.
    for task, row in {(task.cls, task.role, row): (task, row) for task, row in places}.values() if stepwise else ():
        if stand and task.key in job.nominated:
            mark = len(statement)
            statement.withdraw(job, task)
            stand = bool(_undisturbed(session, rankings, task.cls)[row])
            statement.rollback(mark)
    statement.rollback()
    return places if stand else []


def places_to_gather(
    session: Session, feasibility: Feasibility, rankings: NodeRankings, job: JobState
) -> Generator[Turn, None, list[tuple[Task, int]]]:
    """Rows that would hold the job's minimum if they were empty of our pods; those with the most room already first.

    The pods that are hardest to place come first: the fewest nodes that could ever take one, then the largest part of a
    node. Beside other pods they must be allowed as these stand now. Pods that must stand together are kept to one set
    of nodes after the other, until one takes them.
    """
    statement = Statement(session, job)
    if not job.strict:
        statement.apart = True
        return (yield from _places_within(session, feasibility, rankings, statement))

    open_ = session.whole_nodes.gatherable(job)

    def capacity(kind: Kind) -> Column:
        cls = kind.cls
        session.room.ensure(cls)
        none = np.zeros(len(session.nodes), np.int64)
        allowed = rankings.static(cls)[0] & _undisturbed(session, rankings, cls)
        if open_ is not None:
            allowed &= open_
        found = np.where(allowed, np.int64(1) << 32, none)
        for name, amount in cls.needs:
            found = np.minimum(found, session.nodes.capacity.get(name, none) // amount)
        return found

    yield from comparing(session, job)
    for choice in islice(clearable(session, rankings, job, capacity), _SETS):
        statement.within = keeping_to(choice)
        found = yield from _places_within(session, feasibility, rankings, statement)
        if found:
            return found
        yield TURN
    return []


def _places_within(
    session: Session, feasibility: Feasibility, rankings: NodeRankings, statement: Statement
) -> Generator[Turn, None, list[tuple[Task, int]]]:
    """The same, on the rows that the statement keeps to; nothing stays in it."""
    job = statement.job
    able = [task for task in unplaced(job) if feasibility.most(task.cls)]
    tasks = next_tasks(job, able)
    if len(tasks) < job.missing():
        return []
    by_class: dict[tuple[int, str], list[Task]] = {}
    for task in tasks:
        by_class.setdefault((task.cls.id, task.role if job.strict else ""), []).append(task)
    runs = sorted(by_class.values(), key=lambda run: _hardness(session, rankings, run[0].cls))
    left = {name: column.copy() for name, column in session.nodes.capacity.items()}
    found: list[tuple[Task, int]] = []
    stepwise = any(rankings.stepwise(run[0].cls) for run in runs)
    for run in runs:
        while run:
            among = _rows_to_gather(session, statement, run[0])
            rows = _rows_for(session, rankings, run[0].cls, 1 if stepwise else len(run), left, among)
            if not rows:
                statement.rollback()
                return []
            for row in rows:
                task = run.pop(0)
                found.append((task, row))
                if stepwise:
                    with session.whole_nodes.gathering():
                        statement.pipeline(task, row)
            if stepwise:
                yield TURN
    statement.rollback()
    return found


def _rows_to_gather(session: Session, statement: Statement, task: Task) -> Mask | None:
    """The rows that the limits, and what the statement keeps to, leave to the task, once others have ended."""
    found = statement.within(task) if statement.within is not None else None
    masks = [limit.rows(statement.job, task, waits=True) for limit in session.limits if limit.keeps_together]
    for mask in (*masks, session.whole_nodes.gatherable(statement.job)):
        if mask is not None:
            found = mask if found is None else found & mask
    return found


def _rows_for(
    session: Session, rankings: NodeRankings, cls: TaskClass, wanted: int, left: dict[str, Column], among: Mask | None
) -> list[int]:
    """Rows for up to so many pods of a class, one element for each; what they need is taken off `left`."""
    room, count = session.room, len(session.nodes)
    room.ensure(cls)
    most = np.full(count, np.int64(wanted))
    already = most.copy()
    for name, amount in cls.needs:
        column = left.get(name)
        np.minimum(most, (column if column is not None else np.zeros(count, np.int64)) // amount, out=most)
        np.minimum(already, np.maximum(room.future[name], 0) // amount, out=already)
    most[~(rankings.static(cls)[0] & _undisturbed(session, rankings, cls))] = 0
    if among is not None:
        most[~among] = 0
    found: list[int] = []
    for row in np.lexsort((np.arange(count), -np.minimum(already, most))).tolist():
        taken = min(wanted - len(found), int(most[row]))
        if taken <= 0:
            continue
        found.extend([row] * taken)
        for name, amount in cls.needs:
            left[name][row] -= taken * amount
        if len(found) == wanted:
            break
    return found


def _undisturbed(session: Session, rankings: NodeRankings, cls: TaskClass) -> Mask:
    """The rows on which other pods leave a pod of the class in peace, whatever room they leave."""
    allowed: Mask = np.ones(len(session.nodes), np.bool_)
    if rankings.stepwise(cls):
        rows = Rows(session.room, rankings.every, cls, whole=True, later=True)
        for plugin in rankings.predicates:
            codes = plugin.predicate(cls, rows)
            if codes is not None:
                allowed &= codes == 0
    return allowed


def _hardness(session: Session, rankings: NodeRankings, cls: TaskClass) -> tuple[int, int]:
    """Smaller: harder to place. How many nodes could ever take one; less the largest part of a node."""
    able = rankings.static(cls)[0].copy()
    part = 0
    for name, amount in cls.needs:
        column = session.nodes.allocatable.get(name)
        if column is None:
            return 0, 0
        able &= column >= amount
        part = max(part, (amount << 32) // max(1, int(column.max(initial=0))))
    return int(np.count_nonzero(able)), -part
