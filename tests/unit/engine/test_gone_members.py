"""Members that ended well and have no pod any more (status.finished) count where a gang is asked if it was whole."""

from __future__ import annotations

import copy

import pytest

from kbatch.api.objects import FinishedRole, Pod
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.test_below_minimum import ALL, condition, lose
from tests.unit.engine.worlds import Simulation, group, node, pod, queue, world


def finished(simulation: Simulation, text: str) -> None:
    of = copy.deepcopy(simulation.model.jobs["ns/g"].group)
    assert of is not None
    of.status.finished = (FinishedRole(name="w", indexes=text),)
    simulation.model.apply(Upsert(of))


def again(simulation: Simulation, name: str) -> None:
    """The operator makes the member anew."""
    fresh = pod(name, of="g", role="w")
    fresh.metadata.uid = f"u2-{name}"
    simulation.model.apply(Upsert(fresh))


@pytest.mark.parametrize("cleaned", [False, True], ids=["the pod is there", "the pod is gone"])
def test_the_time_below_the_minimum_begins_anew_with_each_loss(cleaned: bool) -> None:
    pods = [pod(f"g-w-{at}", of="g", role="w") for at in range(3)]
    whole = group("g", 3, roles={"w": 3}, minimum_lost_seconds=60)
    simulation = Simulation(world(queue(), [node(f"n{at}", "1") for at in range(6)], whole, pods), ALL, recreate=False)
    simulation.settle()
    assert len(simulation.running()) == 3
    simulation.now = 10
    done = copy.deepcopy(simulation.model.tasks["ns/g-w-0"].pod)
    done.status.phase = "Succeeded"
    simulation.model.apply(Upsert(done))
    finished(simulation, "0")
    if cleaned:
        simulation.model.apply(Delete(Pod, "ns", "g-w-0"))
    simulation.settle()
    simulation.now = 20
    lose(simulation, "g-w-1")
    simulation.settle()
    simulation.now = 25
    again(simulation, "g-w-1")
    simulation.settle()
    assert len(simulation.running()) == 2
    simulation.now = 30
    simulation.settle()
    simulation.now = 1000
    simulation.settle()
    lose(simulation, "g-w-2")
    simulation.settle()
    assert simulation.evictions == [], (simulation.evictions, simulation.state.broken)


@pytest.mark.parametrize("cleaned", [False, True], ids=["the pod is there", "the pod is gone"])
def test_a_gang_that_ran_keeps_what_is_left(cleaned: bool) -> None:
    """Evicted as a whole after one of it had succeeded, it runs again, and later loses a node."""
    pods = [pod(f"g-w-{at}", of="g", role="w") for at in (1, 2, 3)]
    of = group("g", 4, roles={"w": 4})
    of.status.finished = (FinishedRole(name="w", indexes="0"),)
    first = [] if cleaned else [pod("g-w-0", of="g", role="w", on="n0")]
    if first:
        first[0].status.phase = "Succeeded"
    model = world(queue(), [node(f"n{at}", "1") for at in range(3)], of, pods, first)
    simulation = Simulation(model, ALL, recreate=False)
    simulation.settle()
    assert len(simulation.running()) == 3
    for _ in range(5):
        simulation.now += 60
        simulation.settle()
    scheduled = condition(simulation, "Scheduled")
    assert scheduled is not None
    assert scheduled.status == "True"
    lose(simulation, "g-w-1")
    again(simulation, "g-w-1")
    for _ in range(5):
        simulation.now += 60
        simulation.settle()
    assert simulation.evictions == [], (simulation.evictions, simulation.state.binding)
