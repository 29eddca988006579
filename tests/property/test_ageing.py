"""Ageing: a gang that needs more room than ever is free at once starts all the same, whatever else waits beside it."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import (
    Affinity,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SchedulingGate,
)
from kbatch.model.events import Delete, Upsert
from tests.examples import examples
from tests.unit.engine.worlds import Simulation, group, members, node, pod, queue, world

pytestmark = pytest.mark.many

STEP: Final = 20
"""Seconds between cycles."""
RUNS: Final = 40
"""For how long a small pod runs; the ends are spread over that time."""
LATEST: Final = 600 + 3 * RUNS
"""A group is aged after 600 s; the small pods that stand in its place end within the time that they run."""
BYSTANDERS: Final = ("too large", "without pods", "gated", "apart", "in other queue")
HOST: Final = "kubernetes.io/hostname"


def bystander(kind: str, nodes: int) -> list[object]:
    """Who waits beside the gang, came before it, and can never start."""
    match kind:
        case "too large":
            return [pod("large", "100", queue="other", at=0)]
        case "without pods":
            return [group("none", 3, at=0, queue="other")]
        case "gated":
            gates = (SchedulingGate(name="g"),)
            return [group("gated", 1, at=0), pod("gated-0", of="gated", at=0, scheduling_gates=gates)]
        case "apart":
            labels = {"app": "apart"}
            term = PodAffinityTerm(topology_key=HOST, label_selector=LabelSelector(match_labels=labels))
            apart = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
            pods = members("apart", nodes + 1, labels=labels, affinity=apart)
            return [group("apart", nodes + 1, at=0), *pods]
        case _:
            return [group("other", nodes, at=0, queue="other"), *members("other", nodes, "9")]


class Stream(Simulation):
    """Small pods come and go so that some room is in use at any time; each takes one core."""

    def __init__(self, objects: list[object], cores: int) -> None:
        super().__init__(world(*objects), recreate=False)
        self.cores = cores
        self.made = 0
        self.ends: dict[str, int] = {}

    def step(self) -> None:
        self.now += STEP
        for name, end in list(self.ends.items()):
            if end <= self.now:
                self.model.apply(Delete(Pod, "ns", name))
                del self.ends[name]
        waiting = [task for task in self.model.tasks.values() if task.key.startswith("ns/s") and task.pending]
        for _ in range(self.cores - len(waiting)):
            self.made += 1
            self.model.apply(Upsert(pod(f"s{self.made}", at=self.now)))
        self.settle()
        for name in self.running("s"):
            self.ends.setdefault(name, self.now + RUNS // 2 + STEP * (len(self.ends) % 3))


@settings(deadline=None, max_examples=examples(24))
@given(
    st.integers(1, 2), st.integers(2, 3), st.booleans(), st.sampled_from([30, 300, 10_000]),
    st.lists(st.sampled_from(BYSTANDERS), unique=True),
)  # fmt: skip
def test_a_gang_starts_beside_a_stream_and_whoever_can_never_start(
    nodes: int, cores: int, halves: bool, timeout: int, beside: list[str]
) -> None:
    """The gang needs all nodes, in pods as large as a node or, with `halves`, in single cores."""
    count, size = (nodes * cores, 1) if halves else (nodes, cores)
    sim = Stream(
        [
            queue(), queue("other"), *[node(f"n{at}", str(cores), labels={HOST: f"n{at}"}) for at in range(nodes)],
            *[each for kind in beside for each in bystander(kind, nodes)],
        ],
        nodes * cores,
    )  # fmt: skip
    sim.step()
    sim.model.apply(Upsert(group("g", count, at=sim.now, schedule_timeout_seconds=timeout)))
    for each in members("g", count, str(size), at=sim.now):
        sim.model.apply(Upsert(each))
    while not sim.running("g-"):
        sim.step()
        assert sim.now <= LATEST, f"the gang has not started after {sim.now} s beside {beside}"
    assert len(sim.running("g-")) == count
