"""Cases of reservations: room that is kept for a job, from when on, for whom alone, and until when."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from kbatch.api.configuration import DEFAULT
from kbatch.api.objects import Condition
from kbatch.engine import Memo, NullObserver, build_policy, cycle, take_snapshot
from kbatch.times import SECOND
from tests.unit.engine.worlds import EPOCH, Simulation, group, node, pod, queue, stamp, world
from tests.unit.simulator.invariants import MOST_CYCLES, assert_settled, assert_whole, most_held, times, without

beside = pytest.mark.parametrize("present", [True, False], ids=["beside", "alone"])


def nominated(outcome: Any) -> list[tuple[float, dict[str, str]]]:
    """Of each cycle that nominated pods of `default`: when (in seconds), and which pod to which node."""
    return [
        (cycle_["time"], {each["pod"].removeprefix("default/"): each["node"] for each in cycle_["nominations"]})
        for cycle_ in outcome.cycles
        if cycle_["nominations"]
    ]


def evicted(outcome: Any) -> dict[str, float]:
    """When each evicted pod of `default` was told to go, in seconds."""
    return {each["pod"].removeprefix("default/"): each["time"] for each in outcome.evictions}


# --- nominations ------------------------------------------------------------------------------------------------------


def test_nominations_of_a_spread_gang_stand(simulate: Callable[..., Any]) -> None:
    outcome = simulate("nominations-of-a-spread-gang-stand", max_cycles=MOST_CYCLES)
    ((instant, nodes),) = nominated(outcome)[:1]
    assert instant == 0.0
    assert sorted(nodes) == ["h-a", "h-b", "h-c", "h-d"]
    assert sorted(nodes.values()) == ["n1", "n1", "n2", "n2"]
    assert len(nominated(outcome)) == 1
    assert {each["pod"].removeprefix("default/"): each["node"] for each in outcome.binds} == nodes
    assert times(outcome) == dict.fromkeys(nodes, 100.0)
    assert_settled(outcome)


def test_a_nomination_that_ended_is_not_made_again_while_nothing_changes() -> None:
    """A pod has been terminating for two hours past its grace; another would have its room."""
    stuck = pod("stuck", "4", on="n1")
    stuck.metadata.deletion_timestamp = stamp(0)
    simulation = Simulation(world(queue(), node("n1", "4"), stuck, pod("p", "2")), build_policy(DEFAULT))
    simulation.now = 7200
    changes = [simulation.cycle().nominated for _ in range(12)]
    assert sum(len(each) for each in changes) <= 1, changes
    assert simulation.running() == []


def test_a_gang_that_lost_a_promised_node_makes_one_new_plan(simulate: Callable[..., Any]) -> None:
    outcome = simulate("nominations-survive-the-loss-of-a-node", max_cycles=MOST_CYCLES)
    assert [instant for instant, _ in nominated(outcome)] == [5.0, 30.0]
    assert evicted(outcome) == dict.fromkeys(("low0", "low1", "low2", "low3"), 5.0)
    assert times(outcome) == {"h0": 105.0, "h1": 105.0}
    assert {each["node"] for each in outcome.binds} == {"n1", "n3"}
    assert_whole(outcome, ("h0", "h1"), 2)
    assert_settled(outcome)


def test_nominations_taken_over_by_another_gang_are_made_anew_once(simulate: Callable[..., Any]) -> None:
    outcome = simulate("nominations-taken-over-by-another-gang-are-made-anew-once", max_cycles=MOST_CYCLES)
    assert {instant for instant, _ in nominated(outcome)} == {5.0, 20.0}
    assert sorted(evicted(outcome).values()) == [5.0, 5.0, 5.0, 20.0, 20.0]
    bound = times(outcome)
    assert (bound.pop("h0", None), bound.pop("h1", None)) == (85.0, 85.0)
    assert sorted(bound) == ["g0", "g1", "g2"]
    assert max(bound.values()) <= 100.0
    assert_whole(outcome, ("g0", "g1", "g2"), 3)
    assert_whole(outcome, ("h0", "h1"), 2)
    assert_settled(outcome)


def test_the_nominations_of_a_large_gang_are_confirmed_in_many_slices() -> None:
    """Thousands of pods wait for one large pod to end: the caller of the cycle gets its turns all the same."""
    count = 10_000
    ends = pod("ends", str(count), on="n1")
    ends.metadata.deletion_timestamp = stamp(120)
    gang = group("g", count)
    gang.status.conditions = (
        Condition(type="Enqueued", status="True", reason="Admitted", last_transition_time=stamp(30)),
    )
    waiting = [pod(f"p{number:04}", of="g") for number in range(count)]
    for each in waiting:
        each.status.nominated_node_name = "n1"
    model = world(queue(), node("n1", str(count), pods=str(2 * count)), ends, gang, waiting)
    slices = []
    gc.collect()
    gc.freeze()  # what other tests have left is not to be gone through meanwhile
    steps = cycle(take_snapshot(model, EPOCH + 60 * SECOND), build_policy(DEFAULT), Memo(), NullObserver())
    begin = time.process_time()
    for _ in steps:
        end = time.process_time()
        slices.append(end - begin)
        begin = time.process_time()
    slices.append(time.process_time() - begin)
    gc.unfreeze()
    # Of the time of this process, and as a part of the whole, so that what else the machine does counts little.
    assert max(slices) < sum(slices) / 6, slices
    assert max(slices) < 0.05, slices
    assert len(slices) > count / 200


def test_a_group_whose_victims_still_end_is_not_sent_back(simulate: Callable[..., Any]) -> None:
    outcome = simulate("no-timeout-while-victims-end", max_cycles=MOST_CYCLES)
    assert evicted(outcome) == dict.fromkeys(("low-0", "low-1", "low-2", "low-3"), 10.0)
    bound = times(outcome)
    assert {pod_: bound[pod_] for pod_ in bound if pod_.startswith("h")} == dict.fromkeys(
        ("h0", "h1", "h2", "h3"), 40.0
    )
    assert outcome.running() == ["h0", "h1", "h2", "h3"]
    assert [cycle_["time"] for cycle_ in outcome.cycles if "default/h" in cycle_["enqueued"]] == [10.0]
    assert_whole(outcome, ("h0", "h1", "h2", "h3"), 4)
    assert_settled(outcome)


# --- gangs bound in part ----------------------------------------------------------------------------------------------


def test_a_healthy_gang_that_lost_a_member_stays(simulate: Callable[..., Any]) -> None:
    case = "healthy-gang-that-lost-a-member-stays"
    before = simulate(case, max_cycles=MOST_CYCLES, until=190)
    assert before.evictions == []
    assert before.running() == ["p0", "p1", "p2"]
    assert before.phase("g") == "Unknown"
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert outcome.evictions == []
    assert len(outcome.running()) == 4
    assert [(each["time"], each["node"]) for each in outcome.binds if each["time"] > 0.0] == [(200.0, "nc")]
    assert outcome.phase("g") == "Running"
    assert_settled(outcome)


def test_a_gang_bound_in_part_keeps_within_the_capability(simulate: Callable[..., Any]) -> None:
    outcome = simulate("partly-bound-gang-keeps-within-the-capability", max_cycles=MOST_CYCLES, until=50)
    assert most_held(outcome, {"g0": 1000, "g1": 1000, "g2": 1000, "k": 2000}, ("g0", "g1")) == 4000
    assert times(outcome) == {"k": 0.0}
    assert outcome.reason("g") == "QueueCapabilityExceeded"
    assert_settled(outcome)


def test_a_gang_that_its_capability_keeps_partial_is_taken_back(simulate: Callable[..., Any]) -> None:
    outcome = simulate("partly-bound-gang-keeps-within-the-capability", max_cycles=MOST_CYCLES)
    assert evicted(outcome) == {"g0": 60.0, "g1": 60.0}
    assert outcome.running() == ["k"]
    assert_settled(outcome)


# --- promises ---------------------------------------------------------------------------------------------------------


def test_promised_room_is_kept_from_the_pod_that_is_placed(simulate: Callable[..., Any]) -> None:
    case = "promised-room-is-kept-from-the-pod-that-is-placed"
    before = simulate(case, max_cycles=MOST_CYCLES, until=15)
    assert before.running() == []
    assert before.reason("rs") == "Reserved"
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert times(outcome) == {"r0": 20.0, "r1": 20.0}
    assert outcome.phase("res") == "Running"
    assert_settled(outcome)


def test_a_promise_to_a_gang_that_lost_a_member_ends(simulate: Callable[..., Any]) -> None:
    case = "promise-to-a-gang-that-lost-a-member-ends"
    before = simulate(case, max_cycles=MOST_CYCLES, until=250)
    assert before.reason("other") == "Reserved"
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert outcome.running() == ["other", "p0", "p1", "p2"]
    # 300 s after it came into the queue, or after it lost the pod.
    assert 300.0 <= times(outcome)["other"] <= 400.0
    assert outcome.evictions == []
    assert_settled(outcome)


def test_a_promise_lasts_until_the_pod_is_placed(simulate: Callable[..., Any]) -> None:
    case = "promise-lasts-until-the-pod-is-placed"
    before = simulate(case, max_cycles=MOST_CYCLES, until=102)
    assert before.reason("other") == "Reserved"
    outcome = simulate(case, max_cycles=MOST_CYCLES)
    assert times(outcome).get("p4") == 103.0
    assert outcome.running() == ["p0", "p1", "p2", "p4"]
    assert outcome.phase("g") == "Running"
    assert_settled(outcome)


# --- room that is gathered by ageing ----------------------------------------------------------------------------------


def test_no_room_is_kept_for_a_gang_that_can_never_be_placed(simulate: Callable[..., Any]) -> None:
    outcome = simulate("no-room-is-kept-for-a-gang-that-can-never-be-placed", max_cycles=MOST_CYCLES)
    assert times(outcome) == {"late-0": 700.0, "late-1": 700.0}
    assert outcome.evictions == []
    assert_settled(outcome)


@beside
@pytest.mark.parametrize(
    ("case", "other", "big"),
    [
        ("ageing-goes-on-beside-a-pod-that-fits-no-node", "impossible", "big"),
        ("ageing-goes-on-beside-a-pod-that-a-promise-keeps-out", "old", "big-"),
    ],
)
def test_ageing_goes_on_beside_a_pod_that_waits_for_something_else(
    simulate: Callable[..., Any], case: str, other: str, big: str, *, present: bool
) -> None:
    outcome = simulate(case if present else without(case, other), until=700)
    assert [(each["pod"], each["time"]) for each in outcome.binds if each["pod"].startswith("default/big")] == [
        (f"default/{big}{number}", 670.0) for number in range(4)
    ]
    assert other not in times(outcome)
    assert outcome.evictions == []
    assert_settled(outcome)


def test_a_group_that_waits_for_its_pods_keeps_nobody_from_coming_in_by_age(simulate: Callable[..., Any]) -> None:
    content = json.loads(without("ageing-goes-on-beside-a-pod-that-fits-no-node", "impossible"))
    ghost = {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "ghost"},
        "spec": {"minMember": 1, "minResources": {"cpu": "500m"}, "scheduleTimeoutSeconds": 100_000},
    }
    content["items"][0]["status"]["allocatable"]["cpu"] = "4500m"
    outcome = simulate(json.dumps({**content, "items": [*content["items"], ghost]}) + "\n", until=700)
    assert "default/ghost" in outcome.cycles[0]["enqueued"]
    bound = times(outcome)
    assert {name: bound.get(name) for name in ("big0", "big1", "big2", "big3")} == dict.fromkeys(
        ("big0", "big1", "big2", "big3"), 670.0
    )
    assert_settled(outcome)


def test_room_is_gathered_where_the_gang_can_stand(simulate: Callable[..., Any]) -> None:
    outcome = simulate("ageing-gathers-room-where-the-gang-can-stand", until=700)
    bound = [each for each in outcome.binds if each["pod"] in {"default/g0", "default/g1"}]
    assert sorted(each["node"] for each in bound) == ["n1", "n2"]
    # From 635 s on; the last pod that runs then ends at 670 s.
    assert 635.0 <= bound[0]["time"] == bound[1]["time"] <= 670.0
    # Two cpu of each node were kept, and no more: the other half went on all the while.
    small = [each for each in outcome.binds if each["pod"].startswith("default/s")]
    assert {each["node"] for each in small if 635.0 < each["time"] <= 670.0} == {"n1", "n2"}
    assert_settled(outcome)


@pytest.mark.parametrize("first", ["a", "b"])
def test_room_is_gathered_whichever_role_is_listed_first(simulate: Callable[..., Any], first: str) -> None:
    text = without("ageing-gathers-room-in-the-order-of-placing")
    roles = ['{"name": "a", "minMember": 2}', '{"name": "b", "minMember": 2}']
    assert ", ".join(roles) in text
    outcome = simulate(text.replace(", ".join(roles), ", ".join(roles if first == "a" else roles[::-1])), until=720)
    bound = {pod_: instant for pod_, instant in times(outcome).items() if pod_.startswith("g")}
    assert sorted(bound) == ["g-a0", "g-a1", "g-b0", "g-b1"]
    # From 605 s on; no pod of the stream takes longer than 103 s.
    assert len(set(bound.values())) == 1
    assert 605.0 <= bound["g-a0"] <= 708.0
    assert_whole(outcome, tuple(bound), 4)
    assert_settled(outcome)


def test_a_group_for_which_room_is_gathered_is_not_sent_back(simulate: Callable[..., Any]) -> None:
    outcome = simulate("no-timeout-while-room-is-gathered", max_cycles=MOST_CYCLES, until=1_100)
    gang = ("g0", "g1", "g2", "g3")
    # From 605 s on; no pod of the stream takes longer than 421 s.
    assert all(605.0 <= times(outcome).get(each, 0.0) <= 1026.0 for each in gang)
    assert all("default/g" not in cycle_["enqueued"] for cycle_ in outcome.cycles if cycle_["time"] > 605.0)
    assert_whole(outcome, gang, 4)
    assert_settled(outcome)


def test_nominated_pods_of_different_sizes_are_bound(simulate: Callable[..., Any]) -> None:
    outcome = simulate("nominated-pods-of-different-sizes-bind", max_cycles=MOST_CYCLES)
    assert outcome.evictions
    bound = {bind["pod"]: bind["time"] for bind in outcome.binds}
    assert bound == {f"default/up-{at}": 15.0 for at in range(3)}
    assert_settled(outcome)
