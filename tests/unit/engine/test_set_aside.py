"""Room that reclaim sets aside for some while others' victims are chosen: these go for those who need it."""

from __future__ import annotations

from typing import Any

from kbatch.api.conditions import ENQUEUED
from kbatch.api.objects import Condition
from kbatch.engine import CycleState, Memo
from kbatch.engine.state.cycle_state import GatheredRoom
from kbatch.model.events import Upsert
from tests.unit.engine.worlds import EVERYTHING, Decisions, group, members, node, pod, policy, queue, run, stamp, world

AT_ONCE = EVERYTHING.replace("enqueue, ", "")


def decided(*wanting: Any, by: str = EVERYTHING) -> Decisions:
    """What is decided where three queues share three cpu alike: one has two of them, and one is idle."""
    model = world(
        [queue("giving"), queue("one"), queue("two"), node("n1", "1"), node("n2", "1"), node("n3", "1")],
        group("old", queue="giving"),
        pod("old-0", of="old", on="n2"),
        pod("old-1", of="old", on="n3", at=1),
        *wanting,
    )
    return run(model, policy(by), now=4)


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


def beside_the_aged(*more: Any, gathered: bool = True, old: str = "1") -> Decisions:
    """What is decided where all of n1 gathers for a pod that has waited too long, and n3 is idle. Half of n1
    is taken. A queue that deserves less holds n2, of so much cpu, which may be taken back, and n4.
    """
    model = world(
        [queue("giving"), queue("one", 30), queue("two", 400), queue("three", 400), node("n1", "4")],
        [node("n2", old, labels={"on": "n2"}), node("n3", "1"), node("n4", "1")],
        [group("old", queue="giving"), pod("old-0", old, of="old", on="n2")],
        [group("never", queue="giving", disruption="Never"), pod("never-0", of="never", on="n4")],
        [group("busy", queue="two", disruption="Never"), pod("busy-0", "2", of="busy", on="n1")],
        [group("aged", queue="one", at=1), pod("aged-0", "4", of="aged", at=1)],
        *more,
    )
    before = CycleState(gathered=GatheredRoom("ns/aged", (("ns/aged-0", "n1"),)) if gathered else None)
    return run(model, policy(AT_ONCE), now=700, state=before)


def test_room_that_gathers_for_the_aged_is_set_aside_for_nobody_else() -> None:
    """It will not be given to them, and the idle room that they leave serves another."""
    found = beside_the_aged(
        group("wide", 3, queue="two", at=2),
        members("wide", 3, at=2),
        group("small", queue="three", at=3),
        members("small", 1, at=3),
    )
    assert found.evicted == []
    assert found.binds == {"small-0": "n3"}
    assert found.outcome is not None
    assert found.outcome.state.gathered is not None


def test_nobody_goes_for_who_is_left_idle_room_in_the_end() -> None:
    """It was set aside for `wide` before it began to gather for the aged; the next cycle would bind `small` there."""
    found = beside_the_aged(
        group("wide", 3, queue="three", at=2),
        members("wide", 3, at=2),
        group("small", queue="two", at=3),
        members("small", 1, at=3),
        gathered=False,
    )
    assert found.evicted == []
    assert found.binds == {"small-0": "n3"}
    assert found.nominated == {}
    assert found.reason("small") == ""


def test_who_goes_makes_room_for_two_and_stays_for_neither() -> None:
    """`other` waits for what `small` leaves of the room on n2; so `small` does not move to n3."""
    found = beside_the_aged(
        group("wide", 3, queue="three", at=2),
        members("wide", 3, at=2),
        group("small", queue="two", at=3),
        members("small", 1, at=3),
        group("other", queue="two", at=4),
        members("other", 1, at=4, node_selector={"on": "n2"}),
        gathered=False,
        old="2",
    )
    assert found.evicted == ["old-0"]
    assert found.nominated == {"small-0": "n2", "other-0": "n2"}
    assert found.binds == {}


def test_what_others_lack_beside_room_that_gathers_is_taken_back() -> None:
    found = beside_the_aged(group("pair", 2, queue="two", at=2), members("pair", 2, at=2))
    assert found.evicted == ["old-0"]
    assert found.nominated == {"pair-0": "n3", "pair-1": "n2"}


def test_who_is_ahead_of_the_aged_in_its_queue_may_have_the_room() -> None:
    found = beside_the_aged(group("ahead", 3, queue="one"), members("ahead", 3))
    assert found.evicted == []
    assert sorted(found.binds.values()) == ["n1", "n1", "n3"]


def test_where_the_aged_will_start_is_set_aside_for_nobody_else() -> None:
    """It fits on a node that has come, and starts before any other."""
    found = beside_the_aged(
        node("n5", "4"),
        group("wide", 5, queue="three", at=2),
        members("wide", 5, at=2),
        group("small", queue="two", at=3),
        members("small", 1, at=3),
    )
    assert found.evicted == []
    assert found.binds == {"aged-0": "n5", "small-0": "n1"}


def test_room_that_has_begun_to_gather_is_reason_enough_to_look_again() -> None:
    """In reclaim the idle room is set aside for the lone pod, then it begins to gather for the aged group, and the
    cycle decides nothing. The next one knows that it gathers, and takes back what the pod has a right to.
    """
    model = world(
        [queue("giving"), queue("one", 3), queue("two"), node("n1", "1"), node("n2", "1"), node("n3", "2")],
        [group("old", queue="giving"), pod("old-0", of="old", on="n2"), pod("old-1", of="old", on="n3", at=1)],
        [group("half", queue="one", disruption="Never"), pod("half-0", of="half", on="n1")],
        [group("lone", queue="one", at=2), *members("lone", 1, at=2)],
        [group("aged", 2, queue="two", at=1), *members("aged", 2, at=1)],
    )
    by, memo, state = policy(AT_ONCE), Memo(), CycleState()
    found = run(model, by, now=700, memo=memo, state=state)
    assert found.outcome is not None
    assert (found.binds, found.evicted) == ({}, [])
    assert found.outcome.state.gathered is not None
    memo, state = found.outcome.memo, found.outcome.state
    for known in (Memo(), memo):
        found = run(model, by, now=700, memo=known, state=state)
        assert found.evicted == ["old-0"]


def test_reclaim_gives_no_idle_room_that_was_promised_to_others() -> None:
    """2 of n1's 6 cpu are idle, and promised to gang, whose pods are there and whose queue comes later. The pod above
    the minimum of some may not have it, neither from allocate nor from reclaim.
    """
    gang = group("gang", 2, at=2, queue="q3", min_resources={"cpu": "2"})
    some = group("some", 1, queue="q1")
    for each in (gang, some):
        each.status.conditions = (Condition(type=ENQUEUED, status="True", last_transition_time=stamp(0)),)
    model = world(
        queue("q1", 3), queue("q2"), queue("q3"), node("n1", "6"), node("n2", "2"),
        group("other", 1, queue="q2"), members("other", 7, "500m", on="n1"),
        group("held", 1, queue="q3"), members("held", 1, "2", on="n2"),
        some, pod("some-0", "500m", of="some", on="n1"), pod("some-1", "1", of="some"),
        gang, members("gang", 2, "1", at=2),
    )  # fmt: skip
    found = run(model, policy(EVERYTHING), now=5)
    told = [(one.pod, one.node) for each in found.transactions for one in each.nominations]
    assert (sorted(found.binds), found.evicted, told) == (["gang-0", "gang-1"], [], [])


def test_room_set_aside_makes_nobody_a_donor() -> None:
    """Queue `above` holds 4 cpu and deserves 4.99. With the idle cpu that is set aside for `more` it would have 5, and
    `there` would have a pod of it evicted, which had not taken a thing yet. Only once it has, does one go.
    """
    model = world(
        [queue("above", 500), queue("below", 1000), queue("third")],
        [node("n1", "4", labels={"on": "n1"}), node("n2", "1200m"), node("n3", "1"), node("n4", "3"), node("n5", "1")],
        [group("old", queue="above"), *(pod(f"old-{at}", of="old", on="n1", at=at) for at in range(4))],
        [group("never", queue="third", disruption="Never"), pod("never-0", of="never", on="n3")],
        [group("held", queue="below"), pod("held-0", "3", of="held", on="n4")],
        [group("first", queue="below", at=4), pod("first-0", "1200m", of="first", at=4)],
        [group("there", queue="below", at=5), pod("there-0", of="there", at=5, node_selector={"on": "n1"})],
        [group("more", queue="above", at=6), pod("more-0", of="more", at=6)],
    )
    by = policy(AT_ONCE)
    found = run(model, by, now=7)
    assert found.evicted == []
    assert found.binds == {"first-0": "n2", "more-0": "n5"}
    assert found.reason("there") == "NotEnoughResources"
    model.apply(Upsert(pod("first-0", "1200m", of="first", on="n2", at=4)))
    model.apply(Upsert(pod("more-0", of="more", on="n5", at=6)))
    found = run(model, by, now=8)
    assert found.evicted == ["old-3"]
    assert found.nominated == {"there-0": "n1"}


def test_who_comes_when_nobody_has_more_than_its_share_waits_for_room() -> None:
    """`old-1` has gone for the second: `giving` holds what it deserves. More nodes are what helps the third."""
    found = decided(
        group("first", queue="one", at=2), members("first", 1, at=2),
        group("second", queue="two", at=3), members("second", 1, at=3),
        group("third", queue="two", at=4), members("third", 1, at=4),
        by=AT_ONCE,
    )  # fmt: skip
    assert found.evicted == ["old-1"]
    assert found.reason("third") == "NotEnoughResources"
