"""Where reclaim has set room aside for a minimum is where allocate would place it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.engine import Policy
from kbatch.engine.actions.allocate import _Line
from kbatch.engine.actions.common import moments_of, rankings_of
from kbatch.engine.decisions import Turn
from kbatch.engine.placement.gang import placing
from kbatch.engine.session.statement import Statement
from kbatch.model.tasks import Task
from tests.examples import examples
from tests.property.test_engine import POLICIES, World, worlds
from tests.property.test_engine import relaxed as few
from tests.property.test_memo import coupled
from tests.property.test_victims_help import contested
from tests.unit.engine.worlds import Simulation

pytestmark = pytest.mark.many

_PLACED = _Line._placed


def _looked_for_again(
    line: _Line, statement: Statement, following: Sequence[Task], tasks: Sequence[Task]
) -> Generator[Turn, None, bool | None]:
    found = yield from _PLACED(line, statement, following, tasks)
    if line.context.foreknown._placed is statement:
        steps = statement.recorded()
        statement.rollback()
        assert (yield from placing(rankings_of(line.context), statement, moments_of(line.context)))
        assert statement.recorded() == steps
    return found


@settings(few, max_examples=examples(80))
@given(st.one_of(worlds(), coupled(), contested(coupled=True), contested()), st.sampled_from(POLICIES))
def test_room_is_found_where_it_was_set_aside(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with mock.patch.object(_Line, "_placed", _looked_for_again):
        for _ in range(6):
            sim.settle()
            sim.tick()
