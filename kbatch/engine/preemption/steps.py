"""What a job wants next, and what room it lacks for that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from kbatch.engine.context import CycleContext
from kbatch.engine.state.growth import Growing
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.minimum import next_tasks, unplaced
from kbatch.engine.state.wanted import FirstStep, Wanted
from kbatch.model.tasks import Task

_CHOICES: Final = 8
"""Of so many different choices of pods for one minimum room is looked for."""

_Kind: TypeAlias = tuple[int, str, bool]


def next_steps(context: CycleContext, job: JobState) -> Iterator[Wanted]:
    """What the job wants next: its minimum, of the tasks that come first, else of others; above that one task of each
    class and role, in order: any may be next.

    Nothing that even nodes without this scheduler's pods would not hold.
    """
    if job.missing():
        if context.session.plugins.valid(job) is not None or context.feasibility.hopeless(job):
            return
        step = _first_step(context, job)
        if len(step.wanted.tasks) >= job.missing():
            yield step.wanted
            yield from _instead(job, step.tasks, step.wanted.tasks)
        return
    first: dict[_Kind, Task] = {}
    for task in unplaced(job):
        if not task.cls.best_effort:
            first.setdefault(_kind(task), task)
    for task in Growing(job, first.values(), context.session.plugins.task_key):
        if not job.full(task.role) and context.feasibility.most(task.cls):
            yield Wanted((task,), task)


def _first_step(context: CycleContext, job: JobState) -> FirstStep:
    known, found = job.known, context.first_steps.get(job.key)
    if found is None or found.known is not known:
        tasks = _placeable(context, job)
        found = FirstStep(known, tasks, Wanted(tuple(next_tasks(job, tasks))))
        context.first_steps[job.key] = found
    return found


def _placeable(context: CycleContext, job: JobState) -> list[Task]:
    """Its waiting tasks that the emptied nodes would hold, and that their roles may have; asked once for each kind."""
    may: dict[tuple[int, str], bool] = {}
    found: list[Task] = []
    for task in unplaced(job):
        kind = task.cls.id, task.role
        placeable = may.get(kind)
        if placeable is None:
            placeable = may[kind] = context.feasibility.most(task.cls) > 0 and not job.full(task.role)
        if placeable:
            found.append(task)
    return found


def _kind(task: Task) -> _Kind:
    return task.cls.id, task.role, task.never_preempts


def _instead(job: JobState, tasks: Sequence[Task], first: Sequence[Task]) -> Iterator[Wanted]:
    """Other choices for the minimum: what victims consent to depends on which pods they go for, and how much these ask
    for: of a share, for example, the first pods may want too much and smaller ones not.
    """
    if len(tasks) <= len(first):
        return
    seen = {frozenset(Counter(map(_kind, first)).items())}
    for order in _orders(tasks):
        found = next_tasks(job, order)
        choice = frozenset(Counter(map(_kind, found)).items())
        if choice in seen or len(found) < job.missing():
            continue
        seen.add(choice)
        yield Wanted(tuple(found), instead=True)
        if len(seen) == _CHOICES:
            return


def _orders(tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """The tasks in other orders: first those that may preempt, those that ask for least of a dimension, those of each
    kind. Nothing where they are all of one kind.
    """
    kinds = dict.fromkeys(map(_kind, tasks))
    if len(kinds) == 1:
        return
    yield sorted(tasks, key=lambda task: task.never_preempts)
    for name in sorted({name for task in tasks for name in task.cls.request}):
        yield sorted(tasks, key=lambda task: task.cls.request.get(name, 0))
    for kind in kinds:
        yield sorted(tasks, key=lambda task: _kind(task) != kind)


@contextmanager
def keeping_to(job: JobState, wanted: Wanted) -> Iterator[None]:
    """While other pods of a minimum than the first are tried, the job has no waiting pods but these, and those that it
    has placed: what is found for them was not asked for the others.
    """
    waiting = job.waiting
    if wanted.instead:
        kept = {task.key for task in wanted.tasks} | job.placed.keys() | job.nominated.keys()
        job.waiting = [task for task in waiting if task.key in kept]
    try:
        yield
    finally:
        job.waiting = waiting


def lacking(context: CycleContext, tasks: Sequence[Task]) -> frozenset[str]:
    """The dimensions in which there is no room for these tasks, each looked at by itself; if none, all they ask for."""
    counts: dict[int, list[Task]] = {}
    for task in tasks:
        counts.setdefault(task.cls.id, []).append(task)
    moment = len(context.session.room.log)
    mark = tuple([(number, len(run)) for number, run in counts.items()])
    known = context.short.get(mark)
    if known is None or known[0] != moment:  # many that are alike are tried one after the other
        known = context.short[mark] = moment, _lacking(context, counts.values())
    return known[1]


def _lacking(context: CycleContext, runs: Iterable[Sequence[Task]]) -> frozenset[str]:
    short: set[str] = set()
    asked: set[str] = set()
    room = context.session.room
    free = context.holdings.free(room)
    for run in runs:
        cls = run[0].cls
        allowed = context.rankings.static(cls)[0]
        room.ensure(cls)
        for name, amount in cls.request.items():
            if amount > 0:
                asked.add(name)
                if name not in short and free.fitting_in(cls, name, allowed, len(run)) < len(run):
                    short.add(name)
    return frozenset(short or asked)
