"""Division between queues that may use different nodes, on examples that everybody can check by hand."""

from __future__ import annotations

import pytest

from kbatch.model import division
from kbatch.model.division import divide
from kbatch.model.flow import SINK, SOURCE, Network, bits
from kbatch.model.shares import Claim
from tests.bench.shares import ROWS, Row, case

A, B, C = 1, 2, 4


def shares(rooms: list[int], *queues: tuple[int, dict[int, int]], capability: int | None = None) -> list[int]:
    """What queues of these weights and demands (by the classes they may use) get; the capability is the first one's."""
    claims = [
        Claim(f"q{at}", weight, {}, {"cpu": capability} if capability is not None and not at else None)
        for at, (weight, _) in enumerate(queues)
    ]
    parts = [{reach: {"cpu": amount} for reach, amount in demand.items()} for _, demand in queues]
    found = divide([{"cpu": room} for room in rooms], claims, parts)
    return [found[claim.name].get("cpu", -1) for claim in claims]


@pytest.mark.parametrize(
    ("rooms", "queues", "wanted"),
    [
        # All may use all: the plain division.
        ([4, 4], [(1, {A | B: 99}), (3, {A | B: 99})], [2, 6]),
        # By weight the second would have 6 of 8, but it may use only 4.
        ([4, 4], [(1, {A | B: 99}), (3, {A: 99})], [4, 4]),
        # Nobody is in the other's way.
        ([6, 3], [(1, {A: 3}), (1, {A | B: 3}), (1, {B: 3})], [3, 3, 3]),
        # The first can have no more than its 2; the others share the 7 that are left, the last unit goes by name.
        ([2, 7], [(1, {A: 99}), (1, {A | B: 99}), (1, {B: 99})], [2, 4, 3]),
        # Each level lies within the next.
        ([1, 2, 9], [(1, {A: 10}), (1, {A | B: 10}), (1, {A | B | C: 10})], [1, 2, 9]),
        # What the first asks for elsewhere counts for its share here.
        ([4, 4], [(1, {A: 4, B: 4}), (1, {A: 8})], [4, 4]),
        ([8, 4], [(1, {A: 8, B: 4}), (1, {A: 8})], [6, 6]),
        # One unit for two that may only use A, by name; the third has the rest.
        ([1, 2], [(1, {A: 9}), (1, {A: 9}), (1, {A | B: 9})], [1, 0, 2]),
        # 7 units for three: 2 each, and the seventh cannot flow to the first two, whose class is full.
        ([4, 3], [(1, {A: 9}), (1, {A: 9}), (1, {A | B: 9})], [2, 2, 3]),
        # Who may use nothing gets nothing, and takes nothing.
        ([4, 4], [(9, {0: 99}), (1, {A: 99})], [0, 4]),
        # A queue without a weight.
        ([4, 4], [(0, {A: 99}), (1, {A | B: 2})], [0, 2]),
    ],
)
def test_what_each_gets(rooms: list[int], queues: list[tuple[int, dict[int, int]]], wanted: list[int]) -> None:
    assert shares(rooms, *queues) == wanted


def test_a_capability_caps_the_sum_of_all_classes() -> None:
    assert shares([4, 4], (1, {A: 4, B: 4}), (1, {A | B: 8}), capability=3) == [3, 5]


def test_a_dimension_of_which_nobody_may_use_any_is_left_out() -> None:
    claims = [Claim("a", 1, {}), Claim("b", 1, {})]
    parts = [{A: {"cpu": 9, "gpu": 1}}, {A: {"cpu": 9}}]
    assert divide([{"cpu": 4}, {"cpu": 4, "gpu": 8}], claims, parts) == {"a": {"cpu": 2}, "b": {"cpu": 2}}


def test_the_last_unit_goes_by_the_rules_of_the_plain_division() -> None:
    """5 between two that may use both classes, and one that may use one: 5/3 each, of which two units are last."""
    parts = [{A | B: {"cpu": 9}}, {A | B: {"cpu": 9}}, {B: {"cpu": 9}}]
    rooms = [{"cpu": 2}, {"cpu": 3}]

    def given(*claims: Claim) -> list[int]:
        return [share["cpu"] for share in divide(rooms, claims, parts).values()]

    assert given(Claim("a", 1, {}), Claim("b", 1, {}), Claim("c", 1, {})) == [2, 2, 1]
    assert given(Claim("a", 1, {}), Claim("b", 1, {}), Claim("c", 1, {}, holds={"cpu": 2})) == [2, 1, 2]
    assert given(
        Claim("a", 1, {}), Claim("b", 1, {}, oldest_waiting=(1, "g")), Claim("c", 1, {}, oldest_waiting=(0, "h"))
    ) == [1, 2, 2]


@pytest.mark.parametrize(
    "row", [each for each in ROWS if each.sets == 16 and each.demands > 1], ids=lambda row: row.name
)
def test_many_queues_with_several_of_many_sets_get_the_same_by_unions_as_by_flows(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = divide(*case(row, 0))
    monkeypatch.setattr(division, "SEVERAL", 10**9)
    assert divide(*case(row, 0)) == found


def test_a_flow_takes_back_what_it_sent_the_wrong_way() -> None:
    """Two ways lead through node 2; only one of them is left when node 3 can go nowhere else."""
    network = Network(6)
    for start, end, capacity in (
        (SOURCE, 2, 5), (SOURCE, 3, 5), (2, 4, 9), (2, 5, 9), (3, 4, 9), (4, SINK, 5), (5, SINK, 3),
    ):  # fmt: skip
        network.join(start, end, capacity)
    assert network.push() == 8
    assert list(bits(network.reached)) == [SOURCE, 2, 3, 4, 5]
    network.join(5, SINK, 9)
    assert network.push() == 2


def test_one_unit_flows_as_long_as_there_is_a_way() -> None:
    network = Network(5)
    for start, end, capacity in ((SOURCE, 2, 1), (2, 4, 9), (3, 4, 9), (4, SINK, 2)):
        network.join(start, end, capacity)
    assert network.push() == 1
    assert [network.push_one(3), network.push_one(3), network.push_one(2)] == [True, False, False]
