"""What is left out where pods are placed close together would not have mattered: a minimum of one pod goes where the
search among all sets of nodes would put it, and room that comes free is counted where there is some.
"""

from __future__ import annotations

from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.objects import PodGroup
from kbatch.engine import Policy
from kbatch.engine.placement import gang
from kbatch.engine.placement.capacity import Capacity
from kbatch.engine.placement.one_pod import place_one
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.statement import Statement
from kbatch.engine.state.node_resources import Index, NodeResources
from tests.examples import examples
from tests.property.test_close_and_alone import POLICIES, close_worlds
from tests.property.test_engine import World
from tests.property.test_engine import relaxed as few
from tests.unit.engine.worlds import Simulation

pytestmark = pytest.mark.many

_LEAST = Capacity.least


@st.composite
def loose_worlds(draw: st.DrawFn) -> World:
    """A world in which most groups need only one pod to start."""
    found = draw(close_worlds(exclusive=draw(st.booleans())))
    for obj in found.objects:
        if isinstance(obj, PodGroup) and not obj.spec.sub_groups and draw(st.integers(0, 3)):
            obj.spec = msgspec.structs.replace(obj.spec, min_member=1)
    return found


def _as_searched(rankings: NodeRankings, statement: Statement, when: When) -> bool:
    """Place one pod, and compare with where the search puts it."""
    mark = len(statement)
    if not place_one(rankings, statement, when):
        return False
    found = statement.recorded()
    statement.rollback(mark)
    with mock.patch.object(gang, "place_one", return_value=False):
        assert gang.place_minimum(rankings, statement, (when,))
    assert statement.recorded() == found
    return True


def _as_counted(capacity: Capacity) -> Index:
    """The rows with the least room, compared with those of all rows counted anew."""
    found = _LEAST(capacity)
    each = [
        max(0, takes) if open_ else 0 for takes, open_ in zip(capacity.at(slice(None)), capacity._allowed, strict=True)
    ]
    assert capacity.each().tolist() == each
    assert found.tolist() == [row for row, takes in enumerate(each) if takes and takes == min(filter(None, each))]
    return found


@settings(few, max_examples=examples(80))
@given(loose_worlds(), st.sampled_from(POLICIES))
def test_one_pod_goes_where_the_search_would_put_it(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with mock.patch.object(gang, "place_one", _as_searched), mock.patch.object(Capacity, "least", _as_counted):
        for _ in range(4):
            sim.settle()
            sim.tick()


@settings(few, max_examples=examples(80))
@given(close_worlds(), st.sampled_from(POLICIES))
def test_where_nothing_comes_free_it_need_not_be_counted_again(found: World, by: Policy) -> None:
    sims = [Simulation(found.model(), by), Simulation(found.model(), by)]
    for _ in range(6):
        once = sims[0].cycle()
        with mock.patch.object(NodeResources, "awaits_any", True):
            twice = sims[1].cycle()
        assert once.transactions == twice.transactions
        assert once.verdicts == twice.verdicts
        for sim in sims:
            sim.tick()
