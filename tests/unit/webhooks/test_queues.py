"""A Queue is not deleted while groups that are not over name it."""

from __future__ import annotations

import pytest

from kbatch.api.objects import PodGroup
from kbatch.kube.informer import Batch
from kbatch.model.events import Delete, Upsert
from tests.unit.webhooks.build import group
from webhooks.cluster_view import ClusterView
from webhooks.queues import refusal


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


def seen(*groups: PodGroup) -> ClusterView:
    view = ClusterView()
    view.receive(Batch(tuple(Upsert(one) for one in groups), complete=True))
    return view


def test_groups_of_all_namespaces_count_until_they_are_over_or_gone() -> None:
    view = seen(
        group("a", queue="q", phase="Running"), group("a", queue="q", namespace="other"), group("b", queue="r"),
        group("done", queue="q", phase="Completed"), group("broken", queue="q", phase="Failed"),
    )  # fmt: skip
    assert sorted(view.phases_in("q")) == ["", "Running"]
    view.receive(Batch((Upsert(group("a", queue="q", phase="Completed")),), complete=True))
    assert view.phases_in("q") == [""]
    view.receive(Batch((Delete(PodGroup, "other", "a"), Delete(PodGroup, "ns", "never-seen")), complete=True))
    assert view.phases_in("q") == []
    assert view.phases_in("r") == [""]


def test_a_group_that_moves_counts_where_it_is_now() -> None:
    view = seen(group("a", queue="q"), group("a", queue="r", phase="InQueue"))
    assert (view.phases_in("q"), view.phases_in("r")) == ([], ["InQueue"])


def test_a_group_whose_amounts_cannot_be_read_counts() -> None:
    assert seen(group("a", "many", queue="q")).phases_in("q") == [""]
