"""A group fails while its pod is to be evicted: it is left out of the cycle, and the search goes on with others."""

from __future__ import annotations

import pytest

from kbatch.api.configuration import parse
from kbatch.engine import Policy, build_policy
from kbatch.engine.plugin import NO_UNDO, Plugin, Undo
from kbatch.engine.plugins import BUILTIN
from kbatch.model.cluster import ClusterModel
from kbatch.model.tasks import Task
from tests.unit.engine.worlds import EVERYTHING, group, members, node, priority_class, queue, run, world

FAILING = "ns/v19"
"""The group whose pod came last, and would go first."""


class Fragile(Plugin):
    """Knows nothing of votes, and fails where a pod of one group is evicted."""

    name = "fragile"
    agrees = frozenset()

    def removed(self, task: Task, row: int) -> Undo:
        if task.job == FAILING:
            raise RuntimeError(f"{task.key} is not to be counted")
        return NO_UNDO


def fragile() -> Policy:
    text = EVERYTHING.replace("enqueue, ", "").replace("tiers:\n", "tiers:\n- plugins: [{name: fragile}]\n")
    return build_policy(parse(text, "test"), {**BUILTIN, Fragile.name: Fragile})


def crowd(preemptors: int, own: str = "") -> ClusterModel:
    """Twenty groups of one pod, alike in all but their age, each on a node of its own; so many that matter more."""
    standing = [
        (group(f"v{at:02}", priority_class_name="low", queue="theirs"), members(f"v{at:02}", 1, on=f"n{at:02}", at=at))
        for at in range(20)
    ]
    coming = [
        (group(f"a{at}", at=50, priority_class_name="high", queue=own or "theirs"), members(f"a{at}", 1, at=50))
        for at in range(preemptors)
    ]
    return world(
        [priority_class("low", 1), priority_class("high", 100), queue("theirs"), queue("mine")],
        [node(f"n{at:02}", "1") for at in range(20)],
        *([one, *pods] for one, pods in (*standing, *coming)),
    )


@pytest.mark.parametrize("own", ["", "mine"], ids=["preempt", "reclaim"])
@pytest.mark.parametrize("preemptors", [1, 3])
def test_the_next_victims_go_in_the_stead_of_one_that_fails(preemptors: int, own: str) -> None:
    found = run(crowd(preemptors, own), fragile(), now=60)
    assert found.evicted == [f"v{19 - at:02}-0" for at in range(preemptors, 0, -1)]
    assert set(found.nominated) == {f"a{at}-0" for at in range(preemptors)}
    assert found.outcome is not None
    assert set(found.outcome.state.failing) == {FAILING}, "nobody else is left out for it"
    assert [error.group for error in found.outcome.errors] == [FAILING]
