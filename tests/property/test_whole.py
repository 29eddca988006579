"""Whole clusters with nearly all that users have in one: decided alike with and without memory, within all limits, and
nothing decided before the instant that a cycle asks to be woken at.

See `tests.property.whole`. A number that fails gives the same life again.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.property.whole import live


@pytest.mark.parametrize("seed", range(6))
def test_a_life_in_which_much_happens(seed: int) -> None:
    assert list(live(seed, events=8))


@pytest.mark.many
@settings(deadline=None, max_examples=examples(40))
@given(st.integers(6, 10_000_000))
def test_many_lives_in_which_much_happens(seed: int) -> None:
    assert list(live(seed))
