"""A gang for which there is too little room by counting is known for that before any of it is placed."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.engine.placement import feasibility
from kbatch.engine.placement.enough import could_fit
from kbatch.engine.placement.feasibility import Feasibility, Trial
from kbatch.engine.placement.gang import place_minimum
from kbatch.engine.placement.ranking import NodeRankings, When
from kbatch.engine.session.statement import Statement
from tests.unit.engine.worlds import (
    group,
    members,
    node,
    pod,
    policy,
    session_of,
    world,
)


def in_roles(master: str, worker: str) -> tuple[Any, ...]:
    whole = group("g", 3, roles={"master": 1, "worker": 2})
    return whole, members("g", 2, worker, role="worker"), pod("m", master, of="g", role="master")


@pytest.mark.parametrize(
    ("waiting", "could", "fits"),
    [
        ((group("g", 4), members("g", 4, "2")), True, True),
        ((group("g", 5), members("g", 5, "2")), False, False),
        ((group("g", 4), members("g", 9, "2")), True, True),  # of nine any four
        ((group("g", 3), members("g", 3, "3")), False, False),  # enough in all, in pieces too small
        ((group("g", 3), members("g", 3, "2", node_selector={"kind": "a"})), False, False),
        (in_roles("4", "2"), True, True),
        (in_roles("5", "2"), False, False),
        (in_roles("4", "3"), True, False),
        ((group("g", 2), members("g", 2, "0")), True, True),
    ],
)  # fmt: skip
def test_the_nodes_are_counted_for_each_class_by_itself(waiting: Any, could: bool, fits: bool) -> None:
    nodes = [node("a", "4", labels={"kind": "a"}), node("b", "4")]
    by = policy()
    session = session_of(world(nodes, *waiting), by)
    rankings = NodeRankings(session.room, session.plugins.predicates, session.plugins.scores, by.fingerprint)
    job = session.job("ns/g")
    assert could_fit(rankings, job) is could
    classes = {task.cls.id: task.cls for task in job.waiting}.values()
    assert all(rankings.in_sum(cls) >= rankings.most(cls) for cls in classes)
    statement = Statement(session, job)
    assert place_minimum(rankings, statement, (When.NOW, When.LATER)) is fits
    assert all(rankings.in_sum(cls) >= rankings.most(cls) for cls in classes)
    assert could_fit(rankings, job) is fits  # where it is whole, nothing lacks any more
    statement.rollback()
    assert could_fit(rankings, job) is could


def test_all_room_together_holds_no_fewer_than_the_nodes_do() -> None:
    by = policy()
    session = session_of(world(node("a", "3"), node("b", "3"), pod("p", "2", on="a"), pod("w", "2")), by)
    rankings = NodeRankings(session.room, session.plugins.predicates, session.plugins.scores, by.fingerprint)
    cls = session.model.tasks["ns/w"].cls
    assert (rankings.in_sum(cls), rankings.most(cls)) == (2, 1)
    session.room.allocate(cls, 1)
    assert (rankings.in_sum(cls), rankings.most(cls)) == (1, 0)


def test_trials_are_kept_for_as_many_groups_as_may_ask_for_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(world(node("a"), group("g"), members("g", 1), group("h"), members("h", 1)))
    monkeypatch.setattr(feasibility, "_FEW", 1)
    before: dict[object, Trial] = {name: Trial(2, 1) for name in ("first", "second", "third", "last")}
    asked = Feasibility(session, before, {})
    assert asked.trials is before
    assert asked.attempt(session.job("ns/g")).fits
    assert list(asked.trials)[:-1] == ["last"]  # as many as there are groups, beside the one that was asked for
    asked.close()
    asked = Feasibility(session, {"third": Trial(2, 1), "last": Trial(3, 1)}, {})
    assert asked.attempt(session.job("ns/g")).fits
    assert list(asked.trials)[:-1] == ["third", "last"]  # half as many again may stay
    asked.close()
