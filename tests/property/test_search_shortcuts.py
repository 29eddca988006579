"""What the search for victims does not look at could not have helped."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbatch.api.names import GROUP_NAME_ANNOTATION
from kbatch.api.objects import Node, Pod, PodGroup
from kbatch.engine import Policy
from kbatch.engine.decisions import Transaction, Turn
from kbatch.engine.placement.ranking import NodeRanking
from kbatch.engine.placement.together import Choice
from kbatch.engine.plugin import Preemptor, Unit
from kbatch.engine.preemption import closeness, planning
from kbatch.engine.preemption.candidate_pool import CandidatePool
from kbatch.engine.preemption.candidates import Candidate, Cost
from kbatch.engine.preemption.node_search import NodeSearch
from kbatch.engine.preemption.polling import Victim
from kbatch.engine.preemption.reach import within_reach
from kbatch.engine.preemption.search import cost_of
from tests.examples import examples
from tests.property.test_engine import POLICIES, World, worlds
from tests.property.test_engine import relaxed as few
from tests.property.test_memo import HOST, STYLES, ZONE, coupled, styled
from tests.property.test_victims_help import contested
from tests.unit.engine.worlds import Simulation

pytestmark = pytest.mark.many

relaxed = settings(few, max_examples=examples(80))

_CHEAPEST = NodeSearch.cheapest
_FITS = NodeRanking.fits
_ASK_KIND = CandidatePool._ask
_ASK = NodeSearch._ask
_AT_LEAST = NodeSearch.at_least


def _with_all_tried(search: NodeSearch, row: int) -> list[Victim] | None:
    """The cheapest set of a row, compared with that which is found where no node is left out, and where each pod that
    goes is evicted to see what fits then, instead of what it gives added up.
    """
    sets = search._sets
    found = _CHEAPEST(search, row)
    left, kept_out, search._sets = search._sets, search._kept_out, sets
    search._kept_out = None
    with mock.patch.object(NodeSearch, "_decided_by_room", return_value=False):
        again = _CHEAPEST(search, row)
    search._kept_out, search._sets = kept_out, left
    assert again == found, (row, found, again)
    return found


def _no_more_than_it_costs(search: NodeSearch, row: int, bound: Cost) -> Cost | None:
    """The bound of a row, compared with what it costs."""
    found = _AT_LEAST(search, row, bound)
    sets = search._sets
    victims = _CHEAPEST(search, row)
    search._sets = sets
    if found is None:
        assert victims is None, row
    elif victims is not None:
        assert found <= cost_of(victims), (row, found, victims)
    return found


def _as_ranked(ranking: NodeRanking, row: int) -> bool:
    """Whether the row takes a pod, compared with the keys of all rows."""
    found = _FITS(ranking, row)
    anew = NodeRanking(ranking._placement, ranking.cls, ranking.when, ranking._way)  # `refresh` of this one may ask
    assert found == bool(anew.refresh()[row] >= 0), row
    return found


def _each_of_its_kind(pool: CandidatePool, preemptor: Preemptor, kind: int, found: dict[int, int]) -> None:
    """Ask about a kind, and compare with what is said of each of its pods."""
    _ASK_KIND(pool, preemptor, kind, found)
    for candidate in pool._kinds[kind].values():
        unit = candidate.unit()
        assert unit is not None
        assert pool._consent.rank(pool._ballot, preemptor, unit) == found.get(kind), unit


def _as_if_new(search: NodeSearch, candidate: Candidate, victims: Sequence[Victim], *, below: bool) -> Victim | None:
    """Ask about a candidate, and compare with what is said of it when it is asked about by itself."""
    found = _ASK(search, candidate, victims, below=below)
    unit = candidate.unit()
    if unit is not None and candidate.task is not None and not victims:
        assert search._votes[candidate.kind] == search._poll.vote(unit), unit
    return found


@st.composite
def kindred(draw: st.DrawFn) -> World:
    """A world in which pods that run, too, speak of others, and many are of one kind."""
    found = draw(worlds())
    kinds = {name: draw(st.sampled_from(STYLES[:5])) for name in ("a", "b")}
    apps: dict[str, str] = {}
    for number, obj in enumerate(found.objects):
        if isinstance(obj, Node):
            obj.metadata.labels = {HOST: obj.metadata.name, ZONE: draw(st.sampled_from(["z0", "z1"]))}
        elif isinstance(obj, Pod):
            of = (obj.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, "")
            app = apps.setdefault(of, draw(st.sampled_from("aab")))
            styled(obj, app, kinds[app], number)
    return found


@st.composite
def mortal(draw: st.DrawFn) -> World:
    """A world in which some groups have a lifetime."""
    found = draw(worlds())
    for obj in found.objects:
        if isinstance(obj, PodGroup) and draw(st.booleans()):
            obj.spec.lifetime_seconds = draw(st.integers(1, 4))
    return found


@relaxed
@given(st.one_of(kindred(), coupled(), contested(coupled=True), contested()), st.sampled_from(POLICIES))
def test_nodes_that_are_left_out_could_not_have_been_opened(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with mock.patch.object(NodeSearch, "cheapest", _with_all_tried), mock.patch.object(NodeRanking, "fits", _as_ranked):
        for _ in range(3):
            sim.settle()
            sim.tick()


@relaxed
@given(st.one_of(worlds(), mortal(), kindred(), contested(coupled=True), contested()), st.sampled_from(POLICIES))
def test_no_row_costs_less_than_is_said_beforehand(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with mock.patch.object(NodeSearch, "at_least", _no_more_than_it_costs):
        for _ in range(3):
            sim.settle()
            sim.tick()


@relaxed
@given(st.one_of(worlds(), mortal(), contested()), st.sampled_from(POLICIES))
def test_pods_of_one_kind_get_the_same_votes(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with (
        mock.patch.object(CandidatePool, "_ask", _each_of_its_kind),
        mock.patch.object(NodeSearch, "_ask", _as_if_new),
    ):
        for _ in range(3):
            sim.settle()
            sim.tick()


@contextmanager
def sought_all_the_same() -> Iterator[None]:
    """Victims are sought even where sums say no; what they said must be right then."""
    said: list[bool] = []

    def ask(asked: Callable[..., bool]) -> Callable[..., bool]:
        def asking(*arguments: Any) -> bool:
            said.append(asked(*arguments))
            return True

        return asking

    def make(making: Callable[..., Generator[Transaction | Turn, None, bool]]) -> Callable[..., Any]:
        def compared(*arguments: Any) -> Generator[Transaction | Turn, None, bool]:
            possible = said.pop() if said else True  # nobody asks where a group's own pods are to go
            found = yield from making(*arguments)
            assert possible or not found, "room was made where sums said that none could be"
            return found

        return compared

    with ExitStack() as stack:
        for name in ("preemption.within_queue", "actions.reclaim"):  # where both are asked for
            module: Any = importlib.import_module(f"kbatch.engine.{name}")
            stack.enter_context(mock.patch.object(module, "within_reach", ask(module.within_reach)))
            stack.enter_context(mock.patch.object(module, "making_room", make(module.making_room)))
        stack.enter_context(mock.patch.object(planning, "within_reach", _noted))
        stack.enter_context(mock.patch.object(planning._Plan, "_units", _compared))
        yield


_TOLD_NO: list[bool] = []
_UNITS = planning._Plan._units


def _noted(*arguments: Any) -> bool:
    """Go on seeking victims for the rest of a minimum, whatever sums say of it."""
    _TOLD_NO[-1] = not within_reach(*arguments)
    return True


def _compared(plan: planning._Plan, choice: Choice | None = None) -> Generator[Turn, None, list[Unit] | None]:
    """Make a plan; where sums say no there must be none."""
    _TOLD_NO.append(False)
    found = yield from _UNITS(plan, choice)
    assert not (_TOLD_NO.pop() and found), "room was made where sums said that none could be"
    return found


@relaxed
@given(
    st.one_of(worlds(), mortal(), kindred(), coupled(), contested(coupled=True), contested()), st.sampled_from(POLICIES)
)
def test_nobody_is_told_no_who_could_have_room(found: World, by: Policy) -> None:
    sim = Simulation(found.model(), by)
    with sought_all_the_same():
        for _ in range(6):
            sim.settle()
            sim.tick()


@relaxed
@given(st.one_of(worlds(), mortal(), contested()), st.sampled_from(POLICIES))
def test_candidates_on_rows_that_could_not_be_cleared_do_not_matter(found: World, by: Policy) -> None:
    """Who stands where no room could be made is not needed to decide alike."""
    sims = [Simulation(found.model(), by), Simulation(found.model(), by)]
    for _ in range(12):
        with mock.patch.object(closeness, "_SMALL_PART", 1):  # few rows, however many they are
            few_rows = sims[0].cycle()
        with mock.patch.object(planning._Plan, "_by_rows", return_value=False):
            all_rows = sims[1].cycle()
        assert few_rows.transactions == all_rows.transactions
        assert few_rows.verdicts == all_rows.verdicts
        for sim in sims:
            sim.tick()
