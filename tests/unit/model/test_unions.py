"""What cannot flow, told by the unions of sets: examples that everybody can check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kbatch.model import unions, unions_many
from kbatch.model.division_columns import MOST_SETS, columns_of
from kbatch.model.division_flow import FlowPart
from kbatch.model.unions import RANGE, Column, unions_of

A, B = 1, 2
WAYS = {
    "one by one": (99, 0, (4, 8)),
    "all at once": (0, 99, (4, 8)),
    "decided before": (0, 0, (4, 8)),
    "for each collection": (0, 99, (1,)),
}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    few, decided, widths = request.param
    monkeypatch.setattr(unions, "FEW_UNIONS", few)
    monkeypatch.setattr(unions_many, "DECIDED_AT_ONCE", decided)
    monkeypatch.setattr(unions_many, "WIDTHS", widths)


def column(*amounts: int) -> Column:
    return np.array(amounts, np.int64)


def table(*rows: list[int]) -> Column:
    return np.array(rows, np.int64)


CASES = [
    # 3 of the first must flow into A, where 2 are taken of 4.
    ([3, 0], (1, A)),
    ([2, 0], (0, 0)),
    # The second may have 6 in B, where there are 5: of 7 one must go to A, which has room for it. Or not.
    ([1, 6], (0, 0)),
    ([1, 7], (1, A | B)),
    # All that they get must go to A and B, which have 9, less the 2 that are taken.
    ([9, 7], (9, A | B)),
]


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(("amounts", "wanted"), CASES)
@pytest.mark.parametrize("scale", [1, 3, 2**60], ids=["whole", "parts", "a product beyond the range"])
def test_the_worst_union(amounts: list[int], wanted: tuple[int, int], scale: int) -> None:
    found = unions_of([A, B], {0: 4, 1: 5}, column(2, 0), table([9, 0], [9, 6]), column(0, 0))
    assert found.worst(column(*amounts), column(0, 0), scale) == (scale * wanted[0], wanted[1])


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("scale", [7, 2**60], ids=["in the range", "a product beyond the range"])
def test_parts_of_a_unit_count(scale: int) -> None:
    found = unions_of([A, B], {0: 4, 1: 5}, column(2, 0), table([9, 0], [9, 6]), column(0, 0))
    last = scale - 1
    assert found.worst(column(0, 6), column(last, 0), scale) == (0, 0)
    assert found.worst(column(2, 0), column(1, 0), scale) == (1, A)
    # Together 7, which A and B have left; and one part of a unit more.
    assert found.worst(column(0, 6), column(last, 1), scale) == (0, 0)
    assert found.worst(column(0, 6), column(last, 2), scale) == (1, A | B)
    assert found.worst(column(1, 6), column(last, last), scale) == (2 * scale - 2, A | B)


@pytest.mark.usefixtures("_way")
def test_what_a_demand_gets_besides_flows_nowhere() -> None:
    found = unions_of([A], {0: 4}, column(0), table([9]), column(5))
    assert found.worst(column(10), column(0), 1) == (1, A)


def test_too_many_large_demands_are_left_to_a_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unions, "FEW_UNIONS", 0)
    monkeypatch.setattr(unions_many, "WIDTHS", (1,))
    found = unions_of([A, B], {0: 4, 1: 5}, column(0, 0), table([9, 9], [9, 9]), column(0, 0))
    assert found.worst(column(5, 5), column(0, 0), 1) == (1, A | B)
    monkeypatch.setattr(unions_many, "MOST_WIDE", 7)
    assert found.worst(column(5, 5), column(0, 0), 1) is None
    assert found.worst(column(0, 5), column(0, 0), 1) == (0, 0)


def test_too_many_undecided_sets_are_left_to_a_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unions, "FEW_UNIONS", 0)
    monkeypatch.setattr(unions_many, "MOST_UNDECIDED", 1)
    found = unions_of([A, B], {0: 4, 1: 5}, column(0, 0), table([9, 9], [9, 9]), column(0, 0))
    assert found.worst(column(5, 5), column(0, 0), 1) is None


def part(room: int, weight: int, demand: dict[int, int]) -> FlowPart:
    return FlowPart({0: sum(demand.values())}, {0: weight}, {0: demand}, {0: room})


def test_numbers_that_are_too_large_are_left_to_flows() -> None:
    assert columns_of(part(1, 1, {A: RANGE - 2})) is not None
    assert columns_of(part(1, 1, {A: RANGE - 1})) is None
    assert columns_of(part(1, RANGE, {A: 1})) is None


def test_too_many_sets_are_left_to_flows() -> None:
    demand = {1 << at: 1 for at in range(MOST_SETS + 1)}
    assert columns_of(part(1, 1, demand)) is None
    del demand[1]
    assert columns_of(part(1, 1, demand)) is not None
