"""What the search for victims does not look at could not have helped."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from kbatch.engine import Policy
from kbatch.engine.placement.ranking import NodeRanking
from kbatch.engine.preemption.node_search import NodeSearch
from kbatch.engine.preemption.polling import Victim
from tests.property.test_engine import POLICIES, World, relaxed
from tests.property.test_memo import coupled
from tests.property.test_victims_help import contested
from tests.unit.engine.worlds import Simulation

_CHEAPEST = NodeSearch.cheapest
_FITS = NodeRanking.fits


def _with_all_tried(search: NodeSearch, row: int) -> list[Victim] | None:
    """The cheapest set of a row, compared with that which is found where no node is left out."""
    found = _CHEAPEST(search, row)
    kept_out, sets = search._kept_out, search._sets
    search._kept_out = None
    again = _CHEAPEST(search, row)
    search._kept_out, search._sets = kept_out, sets
    assert again == found, (row, found, again)
    return found


def _as_ranked(ranking: NodeRanking, row: int) -> bool:
    """Whether the row takes a pod, compared with the keys of all rows."""
    found = _FITS(ranking, row)
    assert found == bool(ranking.refresh()[row] >= 0), row
    return found


@relaxed
@given(st.one_of(coupled(), contested(coupled=True), contested()), st.sampled_from(POLICIES))
def test_nodes_that_are_left_out_could_not_have_been_opened(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with mock.patch.object(NodeSearch, "cheapest", _with_all_tried), mock.patch.object(NodeRanking, "fits", _as_ranked):
        for _ in range(3):
            sim.settle()
            sim.tick()
