"""What cannot flow, told by the unions of sets: examples that everybody can check by hand."""

from __future__ import annotations

import pytest

from kbatch.model import unions
from kbatch.model.unions import MOST_SETS, unions_of

A, B = 1, 2


@pytest.mark.parametrize("few", [0, 99], ids=["all at once", "one by one"])
@pytest.mark.parametrize(
    ("amounts", "wanted"),
    [
        # 3 of the first must flow into A, where 2 are taken of 4.
        ([3, 0], (1, A)),
        ([2, 0], (0, 0)),
        # The second may have 6 in B, where there are 5: of 7 one must go to A, which has room for it. Or not.
        ([1, 6], (0, 0)),
        ([1, 7], (1, A | B)),
        # All that they get must go to A and B, which have 9, less the 2 that are taken.
        ([9, 7], (9, A | B)),
    ],
)
def test_the_worst_union(
    amounts: list[int], wanted: tuple[int, int], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unions, "FEW_UNIONS", few)
    found = unions_of({0: 4, 1: 5}, {A: 2}, [{A: 9}, {A: 9, B: 6}], [0, 0])
    assert found is not None
    assert found.worst(amounts, 1) == wanted
    assert found.worst([3 * each for each in amounts], 3) == (3 * wanted[0], wanted[1])


def test_what_a_demand_gets_besides_flows_nowhere() -> None:
    found = unions_of({0: 4}, {}, [{A: 9}], [5])
    assert found is not None
    assert found.worst([10], 1) == (1, A)


def test_numbers_that_are_too_large_are_left_to_a_flow() -> None:
    found = unions_of({0: 2**53}, {}, [{A: 2**53}], [0])
    assert found is not None
    assert found.worst([2**53 * 2**7], 2**7) == (0, 0)
    assert found.worst([2**53 * 2**8], 2**8) is None
    assert unions_of({0: 2**62}, {}, [{A: 1}], [0]) is None


def test_too_many_sets_are_left_to_a_flow() -> None:
    demands = [{1 << at: 1, 1 << at + 1: 1} for at in range(MOST_SETS)]
    room = dict.fromkeys(range(MOST_SETS + 1), 1)
    assert unions_of(room, {}, demands, [0] * MOST_SETS) is None
    assert unions_of(room, {}, demands[:-1] * 9, [0] * (MOST_SETS - 1) * 9) is not None
