"""What the groups of a queue could give follows them from cycle to cycle."""

from __future__ import annotations

from functools import partial

from kbatch.api.objects import Pod
from kbatch.engine.admission.weaker import _share
from kbatch.engine.carryover.giving import Levels
from kbatch.model.events import Delete
from tests.unit.engine.worlds import EPOCH, group, members, node, priority_class, queue, world


def test_what_a_pod_held_that_has_ended_is_given_no_more() -> None:
    model = world(
        priority_class("low", 1), queue(), node("n", "8"), group("a", 1, priority_class_name="low"),
        members("a", 2, on="n"), group("b", 1, priority_class_name="low"), members("b", 1, on="n"),
    )  # fmt: skip
    levels = Levels(model.queues["default"])
    levels.follow(EPOCH, partial(_share, EPOCH))
    assert levels.by_priority[1].spare["cpu"] == 3000
    model.apply(Delete(Pod, "ns", "a-0"))
    model.refresh()
    levels.follow(EPOCH, partial(_share, EPOCH))
    assert levels.by_priority[1].spare["cpu"] == 2000
