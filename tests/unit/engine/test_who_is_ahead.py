"""Who is told to be ahead of a group that waits comes in before it."""

from __future__ import annotations

import re
from typing import Any

from kbatch.api.objects import Pod
from kbatch.model.events import Delete
from tests.unit.engine.worlds import (
    EVERYTHING,
    Simulation,
    group,
    members,
    node,
    policy,
    priority_class,
    queue,
    world,
)  # fmt: skip


def test_who_comes_in_later_is_not_ahead() -> None:
    four: dict[str, Any] = {"min_resources": {"cpu": "4"}}
    sim = Simulation(
        world(
            priority_class("low", 1), priority_class("high", 100),
            queue(), node("n1", "4"),
            group("runs", 4, priority_class_name="high", disruption="Never"), members("runs", 4, on="n1", priority=100),
            *(group(f"low{at}", 1, at=at, priority_class_name="low", **four) for at in (1, 2, 3)),
            group("high", 1, at=9, priority_class_name="high", **four),
        ),
        policy(EVERYTHING),
    )  # fmt: skip
    sim.settle()
    reason = sim.last.verdicts["ns/high"].reason
    assert reason is not None
    behind = re.search(r"behind (\d+) group", reason.message)
    for at in range(4):  # there is room: who comes in first?
        sim.model.apply(Delete(Pod, "ns", f"runs-{at}"))
    sim.settle()
    assert sim.last.verdicts["ns/high"].enqueued
    assert not any(sim.last.verdicts[f"ns/low{at}"].enqueued for at in (1, 2, 3))
    assert behind is None, reason.message  # nobody was ahead of it
