"""The numbers with which a group is told why it waits are those of the cluster."""

from __future__ import annotations

from kbatch.api.objects import PodGroup
from kbatch.api.reasons import (
    GangExceedsReclaimableShare,
    QueueCapabilityExceeded,
    QueueOverused,
    Reserved,
    VictimsTerminating,
    WaitingInQueue,
)
from tests.unit.engine.test_evictions import RECLAIM_FIRST
from tests.unit.engine.test_planned_starts import EASY, busy, saying, wide
from tests.unit.engine.test_planned_starts import world as planned_world
from tests.unit.engine.worlds import EVERYTHING, Simulation, group, members, node, pod, policy, queue, run, world


def standing(name: str, count: int) -> list[object]:
    return [pod(f"{name}-{at}", "1", of=name, on="n1") for at in range(count)]


def contended(gang: PodGroup, *more: object) -> list[object]:
    """q1 has 4 of 5 cores, one is idle, and a group of 4 of q2 waits: each of the two deserves two and a half."""
    return [queue("q1"), queue("q2"), node("n1", "5"), group("a", queue="q1"), standing("a", 4), gang, *more]


BEYOND = GangExceedsReclaimableShare("q2", "cpu", asked=4000, allocated=0, deserved=2500, idle=1000)


def test_who_asks_for_more_than_its_share_is_told_what_it_deserves_and_what_is_idle() -> None:
    gang = group("b", 4, at=1, queue="q2")
    found = run(world(*contended(gang, members("b", 4, at=1))), policy(RECLAIM_FIRST))
    assert found.verdicts["ns/b"].reason == BEYOND


def test_who_is_not_let_in_is_told_the_same() -> None:
    gang = group("b", 4, at=1, queue="q2", min_resources={"cpu": "4"})
    found = run(world(*contended(gang)), policy(EVERYTHING))
    assert found.verdicts["ns/b"].reason == BEYOND


def test_it_is_told_for_how_many_pods_a_group_waits_from_the_cycle_on_that_evicts_them() -> None:
    sim = Simulation(
        world(
            [queue("q1"), queue("q2"), node("n1", "8"), group("a", queue="q1")], standing("a", 8),
            group("b", 4, queue="q2", at=1), members("b", 4, at=1),
        )
    )  # fmt: skip
    for _ in range(2):
        assert sim.cycle().verdicts["ns/b"].reason == VictimsTerminating(victims=4, nodes=1)


def test_a_queue_that_has_its_share_is_told_what_it_holds() -> None:
    found = run(
        world(
            [queue("q1"), queue("q2"), node("n1", "4"), group("a", 3, queue="q1"), group("b", 2, queue="q1", at=1)],
            members("a", 3, on="n1"), members("b", 2), group("c", 2, queue="q2", at=2), members("c", 2),
        )
    )  # fmt: skip
    assert found.verdicts["ns/b"].reason == QueueOverused("q1", "cpu", allocated=3000, deserved=2000)


def test_who_waits_for_room_is_told_what_is_reserved_and_who_comes_before() -> None:
    groups = [group(name, at=at, min_resources={"cpu": "3"}) for at, name in enumerate("abc")]
    found = run(world(queue(), node("n1", "4"), groups), policy(EVERYTHING))
    reasons = [found.verdicts[f"ns/{name}"].reason for name in "bc"]
    assert reasons == [WaitingInQueue("default", "cpu", 3000, 1000, 3000, ahead) for ahead in (0, 1)]


def test_a_capability_is_told_with_what_is_used_apart_from_what_is_reserved() -> None:
    objects = [
        queue(capability={"cpu": "4"}), node("n1", "8"), group("a"), pod("a-0", "2", of="a", on="n1"),
        group("b", at=1, min_resources={"cpu": "1"}), group("c", at=2, min_resources={"cpu": "2"}),
    ]  # fmt: skip
    found = run(world(*objects), policy(EVERYTHING))
    wanted = QueueCapabilityExceeded("default", "cpu", asked=2000, reserved=1000, used=2000, hard=4000)
    assert found.verdicts["ns/c"].reason == wanted


def test_who_is_kept_out_for_a_planned_start_is_told_how_much_is_kept() -> None:
    model = planned_world(node("n1"), node("n2"), busy(100), wide(), saying(pod("long", at=2), 91))
    found = run(model, EASY, now=10)
    assert found.verdicts["ns/long"].reason == Reserved("ns/wide", "cpu", 8000)
