"""Finding room for a group's minimum: which of its pods, on which nodes, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from kbatch.api.reasons import ClusterTooSmall, NotEnoughResources, Reason
from kbatch.engine.placement import Placement, When
from kbatch.engine.room import Room
from kbatch.engine.state import JobState
from kbatch.engine.statement import Statement
from kbatch.model.tasks import Task, TaskClass

if TYPE_CHECKING:
    from kbatch.engine.session import Session


def unplaced(job: JobState) -> list[Task]:
    """Its waiting tasks that the session has neither bound nor nominated, in task order."""
    if not job.placed and not job.nominated:
        return job.waiting
    return [task for task in job.waiting if task.key not in job.placed and task.key not in job.nominated]


def quotas(job: JobState) -> list[tuple[str | None, int]]:
    """What must still be placed: for each role its missing minimum, then (None) the rest of the group's, from any."""
    wanted: list[tuple[str | None, int]] = []
    for role in job.job.roles:
        more = role.min_member - job.by_role.get(role.name, 0)
        if more > 0:
            wanted.append((role.name, more))
    rest = job.minimum - job.pipelined - sum(count for _, count in wanted)
    if rest > 0:
        wanted.append((None, rest))
    return wanted


def signature(job: JobState, tasks: Sequence[Task]) -> object:
    """What decides whether the minimum fits given nodes: tasks by class and role in order, and what is wanted."""
    runs = [(key, sum(1 for _ in run)) for key, run in groupby((task.cls.id, task.role) for task in tasks)]
    caps = tuple((role.name, role.max_member) for role in job.job.roles)
    return tuple(runs), tuple(quotas(job)), caps


def next_tasks(job: JobState, tasks: Sequence[Task]) -> list[Task]:
    """The tasks that the minimum would take if all fitted, for sums; in order."""
    found: list[Task] = []
    used: set[str] = set()
    for role, count in quotas(job):
        taken = 0
        for task in tasks:
            if taken == count:
                break
            if (role is None or task.role == role) and task.key not in used:
                found.append(task)
                used.add(task.key)
                taken += 1
    return found


def place_minimum(statement: Statement, when: Sequence[When]) -> bool:
    """Place what the job's minimum lacks; whether it is complete. What could be placed stays in the statement.

    Each of `when` is tried in turn for what is still missing. Where any pod has to wait for room, all the others that
    the statement binds wait with it.
    """
    job = statement.job
    waits = False
    for moment in when:
        tasks = unplaced(job)
        for role, count in quotas(job):
            if role is None:
                candidates = [task for task in tasks if not job.full(task.role)]
            else:
                candidates = [task for task in tasks if task.role == role]
            placed = _place(statement, candidates, count, moment, role is None)
            if placed and moment is When.LATER:
                waits = True
            if placed:
                tasks = unplaced(job)
        if not job.missing():
            break
    if waits:
        statement.nominate_instead()
    return not job.missing()


def _place(statement: Statement, tasks: Sequence[Task], count: int, when: When, capped: bool) -> int:
    """Place up to `count` of the tasks, in order; a class that does not fit is passed over."""
    placement, job = statement.session.placement, statement.job
    placed = 0
    full: set[int] = set()
    for cls, run in _runs(tasks):
        if placed == count:
            break
        if cls.id in full:
            continue
        fit = placement.fit(cls, when)
        todo = iter(run)
        left = min(count - placed, len(run))
        while left:
            rows = fit.choose(left)
            if not rows:
                full.add(cls.id)
                break
            for row, task in zip(rows, todo, strict=False):
                if capped and job.full(task.role):
                    continue
                if when is When.NOW:
                    statement.bind(task, row)
                else:
                    statement.nominate(task, row)
                placed += 1
            left -= len(rows)
    return placed


def _runs(tasks: Sequence[Task]) -> Iterator[tuple[TaskClass, list[Task]]]:
    for _, run in groupby(tasks, key=lambda task: task.cls.id):
        found = list(run)
        yield found[0].cls, found


def explain(session: Session, job: JobState, when: Sequence[When]) -> Reason:
    """Why the job's minimum does not fit, with the most that could be placed; leaves no trace in the session."""
    plan = Statement(session, job)
    needed = job.missing()
    tasks = unplaced(job)
    place_minimum(plan, when)
    left = unplaced(job)
    placeable = len(tasks) - len(left)
    stuck = _stuck(job, left) or (left or tasks)[0]
    fitting, counts = session.placement.histogram(stuck.cls)
    short, missing = _shortage(session, next_tasks(job, left))
    plan.rollback()
    role = stuck.role if any(known.name == stuck.role for known in job.job.roles) else ""
    held = job.pipelined
    facts = (
        held + needed, held + placeable, short, missing, len(session.nodes), fitting, counts, role
    )  # fmt: skip
    if fits_empty(session, job):
        return NotEnoughResources(*facts)
    return ClusterTooSmall(*facts)


def _stuck(job: JobState, left: Sequence[Task]) -> Task | None:
    """The first task that the minimum still lacks."""
    for role, _ in quotas(job):
        for task in left:
            if role is None or task.role == role:
                return task
    return None


def _shortage(session: Session, tasks: Sequence[Task]) -> tuple[str, int]:
    """The dimension that is shortest for these tasks over all nodes, relative to what they ask, and by how much."""
    asked: dict[str, int] = {}
    for task in tasks:
        for name, amount in task.cls.request.items():
            asked[name] = asked.get(name, 0) + amount
    worst: tuple[float, str, int] = (0.0, "", 0)
    for name in sorted(asked):
        idle = session.room.idle.get(name)
        free = (
            int(np.maximum(idle, 0)[session.nodes.open & session.nodes.ready & ~session.nodes.cordoned].sum())
            if idle is not None
            else 0
        )
        missing = asked[name] - free
        if missing > 0 and missing / asked[name] > worst[0]:
            worst = (missing / asked[name], name, missing)
    if not worst[1]:
        for name in sorted(asked):  # no sum is short: room is there, but not in pieces that are large enough
            largest = max((task.cls.request.get(name, 0) for task in tasks), default=0)
            idle = session.room.idle.get(name)
            most = int(idle.max()) if idle is not None and len(idle) else 0
            if largest > most:
                return name, largest - max(0, most)
    return worst[1], worst[2]


def fits_empty(session: Session, job: JobState) -> bool:
    """Whether the group's minimum would fit the nodes without any of this scheduler's pods on them."""
    table = session.nodes
    room = Room(table)
    for name, capacity in table.capacity.items():
        room.idle[name] = capacity.copy()
        room.releasing[name] = np.zeros(len(capacity), np.int64)
        room.future[name] = capacity.copy()
    placement = Placement(room, session.predicates, session.scores, session.policy.fingerprint, alone=True)
    wanted = job.minimum
    count = 0
    mine = [task for task in job.job.tasks.values() if not task.terminal and not task.terminating]
    mine.sort(key=lambda task: (task.cls.id, task.key))
    for cls, run in _runs(mine):
        left = len(run)
        while left and count < wanted:
            rows = placement.fit(cls, When.NOW).choose(left)
            if not rows:
                break
            for row in rows:
                room.bind(cls, row)
            count += len(rows)
            left -= len(rows)
    return count + job.job.succeeded >= wanted
