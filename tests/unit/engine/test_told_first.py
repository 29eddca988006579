"""Whose numbers are told again first, of many that are old, against a plain sort."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kbatch.engine.carryover import backlog


@pytest.mark.parametrize("seed", range(20))
def test_they_are_those_told_first_and_of_one_instant_those_of_the_first_rows(seed: int) -> None:
    chance = random.Random(seed)
    told = [chance.randrange(1 << chance.choice([1, 3, 60])) for _ in range(chance.randrange(1, 400))]
    count = chance.randrange(len(told))
    found = backlog._first_told(np.array(told, np.int64), count).tolist()
    assert sorted(found) == sorted(sorted(range(len(told)), key=lambda place: (told[place], place))[:count])
