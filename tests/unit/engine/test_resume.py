"""What lasts from cycle to cycle: nominations, reservations, gangs bound in part, time-outs, ageing."""

import copy

import pytest

from kbatch.api.objects import (
    Affinity,
    Condition,
    LabelSelector,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    PriorityClass,
    Taint,
    Toleration,
)
from kbatch.api.reasons import SentBack
from kbatch.engine import CycleState
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    Simulation,
    group,
    in_queue,
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
HOST = "kubernetes.io/hostname"
CLASSES: list[PriorityClass] = [priority_class("low", 1), priority_class("mid", 50), priority_class("high", 100)]


def dying(name: str, where: str, *, until: int, **more: object) -> Pod:
    found = pod(name, on=where, **more)  # type: ignore[arg-type]
    found.metadata.deletion_timestamp = stamp(until)
    return found


def nominated(found: Pod, where: str) -> Pod:
    found.status.nominated_node_name = where
    return found


def test_a_gang_bound_in_part_comes_first() -> None:
    rest = members("g", 4)
    for at in (0, 1):
        rest[at] = pod(f"g-{at}", of="g", on="n1")
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "4")],
            [group("g", 4, at=5), group("vip", 2, priority_class_name="high"), *members("vip", 2)],
            rest,
        ),
        ALL,
    )
    assert found.binds == {"g-2": "n1", "g-3": "n1"}


def test_a_gang_that_stays_in_part_is_taken_back() -> None:
    rest = [pod("g-0", of="g", on="n1"), pod("g-1", of="g")]
    sim = Simulation(world(queue(), node("n1", "1"), group("g", 2), rest), recreate=False)
    sim.cycle()
    assert sim.evictions == []
    assert sim.last.outcome is not None
    assert sim.last.outcome.next_wake is not None
    sim.now = 60
    found = sim.cycle()
    assert sim.evictions == [(60, "ns/g-0")]
    assert found.transactions[0].evictions[0].beneficiary == ""
    assert found.verdicts["ns/g"].enqueued is False
    assert found.verdicts["ns/g"].attempts == 1


def test_nothing_of_a_gang_in_part_is_taken_back_while_a_bind_of_it_is_under_way() -> None:
    """It would be bound afterwards all the same, and the gang be there in part again."""
    model = world(queue(), node("n1", "2"), in_queue(group("g", 3)), pod("g-0", of="g", on="n1"))
    for name in ("g-1", "g-2"):
        model.apply(Upsert(pod(name, of="g")))
    model.assume("ns/g-1", "u-g-1", "n1")
    found = run(model, ALL, now=100, state=CycleState(binding=("ns/g",)))
    assert found.transactions == []
    assert (found.verdicts["ns/g"].enqueued, found.verdicts["ns/g"].attempts) == (True, 0)
    model.apply(Upsert(pod("g-1", of="g", on="n1")))
    found = run(model, ALL, now=100, state=CycleState(binding=("ns/g",)))
    assert found.evicted == ["g-0", "g-1"]
    assert (found.verdicts["ns/g"].enqueued, found.verdicts["ns/g"].attempts) == (False, 1)


def test_a_gang_in_part_is_not_late_while_its_other_binds_are_under_way() -> None:
    """However long ago its pods were made. It came in queue once, and nothing is counted against it."""
    model = world(queue(), node("n1", "2"), in_queue(group("g", 3)), members("g", 3))
    for name in ("g-0", "g-1"):
        model.assume(f"ns/{name}", f"u-{name}", "n1")
    found = run(model, ALL, now=100, state=CycleState(binding=("ns/g",)))
    assert found.transactions == []
    assert (found.verdicts["ns/g"].enqueued, found.verdicts["ns/g"].attempts) == (True, 0)


@pytest.mark.parametrize("members_bound", [1, 2])
def test_a_gang_in_part_is_sent_back_once_when_the_last_of_it_goes(members_bound: int) -> None:
    """Not in each cycle in which the API server refuses to evict what is left."""
    bound = [pod(f"g-{at}", of="g", on="n1") for at in range(members_bound)]
    rest = [pod(f"g-{at}", of="g") for at in range(members_bound, 3)]
    sim = Simulation(world(queue(), node("n1", str(members_bound)), group("g", 3), bound, rest))
    sim.model.refuse_eviction("ns/g-0", "u-g-0", EPOCH + 90 * SECOND)
    told = []
    for now in (0, 59, 60, 61, 62, 90, 91, 92):
        while sim.now < now:
            sim.tick()
        found = sim.cycle()
        told.append((found.verdicts["ns/g"].enqueued, found.verdicts["ns/g"].attempts))
    assert told == [(True, 0)] * 5 + [(False, 1)] * 3
    assert sim.evictions == [(60, f"ns/g-{at}") for at in range(1, members_bound)] + [(90, "ns/g-0")]


def test_a_running_gang_that_lost_a_member_is_left_alone() -> None:
    sim = Simulation(world(queue(), node("n1", "2"), group("g", 2), members("g", 2)), recreate=False)
    sim.run(1)
    assert len(sim.running()) == 2
    sim.model.apply(Delete(Pod, "ns", "g-0"))
    sim.model.apply(Upsert(pod("filler", of="", at=2, on="n1")))
    sim.now = 30
    sim.model.apply(Upsert(pod("g-2", of="g", at=30)))
    sim.settle()
    sim.now = 300
    sim.settle()
    assert sim.evictions == []
    assert not sim.last.verdicts["ns/g"].scheduled


def test_room_that_is_being_cleared_is_nobody_elses() -> None:
    objects = [
        [*CLASSES, queue(), node("n1", "2"), dying("old", "n1", until=30), pod("stays", on="n1")],
        [in_queue(group("g", priority_class_name="mid")), nominated(pod("g-0", of="g"), "n1"), group("later", at=1)],
        members("later", 1, at=1),
    ]
    found = run(world(*objects), ALL)
    assert found.transactions == []
    assert found.reason("g") == "VictimsTerminating"
    found = run(world(*objects, [group("vip", priority_class_name="high", at=9), *members("vip", 1)]), ALL)
    # In its turn it has the pod evicted that stays, and waits where it waited: of that nothing is to be told.
    assert found.nominated == {"vip-0": "n1"}
    assert found.evicted == ["stays"]


def test_who_lost_the_room_that_was_promised_says_what_it_lacks() -> None:
    objects = [
        [*CLASSES, queue(), node("n1", "2"), dying("old", "n1", until=30), pod("stays", on="n1", priority=200)],
        [in_queue(group("g", priority_class_name="mid")), nominated(pod("g-0", of="g"), "n1")],
        [in_queue(group("vip", priority_class_name="high", at=9)), *members("vip", 1)],
    ]
    found = run(world(*objects), ALL)
    assert found.nominated == {"vip-0": "n1", "g-0": None}
    assert found.reason("g") == "NotEnoughResources"


def test_a_nomination_moves_to_idle_room() -> None:
    objects = [queue(), node("n1", "1"), node("n2", "1"), dying("old", "n1", until=30), in_queue(group("g"))]
    found = run(world(objects, nominated(pod("g-0", of="g"), "n1")), ALL)
    assert found.binds == {"g-0": "n2"}


def test_a_nomination_ends_with_its_node_or_after_the_grace() -> None:
    objects = [
        queue(),
        node("n1", "1"),
        dying("old", "n1", until=30),
        in_queue(group("g")),
        nominated(pod("g-0", of="g"), "n1"),
    ]
    model = world(objects)
    assert run(model, ALL, now=59).transactions == []
    assert run(model, ALL, now=59).outcome is not None
    assert run(model, ALL, now=60).nominated["g-0"] is None
    model.apply(Delete(Node, "", "n1"))
    assert run(model, ALL).nominated == {"g-0": None}


def test_what_a_clock_that_was_an_hour_ahead_has_dated_counts_as_long_past() -> None:
    def dated(status: str, at: int) -> PodGroup:
        found = group("g", 2, min_resources={"cpu": "2"}, schedule_timeout_seconds=300)
        found.status.conditions = (Condition(type="Enqueued", status=status, last_transition_time=stamp(at)),)
        found.status.scheduling_attempts = 1
        return found

    def enqueued_at(now: int, status: str, at: int) -> bool | None:
        sim = Simulation(world(queue(), node("n1", "2"), dated(status, at)))
        sim.now = now
        return sim.cycle().verdicts["ns/g"].enqueued

    # Sent back by a scheduler that was ahead: its hour of back-off has not to be waited for.
    assert enqueued_at(1000, "False", 1000 + 3600) is True
    assert enqueued_at(1000, "False", 1000 + 3) is False
    # Let in by it: its room is not held for an hour, though its pods never come.
    assert enqueued_at(1000, "True", 1000 + 3600) is False
    assert enqueued_at(1000, "True", 1000 + 3) is True


def test_a_group_that_was_late_is_told_so_and_no_autoscaler_is_asked_for_room() -> None:
    late = group("g", 2, min_resources={"cpu": "2"}, schedule_timeout_seconds=5)
    late.status.conditions = (Condition(type="Enqueued", status="False", last_transition_time=stamp(1000)),)
    late.status.scheduling_attempts = 2
    sim = Simulation(world(queue(), node("n1", "2"), late))
    sim.now = 1005
    verdict = sim.cycle().verdicts["ns/g"]
    assert verdict.reason == SentBack("default", times=2, seconds=20)
    assert not verdict.pods_unschedulable
    sim.now = 1020
    assert sim.cycle().verdicts["ns/g"].enqueued is True


def test_a_late_group_goes_back_and_waits_longer_each_time() -> None:
    sim = Simulation(
        world(queue(), node("n1", "2"), group("g", 2, min_resources={"cpu": "2"}, schedule_timeout_seconds=5))
    )
    seen = []
    for now in range(60):
        sim.now = now
        seen.append(bool(sim.cycle().verdicts["ns/g"].enqueued))
    starts = [now for now in range(1, 60) if seen[now] and not seen[now - 1]]
    assert seen[0]
    assert starts == [15, 40]


def test_a_group_that_waited_too_long_has_room_kept_for_it() -> None:
    small = [pod(f"s{i}", at=700 + i) for i in range(3)]
    objects = [queue(), node("n1", "4"), group("big", 1), *members("big", 1, "4"), pod("run", on="n1", at=1)]
    young = run(world(objects, small), now=100)
    assert len(young.binds) == 3
    old = run(world(objects, small), now=601)
    assert old.binds == {}
    assert old.reason("s0") == "Reserved"
    model = world(objects, small)
    model.apply(Delete(Pod, "ns", "run"))
    assert run(model, now=602).binds == {"big-0": "n1"}


def test_what_is_promised_is_not_given_to_pods_without_a_group() -> None:
    sim = Simulation(world(queue(), node("n1", "4"), group("g", 3, min_resources={"cpu": "3"})))
    sim.cycle()
    for at in range(3):
        sim.model.apply(Upsert(pod(f"p{at}", at=at + 1)))
    sim.settle()
    assert len(sim.running("p")) == 1
    assert {verdict.reason.code for verdict in sim.last.verdicts.values() if verdict.reason} == {
        "Reserved",
        "NotEnoughTasks",
    }
    for made in members("g", 3):
        sim.model.apply(Upsert(made))
    sim.settle()
    assert len(sim.running("g")) == 3


def test_an_idle_cycle_has_nothing_new_to_say() -> None:
    model = world(queue(), node("n1", "1"), group("g", 2), members("g", 2))
    first = run(model, ALL)
    assert first.outcome is not None
    again = run(model, ALL, now=5, memo=first.outcome.memo)
    assert again.verdicts == {}
    assert again.outcome is not None
    assert first.outcome.whole
    assert (again.outcome.whole, again.outcome.gone) == (False, ())
    assert again.transactions == []
    model.apply(Upsert(node("n2", "1")))
    assert len(run(model, ALL, now=6, memo=again.outcome.memo if again.outcome else None).binds) == 2


def test_conditions_are_told_once() -> None:
    sim = Simulation(world(queue(), node("n1"), group("g", 2), members("g", 2)))
    sim.run(2)
    before = copy.deepcopy(sim.model.jobs["ns/g"].group)
    sim.run(2)
    assert sim.model.jobs["ns/g"].group == before
    assert sim.last.verdicts == {}


@pytest.mark.parametrize(("preemptor", "placed"), [("high", True), ("", False)], ids=["ahead of it", "behind it"])
def test_room_that_gathers_for_an_aged_group_is_free_to_whom_matters_more(preemptor: str, placed: bool) -> None:
    model = world(
        queue(), node("n1", "4"), priority_class("high", 100), pod("x", "3", on="n1"),
        group("aged", 4), members("aged", 4),
        group("b", at=699, priority_class_name=preemptor), pod("b-0", of="b", at=699),
    )  # fmt: skip
    found = run(model, policy(), now=700)
    assert found.binds == ({"b-0": "n1"} if placed else {})
    assert (found.reason("b") == "Reserved") is not placed


def test_nominations_that_are_valid_one_after_the_other_stand() -> None:
    """Of pods that want their own kind beside them the first may be alone: with both in place neither could come."""
    term = PodAffinityTerm(topology_key=HOST, label_selector=LabelSelector(match_labels={"app": "gang"}))
    beside = Affinity(pod_affinity=PodAffinity(required=(term,)))
    first = pod("g-0", of="g", priority=100, labels={"app": "gang"}, affinity=beside)
    second = pod("g-1", "2", of="g", priority=100, labels={"app": "gang"}, tolerations=(Toleration(operator="Exists"),))
    taint = (Taint(key="dedicated", value="x", effect="NoSchedule"),)
    sim = Simulation(
        world(
            [queue(), node("n0", "2", labels={HOST: "n0"}, taints=taint)],
            [node("n1", "1", labels={HOST: "n1"})],
            [group("v"), pod("v-0", "2", of="v", on="n0", priority=1), group("g", 2, at=5), first, second],
        ),
        policy(EVERYTHING.replace("enqueue, ", "")),
        recreate=False,
    )
    found = sim.cycle()
    assert found.evicted == ["v-0"]
    assert found.nominated == {"g-0": "n1", "g-1": "n0"}
    assert sim.cycle().transactions == []
    sim.tick()
    assert sim.cycle().binds == {"g-0": "n1", "g-1": "n0"}


def test_a_gang_whose_nominated_pods_are_more_than_its_minimum_is_bound() -> None:
    sizes = ("1", "2", "3")
    pods = [nominated(pod(f"g-{cpu}", cpu, of="g"), f"n{cpu}") for cpu in sizes]
    found = run(
        world(queue(), [node(f"n{cpu}", cpu) for cpu in sizes], node("n4", "3"), in_queue(group("g")), pods), ALL
    )
    assert found.binds == {f"g-{cpu}": f"n{cpu}" for cpu in sizes}
