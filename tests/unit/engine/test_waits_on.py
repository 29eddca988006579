"""A group whose minimum is bound keeps what its other pods are nominated to: for them others were evicted."""

from __future__ import annotations

import pytest

from kbatch.engine import Policy
from tests.unit.engine.test_planned_starts import nominate, terminating
from tests.unit.engine.worlds import EVERYTHING, group, members, node, pod, policy, priority_class, queue, run, world

ALL = policy(EVERYTHING.replace("enqueue, ", ""))
PREEMPTS = policy(EVERYTHING.replace("enqueue, reclaim, ", ""))


@pytest.mark.parametrize("by", [ALL, PREEMPTS])
def test_pods_above_the_minimum_stay_nominated_when_the_minimum_is_bound(by: Policy) -> None:
    """What high-0 waited for has gone, and it is bound; high-1 waits for a pod that was evicted for it on n2."""
    model = world(
        priority_class("high", 100), queue("q1"), queue("q2"), node("n1", "2"), node("n2", "2"),
        group("victim", queue="q1"), terminating(pod("victim-1", "2", of="victim", on="n2"), 30),
        group("high", 1, at=1, queue="q1", priority_class_name="high"),
        members("high", 2, "2", at=1, priority=100),
        group("other", 1, at=2, queue="q2"), members("other", 1, "2", at=2),
    )  # fmt: skip
    nominate(model, {"high-0": "n1", "high-1": "n2"})
    found = run(model, by, now=5)
    assert found.binds == {"high-0": "n1"}
    assert found.nominated == {}


def test_a_pod_whose_room_its_groups_minimum_takes_waits_where_that_did() -> None:
    model = world(
        priority_class("high", 100), queue("q1"), queue("q2"), node("n1", "2"), node("n2", "4"),
        group("victim", queue="q1"), terminating(pod("victim-0", "2", of="victim", on="n1"), 30),
        terminating(pod("victim-1", "2", of="victim", on="n2"), 30),
        group("high", 1, at=1, queue="q1", priority_class_name="high", roles={"m": 1, "w": 0}),
        [pod(f"high-{n}", "2", of="high", at=1, priority=100, role="w" if n else "m") for n in range(3)],
        group("other", 1, at=2, queue="q2"), members("other", 1, "2", at=2),
    )  # fmt: skip
    nominate(model, {"high-0": "n1", "high-1": "n2", "high-2": "n2"})
    found = run(model, ALL, now=5)
    assert found.binds == {"high-0": "n2"}
    assert set(found.nominated.values()) == {"n1"}, found.nominated  # and one waits on n2 as before
    assert found.reason("other") != "VictimsTerminating"
