"""Candidates are put in order in pieces, which makes no difference to the order."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from kbatch.engine.cooperative import finish
from kbatch.engine.preemption import candidate_table


@given(st.lists(st.tuples(st.binary(max_size=2), st.integers(0, 2)), max_size=40), st.integers(1, 5))
def test_what_is_sorted_in_pieces_is_sorted(names: list[tuple[bytes, int]], at_once: int) -> None:
    items = [(name, number, at) for at, (name, number) in enumerate(names)]
    with mock.patch.object(candidate_table, "_AT_ONCE", at_once):
        steps = candidate_table._sorting(list(items))
        assert finish(steps) == sorted(items)
