"""Room that reclaim sets aside for some while others' victims are chosen: these go for those who need it."""

from __future__ import annotations

from typing import Any

from tests.unit.engine.worlds import EVERYTHING, Decisions, group, members, node, pod, policy, queue, run, world


def decided(*wanting: Any) -> Decisions:
    """What is decided where three queues share three cpu alike: one has two of them, and one is idle."""
    model = world(
        [queue("giving"), queue("one"), queue("two"), node("n1", "1"), node("n2", "1"), node("n3", "1")],
        group("old", queue="giving"),
        pod("old-0", of="old", on="n2"),
        pod("old-1", of="old", on="n3", at=1),
        *wanting,
    )
    return run(model, policy(EVERYTHING), now=4)


def test_who_gets_a_victims_room_leaves_the_idle_room_to_those_for_whom_it_was_set_aside() -> None:
    found = decided(
        group("first", queue="one", at=2), members("first", 1, at=2),
        group("second", queue="two", at=3), members("second", 1, at=3),
    )  # fmt: skip
    assert found.evicted == ["old-1"]
    assert found.binds == {"first-0": "n1"}
    assert found.nominated == {"second-0": "n3"}


def test_room_that_is_promised_to_a_group_whose_pods_come_is_set_aside_for_no_lone_pod() -> None:
    """It could not have it afterwards. What its own queue deserves beside that is taken back for it: so much is left
    to the group.
    """
    found = decided(
        group("coming", queue="one", min_resources={"cpu": "1"}, at=2),
        pod("lone", queue="two", at=3),
    )  # fmt: skip
    assert found.evicted == ["old-1"]
    assert found.nominated == {"lone": "n1"}
