"""Planned starts: when and where a job that cannot start is to start, and who may start before it."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from kbatch.api.conditions import ENQUEUED
from kbatch.api.configuration import ConfigurationError, parse
from kbatch.api.objects import (
    Affinity,
    Condition,
    LabelSelector,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodStatus,
    Queue,
)
from kbatch.decisions.state import read_state, write_state
from kbatch.engine import CycleState, Memo, Policy, build_policy, take_snapshot
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    Decisions,
    Simulation,
    decide,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    stamp,
)
from tests.unit.engine.worlds import world as bare_world

EXPECTED = "kbatch.dev/expected-seconds"
TIERS = """
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
EASY = policy("actions: [allocate, {name: backfill, arguments: {mode: easy}}]" + TIERS)
TWO = policy("actions: [allocate, {name: backfill, arguments: {mode: easy, depth: 2}}]" + TIERS)
THREE = policy("actions: [allocate, {name: backfill, arguments: {mode: easy, depth: 3}}]" + TIERS)
CONSERVATIVE = policy("actions: [allocate, {name: backfill, arguments: {mode: conservative}}]" + TIERS)
PREEMPTS = policy("actions: [allocate, {name: backfill, arguments: {mode: easy}}, preempt]" + TIERS)
NONE = policy("actions: [allocate, backfill]" + TIERS)


def world(*objects: Any) -> ClusterModel:
    """A model of these objects; with the queue `default`, unless it is one of them."""
    there = any(isinstance(each, Queue) for each in objects)
    return bare_world(*objects) if there else bare_world(queue(), *objects)


def saying(found: Pod, seconds: int) -> Pod:
    """The pod, with what its user expects."""
    found.metadata.annotations = {**(found.metadata.annotations or {}), EXPECTED: str(seconds)}
    return found


def planned(found: Decisions, name: str) -> int | str | None:
    """The start that was planned for a group, in seconds; `unknown`; None: none was."""
    estimate = found.verdicts[f"ns/{name}"].estimate
    if estimate is None:
        return None
    assert estimate.time == estimate.latest
    if estimate.time is None:
        return estimate.basis
    assert estimate.basis == "reservation"
    return (estimate.time - EPOCH) // SECOND


def busy(until: int, cpu: str = "4", on: str = "n1", name: str = "busy") -> Pod:
    """A pod that runs since the beginning, and is expected to end."""
    return saying(pod(name, cpu, on=on), until)


def wide(*, at: int = 1, name: str = "wide", count: int = 2, cpu: str = "4", **spec: Any) -> list[Any]:
    """A gang that wants whole nodes of four."""
    return [group(name, count, at=at, **spec), *members(name, count, cpu, at=at)]


def test_the_first_job_that_cannot_start_gets_an_instant() -> None:
    model = world(node("n1"), node("n2"), busy(100), wide(), wide(name="later", at=2))
    found = run(model, EASY, now=10)
    assert found.binds == {}
    assert (planned(found, "wide"), planned(found, "later")) == (100, None)
    assert found.outcome is not None
    assert found.outcome.next_wake == EPOCH + 100 * SECOND


def test_without_a_mode_nothing_is_planned_and_nobody_is_kept_out() -> None:
    model = world(node("n1"), node("n2"), busy(100), wide(), pod("long", at=2))
    found = run(model, NONE, now=10)
    assert found.binds == {"long": "n2"}
    assert planned(found, "wide") is None


def test_who_is_gone_in_time_starts() -> None:
    model = world(
        node("n1"), node("n2"), busy(100), wide(),
        saying(pod("short", at=2), 90), saying(pod("long", at=2), 91), pod("unknown", at=2),
    )  # fmt: skip
    found = run(model, EASY, now=10)
    assert found.binds == {"short": "n2"}
    assert planned(found, "wide") == 100
    assert found.reason("long") == found.reason("unknown") == "Reserved"
    assert found.verdicts["ns/short"].backfilled
    assert not found.verdicts["ns/long"].backfilled


def test_who_runs_on_starts_on_other_nodes() -> None:
    model = world(node("n1"), node("n2"), node("n3", "1"), busy(100), wide(), pod("a", at=2), pod("b", at=3))
    assert run(model, EASY, now=10).binds == {"a": "n3"}


def test_who_runs_on_starts_beside_a_planned_start_that_leaves_room() -> None:
    model = world(node("n1"), node("n2"), busy(100), wide(cpu="3"), pod("a", at=2), pod("b", at=3), pod("c", "2", at=4))
    found = run(model, EASY, now=10)
    assert found.binds == {"a": "n2"}  # b could stand on n1 when that is free, and not before
    assert found.reason("b") == found.reason("c") == "Reserved"


def test_room_that_comes_free_in_time_need_not_be_kept() -> None:
    some = busy(100, "4"), busy(50, "2", name="soon")
    model = world(node("n1", "8"), some, pod("wide", "6", at=1), pod("a", "2", at=2))
    found = run(model, EASY, now=10)
    assert (planned(found, "wide"), found.binds) == (100, {"a": "n1"})


def test_what_was_bound_in_the_same_cycle_ends_too() -> None:
    model = world(node("n1"), node("n2"), saying(pod("first", "4", at=0), 30), wide(), saying(pod("short", at=2), 30))
    found = run(model, EASY, now=10)
    assert planned(found, "wide") == 40
    assert sorted(found.binds) == ["first", "short"]


def test_an_overrun_moves_the_instant_by_tenths() -> None:
    model = world(node("n1"), node("n2"), busy(100), wide())
    assert planned(run(model, EASY, now=99), "wide") == 100
    late = run(model, EASY, now=100)
    assert planned(late, "wide") == 110
    assert late.outcome is not None
    assert late.outcome.next_wake == EPOCH + 110 * SECOND


def test_a_tiny_estimate_keeps_nobody_busy() -> None:
    tiny = pod("tiny", "4", on="n1")
    tiny.metadata.annotations = {**(tiny.metadata.annotations or {}), EXPECTED: "0.05"}
    found = run(world(node("n1"), node("n2"), tiny, wide()), EASY, now=10)
    assert found.outcome is not None
    assert found.outcome.next_wake is not None
    assert found.outcome.next_wake == EPOCH + 10 * SECOND + SECOND // 20, "by tenths of seconds from its end on"


def test_the_earliest_instant_at_which_all_fits() -> None:
    model = world(
        node("n1"), node("n2"), node("n3"),
        busy(50, on="n1", name="x"), busy(70, on="n2", name="y"), busy(90, on="n3", name="z"), wide(),
    )  # fmt: skip
    assert planned(run(model, EASY, now=10), "wide") == 70
    # n3 is nobody's: who runs on may have it, if there were room; n1 and n2 are kept
    model = world(node("n1"), node("n2"), busy(50, "2", on="n1", name="x"), busy(70, "3", on="n2", name="y"), wide())
    assert planned(run(model, EASY, now=10), "wide") == 70


def test_the_lowest_nodes_are_named() -> None:
    model = world(
        *(node(f"n{number}") for number in range(4)),
        busy(50, on="n0", name="x"), busy(50, on="n3", name="y"),
        wide(count=3), pod("a", "4", at=2), pod("b", "4", at=3),
    )  # fmt: skip
    found = run(model, EASY, now=10)  # n0, n1 and n2 are kept; n3 is not free yet
    assert (planned(found, "wide"), found.binds) == (50, {})


def test_a_second_start_is_planned_beside_the_first() -> None:
    model = world(
        node("n1"), node("n2"), busy(100),
        group("wide", 2, at=1), *(saying(each, 60) for each in members("wide", 2, "4", at=1)),
        wide(name="next", at=2), saying(pod("short", at=3), 20),
    )  # fmt: skip
    found = run(model, TWO, now=10)
    assert (planned(found, "wide"), planned(found, "next")) == (100, 160)
    assert found.binds == {"short": "n2"}


def test_a_second_start_comes_first_where_it_is_gone_in_time() -> None:
    model = world(
        node("n1"), node("n2"), node("n3"), busy(100), busy(40, on="n2", name="other"), busy(300, on="n3", name="z"),
        wide(), saying(pod("next", "4", at=2), 60), saying(pod("last", "4", at=3), 61),
    )  # fmt: skip
    found = run(model, THREE, now=10)
    assert (planned(found, "wide"), planned(found, "next"), planned(found, "last")) == (100, 40, 300)


def test_where_an_end_is_unknown_nobody_is_in_time() -> None:
    model = world(
        node("n1"), node("n2"), node("n3", "1"), pod("busy", "4", on="n1"), wide(),
        saying(pod("short", "2", at=2), 1), pod("elsewhere", at=3),
    )  # fmt: skip
    found = run(model, EASY, now=10)
    assert planned(found, "wide") == "unknown"
    assert found.binds == {"elsewhere": "n3"}
    assert found.reason("short") == "Reserved"


def test_who_could_be_evicted_may_use_room_of_which_nobody_knows_the_instant() -> None:
    model = world(
        node("n1"), node("n2"), priority_class("high", 10), pod("busy", "4", on="n1", priority=10),
        wide(priority_class_name="high"), pod("low", "2", at=2, priority=1), pod("equal", "1", at=3, priority=10),
    )  # fmt: skip
    assert run(model, PREEMPTS, now=10).binds == {"low": "n2"}
    assert run(model, EASY, now=10).binds == {}


def test_a_lifetime_is_an_end_for_those_who_may_take_it() -> None:
    lasting = [group("lasting", at=0, lifetime_seconds=80), pod("old", "4", of="lasting", on="n1")]
    assert planned(run(world(node("n1"), node("n2"), lasting, wide()), PREEMPTS, now=10), "wide") == 110
    assert planned(run(world(node("n1"), node("n2"), lasting, wide()), EASY, now=10), "wide") == "unknown"
    ends = wide(lifetime_seconds=500)
    assert planned(run(world(node("n1"), node("n2"), lasting, ends), PREEMPTS, now=10), "wide") == "unknown"


def test_a_hard_cap_is_room_too() -> None:
    model = world(
        node("n1", "16"), queue("default", capability={"cpu": "6"}), busy(100), pod("wide", "4", at=1),
        pod("a", "1", at=2), saying(pod("b", "1", at=3), 90), pod("c", "2", at=4),
    )  # fmt: skip
    found = run(model, EASY, now=10)
    assert planned(found, "wide") == 100
    assert sorted(found.binds) == ["a", "b"]


def test_a_job_that_its_cap_never_lets_start_keeps_nobody_out() -> None:
    hard = queue("default", capability={"cpu": "6"})
    model = world(node("n1", "16"), hard, pod("wide", "8", at=1), pod("a", "1", at=2))
    found = run(model, EASY, now=10)
    assert planned(found, "wide") is None
    assert found.binds == {"a": "n1"}


def apart(found: Pod) -> Pod:
    """The pod, which stands on no node with others of the label."""
    found.metadata.labels = {"app": "apart"}
    same = LabelSelector(match_labels={"app": "apart"})
    term = PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=same)
    found.spec.affinity = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    return found


def host(name: str, cpu: str = "4") -> Any:
    return node(name, cpu, labels={"kubernetes.io/hostname": name})


def test_pods_that_keep_others_away_end_too() -> None:
    model = world(
        host("n1"), host("n2"), apart(busy(100, "1")), group("wide", 2, at=1), *map(apart, members("wide", 2, at=1))
    )
    assert planned(run(model, EASY, now=10), "wide") == 100


def test_nobody_starts_whose_pods_matter_to_a_planned_start() -> None:
    model = world(
        host("n1"), host("n2"), host("n3"), apart(busy(100, "1")), apart(busy(200, "1", "n3", "z")),
        group("wide", 2, at=1), *map(apart, members("wide", 2, at=1)),
        apart(pod("like", at=2)), apart(saying(pod("short", at=3), 20)), pod("other", at=4),
    )  # fmt: skip
    found = run(model, EASY, now=10)
    assert planned(found, "wide") == 100
    assert sorted(found.binds) == ["other", "short"]


def test_whole_nodes_are_kept_whole() -> None:
    model = world(
        node("n1"), node("n2"), busy(100, "1"), wide(cpu="3", exclusive=True),
        pod("a", at=2), saying(pod("b", at=3), 50),
    )  # fmt: skip
    found = run(model, EASY, now=10)
    assert planned(found, "wide") == 100
    assert list(found.binds) == ["b"]


def test_the_part_of_a_hard_cap_that_a_planned_start_needs_is_kept() -> None:
    hard = queue("default", capability={"cpu": "6"})
    model = world(node("n1", "16"), hard, busy(100), pod("wide", "5", at=1), pod("a", "2", at=2), pod("b", "1", at=3))
    found = run(model, EASY, now=10)
    assert (planned(found, "wide"), found.binds) == (100, {"b": "n1"})


# --- promises ---------------------------------------------------------------------------------------------------------


def again(model: ClusterModel, before: Decisions, now: int, by: Policy = CONSERVATIVE) -> Decisions:
    """The next cycle, which knows what was promised."""
    assert before.outcome is not None
    return run(model, by, now=now, state=before.outcome.state)


def test_a_promise_is_made_again_when_something_has_ended() -> None:
    model = world(node("n1"), node("n2"), busy(100), busy(50, on="n2", name="other"), wide())
    first = run(model, CONSERVATIVE, now=10)
    assert planned(first, "wide") == 100
    model.apply(Delete(Pod, "ns", "busy"))
    assert planned(again(model, first, 20), "wide") == 50


def test_a_promise_is_made_again_when_something_has_ended_as_a_node_went() -> None:
    model = world(node("n1"), node("n2"), node("n3", "1"), busy(100), busy(200, on="n2", name="other"), wide())
    first = run(model, CONSERVATIVE, now=10)
    assert planned(first, "wide") == 200
    model.apply(Delete(Pod, "ns", "other"))
    model.apply(Delete(Node, "", "n3"))
    assert planned(again(model, first, 20), "wide") == 100


@pytest.mark.parametrize("by", [EASY, CONSERVATIVE])
def test_a_pod_of_another_scheduler_is_gone_by_its_deadline(by: Policy) -> None:
    limited = pod("theirs", "4", on="n1", scheduler="other", active_deadline_seconds=100)
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    model = world(
        nodes, limited, busy(300, on="n2"), wide(), saying(pod("short", "4", at=2), 60), pod("long", "4", at=3)
    )
    found = run(model, by, now=10)
    assert planned(found, "wide") == 100
    assert found.binds == {"short": "n3"}
    model.apply(Upsert(pod("theirs", "4", on="n1", scheduler="other")))
    assert planned(run(model, by, now=10), "wide") == 300


def test_a_gang_that_heeds_others_counts_on_no_pod_of_another_scheduler() -> None:
    limited = pod("theirs", "4", on="n1", scheduler="other", active_deadline_seconds=100)
    term = PodAffinityTerm(topology_key="kubernetes.io/hostname", label_selector=LabelSelector(match_labels={"x": "y"}))
    apart = Affinity(pod_anti_affinity=PodAffinity(required=(term,)))
    nodes = [node(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2", "n3")]
    gang = [group("wide", 2, at=1), *members("wide", 2, "4", at=1, affinity=apart)]
    assert planned(run(world(nodes, limited, busy(300, on="n2"), gang), EASY, now=10), "wide") == 300


def test_a_promise_that_comes_due_beside_an_overrun_moves() -> None:
    model = world(node("n1"), node("n2"), busy(100), wide())
    first = run(model, CONSERVATIVE, now=10)
    second = again(model, first, 99)
    assert planned(second, "wide") == 100
    assert planned(again(model, second, 100), "wide") == 110


def test_a_promise_that_counts_on_what_does_not_come_moves() -> None:
    model = world(node("n1"), node("n2"), busy(100), wide())
    first = run(model, CONSERVATIVE, now=10)
    model.apply(Upsert(busy(300)))
    assert planned(again(model, first, 20), "wide") == 300


def test_a_promise_keeps_its_nodes_and_its_place() -> None:
    model = world(node("n1"), node("n2"), node("n3"), busy(100), busy(100, on="n2", name="other"), wide())
    first = run(model, CONSERVATIVE, now=10)
    assert first.outcome is not None
    assert [start.job for start in first.outcome.state.planned] == ["ns/wide"]
    assert {node for _, node in first.outcome.state.planned[0].places} == {"n1", "n2"}
    model.apply(Upsert(saying(pod("next", "4", at=2), 500)))
    model.apply(Upsert(pod("long", "4", at=3)))
    second = again(model, first, 20)
    assert (planned(second, "wide"), second.binds) == (100, {"next": "n3"})
    assert second.outcome is not None
    assert second.outcome.state.planned[0] == first.outcome.state.planned[0]
    assert [start.job.partition("#")[0] for start in second.outcome.state.planned] == ["ns/wide", "ns/long"]


def confirm(model: ClusterModel, name: str, node: str, started: int) -> None:
    """The API server says that the pod is bound, and runs since then."""
    found = copy.deepcopy(model.tasks[f"ns/{name}"].pod)
    found.spec.node_name = node
    found.status = PodStatus(phase="Running", start_time=stamp(started))
    model.apply(Upsert(found))


def line() -> ClusterModel:
    """Of four CPUs one is held until 300; `first` starts at once for ten seconds, the others wait for all it holds."""
    runs, first, wide = busy(300, "1", name="runs"), pod("first", "2", at=1), pod("wide", "3", at=2)
    return world(node("n1"), runs, saying(first, 10), saying(wide, 60), saying(pod("later", "1", at=3), 300))


def instants(found: Decisions) -> dict[str, float]:
    """What is promised, in seconds."""
    assert found.outcome is not None
    return {
        start.job.partition("#")[0].removeprefix("ns/"): (start.at - EPOCH) / SECOND
        for start in found.outcome.state.planned if start.at is not None
    }  # fmt: skip


def after(model: ClusterModel, before: Decisions, seconds: float) -> Decisions:
    """The next cycle, at an instant between seconds."""
    assert before.outcome is not None
    return decide(take_snapshot(model, EPOCH + int(seconds * SECOND), before.outcome.state), CONSERVATIVE, Memo())


def test_a_bind_that_takes_its_time_moves_no_promise() -> None:
    model = line()
    first = run(model, CONSERVATIVE, now=5)
    assert (first.binds, instants(first)) == ({"first": "n1"}, {"wide": 15, "later": 75})
    model.assume("ns/first", model.tasks["ns/first"].uid, "n1")
    second = after(model, first, 5.05)
    assert (second.binds, instants(second)) == ({}, {"wide": 15, "later": 75})
    third = after(model, second, 7.5)
    assert (third.binds, instants(third)) == ({}, {"wide": 15, "later": 75})


def test_the_end_of_a_bind_that_was_under_way_before_any_promise_stays_too() -> None:
    model = world(node("n1"), saying(pod("first", "2", at=1), 10))
    first = run(model, CONSERVATIVE, now=5)
    assert first.outcome is not None
    model.assume("ns/first", model.tasks["ns/first"].uid, "n1")
    model.apply(Upsert(saying(pod("wide", "3", at=2), 60)))
    second = after(model, first, 6)
    assert instants(second) == {"wide": 16}
    assert instants(after(model, second, 6.5)) == {"wide": 16}


def test_the_end_of_a_pod_that_is_bound_again_counts_from_its_last_bind() -> None:
    model = world(node("n1"), busy(12, "2"), saying(pod("first", "2", at=1), 4), saying(pod("wide", "4", at=2), 60))
    first = run(model, CONSERVATIVE, now=5)
    uid = model.tasks["ns/first"].uid
    model.assume("ns/first", uid, "n1")
    second = after(model, first, 6)
    assert second.outcome is not None
    assert second.outcome.state.begun == {"ns/first": EPOCH + 5 * SECOND}
    model.forget("ns/first", uid)
    third = after(model, second, 7)
    assert (third.binds, instants(third)) == ({"first": "n1"}, {"wide": 12})
    assert third.outcome is not None
    assert third.outcome.state.begun == {"ns/first": EPOCH + 7 * SECOND}


def test_an_overrun_moves_promises_by_as_much_in_their_order() -> None:
    model = line()
    first = run(model, CONSERVATIVE, now=5)
    confirm(model, "first", "n1", 6)
    second = after(model, first, 6.5)
    assert (second.binds, instants(second)) == ({}, {"wide": 16, "later": 76})
    model.apply(Delete(Pod, "ns", "first"))
    assert after(model, second, 16).binds == {"wide": "n1"}


def test_an_overrun_moves_nobody_before_it_in_the_order() -> None:
    model = world(node("n1"), node("n2"), busy(100), busy(50, on="n2", name="other"))
    for number, name in enumerate(("a", "b", "c")):
        model.apply(Upsert(saying(pod(name, "4", at=1 + number), 100)))
    first = run(model, CONSERVATIVE, now=10)
    assert instants(first) == {"a": 50, "b": 100, "c": 150}
    model.apply(Upsert(busy(200)))
    assert instants(again(model, first, 20)) == {"a": 50, "b": 150, "c": 200}
    model.apply(Upsert(busy(300, on="n2", name="other")))
    assert instants(again(model, first, 20)) == {"a": 200, "b": 300, "c": 300}


def test_a_promise_that_is_due_waits_for_pods_on_their_way_out_and_keeps_its_place() -> None:
    model = world(node("n1"), busy(15), saying(pod("a", "4", at=1), 10), saying(pod("b", "4", at=2), 5))
    first = run(model, CONSERVATIVE, now=5)
    assert instants(first) == {"a": 15, "b": 25}
    model.evicting("ns/busy", "u-busy")  # nobody knows as yet when it is gone
    second = again(model, first, 15)
    assert (second.binds, instants(second)) == ({}, {"a": 15, "b": 25})
    same = again(model, second, 15)
    assert same.outcome is not None
    assert same.outcome.memo.idle is None
    assert same.outcome.next_wake == EPOCH + 16 * SECOND  # both move on with time
    third = again(model, same, 28)
    assert (third.binds, instants(third)) == ({}, {"a": 28, "b": 38})
    model.apply(Upsert(terminating(busy(15), 40)))
    fourth = again(model, third, 28)
    assert (fourth.binds, instants(fourth)) == ({}, {"a": 28.5, "b": 38.5})
    assert fourth.outcome is not None
    assert fourth.outcome.next_wake == EPOCH + 28_500_000
    model.apply(Delete(Pod, "ns", "busy"))
    assert again(model, fourth, 30).binds == {"a": "n1"}


def test_there_is_a_cycle_when_somebody_in_time_may_wait_for_what_is_on_its_way_out() -> None:
    """Who must start now, or not before another's start, waits for no room: see `_moments` of allocate."""
    runs = busy(305, "1", name="runs"), busy(305, "2", name="two"), busy(315, "1", name="one")
    short = saying(pod("a", "2", at=1), 10), saying(pod("b", "3", at=1), 10)
    model = world(node("n1"), runs, short, saying(pod("long", "1", at=2), 300))
    first = run(model, CONSERVATIVE, now=5)
    assert (first.nominated, instants(first)) == ({}, {"a": 305, "b": 315, "long": 305})
    for name in ("two", "one"):  # nobody knows as yet when they are gone
        model.evicting(f"ns/{name}", f"u-{name}")
    second = after(model, first, 6)
    assert second.nominated == {}
    assert second.outcome is not None
    assert second.outcome.next_wake == EPOCH + 15_001_000
    assert after(model, second, 15.001).nominated == {"long": "n1"}


@pytest.mark.parametrize("by", [EASY, CONSERVATIVE])
def test_there_is_such_a_cycle_for_those_whose_start_is_not_planned_too(by: Policy) -> None:
    """Of a group that runs one pod more may wait for n1, once it would not be gone before `wide` starts there."""
    more = pod("g-0", "1", of="g", on="n2"), saying(pod("g-1", "2", of="g", at=2), 10)
    model = world(
        node("n1", "6"), node("n2", "1"), busy(305), pod("leaving", "2", on="n1"), saying(pod("wide", "4", at=1), 50),
        group("g"), more,
    )  # fmt: skip
    model.evicting("ns/leaving", "u-leaving")  # nobody knows as yet when it is gone
    first = run(model, by, now=5)
    assert (planned(first, "wide"), first.nominated) == (305, {})
    assert first.outcome is not None
    assert first.outcome.next_wake == EPOCH + 295_001_000
    found = decide(take_snapshot(model, EPOCH + 295_001_000, first.outcome.state), by, Memo())
    assert found.nominated == {"g-1": "n1"}


def terminating(found: Pod, until: int) -> Pod:
    """The pod as it is when it has been deleted, with so much time to end."""
    gone = copy.deepcopy(found)
    gone.metadata.deletion_timestamp = stamp(until)
    return gone


def lasting(seconds: int, objects: list[Any]) -> list[Any]:
    """The objects, of whose pods it is said how long they run."""
    return [saying(each, seconds) if isinstance(each, Pod) else each for each in objects]


def test_what_terminates_is_gone_by_the_end_of_its_grace() -> None:
    """Jobs that are to be gone before `wide` starts wait for no room; each is promised its start beside the others."""
    leaving, other = busy(305, name="leaving"), busy(305, on="n2", name="other")
    short = [saying(pod(name, "3", at=at), 10) for name, at in (("a", 2), ("b", 3))]
    model = world(node("n1"), node("n2"), leaving, other, lasting(100, wide()), short)
    first = run(model, CONSERVATIVE, now=5)
    assert instants(first) == {"wide": 305, "a": 405, "b": 405}
    model.apply(Upsert(terminating(leaving, 45)))
    second = again(model, first, 6)
    assert (second.nominated, instants(second)) == ({}, {"wide": 305, "a": 45, "b": 55})
    assert second.outcome is not None
    assert second.outcome.next_wake == EPOCH + 45 * SECOND
    late = again(model, second, 46)  # it keeps its turn while the pod overruns
    assert (late.binds, instants(late)) == ({}, {"wide": 305, "a": 48, "b": 58})
    model.apply(Delete(Pod, "ns", "leaving"))
    found = again(model, late, 47)
    assert (found.binds, instants(found)) == ({"a": "n1"}, {"wide": 305, "b": 57})


def test_the_end_of_who_was_nominated_is_known_from_its_bind_on() -> None:
    leaving, waits = pod("leaving", "4", on="n1"), saying(pod("waits", "4", at=1), 10)
    model = world(node("n1"), terminating(leaving, 45), waits, saying(pod("next", "4", at=2), 10))
    first = run(model, CONSERVATIVE, now=5)
    assert (first.nominated, planned(first, "next")) == ({"waits": "n1"}, "unknown")
    nominated = copy.deepcopy(waits)
    nominated.status.nominated_node_name = "n1"
    model.apply(Upsert(nominated))
    model.apply(Delete(Pod, "ns", "leaving"))
    second = again(model, first, 20)
    assert (second.binds, instants(second)) == ({"waits": "n1"}, {"next": 30})


def test_who_is_nominated_moves_to_no_room_that_a_promise_needs() -> None:
    """`waits` finds n2 idle, where it would run on when `wide` is to start."""
    leaving, waits = pod("leaving", "4", on="n1"), pod("waits", "4", at=2)
    gang = members("wide", 2, "4", at=1, node_selector={"size": "big"})
    big = [node(name, labels={"size": "big"}) for name in ("n2", "n3")]
    model = world(node("n1"), big, leaving, busy(100, on="n3"), group("wide", 2, at=1), gang)
    first = run(model, CONSERVATIVE, now=5)
    assert instants(first) == {"wide": 100}
    model.apply(Upsert(terminating(leaving, 45)))
    model.apply(Upsert(waits))
    second = again(model, first, 6)
    assert second.nominated == {"waits": "n1"}
    nominated = copy.deepcopy(waits)
    nominated.status.nominated_node_name = "n1"
    model.apply(Upsert(nominated))
    third = again(model, second, 7)
    assert (third.binds, instants(third)) == ({}, {"wide": 100})
    model.apply(Delete(Pod, "ns", "leaving"))
    assert again(model, third, 8).binds == {"waits": "n1"}


@pytest.mark.parametrize(("now", "at"), [(44, 45), (45, 48), (47, 48), (48, 51), (73, 75), (75, 305)])
def test_what_terminates_and_overruns_is_expected_a_little_later_until_it_is_stuck(now: int, at: int | None) -> None:
    """After that there is not room enough for both nodes' gang in the whole cluster: who comes after it waits for the
    other node alone.
    """
    leaving, other = terminating(pod("leaving", "4", on="n1"), 45), busy(305, on="n2")
    model = world(node("n1"), node("n2"), leaving, other, wide(), saying(pod("a", "3", at=2), 10))
    assert instants(run(model, CONSERVATIVE, now=now)).get("a") == at


def test_what_terminates_may_be_expected_to_end_before_its_grace_does() -> None:
    leaving, other = terminating(busy(30), 45), busy(305, on="n2", name="other")
    model = world(node("n1"), node("n2"), leaving, other, wide(), saying(pod("a", "3", at=2), 10))
    assert instants(run(model, CONSERVATIVE, now=5))["a"] == 30


@pytest.mark.parametrize("by", [EASY, CONSERVATIVE])
def test_no_start_is_planned_onto_room_before_it_is_there(by: Policy) -> None:
    leaving = terminating(pod("leaving", "4", on="n1"), 45)
    model = world(node("n1"), node("n2"), leaving, busy(20, on="n2"), wide())
    assert planned(run(model, by, now=5), "wide") == 45


@pytest.mark.parametrize("by", [EASY, CONSERVATIVE])
def test_nobody_takes_what_a_start_needs_until_a_pod_has_terminated(by: Policy) -> None:
    """The gang starts at 20 on what is free of n1 already; `long` finds room there for both only from 45 on."""
    gang = [pod(f"wide-{at}", "4", of="wide", at=1, node_selector={"on": f"n{at}"}) for at in (1, 2)]
    leaving, long = terminating(pod("leaving", "4", on="n1"), 45), pod("long", "4", at=2, node_selector={"on": "n1"})
    model = world(
        node("n1", "8", labels={"on": "n1"}), node("n2", labels={"on": "n2"}), leaving, busy(20, on="n2"),
        group("wide", 2, at=1), gang, long,
    )  # fmt: skip
    found = run(model, by, now=5)
    assert (planned(found, "wide"), found.binds) == (20, {})
    model.apply(Delete(Pod, "ns", "leaving"))
    assert run(model, by, now=5).binds == {"long": "n1"}


def test_of_a_higher_priority_is_promised_the_room_that_one_before_it_moves_to() -> None:
    model = world(node("n1"), node("n2"), busy(50), busy(100, on="n2", name="other"))
    model.apply(Upsert(saying(pod("low", "4", at=1), 100)))
    first = run(model, CONSERVATIVE, now=10)
    model.apply(Upsert(saying(pod("high", "4", at=2, priority=10), 100)))
    second = again(model, first, 11)
    assert instants(second) == {"low": 100, "high": 50}
    model.apply(Upsert(busy(70, on="n2", name="other")))
    model.apply(Upsert(busy(120)))
    assert instants(again(model, second, 12)) == {"low": 120, "high": 70}


def test_who_loses_its_room_to_a_higher_priority_stays_before_those_that_were_promised_theirs_later() -> None:
    names = [f"j{at}" for at in range(1, 5)]
    model = world(
        node("n1", "4"), busy(100), *(saying(pod(name, "4", at=at), 100) for at, name in enumerate(names, start=1)),
    )  # fmt: skip
    one = run(model, CONSERVATIVE, now=10)
    assert [planned(one, name) for name in names] == [100, 200, 300, 400]
    model.apply(Upsert(saying(pod("urgent", "4", at=50, priority=10), 100)))
    two = again(model, one, 50)
    assert [planned(two, name) for name in ("urgent", *names)] == [100, 200, 300, 400, 500]
    three = again(model, two, 60)
    assert [planned(three, name) for name in ("urgent", *names)] == [100, 200, 300, 400, 500]


def test_all_that_lose_their_room_to_a_higher_priority_are_promised_another() -> None:
    model = world(node("n1", "4"), busy(100), saying(pod("low", "2", at=1), 100))
    found = run(model, CONSERVATIVE, now=10)
    for at, (name, cpu, priority) in enumerate((("mid", "2", 5), ("high", "4", 10)), start=11):
        model.apply(Upsert(saying(pod(name, cpu, at=at, priority=priority), 100)))
        found = again(model, found, at)
    assert instants(found) == {"high": 100, "mid": 200, "low": 200}
    assert instants(again(model, found, 60)) == {"high": 100, "mid": 200, "low": 200}


def test_what_other_queues_were_promised_stands_where_a_priority_takes_a_room() -> None:
    model = world(
        queue(), queue("other"), node("n1", "4"), node("n2", "4"), busy(100), busy(100, on="n2", name="z"),
        saying(pod("low", "4", at=1), 100), saying(pod("theirs", "4", at=2, queue="other"), 100),
    )  # fmt: skip
    one = run(model, CONSERVATIVE, now=10)
    assert instants(one) == {"low": 100, "theirs": 100}
    model.apply(Upsert(saying(pod("high", "4", at=50, priority=10), 100)))
    assert instants(again(model, one, 50)) == {"high": 100, "theirs": 100, "low": 200}


def test_what_other_queues_were_promised_stands_where_a_priority_starts_in_a_room() -> None:
    """`low` cannot start at 100, as `high` runs until 200: it starts after what the other queue was promised then."""
    model = world(queue(), queue("other"), node("n1", "8"), busy(100), saying(pod("low", "8", at=1), 100))
    one = run(model, CONSERVATIVE, now=1)
    model.apply(Upsert(saying(pod("theirs", "8", at=2, queue="other"), 100)))
    two = again(model, one, 2)
    assert instants(two) == {"low": 100, "theirs": 200}
    model.apply(Upsert(saying(pod("high", "4", at=50, priority=10), 150)))
    three = again(model, two, 50)
    assert (three.binds, instants(three)) == ({"high": "n1"}, {"theirs": 200, "low": 300})


@pytest.mark.parametrize("more", ["", ", preempt"])
def test_where_nobody_knows_when_the_more_important_of_a_queue_starts_first(more: str) -> None:
    """Nobody knows when `endless` ends, on whose node both were promised room: `low` first, which came first."""
    by = policy(f"actions: [allocate, {{name: backfill, arguments: {{mode: conservative}}}}{more}]{TIERS}")
    model = world(node("n1", "4"), pod("endless", "4", on="n1", priority=10), pod("low", "4", at=1))
    one = run(model, by, now=1)
    model.apply(Upsert(pod("high", "4", at=2, priority=10)))
    two = again(model, one, 2, by)
    model.apply(Delete(Pod, "ns", "endless"))
    three = again(model, two, 100, by)
    assert (three.binds, three.evicted) == ({"high": "n1"}, [])


def waiting(found: Decisions) -> list[str]:
    """Who is promised a start, in that order."""
    assert found.outcome is not None
    return [start.job.partition("#")[0].removeprefix("ns/") for start in found.outcome.state.planned]


def test_who_starts_in_the_turn_of_a_less_important_one_gives_it_its_own() -> None:
    """`low` was promised a start before `other` of another queue, and `high` starts in its turn. What is left does not
    do for `low`, but for `other`.
    """
    queues = queue(), queue("b"), queue("c")
    model = world(node("n1", "8"), *queues, pod("endless", "8", on="n1", queue="c"), pod("low", "5", at=1))
    found = run(model, CONSERVATIVE, now=1)
    for at, come in enumerate((pod("other", "3", at=2, queue="b"), pod("high", "4", at=3, priority=10)), 2):
        model.apply(Upsert(come))
        found = again(model, found, at)
    assert waiting(found) == ["low", "other", "high"]
    model.apply(Delete(Pod, "ns", "endless"))
    found = again(model, found, 100)
    assert (found.binds, waiting(found)) == ({"high": "n1", "other": "n1"}, ["low"])


def test_a_pod_that_overtakes_a_group_without_its_room_is_promised_a_start_before_it() -> None:
    by = policy("actions: [enqueue, allocate, {name: backfill, arguments: {mode: conservative}}, preempt]" + TIERS)
    less = group("less", at=1, min_resources={"cpu": "3"}), pod("less-0", "3", of="less", at=1)
    model = world(node("n1"), pod("endless", "4", on="n1", priority=10), less)
    first = run(model, by, now=1)
    model.apply(Upsert(pod("more", "4", at=2, priority=1)))
    one = again(model, first, 2, by)
    assert sorted(waiting(one)) == ["less", "more"]
    model.apply(Delete(Pod, "ns", "endless"))
    two = again(model, one, 50, by)
    assert (two.binds, two.evicted) == ({"more": "n1"}, [])


def test_nobody_starts_in_its_turn_whom_a_more_important_one_evicts_at_once() -> None:
    """`more` needs the room of `less` beside what has ended, or that of `old`."""
    by = policy("actions: [allocate, {name: backfill, arguments: {mode: conservative}}, preempt]" + TIERS)
    model = world(
        node("n1"), pod("ended", "2", on="n1", priority=10), pod("old", "2", on="n1"), pod("less", "2", at=1),
    )  # fmt: skip
    one = run(model, by, now=2)
    model.apply(Upsert(pod("more", "3", at=3, priority=5)))
    two = again(model, one, 3, by)
    model.apply(Delete(Pod, "ns", "ended"))
    three = again(model, two, 50, by)
    assert (three.binds, three.evicted) == ({}, ["old"])


def test_a_later_job_of_higher_priority_takes_a_promise_over() -> None:
    model = world(node("n1"), node("n2"), busy(100), wide())
    first = run(model, CONSERVATIVE, now=10)
    model.apply(Upsert(pod("equal", "4", at=3)))
    assert again(model, first, 20).binds == {}
    model.apply(Upsert(pod("higher", "4", at=4, priority=10)))
    assert again(model, first, 20).binds == {"higher": "n2"}


def test_the_memo_changes_nothing() -> None:
    some = pod("a", at=2), pod("b", at=2), saying(pod("c", at=3), 500)
    model = world(node("n1"), node("n2"), busy(100), wide(), some)
    for by in (EASY, TWO, CONSERVATIVE):
        memo, state = Memo(), None
        for now in (10, 20, 99, 100, 109, 110):
            remembering = run(model, by, now=now, memo=memo, state=state)
            fresh = run(model, by, now=now, state=state)
            for verdict in remembering.verdicts.values():
                name = verdict.group.removeprefix("ns/")
                assert planned(remembering, name) == planned(fresh, name)
                assert remembering.reason(name) == fresh.reason(name)
            assert remembering.transactions == fresh.transactions
            assert remembering.outcome is not None
            memo, state = remembering.outcome.memo, remembering.outcome.state


def test_the_memo_changes_nothing_where_an_end_becomes_known() -> None:
    unknown = pod("unknown", "2", on="n1")
    for by in (EASY, CONSERVATIVE):
        some = busy(100), busy(100, "2", name="other"), unknown
        model = world(node("n1", "10"), some, pod("wide", "8", at=1), pod("a", "2", at=2))
        before = run(model, by, now=10)
        assert (planned(before, "wide"), before.binds) == (100, {})
        assert before.outcome is not None
        model.apply(Upsert(saying(copy.deepcopy(unknown), 50)))
        memo, state = before.outcome.memo, before.outcome.state
        assert run(model, by, now=11, memo=memo, state=state).binds == {"a": "n1"}


def test_the_memo_changes_nothing_where_a_hard_cap_is_raised() -> None:
    hard = queue("default", capability={"cpu": "8"})
    model = world(node("n1", "8"), node("n2"), hard, busy(100), pod("wide", "6", at=1), pod("a", "3", at=2))
    before = run(model, EASY, now=10)
    assert (planned(before, "wide"), before.binds, before.reason("a")) == (100, {}, "Reserved")
    assert before.outcome is not None
    model.apply(Upsert(queue("default", capability={"cpu": "80"})))
    memo, state = before.outcome.memo, before.outcome.state
    assert run(model, EASY, now=11, memo=memo, state=state).binds == {"a": "n2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: backfill, arguments: {mode: eager}}", "argument mode of action backfill: Input should be 'none', "),
        ("{name: backfill, arguments: {depth: 0}}", "argument depth of action backfill: Input should be greater than"),
        ("{name: backfill, arguments: {deep: 1}}", "unknown argument of action backfill 'deep'; did you mean 'depth'?"),
        ("{name: allocate, arguments: {mode: easy}}", "unknown argument of action allocate 'mode'; known: none"),
        ("{name: backfill, argument: {}}", "unknown key of an action 'argument'; did you mean 'arguments'?"),
        ("{arguments: {}}", "an action has no name"),
    ],
)
def test_wrong_arguments_of_actions_name_their_line(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_policy(parse(f"actions:\n- enqueue\n- {text}{TIERS}", "scheduler.yaml"))
    assert str(caught.value).startswith(f"scheduler.yaml:3: {message}")


def test_who_is_in_time_only_if_it_starts_now_waits_for_no_room() -> None:
    leaving = pod("leaving", "4", on="n2")
    leaving.metadata.deletion_timestamp = stamp(30)
    model = world(node("n1"), node("n2"), busy(100), leaving, wide(), saying(pod("short", at=2), 90))
    found = run(model, EASY, now=10)
    assert planned(found, "wide") == 100
    assert (found.binds, found.nominated) == ({}, {})


def test_quoted_arguments_mean_the_same() -> None:
    text = "actions: [allocate, {name: backfill, arguments: {mode: easy, depth: 2}}]" + TIERS
    one, other = (build_policy(parse(text.replace("2", depth), "f")) for depth in ("2", '"2"'))
    assert one.fingerprint == other.fingerprint != EASY.fingerprint


def test_promises_go_through_a_decision_log_as_they_are() -> None:
    model = world(node("n1"), node("n2"), busy(100), wide(), pod("after", "4", at=2))
    found = run(model, CONSERVATIVE, now=10)
    assert found.outcome is not None
    state = found.outcome.state
    assert len(state.planned) == 2
    assert state.free is not None
    text = msgspec.json.encode(write_state(state))
    assert read_state(msgspec.json.decode(text), CONSERVATIVE) == state


def test_planned_starts_have_a_hard_cap_together() -> None:
    model = world(
        node("n1", "16"), queue("default", capability={"cpu": "6"}), busy(100), busy(200, "2", name="last"),
        saying(pod("first", "3", at=1), 500), saying(pod("second", "3", at=2), 500),
        saying(pod("third", "1", at=3), 400),
    )  # fmt: skip
    for by in (THREE, CONSERVATIVE):  # the second beside the first, and the third when one of these has ended
        found = run(model, by, now=10)
        assert (planned(found, "first"), planned(found, "second"), planned(found, "third")) == (100, 200, 600)


def test_who_runs_on_leaves_planned_starts_what_they_take_of_a_hard_cap_together() -> None:
    model = world(
        node("n1", "16"), queue("default", capability={"cpu": "6"}), busy(100, "5"),
        saying(pod("first", "3", at=1), 500), saying(pod("second", "3", at=2), 500), pod("third", "1", at=3),
    )  # fmt: skip
    found = run(model, TWO, now=10)
    assert (planned(found, "first"), planned(found, "second")) == (100, 100)
    assert found.binds == {}


def test_what_was_evicted_ends_no_more() -> None:
    """Of a cap of six `p` gives its three back when it is evicted; `high` takes one of them, and `wide` needs two."""
    by = policy("actions: [preempt, allocate, {name: backfill, arguments: {mode: conservative}}]" + TIERS)
    model = world(
        node("n1", "3", labels={"size": "small"}), node("n2", "16", labels={"size": "big"}),
        queue("default", capability={"cpu": "6"}),
        busy(50, "3", name="p"), busy(100, "2", on="n2", name="q"), saying(pod("wide", "5", at=1), 500),
    )  # fmt: skip
    first = run(model, by, now=10)
    assert instants(first) == {"wide": 100}
    model.apply(Upsert(pod("high", "1", at=2, priority=5, node_selector={"size": "small"})))
    model.apply(Upsert(pod("more", "3", at=3, node_selector={"size": "big"})))
    assert first.outcome is not None
    second = run(model, by, now=20, state=first.outcome.state)
    assert (second.evicted, second.nominated, second.binds) == (["p"], {"high": "n1"}, {})
    assert instants(second)["wide"] == 100


def test_what_a_plugin_leaves_to_a_queue_is_kept_for_planned_starts() -> None:
    flow = "- plugins: [{name: predicates}, {name: flow, arguments: {infiniteFactor: 1}}, {name: nodeorder}]\n"
    for mode in ("easy, depth: 2", "conservative"):
        by = policy(
            f"actions: [allocate, {{name: backfill, arguments: {{mode: {mode}}}}}]\ntiers:\n"
            f"- plugins: [{{name: priority}}, {{name: gang}}]\n{flow}"
        )
        queues = queue("default"), queue("other")  # a fair share of 10 each
        model = world(
            node("n1", "12"), node("n2"), node("n3"), queues, group("of-other", queue="other"),
            saying(pod("x", "12", of="of-other", on="n1"), 100), saying(pod("wide", "8", at=1), 300),
            pod("long", "3", at=2), saying(pod("short", "3", at=4), 90), pod("last", "2", at=5),
            pod("more", "2", at=6),
        )  # fmt: skip
        found = run(model, by, now=10)
        assert (planned(found, "wide"), planned(found, "long")) == (100, 400)
        assert list(found.binds) == ["short", "last"]  # `short` will have ended when `wide` starts
        assert found.reason("long") == "Reserved"
        model.apply(Upsert(saying(pod("short", "3", at=4, on="n2"), 90)))
        model.apply(Upsert(pod("last", "2", at=5, on="n3")))
        assert found.outcome is not None
        after = run(model, by, now=20, state=found.outcome.state)
        assert (planned(after, "wide"), planned(after, "long")) == (100, 400)
        assert after.binds == {}


def test_whose_promise_is_taken_over_is_promised_a_later_start() -> None:
    low = priority_class("low", 1), saying(pod("low", "4", at=1, priority=1), 50)
    model = world(node("n1"), node("n2", "1"), busy(100), low, saying(pod("other", "1", at=2), 900))
    before = run(model, CONSERVATIVE, now=10)
    assert planned(before, "low") == 100
    assert before.outcome is not None
    model.apply(Upsert(saying(pod("high", "4", at=3, priority=10), 70)))
    found = run(model, CONSERVATIVE, now=20, state=before.outcome.state)
    assert (planned(found, "low"), planned(found, "high")) == (170, 100)
    assert found.outcome is not None
    found = run(model, CONSERVATIVE, now=30, state=found.outcome.state)
    assert (planned(found, "low"), planned(found, "high")) == (170, 100)
    assert found.outcome is not None
    found = run(model, CONSERVATIVE, now=105, state=found.outcome.state)  # what runs there has not ended
    assert (planned(found, "low"), planned(found, "high")) == (180, 110)


def test_whose_promise_is_taken_over_takes_over_another() -> None:
    ends = busy(50), busy(100, on="n2", name="y"), busy(150, on="n3", name="z")
    model = world(node("n1"), node("n2"), node("n3"), *ends, saying(pod("low", "4", at=1), 900))
    found = run(model, CONSERVATIVE, now=5)
    for at, (name, priority) in enumerate((("mid", 5), ("high", 10)), start=6):
        model.apply(Upsert(saying(pod(name, "4", at=at, priority=priority), 900)))
        found = again(model, found, at)
    assert instants(found) == {"low": 150, "mid": 100, "high": 50}


def test_ends_of_groups_with_a_lifetime_give_nothing_to_those_without() -> None:
    flow = "- plugins: [{name: predicates}, {name: flow, arguments: {infiniteFactor: 1}}, {name: nodeorder}]\n"
    by = policy(
        "actions: [allocate, {name: backfill, arguments: {mode: easy}}]\ntiers:\n"
        "- plugins: [{name: priority}, {name: gang}]\n" + flow
    )
    some = group("lasting", at=0, lifetime_seconds=900), saying(pod("old", "4", of="lasting", on="n1"), 100)
    hard = queue("default", capability={"cpu": "16"}), queue("other")
    model = world(node("n1", "8"), hard, some, pod("endless", "4", on="n1"), pod("wide", "4", at=1))
    assert planned(run(model, by, now=10), "wide") is None  # both would hold 8, of a fair share of 4


# --- on which nodes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [EASY, CONSERVATIVE])
def test_who_comes_after_a_planned_start_takes_the_lowest_nodes(by: Policy) -> None:
    """nodeorder would have `long` on n4, which is empty. Who is gone in time takes what is kept for others, too."""
    model = world(
        node("n1", "8"), node("n2", "8"), node("n3", "6"), node("n4", "6"), busy(100, "8"), pod("stays", "2", on="n3"),
        wide(cpu="8"), saying(pod("short", at=2), 90), pod("long", at=3),
    )  # fmt: skip
    found = run(model, by, now=10)
    assert found.binds == {"short": "n2", "long": "n3"}
    assert run(model, NONE, now=10).binds["long"] == "n4"


def test_a_pod_above_the_minimum_does_so_too() -> None:
    model = world(
        node("n1", "8"), node("n2", "6"), node("n3", "6"), busy(100, "8"), pod("stays", "2", on="n2"),
        group("grows", 1, at=2), pod("grows-0", "1", of="grows", on="n2"), pod("grows-1", "1", of="grows", at=2),
        pod("large", "8", at=1),
    )  # fmt: skip
    assert run(model, EASY, now=10).binds == {"grows-1": "n2"}
    assert run(model, NONE, now=10).binds == {"grows-1": "n3"}


def test_who_was_promised_a_start_takes_the_lowest_nodes_when_anything_has_ended() -> None:
    """Else those that it was promised."""
    model = world(node("n1"), node("n2"), busy(200), busy(100, on="n2", name="other"), pod("one", "4", at=1))
    first = run(model, CONSERVATIVE, now=10)
    assert planned(first, "one") == 100
    model.apply(Delete(Pod, "ns", "busy"))
    model.apply(Delete(Pod, "ns", "other"))
    assert again(model, first, 50).binds == {"one": "n1"}


# --- who is in queue --------------------------------------------------------------------------------------------------


@pytest.mark.many
def test_of_those_who_wait_for_their_turn_a_hundred_keep_nobody_out_of_the_queue() -> None:
    """The room that is there is enough for one by its sum, and on no node: cycle for cycle one more would come in."""
    groups = [(group(f"g{at:03}", at=1), pod(f"p{at:03}", "4", of=f"g{at:03}", at=1)) for at in range(110)]
    model = world(node("n1"), node("n2"), pod("a", on="n1"), pod("b", on="n2"), *groups)
    sim = Simulation(model, policy("actions: [enqueue, allocate, {name: backfill, arguments: {mode: easy}}]" + TIERS))
    for _ in range(115):
        sim.cycle()
        sim.tick()
    assert sum(job.is_true(ENQUEUED) for job in model.jobs.values()) == 101


def test_a_cycle_that_leaves_other_promises_than_it_found_is_not_the_last_word_on_an_equal_cluster() -> None:
    """Promises change decisions: the next cycle is skipped only where they are as the one before had found them."""
    model = world(queue(), node("n1", "4"), pod("runs", "3", on="n1"), pod("waits", "4"))
    state, memo, skipped = CycleState(), Memo(), []
    for _ in range(3):
        found = run(model, CONSERVATIVE, now=1, state=state, memo=memo).outcome
        assert found is not None
        skipped.append(found.memo is memo)
        state, memo = found.state, found.memo
        assert [each.job for each in state.planned] == ["ns/waits#u-waits"]
    assert skipped == [False, False, True]


def nominate(model: ClusterModel, where: dict[str, str]) -> None:
    """The API server says which nodes these pods are nominated to."""
    for name, on in where.items():
        found = copy.deepcopy(model.tasks[f"ns/{name}"].pod)
        found.status.nominated_node_name = on
        model.apply(Upsert(found))


@pytest.mark.parametrize(("at", "binds", "start"), [(2, {}, 100), (0, {"waits": "n2"}, "unknown")])
def test_in_mode_easy_who_is_nominated_delays_nobody_before_it(
    at: int, binds: dict[str, str], start: int | str
) -> None:
    """`waits` finds n2 idle, where it would run on when `wide` is to start."""
    gang = members("wide", 2, "4", at=1, node_selector={"size": "big"})
    big = [node(name, labels={"size": "big"}) for name in ("n2", "n3")]
    leaving = terminating(pod("leaving", "4", on="n1"), 45)
    model = world(node("n1"), big, leaving, busy(100, on="n3"), group("wide", 2, at=1), gang, pod("waits", "4", at=at))
    nominate(model, {"waits": "n1"})
    found = run(model, EASY, now=6)
    assert (found.binds, planned(found, "wide")) == (binds, start)


def test_in_mode_easy_what_was_evicted_for_it_brings_nobody_before_those_whose_turn_it_was() -> None:
    """Its queue holds less of its share while `leaving` goes, and had more before: `waits` came after `wide`."""
    leaving = terminating(pod("leaving", "4", on="n1", queue="two"), 45)
    runs = saying(pod("busy", "4", on="n3", queue="one"), 100)
    model = world(
        [queue("one"), queue("two"), node("n1", labels={"size": "small"}), leaving, runs],
        [node(name, labels={"size": "big"}) for name in ("n2", "n3")],
        group("wide", 2, queue="one", at=1),
        members("wide", 2, "4", at=1, node_selector={"size": "big"}),
        pod("waits", "4", queue="two", at=2),
    )
    nominate(model, {"waits": "n1"})
    found = run(model, EASY, now=6)
    assert (found.binds, planned(found, "wide")) == ({}, 100)


def test_in_mode_easy_nobody_goes_for_who_is_in_time_where_a_start_is_planned() -> None:
    """`second` was to have n2, and would run on when `wide` is to start."""
    reclaims = policy("actions: [reclaim, allocate, {name: backfill, arguments: {mode: easy}}]" + TIERS)
    model = world(
        [queue("giving"), queue("one", 9), queue("two", 90), node("n1"), node("n2"), node("n3")],
        [pod("old", "4", on="n1", queue="giving"), saying(pod("busy", "4", on="n3", queue="two"), 100)],
        [group("wide", 2, queue="one", at=1), *members("wide", 2, "4", at=1), pod("second", "4", queue="one", at=2)],
        saying(pod("third", "4", queue="two", at=3), 50),
    )
    found = run(model, reclaims, now=6)
    assert found.evicted == []
    assert found.binds == {"third": "n2"}
    assert planned(found, "wide") == 100


def test_in_mode_easy_who_is_nominated_moves_to_room_that_delays_nobody() -> None:
    model = world(
        node("n1"), node("n2"), node("n3"), terminating(pod("leaving", "4", on="n1"), 45), busy(100, on="n3"),
        pod("wide", "8", at=1), pod("waits", "4", at=2),
    )  # fmt: skip
    nominate(model, {"waits": "n1"})
    assert run(model, EASY, now=6).binds == {"waits": "n2"}


def test_who_was_promised_a_start_is_nominated_to_no_room_that_comes_free_later() -> None:
    """From 100 on there is room for one of `wide` on n2, and for the other from 150 on; n1 is held until 400."""
    leaving, others = terminating(pod("leaving", "4", on="n1"), 400), (busy(100, on="n2"), busy(150, on="n3", name="z"))
    model = world(node("n1"), node("n2"), node("n3"), leaving, *others, lasting(50, wide()))
    first = run(model, CONSERVATIVE, now=5)
    assert instants(first) == {"wide": 150}
    model.apply(Delete(Pod, "ns", "busy"))
    model.apply(Upsert(saying(pod("later", "4", at=99), 500)))
    second = again(model, first, 100)
    assert (second.binds, instants(second)["wide"]) == ({}, 150)
    assert not {"wide-0", "wide-1"} & second.nominated.keys()
    nominate(model, {name: on for name, on in second.nominated.items() if on is not None})
    model.apply(Delete(Pod, "ns", "z"))
    assert again(model, second, 150).binds == {"wide-0": "n2", "wide-1": "n3"}


@pytest.mark.parametrize("by", [EASY, CONSERVATIVE])
def test_pods_that_terminate_keep_others_away_until_they_are_gone(by: Policy) -> None:
    """n1 has room, but the pod on it keeps others of its kind away until 400."""
    leaving, others = (
        terminating(apart(busy(900, "1")), 400),
        (busy(100, on="n2", name="y"), busy(150, on="n3", name="z")),
    )
    gang = map(apart, members("wide", 2, "2", at=1))
    model = world(host("n1"), host("n2"), host("n3"), leaving, *others, group("wide", 2, at=1), *gang)
    assert planned(run(model, by, now=5), "wide") == 150
    model.apply(Upsert(terminating(apart(busy(900, "1")), 120)))
    assert planned(run(model, by, now=5), "wide") == 120


@pytest.mark.parametrize("scheduler", ["kube-batch", "another"])
@pytest.mark.parametrize("by", [EASY, CONSERVATIVE])
def test_nodes_are_whole_again_when_a_pod_has_terminated(by: Policy, scheduler: str) -> None:
    """A pod of another scheduler takes nothing but its room from an exclusive group's nodes."""
    leaving = terminating(pod("leaving", "1", on="n1", scheduler=scheduler), 400)
    others = busy(100, on="n2", name="y"), busy(150, on="n3", name="z")
    model = world(node("n1"), node("n2"), node("n3"), leaving, *others, wide(cpu="3", exclusive=True))
    assert planned(run(model, by, now=5), "wide") == (150 if scheduler == "kube-batch" else 100)


def test_what_is_kept_for_planned_starts_keeps_nobody_out_of_the_queue() -> None:
    """`next` starts where `wide` leaves room on n2; then as much is free there as `wide` needs: `c` may come in."""
    by = policy("actions: [enqueue, allocate, {name: backfill, arguments: {mode: conservative, depth: 2}}]" + TIERS)
    gang = [
        pod("wide-0", "4", of="wide", at=1, node_selector={"on": "n1"}),
        pod("wide-1", "2", of="wide", at=1, node_selector={"on": "n2"}),
    ]
    let_in = group("wide", 2, at=1)
    let_in.status.conditions = (Condition(type=ENQUEUED, status="True", last_transition_time=stamp(5)),)
    model = world(
        node("n1", labels={"on": "n1"}), node("n2", "6", labels={"on": "n2"}), busy(100), busy(50, "6", "n2", "z"),
        let_in, lasting(50, gang), pod("next", "2", at=2, node_selector={"on": "n2"}),
    )  # fmt: skip
    first = run(model, by, now=6)
    assert instants(first) == {"wide": 100, "next": 50}
    model.apply(Delete(Pod, "ns", "z"))
    for at, name in enumerate("abcd"):
        model.apply(Upsert(group(name, at=7 + at, min_resources={"cpu": "2"})))
    assert first.outcome is not None
    second = run(model, by, now=10, state=first.outcome.state)
    assert (second.binds, instants(second)) == ({"next": "n2"}, {"wide": 100})
    assert [name for name in "abcd" if second.verdicts[f"ns/{name}"].enqueued] == ["a", "b", "c"]


def test_the_first_that_waits_is_in_queue_though_another_starts_just_then() -> None:
    """`second` takes the 2 CPUs that came free; of what follows `third` may use what it leaves, and `next` may not."""
    by = policy("actions: [enqueue, allocate, {name: backfill, arguments: {mode: easy}}]" + TIERS)
    second = group("second", at=1)
    second.status.conditions = (Condition(type=ENQUEUED, status="True", last_transition_time=stamp(5)),)
    model = world(
        node("n1", "2"), second, saying(pod("second-0", "2", of="second", at=1), 8),
        group("third", at=2, min_resources={"cpu": "1"}), group("next", at=3, min_resources={"cpu": "2"}),
        group("last", at=4, min_resources={"cpu": "2"}),
    )  # fmt: skip
    found = run(model, by, now=17)
    assert found.binds == {"second-0": "n1"}
    assert [name for name in ("third", "next", "last") if found.verdicts[f"ns/{name}"].enqueued] == ["third", "next"]


def test_who_is_in_queue_takes_no_place_from_who_comes_before_it_in_order() -> None:
    """`small` came in for room that is gone; `wide` has waited for longer. `next` comes after it, and stays out."""
    by = policy("actions: [enqueue, allocate, {name: backfill, arguments: {mode: easy}}]" + TIERS)
    small = group("small", at=5)
    small.status.conditions = (Condition(type=ENQUEUED, status="True", last_transition_time=stamp(6)),)
    model = world(
        node("n1", "4"), busy(100, "2"), small, saying(pod("small-0", "3", of="small", at=5), 8),
        group("wide", at=1, min_resources={"cpu": "4"}), group("next", at=7, min_resources={"cpu": "4"}),
    )  # fmt: skip
    found = run(model, by, now=17)
    assert not found.binds
    assert [name for name in ("wide", "next") if found.verdicts[f"ns/{name}"].enqueued] == ["wide"]


def labelled(found: Pod) -> Pod:
    """The pod, which those that are `apart` stand on no node with."""
    found.metadata.labels = {"app": "apart"}
    return found


def test_a_promise_stands_whatever_those_behind_it_make_of_its_pods_above_the_minimum() -> None:
    model = world(
        host("n1"), host("n2"), busy(100), busy(120, on="n2", name="z"), group("first", at=1),
        saying(pod("first-0", "4", of="first", at=1), 50), labelled(saying(pod("first-1", "4", of="first", at=1), 50)),
        apart(saying(pod("next", "4", at=2), 50)),
    )  # fmt: skip
    one = run(model, CONSERVATIVE, now=10)
    assert (planned(one, "first"), planned(one, "next")) == (100, 120)
    model.apply(Delete(Pod, "ns", "busy"))
    two = again(model, one, 100)
    assert two.binds == {"first-0": "n1"}
    assert planned(two, "next") == 120


def test_pods_that_matter_to_no_planned_start_start_without_those_of_their_group_that_do() -> None:
    model = world(
        host("n1"), host("n2"), host("n3"), apart(busy(100, "1")), apart(busy(200, "1", "n3", "z")),
        group("wide", 2, at=1), *map(apart, members("wide", 2, at=1)),
        group("mixed", at=2), apart(pod("mixed-0", of="mixed", at=2)), pod("mixed-1", of="mixed", at=2),
    )  # fmt: skip
    found = run(model, EASY, now=10)
    assert planned(found, "wide") == 100
    assert sorted(found.binds) == ["mixed-1"]


@pytest.mark.parametrize("end", [1_000, None])
@pytest.mark.parametrize("limit", ["capability", "infiniteFactor"])
def test_a_promise_ends_when_its_queue_may_not_have_as_much_any_more(limit: str, end: int | None) -> None:
    """At first the queue may have 16 cpu, or 9 by its part of 12; then 6, or 3.6."""
    by, there = CONSERVATIVE, [queue("default", capability={"cpu": "16"}), queue("other")]
    if limit == "infiniteFactor":
        flow = "{name: flow, arguments: {infiniteFactor: 1.5}}"
        tiers = TIERS.replace("{name: drf}", flow).replace(", {name: proportion}", "")
        by = policy("actions: [allocate, {name: backfill, arguments: {mode: conservative}}]" + tiers)
        there = [queue("default"), queue("other")]
    holder = busy(end) if end is not None else pod("busy", "4", on="n1", queue="other")
    model = world(there, node("n1"), node("n2"), node("n3", "4"), pod("z", "4", on="n3", queue="other"), holder, wide())
    first = run(model, by, now=5)
    assert planned(first, "wide") == (end or "unknown")
    if limit == "capability":
        model.apply(Upsert(queue("default", capability={"cpu": "6"})))
    else:
        for name in ("a", "b", "c"):
            model.apply(Upsert(queue(name)))
    model.apply(Upsert(saying(pod("long", "3", at=20, queue="a"), 5_000)))
    assert first.outcome is not None
    second = run(model, by, now=20, state=first.outcome.state)
    assert planned(second, "wide") is None
    assert run(model, by, now=20).binds.keys() == second.binds.keys()


def test_a_promise_is_kept_beside_what_others_of_its_queue_take_of_a_hard_cap_until_then() -> None:
    """A pod on another node holds what `wide` needs of the cap, and runs past its estimate."""
    model = world(
        queue("default", capability={"cpu": "8"}), queue("other"), node("n1"), node("n2"), node("n3"),
        saying(pod("x", "4", on="n1", queue="other"), 100), busy(90, on="n3"), lasting(50, wide()),
    )  # fmt: skip
    first = run(model, CONSERVATIVE, now=5)
    assert instants(first) == {"wide": 90}
    second = again(model, first, 95)
    assert instants(second) == {"wide": 99}


def test_before_its_turn_nobody_starts_in_room_that_was_promised_to_a_group_in_queue() -> None:
    """`lone` was promised n1 from 100 on. On n2 there is room for 4 cpu from 20 on, and all of it is promised."""
    by = policy("actions: [enqueue, allocate, {name: backfill, arguments: {mode: conservative}}]" + TIERS)
    model = world(node("n1"), node("n2"), busy(100), busy(150, "1", "n2", "z"), saying(pod("lone", "4", at=1), 30))
    first = run(model, by, now=5)
    assert (instants(first), first.binds) == ({"lone": 100}, {})
    let_in = group("wide", at=6, min_resources={"cpu": "3"})
    let_in.status.conditions = (Condition(type=ENQUEUED, status="True", last_transition_time=stamp(6)),)
    for each in (let_in, group("next", at=7, min_resources={"cpu": "1"}), saying(pod("tiny", "1", at=8), 30)):
        model.apply(Upsert(each))
    model.apply(Delete(Pod, "ns", "z"))
    assert first.outcome is not None
    second = run(model, by, now=20, state=first.outcome.state)
    assert second.verdicts["ns/next"].enqueued
    assert (second.binds, planned(second, "lone")) == ({}, 100)
    assert second.outcome is not None
    model.apply(Delete(Pod, "ns", "busy"))
    assert run(model, by, now=100, state=second.outcome.state).binds == {"lone": "n1"}


def test_who_can_start_sooner_elsewhere_is_not_nominated_to_room_that_comes_free_late() -> None:
    """n1 is free at 400, n2 at 100; `later` comes after `first`, and does not get the better of the two."""
    leaving = terminating(pod("leaving", "4", on="n1"), 400)
    singles = [saying(pod(name, "4", at=at), 500) for at, name in enumerate(("first", "later"), start=1)]
    model = world(node("n1"), node("n2"), leaving, busy(100, on="n2"), singles)
    one = run(model, CONSERVATIVE, now=5)
    assert (instants(one), one.nominated) == ({"first": 100}, {"later": "n1"})
    nominate(model, {name: on for name, on in one.nominated.items() if on is not None})
    model.apply(Delete(Pod, "ns", "busy"))
    assert again(model, one, 100).binds == {"first": "n2"}


def test_who_cannot_start_sooner_elsewhere_is_nominated_to_room_that_comes_free_late() -> None:
    leaving = terminating(pod("leaving", "4", on="n1"), 400)
    model = world(node("n1"), node("n2"), leaving, busy(450, on="n2"), saying(pod("first", "4", at=1), 500))
    one = run(model, CONSERVATIVE, now=5)
    assert (instants(one), one.nominated) == ({}, {"first": "n1"})
