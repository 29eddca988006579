"""Whether the API server has bound a group's minimum, against the plain count, over all small groups."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from kbatch.engine.reservation.partial import confirmed
from kbatch.model.jobs import Job, Role
from kbatch.model.tasks import Task
from tests.unit.engine.worlds import pod, world

STATES = ("waits", "assumed", "bound", "terminating", "succeeded", "failed")
CLASS = world(pod("any")).tasks["ns/any"].cls
POD = pod("any")


def task_of(index: int, state: str, role: str) -> Task:
    task = Task(f"ns/p{index}", f"u{index}", POD, CLASS, role=role)
    task.node = "" if state == "waits" else "n"
    task.assumed = state == "assumed"
    task.terminating = state == "terminating"
    task.succeeded = state == "succeeded"
    task.terminal = state in {"succeeded", "failed"}
    return task


@pytest.mark.parametrize("minimum", range(1, 5))
def test_it_is_confirmed_when_enough_of_it_is(minimum: int) -> None:
    roles = (Role("a", 1, None),)
    for count in range(4):
        for states in itertools.product(STATES, repeat=count):
            job = Job("ns/g", "ns/g", "ns", shadow=False, minimum=minimum)
            tasks = [task_of(index, state, "ab"[index % 2]) for index, state in enumerate(states)]
            job.tasks = {task.key: task for task in tasks}
            sure = Counter(
                task.role for task, state in zip(tasks, states, strict=True) if state in {"bound", "succeeded"}
            )
            assert job.confirmed() is (sure.total() >= minimum), states
            job.roles = roles
            assert confirmed(job) is (sure.total() >= minimum and sure["a"] >= 1), states
