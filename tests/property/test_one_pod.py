"""A minimum of one pod is placed as one of several pods would be."""

from __future__ import annotations

from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.engine import Policy
from kbatch.engine.cooperative import finish
from kbatch.engine.placement import filling
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.statement import Statement
from tests.examples import examples
from tests.property.test_engine import POLICIES, World, worlds
from tests.property.test_engine import relaxed as few
from tests.property.test_memo import coupled
from tests.property.test_victims_help import contested
from tests.unit.engine.worlds import Simulation

_PLACE_ONLY = filling._place_only


def _as_of_several(rankings: NodeRankings, statement: Statement, when: When) -> None:
    """Place it, and compare with the same as for any number of pods."""
    mark, before = len(statement), statement.refused
    _PLACE_ONLY(rankings, statement, when)
    found, refused = statement.recorded(), statement.refused
    statement.rollback(mark)
    statement.refused = before
    finish(filling._place(rankings, statement, when))
    assert statement.recorded() == found
    assert statement.refused == refused


@settings(few, max_examples=examples(60))
@given(st.one_of(worlds(), coupled(), contested(coupled=True), contested()), st.sampled_from(POLICIES))
def test_one_pod_stands_where_the_first_of_several_would(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with mock.patch.object(filling, "_place_only", _as_of_several):
        for _ in range(4):
            sim.settle()
            sim.tick()
