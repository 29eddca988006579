"""Room that preempt makes in small worlds, against all that there is: who could stand if others went is made room,
close together and on whole nodes; nobody goes for who could not, or who has room as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from random import Random
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import GroupTopology, SubGroup
from kbatch.engine.preemption import closeness
from tests.examples import examples
from tests.reference.hops import Path, widest
from tests.unit.engine.worlds import Simulation, group, node, pod, policy, queue, world

pytestmark = pytest.mark.many

POLICY = policy("""
actions: "allocate, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]
- plugins: [{name: topology, arguments: {levels: [zone, rack]}}]
""")


@dataclass(frozen=True, slots=True)
class Stands:
    """A pod on a node; of a group that may not be disrupted (`stays`), perhaps alone on its nodes; else it may go."""

    group: str
    node: int
    cpu: int
    stays: bool
    alone: bool


@dataclass(frozen=True, slots=True)
class Part:
    """A role of the gang: all its pods belong to the minimum."""

    count: int
    cpu: int
    bound: int | None
    alone: bool


@dataclass
class Small:
    """A world of some nodes, full of pods that matter less, and a gang that comes."""

    dice: Random
    paths: list[Path] = field(default_factory=list)
    cpus: list[int] = field(default_factory=list)
    stands: list[Stands] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    bound: int | None = None
    alone: bool = False

    def __post_init__(self) -> None:
        dice = self.dice
        for at in range(dice.randint(1, 5)):
            self.paths.append((dice.choice("ab"), dice.choice("pqr"), f"n{at}"))
            self.cpus.append(dice.randint(1, 4))
        for number in range(dice.randint(0, 2)):
            alone = dice.random() < 0.3
            for _ in range(dice.randint(1, 2)):
                self._put(f"b{number}", stays=True, alone=alone)
        for number in range(dice.randint(1, 6)):
            self._put(f"s{number}", stays=False, alone=False)
        for _ in range(dice.choice([1, 2, 2])):
            bound = dice.choice([None, None, 0, 2, 4])
            self.parts.append(Part(dice.randint(1, 2), dice.randint(1, 3), bound, dice.random() < 0.3))
        self.bound, self.alone = dice.choice([None, 0, 2, 4, 6]), dice.random() < 0.4

    def _put(self, of: str, *, stays: bool, alone: bool) -> None:
        cpu, left = self.dice.randint(1, 2), self.room(self.stands)
        able = [
            row for row, free in enumerate(left)
            if free >= cpu and not any(
                (other.alone or alone) and other.group != of for other in self.stands if other.node == row
            )
        ]  # fmt: skip
        if able:
            self.stands.append(Stands(of, self.dice.choice(able), cpu, stays, alone))

    def room(self, standing: Sequence[Stands]) -> list[int]:
        """What is free by node."""
        left = list(self.cpus)
        for one in standing:
            left[one.node] -= one.cpu
        return left

    def fits(self, standing: Sequence[Stands]) -> bool:
        """Whether the whole gang has room beside these, within its bounds."""
        return next(self._ways(standing, self.room(standing), 0, []), None) is not None

    def _ways(self, standing: Sequence[Stands], left: list[int], at: int, placed: list[int]) -> Iterator[Sequence[int]]:
        if at == len(self.parts):
            if self.bound is None or widest([self.paths[row] for row in placed]) <= self.bound:
                yield placed
            return
        part = self.parts[at]
        whole = self.alone or part.alone
        open_ = [
            row for row in range(len(left)) if not any(one.alone or whole for one in standing if one.node == row)
        ]  # fmt: skip
        for rows in combinations_with_replacement(open_, part.count):
            after = list(left)
            for row in rows:
                after[row] -= part.cpu
            close = part.bound is None or widest([self.paths[row] for row in rows]) <= part.bound
            if close and min(after) >= 0:
                yield from self._ways(standing, after, at + 1, [*placed, *rows])

    def objects(self) -> list[Any]:
        """The same for the engine."""
        found: list[Any] = [queue()]
        for path, cpu in zip(self.paths, self.cpus, strict=True):
            found.append(node(path[2], str(cpu), labels={"zone": path[0], "rack": path[1]}))
        for name in dict.fromkeys(one.group for one in self.stands):
            mine = [one for one in self.stands if one.group == name]
            made = group(name, len(mine), disruption="Never" if mine[0].stays else "Surplus")
            made.spec = msgspec.structs.replace(made.spec, exclusive=mine[0].alone)
            found.append(made)
            found += [
                pod(f"{name}-{number}", str(one.cpu), of=name, on=self.paths[one.node][2], priority=1)
                for number, one in enumerate(mine)
            ]
        roles = tuple(
            SubGroup(name=f"r{at}", min_member=part.count, topology=_topology(part.bound), exclusive=part.alone)
            for at, part in enumerate(self.parts)
        )
        gang = group("g", 1, at=5)
        gang.spec = msgspec.structs.replace(
            gang.spec, sub_groups=roles, topology=_topology(self.bound), exclusive=self.alone
        )
        found.append(gang)
        for at, part in enumerate(self.parts):
            found += [
                pod(f"g-{at}-{number}", str(part.cpu), of="g", role=f"r{at}", priority=9, at=5)
                for number in range(part.count)
            ]
        return found


def _topology(bound: int | None) -> GroupTopology | None:
    return GroupTopology(max_hops=bound) if bound is not None else None


@settings(max_examples=examples(300), deadline=None)
@given(st.integers(0, 2**32))
def test_room_is_made_exactly_for_who_could_stand_if_others_went(seed: int) -> None:
    small = Small(Random(seed))
    simulation = Simulation(world(*small.objects()), POLICY, recreate=False)
    simulation.run(3)
    gone = {key.removeprefix("ns/") for _, key in simulation.evictions}
    assert all(name.startswith("s") for name in gone)
    runs = len(simulation.running("g-")) == sum(part.count for part in small.parts)
    as_it_is = small.fits(small.stands)
    assert runs == (as_it_is or small.fits([one for one in small.stands if one.stays]))
    if as_it_is or not runs:
        assert gone == set()


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_room_is_made_alike_with_and_without_the_candidates_elsewhere(seed: int) -> None:
    small = Small(Random(seed))
    sims = [Simulation(world(*small.objects()), POLICY, recreate=False) for _ in range(2)]
    for _ in range(3):
        with mock.patch.object(closeness, "few", return_value=True):
            there = sims[0].cycle()
        with mock.patch.object(closeness, "few", return_value=False):
            everywhere = sims[1].cycle()
        assert there.transactions == everywhere.transactions
        assert there.verdicts == everywhere.verdicts
        for sim in sims:
            sim.tick()
