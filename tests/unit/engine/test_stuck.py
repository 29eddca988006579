"""Pods that terminate and do not go: after a time nobody counts on their room, and no queue deserves any of it."""

from __future__ import annotations

import copy

import pytest

from kbatch.api.objects import Pod
from kbatch.model.events import Delete, Upsert
from kbatch.model.node_index import STUCK_AFTER
from kbatch.times import SECOND
from tests.unit.engine.test_planned_starts import terminating
from tests.unit.engine.worlds import EPOCH, EVERYTHING, group, members, node, pod, policy, queue, run, world

GONE = 30
"""When the grace of the pod ends, in seconds."""
STUCK = GONE + STUCK_AFTER // SECOND


@pytest.mark.parametrize("scheduler", ["kube-batch", "default-scheduler"])
def test_the_room_of_a_stuck_pod_is_no_capacity(scheduler: str) -> None:
    stuck = terminating(pod("stuck", "3", on="n1", scheduler=scheduler), GONE)
    model = world(queue(), node("n1"), node("n2"), stuck)

    def capacity(now: int) -> int:
        model.lapse(EPOCH + now * SECOND)
        for _ in model.refreshing():
            pass
        model.validate()
        return model.capacity["cpu"]

    assert capacity(STUCK - 1) == 8000
    before = model.capacity_generation
    assert model.next_stuck == EPOCH + STUCK * SECOND
    assert capacity(STUCK) == 5000
    assert model.capacity_generation > before
    assert model.next_stuck is None
    told = copy.deepcopy(stuck)
    told.status.reason = "NodeLost"
    model.apply(Upsert(told))
    assert capacity(STUCK + 1) == 5000, "it says something else"
    before = model.capacity_generation
    model.apply(Delete(Pod, "ns", "stuck"))
    assert capacity(STUCK + 2) == 8000
    assert model.capacity_generation > before


def test_a_pod_that_gets_more_time_is_not_stuck() -> None:
    model = world(queue(), node("n1"), terminating(pod("slow", "3", on="n1"), GONE))
    model.apply(Upsert(terminating(pod("slow", "3", on="n1"), GONE + 100)))
    model.lapse(EPOCH + STUCK * SECOND)
    model.validate()
    assert model.capacity["cpu"] == 4000


@pytest.mark.parametrize("scheduler", ["kube-batch", "default-scheduler"])
def test_a_queue_takes_back_its_share_where_a_pod_is_stuck(scheduler: str) -> None:
    """`default` holds the one node that can be used. With the other it would deserve all of that."""
    stuck = terminating(pod("stuck", "4", on="n1", scheduler=scheduler), GONE)
    model = world(
        queue(), queue("b"), node("n1"), node("n2"), stuck, group("low"), members("low", 4, on="n2"),
        group("claims", at=1, queue="b"), pod("claims-0", "2", of="claims", at=1),
    )  # fmt: skip
    assert run(model, policy(EVERYTHING), now=STUCK - 1).evicted == []
    assert len(run(model, policy(EVERYTHING), now=STUCK).evicted) == 2
