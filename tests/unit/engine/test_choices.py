"""Which pods of a group's minimum room is made for, where it has more than it needs and they differ."""

from __future__ import annotations

import pytest

from kbatch.engine import CycleState, Memo, take_snapshot
from kbatch.engine.cycle import _context
from kbatch.engine.preemption.steps import keeping_to, next_steps
from kbatch.model.cluster import ClusterModel
from tests.unit.engine.worlds import EPOCH, EVERYTHING, Simulation, group, node, pod, policy, queue, world

BY = policy(EVERYTHING.replace("enqueue, ", ""))


def shared(minimum: int, *cpus: str) -> ClusterModel:
    """A node of 4 cpu that is full of pods of another queue; half of it is what the gang's queue deserves."""
    return world(
        [queue("own"), queue("other"), node("n1", "4")],
        [pod(f"v-{at}", "1", queue="other", on="n1", owner="v", at=at) for at in range(4)],
        [group("g", minimum, at=50, queue="own")],
        [pod(f"g-{at}", cpu, of="g", at=60 + at) for at, cpu in enumerate(cpus)],
    )


@pytest.mark.parametrize(
    ("minimum", "cpus", "placed"),
    [
        (1, ("3", "2"), ["g-1"]),
        (1, ("2", "3"), ["g-0"]),
        (1, ("4", "3", "1", "2"), ["g-2"]),
        (2, ("3", "1", "1"), ["g-1", "g-2"]),
        (2, ("2", "1", "1"), ["g-1", "g-2"]),
        (2, ("2", "2", "2", "1"), []),
    ],
)
def test_reclaim_takes_pods_that_are_within_the_share(minimum: int, cpus: tuple[str, ...], placed: list[str]) -> None:
    sim = Simulation(shared(minimum, *cpus), BY, recreate=False)
    sim.run(3)
    assert sim.running("g") == placed
    assert len(sim.evictions) == sum(int(cpus[int(name[2:])]) for name in placed)


def test_few_choices_are_tried_and_no_two_alike() -> None:
    context = _context(
        take_snapshot(shared(2, *(f"{100 * at}m" for at in range(1, 20))), EPOCH, CycleState()), BY, Memo()
    )
    for _ in context.session.open():
        pass
    job = context.session.job("ns/g")
    before = list(job.waiting)
    found = []
    for wanted in next_steps(context, job):
        with keeping_to(job, wanted):
            found.append(frozenset(task.key for task in wanted.tasks))
            assert wanted.instead is (len(found) > 1)
            assert job.waiting == ([task for task in before if task in wanted.tasks] if wanted.instead else before)
    assert job.waiting == before
    assert len(found) == len(set(found)) == 8
    context.close()
