"""Room that is kept for groups: what they were promised, and what gathers for one that has waited too long."""

from typing import Any

import pytest

from kbatch.api.objects import Condition, Pod, PodGroup
from kbatch.api.reasons import NotEnoughResources
from kbatch.engine import CycleState
from kbatch.engine.state.cycle_state import GatheredRoom, QueueClock
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    stamp,
    world,
)

ALL = policy(EVERYTHING)


def with_conditions(found: PodGroup, **at: int) -> PodGroup:
    """The group with these conditions True since so many seconds."""
    found.status.conditions = tuple(
        Condition(type=name.capitalize(), status="True", last_transition_time=stamp(since))
        for name, since in at.items()
    )
    return found


def nominated(found: Pod, where: str) -> Pod:
    found.status.nominated_node_name = where
    return found


def dying(name: str, where: str, until: int, **more: Any) -> Pod:
    found = pod(name, on=where, **more)
    found.metadata.deletion_timestamp = stamp(until)
    return found


# --- promises ---------------------------------------------------------------------------------------------------------


def test_what_a_group_was_promised_keeps_nobody_of_its_own_out() -> None:
    """Its minimum is one pod, it was promised room for four: the other three are within its own promise."""
    found = run(world(queue(), node("n1", "4"), group("g", min_resources={"cpu": "4"}), members("g", 4)), ALL)
    assert len(found.binds) == 4


def test_what_a_group_has_placed_is_promised_to_it_no_more() -> None:
    """Four of the six cores are for the group, which takes them; the other two are free for whoever comes."""
    group_of_four = group("g", 4, min_resources={"cpu": "4"})
    found = run(world(queue(), node("n1", "6"), group_of_four, members("g", 4), pod("p", "2", at=5)), ALL)
    assert len(found.binds) == 5


def test_a_group_whose_pods_are_not_all_there_keeps_its_promise_though_it_cannot_be_tried() -> None:
    model = world(queue(), node("n1", "2"), group("g", 2, min_resources={"cpu": "2"}), members("g", 1), pod("p", at=5))
    found = run(model, ALL)
    assert found.binds == {}
    assert found.reason("p") == "Reserved"


@pytest.mark.parametrize(("lost", "kept"), [(90, True), (10, False)])
def test_a_group_that_lost_a_pod_keeps_its_room_for_as_long_as_one_that_came_in_queue(lost: int, kept: bool) -> None:
    gang = with_conditions(group("g", 2, min_resources={"cpu": "2"}, schedule_timeout_seconds=50), enqueued=0)
    fallen = Condition(type="Scheduled", status="False", last_transition_time=stamp(lost))
    gang.status.conditions = (*(gang.status.conditions or ()), fallen)
    found = run(world(queue(), node("n1", "2"), gang, pod("g-0", of="g", on="n1"), pod("p", at=95)), ALL, now=100)
    assert found.binds == ({} if kept else {"p": "n1"})


# --- room that gathers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("where", "placed"), [("default", True), ("other", False)])
def test_room_that_gathers_goes_to_whom_is_ahead_in_the_same_queue_only(where: str, placed: bool) -> None:
    model = world(
        queue("default", 9), queue("other"), node("n1", "4"), priority_class("high", 100),
        pod("x", "3", on="n1"), group("aged", 4), members("aged", 4),
        group("b", at=699, queue=where, priority_class_name="high"), pod("b-0", of="b", at=699),
    )  # fmt: skip
    found = run(model, policy(), now=700)
    assert found.binds == ({"b-0": "n1"} if placed else {})


def test_room_that_gathers_is_there_again_when_it_is_said_what_the_group_lacks() -> None:
    model = world(queue(), node("n1", "4"), pod("x", "3", on="n1"), group("aged", 4), members("aged", 4))
    reason = run(model, policy(), now=700).verdicts["ns/aged"].reason
    assert isinstance(reason, NotEnoughResources)
    assert reason.placeable == 1


def test_who_finds_no_room_even_in_what_is_kept_for_another_is_not_tried_again_while_room_only_shrinks() -> None:
    model = world(
        queue(), node("n1", "4"), pod("x", "3", on="n1"), group("aged", 4), members("aged", 4),
        group("pair", 2, at=1), members("pair", 2, at=1), group("one", at=2), members("one", 1, at=2),
    )  # fmt: skip
    first = run(model, policy(), now=700)
    assert first.outcome is not None
    assert first.reason("one") == "Reserved"
    marks = {key[0][1] for key in first.outcome.memo.shrinking if isinstance(key, tuple)}
    assert marks == {((None, 4),), ((None, 2),)}  # not what would fit but for the others
    model.apply(Upsert(pod("late", "9", at=701)))
    again = run(model, policy(), now=701, memo=first.outcome.memo, state=first.outcome.state)
    assert again.verdicts == run(model, policy(), now=701, state=first.outcome.state).verdicts
    for name, size in (("aged", 4), ("pair", 2)):
        model.apply(Delete(PodGroup, "ns", name))
        for at in range(size):
            model.apply(Delete(Pod, "ns", f"{name}-{at}"))
    assert again.outcome is not None
    found = run(model, policy(), now=702, memo=again.outcome.memo, state=again.outcome.state)
    assert found.binds == {"one-0": "n1"}


def gathered(model: ClusterModel, now: int, state: CycleState | None = None) -> dict[str, str]:
    """Where the cycle leaves room to the aged group, by pod."""
    outcome = run(model, policy(), now=now, state=state).outcome
    assert outcome is not None
    kept = outcome.state.gathered
    return {key.removeprefix("ns/"): where for key, where in kept.places} if kept is not None else {}


def test_room_gathers_from_the_very_instant_for_which_the_cycle_asked_to_be_woken() -> None:
    model = world(queue(), node("n1", "2"), pod("x", on="n1"), group("aged", 2), members("aged", 2))
    early = run(model, policy(), now=599).outcome
    assert early is not None
    assert early.next_wake == EPOCH + 600 * SECOND
    assert gathered(model, 599) == {}
    assert gathered(model, 600) == {"aged-0": "n1", "aged-1": "n1"}


def test_where_room_gathers_does_not_depend_on_the_order_in_which_pods_were_met() -> None:
    """Pods that ask for the same and differ in something else: another process may have met them in another order."""
    pods = [pod(f"g-{at}", of="g", at=at, priority=at % 3) for at in range(4)]
    nodes = [node(name, "2") for name in ("n1", "n2", "n3")]
    runs = [pod(f"x{at}", on=f"n{at % 3 + 1}", at=700) for at in range(5)]
    found = [
        run(world(queue(), nodes, group("g", 4, priority_class_name=""), some, runs), now=900).outcome
        for some in (pods, pods[::-1], [*pods[2:], *pods[:2]])
    ]
    kept = [outcome.state.gathered for outcome in found if outcome is not None]
    assert kept[0] is not None
    assert kept == kept[:1] * 3


def test_no_room_gathers_for_a_group_that_the_cap_of_its_queue_keeps_out() -> None:
    model = world(
        queue(capability={"cpu": "2"}), node("n1", "2"), pod("x", on="n1"), group("aged", 2), members("aged", 2)
    )
    assert gathered(model, 700) == {}


def test_room_that_has_gathered_moves_where_its_node_no_longer_holds_all() -> None:
    model = world(
        queue(), node("n1", "1"), node("n2", "2"), pod("x", "2", on="n2"), group("aged", 2), members("aged", 2)
    )
    before = CycleState(gathered=GatheredRoom("ns/aged", (("ns/aged-0", "n1"), ("ns/aged-1", "n1"))))
    assert sorted(gathered(model, 700, before).values()) == ["n1", "n2"]


def test_room_for_one_role_is_not_counted_again_for_another() -> None:
    model = world(
        [queue(), node("n1", "2"), node("n2", "2"), pod("x", "2", on="n1"), pod("y", "2", on="n2")],
        [group("aged", 2, roles={"m": 1, "w": 1}), pod("aged-m", "2", of="aged", role="m")],
        [pod("aged-w", "1", of="aged", role="w")],
    )
    assert sorted(gathered(model, 700).values()) == ["n1", "n2"]


# --- gangs bound in part ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("binding", [True, False])
def test_a_gang_whose_binds_are_not_all_confirmed_has_lost_nothing(binding: bool) -> None:
    """Whatever its conditions say as yet: they were written when its binds were decided."""
    gang = with_conditions(group("g", 2), enqueued=0, scheduled=0)
    model = world(queue(), node("n1", "1"), gang, pod("g-0", of="g", on="n1"), pod("g-1", of="g"))
    found = run(model, ALL, now=1, state=CycleState(binding=("ns/g",) if binding else ()))
    assert found.verdicts["ns/g"].members_lost is not binding


@pytest.mark.parametrize(("fell", "lost"), [(20, True), (5, False)])
def test_a_gang_that_was_scheduled_after_it_came_in_queue_has_lost_what_it_lacks(fell: int, lost: bool) -> None:
    """Scheduled=False that is older than Enqueued=True was there all the time: some of its binds failed."""
    gang = with_conditions(group("g", 2), enqueued=10)
    fallen = Condition(type="Scheduled", status="False", last_transition_time=stamp(fell))
    gang.status.conditions = (*(gang.status.conditions or ()), fallen)
    found = run(world(queue(), node("n1", "1"), gang, pod("g-0", of="g", on="n1"), pod("g-1", of="g")), ALL, now=90)
    assert found.verdicts["ns/g"].members_lost is lost
    assert found.evicted == ([] if lost else ["g-0"]), "who never was whole is taken back after a minute"


def test_a_bind_that_is_not_confirmed_may_fail_yet() -> None:
    model = world(queue(), node("n1", "2"), group("g", 2), pod("g-0", of="g", on="n1"), pod("g-1", of="g"))
    model.assume("ns/g-1", "u-g-1", "n1")
    outcome = run(model, ALL, now=1, state=CycleState(binding=("ns/g",))).outcome
    assert outcome is not None
    assert outcome.state.binding == ("ns/g",)


@pytest.mark.parametrize(("there", "evicted"), [(3, ["g-0"]), (2, [])])
def test_a_gang_of_which_pods_are_gone_is_not_one_bound_in_part(there: int, evicted: list[str]) -> None:
    gang = with_conditions(group("g", 3), enqueued=10)
    rest = [pod(f"g-{at}", of="g") for at in range(1, there)]
    found = run(world(queue(), node("n1", "1"), gang, pod("g-0", of="g", on="n1"), rest), ALL, now=90)
    assert found.evicted == evicted


def test_a_gang_that_its_queues_cap_keeps_in_part_is_told_so() -> None:
    gang = with_conditions(group("g", 2), enqueued=0)
    model = world(
        queue(capability={"cpu": "1"}), node("n1", "2"), gang, pod("g-0", of="g", on="n1"), pod("g-1", of="g")
    )
    found = run(model, ALL, now=1)
    assert found.binds == {}
    assert found.reason("g") == "QueueCapabilityExceeded"


# --- the time of groups in queue --------------------------------------------------------------------------------------


def test_a_clock_that_runs_again_remembers_for_how_long_it_stood_still() -> None:
    gang = with_conditions(group("g", 2), enqueued=0)
    model = world(queue(), node("n1", "1"), gang, members("g", 2))
    stopped = QueueClock(EPOCH, 5 * SECOND, stopped=EPOCH + 10 * SECOND)
    outcome = run(model, ALL, now=30, state=CycleState(clocks={"ns/g": stopped})).outcome
    assert outcome is not None
    assert outcome.state.clocks == {"ns/g": QueueClock(EPOCH, 25 * SECOND)}
    outcome = run(model, ALL, now=40, state=outcome.state).outcome
    assert outcome is not None
    assert outcome.state.clocks == {"ns/g": QueueClock(EPOCH, 25 * SECOND)}


def test_a_clock_that_stands_still_wakes_nobody_and_one_that_runs_again_does() -> None:
    """Else the time that is left to it, however short, would be over again and again."""
    gang = with_conditions(group("aged", 2), enqueued=0)
    model = world(queue(), node("n1", "2"), pod("x", on="n1"), gang, members("aged", 2))
    outcome = run(
        model, ALL, now=700, state=CycleState(clocks={"ns/aged": QueueClock(EPOCH, stopped=EPOCH + 299 * SECOND)})
    ).outcome
    assert outcome is not None
    assert outcome.state.gathered is not None
    assert outcome.state.clocks == {"ns/aged": QueueClock(EPOCH, stopped=EPOCH + 299 * SECOND)}
    assert outcome.next_wake is None
    fits_not = world(queue(), node("n1", "1"), gang, members("aged", 2))
    outcome = run(
        fits_not, ALL, now=700, state=CycleState(clocks={"ns/aged": QueueClock(EPOCH, stopped=EPOCH + 299 * SECOND)})
    ).outcome
    assert outcome is not None
    assert outcome.state.clocks == {"ns/aged": QueueClock(EPOCH, 401 * SECOND)}
    assert outcome.next_wake == EPOCH + 701 * SECOND


def test_a_process_that_has_just_begun_sends_nobody_back_whose_victims_still_end() -> None:
    """It knows of no pause; but what the group waits for is there to be seen."""
    gang = with_conditions(group("g", schedule_timeout_seconds=5), enqueued=0)
    waits = nominated(pod("g-0", of="g"), "n1")
    found = run(world(queue(), node("n1", "1"), dying("d", "n1", 100), gang, waits), ALL, now=60)
    assert found.verdicts["ns/g"].enqueued
    assert found.verdicts["ns/g"].attempts == 0


# --- nominations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cap", "bound"), [("4", True), ("3", False)])
def test_nominated_pods_wait_for_others_to_end_only_if_both_would_pass_the_capability(cap: str, bound: bool) -> None:
    gang = with_conditions(group("g", 2, at=5), enqueued=5)
    model = world(
        queue(capability={"cpu": cap}), node("n1", "2"), node("n2", "2"),
        [dying(f"d{at}", "n1", 30) for at in range(2)], gang,
        [nominated(one, "n1") for one in members("g", 2)],
    )  # fmt: skip
    found = run(model, ALL, now=10)
    assert found.binds == ({"g-0": "n2", "g-1": "n2"} if bound else {})


def test_in_idle_room_nominated_pods_are_bound_in_order() -> None:
    ending = [dying("d0", "n1", 100), dying("d1", "n1", 100)]
    groups = [with_conditions(group(name, at=at), enqueued=5) for at, name in enumerate("ab")]
    waiting = [nominated(pod(f"{name}-0", of=name, at=at), "n1") for at, name in enumerate("ab")]
    found = run(world(queue(), node("n1", "2"), node("n2", "1"), ending, groups, waiting), ALL, now=10)
    assert found.binds == {"a-0": "n2"}


def test_who_comes_last_gives_way_where_a_node_has_lost_room() -> None:
    groups = [with_conditions(group(name, at=at), enqueued=5) for at, name in enumerate("ab")]
    waiting = [nominated(pod(f"{name}-0", of=name, at=at), "n1") for at, name in enumerate("ab")]
    found = run(world(queue(), node("n1", "1"), dying("d", "n1", 100), groups, waiting), ALL, now=10)
    assert found.nominated == {"b-0": None}


def test_nobody_takes_over_what_another_queue_is_nominated_to() -> None:
    groups = [
        with_conditions(group("low", queue="q2"), enqueued=5),
        with_conditions(group("high", at=1, queue="q1", priority_class_name="high"), enqueued=5),
    ]
    waiting = [nominated(pod("low-0", of="low"), "n1"), pod("high-0", of="high", at=1)]
    model = world(
        [queue("q1"), queue("q2"), priority_class("high", 100), node("n1", "1"), node("n2", "3")],
        [dying("d", "n1", 100), pod("x", "3", queue="q2", on="n2")], groups, waiting,
    )  # fmt: skip
    assert run(model, policy(), now=10).nominated == {}


def test_nobody_takes_over_more_than_the_share_of_the_queue() -> None:
    """The room was taken for one pod, which is the queue's share; for both cores the other queue would be poorer."""
    groups = [
        with_conditions(group("low", queue="q1"), enqueued=5),
        with_conditions(group("high", at=1, queue="q1", priority_class_name="high"), enqueued=5),
    ]
    waiting = [nominated(pod("low-0", of="low"), "n1"), pod("high-0", "2", of="high", at=1), pod("y", "2", queue="q2")]
    model = world(
        [queue("q1"), queue("q2"), priority_class("high", 100), node("n1", "2"), dying("d", "n1", 100, cpu="2")],
        groups, waiting,
    )  # fmt: skip
    assert run(model, policy(), now=10).nominated == {}


def test_a_pod_that_asks_for_nothing_waits_for_its_gang() -> None:
    found = run(
        world(queue(), node("n1", "4"), group("g", 2), pod("g-0", "0", of="g"), pod("g-1", "9", of="g")),
        policy(EVERYTHING.replace("enqueue, ", "")),
    )
    assert found.binds == {}
