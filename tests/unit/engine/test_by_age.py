"""The groups of a queue by age, against a plain list."""

from __future__ import annotations

import random

import pytest

from kbatch.engine.carryover.by_age import ByAge


@pytest.mark.parametrize("seed", range(20))
def test_it_is_in_order_whatever_comes_and_goes(seed: int) -> None:
    chance, line = random.Random(seed), ByAge()
    known: dict[tuple[int, str], int] = {}
    for row in range(900):
        if known and chance.random() < 0.05:
            for age in chance.sample(sorted(known), min(len(known), chance.choice([1, 2, 40, 150]))):
                line.remove(age)
                del known[age]
                if chance.random() < 0.2:
                    line.add(age, -row)
                    known[age] = -row
        age = (chance.randrange(50), f"g{chance.randrange(999)}")
        if age not in known:
            line.add(age, row)
            known[age] = row
        if chance.random() < 0.3:
            assert line.before(age) == sum(1 for other in known if other < age)
        if chance.random() < 0.3:
            assert [*line.rows()] == [known[age] for age in sorted(known)]
