"""Gangs that lose members, whatever comes: the rest goes exactly when its time is over, as one, or stays."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbatch.api.objects import Node, Pod
from kbatch.engine import Memo
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.worlds import EVERYTHING, Simulation, group, node, pod, policy, queue, run, world

ALL = policy(EVERYTHING)


class Broken:
    """A gang of some pods, with or without roles, on nodes for one or two of them, and a rival for the room."""

    def __init__(self, dice: Random, limit: int | None) -> None:
        self.dice, self.limit = dice, limit
        self.least = dice.randint(2, 4)
        self.roles = {"a": 1, "b": dice.randint(0, self.least - 1)} if dice.random() < 0.4 else None
        nodes = [node(f"n{at}", str(dice.randint(1, 2))) for at in range(dice.randint(2, 6))]
        gang = group("g", self.least, roles=self.roles, minimum_lost_seconds=limit, disruption="Never")
        members = [self._member(at) for at in range(self.least + dice.randint(0, 2))]
        rival = [pod(f"x-{at}", of="x") for at in range(dice.randint(0, 2))]
        self.simulation = Simulation(world(queue(), nodes, gang, group("x", 1), members, rival), ALL)
        self.count = len(members)
        self.below: int | None = None
        """Since when it is below its minimum, having been whole since it was let in."""

    def _member(self, at: int) -> Pod:
        return pod(f"g-{at}", of="g", role=self.dice.choice(["a", "b"]) if self.roles else "", owner="j")

    def happen(self) -> None:
        """Something from outside: a member or its node is lost, a pod or a node comes."""
        model, dice = self.simulation.model, self.dice
        stands = sorted(key for key, task in model.tasks.items() if task.holds and task.job == "ns/g")
        what = dice.choice(["pod", "node", "member", "new node", "nothing", "nothing"])
        if what == "pod" and stands:
            model.apply(Delete(Pod, "ns", dice.choice(stands).partition("/")[2]))
        elif what == "node" and stands:
            where = model.tasks[dice.choice(stands)].node
            for key in [key for key, task in model.tasks.items() if task.node == where]:
                model.apply(Delete(Pod, "ns", key.partition("/")[2]))
            model.apply(Delete(Node, "", where))
        elif what == "member":
            model.apply(Upsert(self._member(self.count)))
            self.count += 1
        elif what == "new node":
            model.apply(Upsert(node(f"n{self.count + 100}", "1")))
            self.count += 1

    def second(self) -> None:
        """Cycles until one decides nothing, each judged; then a second passes."""
        simulation = self.simulation
        for _ in range(50):
            gang = simulation.model.jobs["ns/g"]
            if gang.holding and not gang.whole() and self.below is None:
                self.below = simulation.now
            stands = sorted(task.key for task in gang.tasks.values() if task.holds)
            blank = run(simulation.model, ALL, now=simulation.now, memo=Memo(), state=simulation.state)
            found = simulation.cycle()
            assert found.transactions == blank.transactions
            gone = [one for each in found.transactions for one in each.evictions]
            if gone:
                assert {one.action for one in gone} == {"minimumLost"}
                assert sorted(one.pod for one in gone) == stands, "all that is left, and nobody else"
                assert self.limit is not None
                assert self.below is not None
                assert simulation.now - self.below == self.limit
            gang = simulation.model.jobs["ns/g"]
            if gang.whole() or not gang.holding:
                self.below = None
            if not found.transactions:
                break
        else:
            raise AssertionError("cycles at one instant never end")
        if self.below is not None and self.limit is not None:
            assert simulation.now - self.below < self.limit, "its time is over, and it is still there"
        simulation.tick()


@given(st.integers(0, 2**32), st.sampled_from([None, 0, 1, 3]))
def test_the_rest_goes_when_its_time_is_over_and_not_before(seed: int, limit: int | None) -> None:
    broken = Broken(Random(seed), limit)
    for _ in range(12):
        broken.second()
        broken.happen()
    for _ in range(4):
        broken.second()


@pytest.mark.many
@given(st.integers(0, 2**32), st.sampled_from([None, 0, 2, 7]))
def test_the_same_for_longer(seed: int, limit: int | None) -> None:
    broken = Broken(Random(seed), limit)
    for _ in range(60):
        broken.second()
        if broken.dice.random() < 0.3:
            broken.happen()
