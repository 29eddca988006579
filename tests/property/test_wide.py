"""Whole clusters in which everything that placement and time know meets: decided alike with and without memory, within
all bounds, and nothing decided before the instant that a cycle asks to be woken at.

See `tests.property.wide`. A number gives the same life again.
"""

from __future__ import annotations

import pytest

from tests.property.wide import live

_ONCE_WRONG = [5, 8, 19, 113, 285, 7014, 7023, 20045, 20580]
"""Lives in which something was once decided wrongly."""


@pytest.mark.many
@pytest.mark.parametrize("seed", _ONCE_WRONG)
def test_lives_in_which_something_was_wrong_once(seed: int) -> None:
    assert list(live(seed))


@pytest.mark.many
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_lives_in_which_groups_stand_close_and_start_by_plan(first: int) -> None:
    for seed in range(first, first + 10):
        assert list(live(seed))
