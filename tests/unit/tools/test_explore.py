"""The exploration of states itself: what it takes for one state, that it sees what is wrong, and that it can go on."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from kbatch.api.conditions import ENQUEUED, TRUE
from kbatch.api.objects import Condition
from tests.explore import __main__ as command
from tests.explore import ledger, moves
from tests.explore.moves import arrive
from tests.explore.replay import replay
from tests.explore.search import Search
from tests.explore.state import PodState, State, digest
from tests.explore.world import MORE, World, draw
from tests.sources import StaleError, used_by
from tests.sources import digest as digest_of
from webhooks import commits
from webhooks.ledger import Ledger, settle

pytestmark = pytest.mark.many

IN_QUEUE = (Condition(type=ENQUEUED, status=TRUE, reason="Enqueued"),)


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


# --- what is kept of a run --------------------------------------------------------------------------------------------


def test_what_was_done_is_kept_with_the_seed_and_the_sources(tmp_path: Path) -> None:
    file = tmp_path / "done"
    head = command.head_of(0, strict=False)
    done = command.Done("engine 0.1", 7, 1, 0.5, True, (), 0)
    command.Record(file, head).add(done)
    assert command.Record(file, head).done == {"engine 0.1": done}
    for other in (command.head_of(1, strict=False), command.head_of(0, strict=True), head.replace("sources", "source")):
        with pytest.raises(StaleError, match="delete it"):
            command.Record(file, other)


def test_a_file_of_other_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "done"
    file.write_text(json.dumps({"name": "engine 0.1", "states": 1000000}) + "\n")  # as files were without a head
    monkeypatch.setattr("sys.argv", ["explore", "--states", "1", "--resume", str(file)])
    assert command.main() == 2
    assert f"delete it (rm {file}*) to begin anew" in capsys.readouterr().err


def test_what_was_begun_with_other_sources_is_begun_anew(tmp_path: Path) -> None:
    part = tmp_path / "done.engine-4"
    search = Search(draw(0, 4), 25)
    command._save(search, part, "head")
    assert command._begun(part, "head").name == "0.4"
    assert command._begun(part, "other head") is None
    assert command._begun(tmp_path / "none", "head") is None


def test_the_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text("import tests.c\nfrom tests import d\n")
    (tmp_path / "tests").mkdir()
    for name in "cde":
        (tmp_path / "tests" / f"{name}.py").write_text("")
    assert used_by("a", tmp_path) == ["a/b.py", "tests/c.py", "tests/d.py"]
    before = digest_of("a", "tests/c.py", root=tmp_path)
    (tmp_path / "a" / "__pycache__").mkdir()
    (tmp_path / "a" / "__pycache__" / "b.pyc").write_text("x")
    (tmp_path / "tests" / "e.py").write_text("x")
    assert digest_of("a", "tests/c.py", root=tmp_path) == before
    (tmp_path / "tests" / "c.py").write_text("x")
    assert digest_of("a", "tests/c.py", root=tmp_path) != before


# --- what is added to worlds ------------------------------------------------------------------------------------------


def first(more: str, holds: Any) -> World:
    return next(world for world in (draw(0, number, more) for number in range(200)) if holds(world))


def test_what_is_added_leaves_the_rest_of_a_world_as_it_is() -> None:
    for number in range(20):
        plain = draw(0, number)
        for more in MORE:
            world = draw(0, number, more)
            assert (world.nodes, world.queues, world.grace, world.arrived) == (
                plain.nodes, plain.queues, plain.grace, plain.arrived,
            )  # fmt: skip
            assert world.name == f"0.{number}{more}"


def test_pods_of_a_group_are_made_when_it_is_in_queue_and_within_the_quota() -> None:
    world = first("q", lambda one: any(group.minimum * group.cpu > one.quota for group in one.groups))
    large = next(place for place, one in enumerate(world.groups) if one.minimum * one.cpu > world.quota)
    state = arrive(world, empty(world), large)
    assert not state.pods
    assert moves.make(world, state) == state
    said = state._replace(groups=tuple(one and one._replace(conditions=IN_QUEUE) for one in state.groups))
    made = moves.make(world, said)
    assert len(made.pods) == world.quota // world.groups[large].cpu
    assert moves.make(world, made) == made


def test_a_group_that_is_let_in_beyond_the_quota_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbatch.model.quota.exceeded", lambda *args, **more: ())
    found = searched("q", "cores of a quota of")
    assert "comes in queue" in found


def test_a_role_with_more_pods_than_it_may_have_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbatch.engine.state.jobs.JobState.role_headroom", lambda self, role: None)
    assert searched("m", "its maxMember is")


def searched(more: str, wanted: str) -> str:
    """The first violation of that kind in the first worlds."""
    for number in range(20):
        search = Search(draw(0, number, more), 40)
        for _ in search.run():
            found = [one.what for one in search.found.violations if wanted in one.what]
            if found:
                return found[0]
    raise AssertionError("nothing was found")
