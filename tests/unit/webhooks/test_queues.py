"""A Queue is not deleted while groups that are not over name it."""

from __future__ import annotations

import pytest

from kbatch.api.objects import PodGroup
from kbatch.kube.informer import Batch
from kbatch.model.events import Delete, Upsert
from tests.unit.webhooks.build import group
from webhooks.queues import name_of, refusal
from webhooks.world import World


@pytest.mark.parametrize(
    ("phases", "numbers"),
    [
        (["Pending", "Running", "InQueue"], "3 groups (2 pending or in queue, 1 running): delete or move them first"),
        ([""], "1 group (1 pending or in queue): delete or move it first"),
        (["Running", "Running"], "2 groups (2 running): delete them first"),
        (["Unknown"], "1 group (1 running): delete it first"),
    ],
)
def test_a_refusal_says_how_many_groups_there_are(phases: list[str], numbers: str) -> None:
    assert refusal("research", phases) == f"Queue research still has {numbers}"


def test_an_empty_queue_may_go() -> None:
    assert refusal("research", []) is None


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": {"name": 3}}, {"metadata": []}])
def test_what_has_no_name_has_none(body: dict[str, object]) -> None:
    assert name_of(body) == ""


def seen(*groups: PodGroup) -> World:
    world = World()
    world.receive(Batch(tuple(Upsert(one) for one in groups), complete=True))
    return world


def test_groups_of_all_namespaces_count_until_they_are_over_or_gone() -> None:
    world = seen(
        group("a", queue="q", phase="Running"), group("a", queue="q", namespace="other"), group("b", queue="r"),
        group("done", queue="q", phase="Completed"), group("broken", queue="q", phase="Failed"),
    )  # fmt: skip
    assert sorted(world.phases_in("q")) == ["", "Running"]
    world.receive(Batch((Upsert(group("a", queue="q", phase="Completed")),), complete=True))
    assert world.phases_in("q") == [""]
    world.receive(Batch((Delete(PodGroup, "other", "a"), Delete(PodGroup, "ns", "never-seen")), complete=True))
    assert world.phases_in("q") == []
    assert world.phases_in("r") == [""]


def test_a_group_that_moves_counts_where_it_is_now() -> None:
    world = seen(group("a", queue="q"), group("a", queue="r", phase="InQueue"))
    assert (world.phases_in("q"), world.phases_in("r")) == ([], ["InQueue"])


def test_a_group_whose_amounts_cannot_be_read_counts() -> None:
    assert seen(group("a", "many", queue="q")).phases_in("q") == [""]
