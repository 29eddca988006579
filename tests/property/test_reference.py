"""The engine places the gangs that trying everything places, and nothing that the rules forbid."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.reference.brute import Goal, Search, goal_of, solve
from tests.reference.compare import describe, tally
from tests.reference.world import HOST, ZONE, Case, Machine, Members, Part, Shape, Spread, Standing, Term, draw

pytestmark = pytest.mark.many

CASES = 60
LEAST = {"place": 0.995, "reclaim": 0.995, "preempt": 0.995}
"""The part of the gangs that the reference places which the engine must place: what it reaches, to be raised."""
UNSOUND = {"place": 0, "reclaim": 0, "preempt": 0}
"""Cases at most in which the engine does what the reference forbids."""


@pytest.mark.parametrize("kind", LEAST)
def test_the_engine_places_what_can_be_placed(kind: str) -> None:
    found = tally(range(1, CASES + 1), kind)
    assert 0.4 <= found.feasible / found.cases <= 0.8
    assert len(found.unsound) <= UNSOUND[kind], [f"{describe(each)}: {each.run.unsound}" for each in found.unsound]
    assert not found.needless, "each victim of these was evicted although the gang could be placed without"
    assert (found.evicting > CASES // 5) is (kind != "place"), "there is something to be said of victims"
    assert found.completeness >= LEAST[kind], [describe(each) for each in found.missed]


# --- the reference itself ---------------------------------------------------------------------------------------------

APP = {"app": "gang"}


def machine(name: str, cpu: int = 4, zone: str = "", pods: int = 110) -> Machine:
    return Machine(name, {"cpu": cpu, "memory": 64, "pods": pods}, {HOST: name, **({ZONE: zone} if zone else {})})


def shape(cpu: int = 1, **more: Any) -> Shape:
    return replace(Shape({"cpu": cpu}, APP), **more)


def case(machines: list[Machine], *members: Members, minimum: int, parts: list[Part] | None = None) -> Case:
    return Case(0, "place", machines, [], minimum, parts or [], list(members))


def alike(count: int, of: Shape, part: int = -1) -> Members:
    return Members(part, of, count)


def test_packing_is_searched() -> None:
    machines = [machine("n0", 3), machine("n1", 2), machine("n2", 3)]
    assert solve(case(machines, alike(2, shape(1)), alike(2, shape(3)), minimum=4)) is not None
    assert solve(case(machines, alike(3, shape(1)), alike(2, shape(3)), minimum=5)) is None
    assert solve(case(machines, alike(3, shape(1)), alike(2, shape(3)), minimum=4)) is not None


def test_places_for_pods_are_a_dimension() -> None:
    assert solve(case([machine("n0", pods=2)], alike(3, shape()), minimum=3)) is None
    assert solve(case([machine("n0", pods=2), machine("n1", pods=1)], alike(3, shape()), minimum=3)) is not None


def test_roles_have_a_least_and_a_most() -> None:
    parts = [Part("a", 1, 1), Part("b", 1)]
    both = [alike(3, shape(), 0), alike(1, shape(), 1)]
    assert solve(case([machine("n0")], *both, minimum=2, parts=parts)) is not None
    assert solve(case([machine("n0")], *both, minimum=3, parts=parts)) is None
    far = shape(3)
    assert solve(case([machine("n0", 3)], alike(2, shape(), 0), alike(1, far, 1), minimum=2, parts=parts)) is None


def test_anti_affinity_binds_those_who_come_later_too() -> None:
    lonely = shape(far=(Term(HOST, {"role": "b"}),))
    other = replace(shape(), labels={**APP, "role": "b"})
    assert solve(case([machine("n0")], alike(1, lonely), alike(1, other), minimum=2)) is None
    assert solve(case([machine("n0"), machine("n1")], alike(1, lonely), alike(1, other), minimum=2)) is not None
    # By zone: a node without the label is in no zone.
    zonal = replace(lonely, far=(Term(ZONE, {"role": "b"}),))
    same = [machine("n0", 1, zone="z0"), machine("n1", 1, zone="z0")]
    assert solve(case(same, alike(1, zonal), alike(1, other), minimum=2)) is None
    assert solve(case([same[0], machine("n1", 1)], alike(1, zonal), alike(1, other), minimum=2)) is not None


def test_affinity_lets_the_first_in_and_asks_for_an_order() -> None:
    zones = [machine("n0", 2, zone="z0"), machine("n1", 2, zone="z1")]
    together = shape(near=(Term(ZONE, APP),))
    assert solve(case(zones, alike(2, together), minimum=2)) is not None
    assert solve(case(zones, alike(3, together), minimum=3)) is None
    assert solve(case([machine("n0")], alike(1, together), minimum=1)) is None  # no zone at all
    follower = replace(shape(near=(Term(ZONE, {"role": "a"}),)), labels={**APP, "role": "b"})
    leader = replace(shape(), labels={**APP, "role": "a"})
    assert solve(case(zones, alike(1, follower), minimum=1)) is None
    found = solve(case(zones, alike(1, follower), alike(1, leader), minimum=2))
    assert found is not None
    assert [member for member, _ in found.binds] == [1, 0]


def test_spread_counts_the_emptiest_domain() -> None:
    even = shape(spreads=(Spread(ZONE, 1, APP),))
    zones = [machine("n0", 4, zone="z0"), machine("n1", 1, zone="z1")]
    assert solve(case(zones, alike(3, even), minimum=3)) is not None
    assert solve(case(zones, alike(4, even), minimum=4)) is None
    assert solve(case([machine("n0")], alike(1, even), minimum=1)) is None  # no zone: nowhere
    three = shape(spreads=(Spread(ZONE, 1, APP, least_domains=3),))
    assert solve(case(zones, alike(2, three), minimum=2)) is not None
    assert solve(case(zones, alike(3, three), minimum=3)) is None


def test_spread_counts_only_the_nodes_that_take_part() -> None:
    zones = [machine("n0", 4, zone="z0"), machine("n1", 4, zone="z1")]
    there = shape(selector={ZONE: "z0"}, spreads=(Spread(ZONE, 1, APP),))
    assert solve(case(zones, alike(3, there), minimum=3)) is not None
    everywhere = replace(there, spreads=(Spread(ZONE, 1, APP, selected_only=False),))
    assert solve(case(zones, alike(2, everywhere), minimum=2)) is None
    tainted = [zones[0], replace(zones[1], taints=(("dedicated", "", "NoSchedule"),))]
    even = shape(spreads=(Spread(ZONE, 1, APP),))
    assert solve(case(tainted, alike(2, even), minimum=2)) is None
    honest = shape(spreads=(Spread(ZONE, 1, APP, taints_count=True),))
    assert solve(case(tainted, alike(2, honest), minimum=2)) is not None


def test_host_ports_and_selectors_keep_pods_apart() -> None:
    both = [machine("n0", zone="z0"), machine("n1")]
    assert solve(case(both, alike(2, shape(ports=(80,))), minimum=2)) is not None
    assert solve(case(both, alike(3, shape(ports=(80,))), minimum=3)) is None
    assert solve(case(both, alike(2, shape(ports=(80,), selector={ZONE: "z0"})), minimum=2)) is None
    wanted = shape(ports=(80,), affinity_to_nodes=((ZONE, "DoesNotExist", ()),))
    assert (
        solve(case(both, alike(1, shape(ports=(80,), selector={ZONE: "z0"})), alike(1, wanted), minimum=2)) is not None
    )


def test_of_victims_those_stay_whose_company_is_needed() -> None:
    beside = shape(2, near=(Term(HOST, {"app": "web"}),))
    running = [
        Standing("v0", Shape({"cpu": 2}, {"app": "web"}), 0, leaves=True),
        Standing("v1", Shape({"cpu": 2}, {"app": "db"}), 0, leaves=True),
    ]
    wanted = case([machine("n0", 4)], alike(1, beside), minimum=1)
    wanted.standing = running
    found = solve(wanted)
    assert found is not None
    assert found.victims == ("v1",)
    wanted.standing = [running[0], replace(running[1], leaves=False)]
    assert solve(wanted) is None


def test_binds_are_valid_in_some_order() -> None:
    zones = [machine("n0", 4, zone="z0"), machine("n1", 4, zone="z1")]
    even = [shape(spreads=(Spread(ZONE, 1, APP),))]
    assert Search(zones, [], even).valid([(0, 0), (0, 0), (0, 1)])
    assert not Search(zones, [], even).valid([(0, 0), (0, 0)])
    standing = [Standing("f0", Shape({"cpu": 1}, APP), 0)]
    assert Search(zones, standing, even).valid([(0, 0), (0, 1)])
    assert not Search(zones, standing, even).valid([(0, 0)])
    leaving = [replace(standing[0], terminating=True)]
    assert Search(zones, leaving, even).valid([(0, 0)])


@pytest.mark.parametrize("kind", LEAST)
def test_what_the_reference_finds_is_a_placement(kind: str) -> None:
    found = 0
    for seed in range(CASES):
        drawn = draw(seed, kind)
        answer = solve(drawn)
        if answer is not None:
            found += 1
            standing = [each for each in drawn.standing if each.name not in answer.victims]
            shapes = [each.shape for each in drawn.members]
            assert Search(drawn.machines, standing, shapes).valid(answer.binds)
            goal: Goal = goal_of(drawn)
            for member, _ in answer.binds:
                goal.count(member, 1)
            assert goal.reached()
    assert found > CASES // 4


def test_the_search_overlooks_nothing() -> None:
    """Every subset of the pods on every combination of nodes, where these are few."""
    outcomes: Counter[bool] = Counter()
    for seed in range(1500):
        drawn = draw(seed, "place")
        names = [member for _, member in drawn.pod_names()]
        if len(names) <= 4 and len(drawn.machines) <= 3:
            possible = any(
                _stands(drawn, names, where) for where in product(range(-1, len(drawn.machines)), repeat=len(names))
            )
            assert (solve(drawn) is not None) == possible, seed
            outcomes[possible] += 1
    assert min(outcomes[True], outcomes[False]) > 50


def _stands(drawn: Case, names: list[int], where: tuple[int, ...]) -> bool:
    """Whether the pods may stand so (-1: on no node), and are what the gang needs, no more and no less."""
    binds = [(member, at) for member, at in zip(names, where, strict=True) if at >= 0]
    counts = Counter(drawn.members[member].part for member, _ in binds)
    if len(binds) != drawn.needed or any(
        not part.least <= counts[at] <= (part.most or len(binds)) for at, part in enumerate(drawn.parts)
    ):
        return False
    return Search(drawn.machines, drawn.standing, [each.shape for each in drawn.members]).valid(binds)


def test_the_same_seed_gives_the_same_world() -> None:
    assert draw(7, "reclaim") == draw(7, "reclaim")
    assert draw(7, "reclaim") != draw(8, "reclaim")
