"""Groups whose pods wait behind scheduling gates."""

from __future__ import annotations

import pytest

from kbatch.api.names import IN_QUEUE_GATE
from kbatch.api.objects import SchedulingGate
from tests.unit.engine.worlds import EVERYTHING, group, members, node, policy, queue, run, world

ALL = policy(EVERYTHING)


@pytest.mark.parametrize(
    ("gates", "cpu", "enqueued"),
    [((IN_QUEUE_GATE,), "1", True), ((IN_QUEUE_GATE,), "2", False), ((IN_QUEUE_GATE, "theirs"), "1", False)],
)
def test_pods_that_only_wait_to_be_in_queue_say_what_their_group_needs(
    gates: tuple[str, ...], cpu: str, enqueued: bool
) -> None:
    pods = members("a", 3, cpu)
    for one in pods:
        one.spec.scheduling_gates = tuple(SchedulingGate(name=gate) for gate in gates)
    found = run(world(queue(), node("n1", "4"), group("a", 3), pods), ALL)
    assert found.verdicts["ns/a"].enqueued is enqueued
    assert not found.binds
