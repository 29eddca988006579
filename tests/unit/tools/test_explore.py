"""The exploration of states itself: what it takes for one state, that it sees what is wrong, and that it can go on."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from tests.explore import ledger
from tests.explore.moves import arrive
from tests.explore.replay import replay
from tests.explore.search import Search
from tests.explore.state import PodState, State, digest
from tests.explore.world import World, draw
from webhooks import commits
from webhooks.ledger import Ledger, settle

pytestmark = pytest.mark.many


def alike() -> World:
    """A world whose nodes are all alike."""
    return next(world for world in (draw(0, number) for number in range(50)) if len(set(world.nodes)) == 1)


def empty(world: World, now: int = 0) -> State:
    return State(now, tuple(range(len(world.nodes))), (None,) * len(world.groups))


def test_states_that_differ_only_in_names_of_nodes_and_pods_and_in_time_are_one() -> None:
    world = alike()
    first = arrive(world, empty(world), 0)
    name, one = first.pods[0]
    here = first.with_pods({name: one._replace(node="n0")})
    assert digest(world, here) == digest(world, first.with_pods({name: one._replace(node="n2")}))
    assert digest(world, here) == digest(world, first.with_pods({f"{name}r7": PodState(one.made, "n1")}))
    assert digest(world, here) != digest(world, first.with_pods({name: one._replace(nominated="n0")}))
    assert digest(world, first) == digest(world, arrive(world, empty(world, now=50), 0))


def test_a_search_that_was_broken_off_goes_on_where_it_was() -> None:
    whole, begun = Search(draw(0, 4), 25), Search(draw(0, 4), 25)
    for _ in whole.run():
        pass
    for _ in begun.run():
        if begun.found.states >= 8:
            break
    kept: Any = pickle.loads(pickle.dumps(begun))  # noqa: S301
    for _ in kept.run():
        pass
    assert kept.done == whole.done
    assert kept.found.violations == whole.found.violations == []


def test_a_path_is_told_to_its_rest() -> None:
    lines = list(replay("0.4:arrive-g3,crash-0,all"))
    assert "> crash-0" in lines
    assert lines[-1] == "at rest"


def test_a_ledger_that_forgets_its_entries_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        commits, "settle", lambda before, *args, **more: settle(Ledger(floor=before.floor), *args, **more)
    )
    search = ledger.Search(0, 0, 400)
    for _ in search.run():
        if search.found.violations:
            break
    assert "cores are granted or taken" in search.found.violations[0].what
    assert any("VIOLATION" in line for line in ledger.replay(search.found.violations[0].replay))
