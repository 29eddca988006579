"""No victim too many: without any one of them, the claim that they were evicted for could not have been placed."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbatch.engine import Policy
from kbatch.engine.context import CycleContext
from kbatch.engine.cooperative import finish
from kbatch.engine.decisions import Turn
from kbatch.engine.plugin import Unit
from kbatch.engine.preemption.candidates import Donors
from kbatch.engine.preemption.goal import Attempt, Budget, Goal
from kbatch.engine.preemption.planning import planning
from kbatch.engine.preemption.polling import Evictor
from kbatch.engine.preemption.reuse import Searches
from kbatch.engine.session.statement import Operation, Statement
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task
from kbatch.resources import add
from tests.examples import examples
from tests.property.test_engine import POLICIES, World, worlds
from tests.unit.engine.worlds import Simulation

relaxed = settings(
    deadline=None, max_examples=examples(25), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def units_of(statement: Statement) -> list[Unit]:
    """The units of an open plan: a gang that would be left below its minimum goes as a whole, other pods one by one."""
    by_job: dict[str, tuple[JobState, list[Task]]] = {}
    for operation, task, _, job, _ in statement.recorded():
        if operation is Operation.EVICT:
            by_job.setdefault(job.key, (job, []))[1].append(task)
    found: list[Unit] = []
    for job, tasks in by_job.values():
        if job.job.gang and job.ready < job.minimum:
            request = add(*(task.cls.request for task in tasks))
            found.append(Unit(job, tuple(tasks), whole=True, request=request))
        else:
            found += [Unit(job, (task,), whole=False, request=task.cls.request) for task in tasks]
    return found


def check(context: CycleContext, statement: Statement, goal: Goal, action: str) -> int:
    """Leave out each unit in turn and plan again; leaves the plan as it was. Returns how many units it has."""
    units = units_of(statement)
    steps = statement.recorded()
    attempt = Attempt(context, statement, goal, action, Budget())
    for unit in units:
        statement.rollback()
        assert not finish(attempt.works([other for other in units if other is not unit])), unit
    statement.rollback()
    if units:
        assert finish(attempt.works_at_all(units))
    statement.rollback()
    statement.replay(steps)
    return len(units)


@contextmanager
def checked_plans() -> Iterator[list[int]]:
    """Check every plan that is made meanwhile; how many units each had."""
    counts: list[int] = []

    def plan_and_check(
        context: CycleContext,
        evictor: Evictor,
        goal: Goal,
        donors: Donors,
        searches: Searches,
    ) -> Generator[Turn, None, Statement | None]:
        found = yield from planning(context, evictor, goal, donors, searches)
        if found is not None:
            counts.append(check(context, found, goal, evictor.name))
        return found

    names = (
        "preemption.planning",
        "actions.preempt",
    )  # where all plans that make room are made, and those ahead of pods
    modules = [importlib.import_module(f"kbatch.engine.{name}") for name in names]
    with patch.object(modules[0], "planning", plan_and_check), patch.object(modules[1], "planning", plan_and_check):
        yield counts


@relaxed
@given(worlds(), st.sampled_from(POLICIES))
def test_no_unit_of_any_plan_can_be_left_out(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with checked_plans():
        for _ in range(4):
            sim.settle()
            sim.tick()
