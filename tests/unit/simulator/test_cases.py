"""Named cases: each a file in tests/cases, and what must come of it, whatever the configuration that it is run under.

The numbered ones are those in which kube-batch is known to do something else, or is known to do just this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbatch.simulator.errors import InputError

CASES = Path(__file__).parents[2] / "cases"

# kube-batch's own files: the one it ships, and the one built in.
SHIPPED = """
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
BUILT_IN = """
actions: "allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
SINGLE_TIER = """
actions: "enqueue, reclaim, allocate, backfill, preempt"
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: conformance}
  - {name: drf}
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
"""
PREEMPT_FIRST = SHIPPED.replace("reclaim, allocate, backfill, preempt", "preempt, allocate")
DEFAULT = None

placing = pytest.mark.parametrize("conf", [DEFAULT, SHIPPED, BUILT_IN], ids=["default", "shipped", "built-in"])
evicting = pytest.mark.parametrize("conf", [DEFAULT, SHIPPED], ids=["default", "shipped"])


def by_prefix(names: list[str]) -> Counter[str]:
    return Counter(name.partition("-")[0] for name in names)


def test_every_case_is_run() -> None:
    text = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    unused = [path.stem for path in sorted(CASES.glob("*.yaml")) if path.stem not in text]
    assert unused == []


@placing
def test_01_gang_that_does_not_fit_blocks_nobody(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-01-gang-that-does-not-fit-blocks-nobody", conf)
    first = outcome.cycles[0]
    assert (first["cycle"], first["time"]) == (1, 0.0)
    assert first["binds"] == [{"pod": "default/small", "node": "n1"}]
    assert [(bind["pod"], bind["time"]) for bind in outcome.binds[1:]] == [
        (f"default/gang-{i}", 10.0) for i in range(3)
    ]
    assert outcome.running() == ["gang-0", "gang-1", "gang-2", "small"]
    before = simulate("case-01-gang-that-does-not-fit-blocks-nobody", conf, until=5)
    assert before.reason("gang") == "NotEnoughResources"
    assert before.message("gang").startswith("2 of 3 pods")


@placing
def test_02_too_few_pods_created(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-02-too-few-pods-created", conf)
    assert outcome.running() == ["one-0"]
    assert outcome.reason("short") == "NotEnoughTasks"
    assert "2 of 4" in outcome.message("short")


@placing
def test_03_two_gangs_room_for_one(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-03-two-gangs-room-for-one", conf)
    assert outcome.running() == ["a-0", "a-1", "a-2"]
    assert outcome.evictions == []


@placing
def test_04_minimum_first_then_shares(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-04-minimum-first-then-shares", conf)
    assert by_prefix(outcome.running()) == {"a": 4, "b": 6}
    assert outcome.evictions == []


@placing
def test_05_equal_jobs_share_equally(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-05-equal-jobs-share-equally", conf)
    assert by_prefix(outcome.running()) == {"a": 4, "b": 4}
    assert outcome.evictions == []


@placing
def test_06_dominant_resource_fairness(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-06-dominant-resource-fairness", conf)
    assert by_prefix(outcome.running()) == {"a": 3, "b": 2}
    assert outcome.evictions == []


@placing
def test_07_weights_1_2_1(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-07-weights-1-2-1", conf)
    run = by_prefix(outcome.running())
    assert run["jq1"] == 2
    assert (run["jq2"], run["jq3"]) in {(7, 3), (6, 4)}
    assert outcome.evictions == []


@placing
def test_08_deserved_of_the_seed(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-08-deserved-of-the-seed", conf)
    assert outcome.queues["q1"]["deserved"] == {"cpu": "3", "memory": "9Gi"}
    assert outcome.queues["q2"]["deserved"] == {"cpu": "6", "memory": "18Gi"}


@placing
def test_09_dimension_without_capacity(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-09-dimension-without-capacity", conf)
    assert by_prefix(outcome.running()) == {"a": 1, "b": 15}


@placing
def test_10_many_small_jobs_beside_a_large_one(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-10-many-small-jobs-beside-a-large-one", conf)
    assert len(outcome.running("large")) == 20
    assert len(outcome.running("p")) == 20
    assert outcome.evictions == []


def test_11_queue_of_weight_0(simulate: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match=r"case-11-queue-of-weight-0.yaml, document 2: spec.weight: .*1, got 0"):
        simulate("case-11-queue-of-weight-0")


@evicting
def test_12_reclaim_once_and_rest(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-12-reclaim-once-and-rest", conf, extra_cycles=60)
    assert len(outcome.evictions) == 4
    assert {(each["action"], each["for"]) for each in outcome.evictions} == {("reclaim", "default/b")}
    assert by_prefix(outcome.running()) == {"a": 4, "b": 4}


def test_13_reclaim_in_a_single_tier(simulate: Callable[..., Any]) -> None:
    outcome = simulate("case-13-reclaim-in-a-single-tier", SINGLE_TIER, extra_cycles=60)
    assert len(outcome.evictions) == 4
    assert by_prefix(outcome.running()) == {"a": 4, "b": 4}


@evicting
def test_14_gang_above_its_share(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-14-gang-above-its-share", conf, extra_cycles=30)
    assert outcome.evictions == []
    assert by_prefix(outcome.running()) == {"a": 4}
    assert outcome.reason("b") == "GangExceedsReclaimableShare"


@evicting
def test_15_gang_reclaims_in_one_cycle(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-15-gang-reclaims-in-one-cycle", conf, extra_cycles=30)
    assert [each["time"] for each in outcome.evictions] == [0.0] * 4
    assert len([cycle for cycle in outcome.cycles if cycle["evictions"]]) == 1
    assert [(bind["pod"], bind["time"]) for bind in outcome.binds] == [(f"default/b-{i}", 1.0) for i in range(4)]
    assert by_prefix(outcome.running()) == {"a": 4, "b": 4}


@evicting
def test_16_preemption_that_would_not_suffice(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-16-preemption-that-would-not-suffice", conf, extra_cycles=30)
    assert outcome.evictions == []
    assert by_prefix(outcome.running()) == {"a": 4}


@evicting
def test_17_gang_is_not_broken(simulate: Callable[..., Any], conf: str | None) -> None:
    surplus = simulate("case-17-gang-is-not-broken-surplus", conf, extra_cycles=30)
    assert surplus.evictions == []
    assert by_prefix(surplus.running()) == {"a": 5}
    whole = simulate("case-17-gang-is-not-broken-whole", conf, extra_cycles=30)
    assert len(whole.evictions) == 5
    assert whole.running() == ["b"]


@evicting
@pytest.mark.parametrize("name", ["case-18-no-more-victims-than-needed-2", "case-18-no-more-victims-than-needed-4"])
def test_18_no_more_victims_than_needed(simulate: Callable[..., Any], conf: str | None, name: str) -> None:
    outcome = simulate(name, conf, extra_cycles=30)
    assert len(outcome.evictions) == int(name[-1]) - 1
    assert {each["action"] for each in outcome.evictions} == {"preempt"}
    assert "b" in outcome.running()


@evicting
def test_19_preemption_once_and_rest(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-19-preemption-once-and-rest", conf, extra_cycles=60)
    assert len(outcome.evictions) == 4
    assert {(each["action"], each["for"]) for each in outcome.evictions} == {("preempt", "default/b")}
    assert by_prefix(outcome.running()) == {"a": 4, "b": 4}


@evicting
def test_20_freed_room_is_kept(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-20-freed-room-is-kept", conf)
    assert len(outcome.evictions) == 4
    # The last victim is gone after 20 s; what came free before that was taken by nobody.
    assert [(bind["pod"], bind["time"]) for bind in outcome.binds] == [("default/b", 20.0)]
    nominations = [each for cycle in outcome.cycles for each in cycle["nominations"]]
    assert nominations == [{"pod": "default/b", "node": "n1"}]


@pytest.mark.parametrize("conf", [DEFAULT, PREEMPT_FIRST], ids=["default", "preempt-first"])
def test_21_idle_room_before_victims(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-21-idle-room-before-victims", conf)
    assert outcome.evictions == []
    assert {(bind["pod"], bind["node"]) for bind in outcome.binds} == {(f"default/b-{i}", "n2") for i in range(4)}


@placing
def test_22_pods_without_requests_count(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-22-pods-without-requests-count", conf)
    assert outcome.running() == ["a-0", "a-1", "a-2"]
    assert len(outcome.cycles[0]["binds"]) == 3


@placing
def test_23_only_an_init_container_requests(simulate: Callable[..., Any], conf: str | None) -> None:
    assert simulate("case-23-only-an-init-container-requests", conf).running() == ["a"]


@placing
def test_24_no_epsilon(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-24-no-epsilon", conf)
    assert outcome.running() == ["a"]
    assert outcome.reason("b") == "NotEnoughResources"


@placing
def test_25_conditions_are_retracted(simulate: Callable[..., Any], conf: str | None) -> None:
    before = simulate("case-25-conditions-are-retracted", conf, until=5)
    assert before.running() == ["a-0", "a-1"]
    assert before.condition("b", "Unschedulable")["status"] == "True"
    after = simulate("case-25-conditions-are-retracted", conf)
    assert after.running() == ["b-0", "b-1"]
    assert after.condition("b", "Unschedulable")["status"] == "False"
    assert after.condition("b", "Scheduled")["status"] == "True"
    assert after.reason("a") == "NotEnoughTasks"
    assert "0 of 2" in after.message("a")


@evicting
def test_26_disruption_budget_is_no_gang_and_holds(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-26-disruption-budget-is-no-gang-and-holds", conf)
    assert outcome.evictions == []
    assert by_prefix(outcome.running()) == {"a": 4}


@evicting
def test_27_no_reclaim_where_room_is_idle(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-27-no-reclaim-where-room-is-idle", conf)
    assert outcome.evictions == []
    assert outcome.binds == [{"pod": "default/b", "node": "n2", "time": 0.0}]


@evicting
def test_28_no_reclaim_for_what_fits(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("case-28-no-reclaim-for-what-fits", conf)
    assert outcome.evictions == []
    assert sorted(bind["pod"] for bind in outcome.binds) == ["default/b", "default/c"]


# --- beyond the numbered ones -----------------------------------------------------------------------------------------


@placing
def test_host_ports_one_to_a_node(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("host-ports-one-to-a-node", conf)
    assert sorted(bind["node"] for bind in outcome.binds) == ["n1", "n2", "n3"]
    assert len(outcome.running()) == 3


@placing
def test_taint_keeps_away(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("taint-keeps-away", conf)
    assert {(bind["pod"], bind["node"], bind["time"]) for bind in outcome.binds} == {
        ("default/b", "n1", 0.0),
        ("default/a", "n2", 10.0),
    }
    assert "taint" in simulate("taint-keeps-away", conf, until=5).message("a")


@placing
def test_pod_affinity_gang_on_one_node(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("pod-affinity-gang-on-one-node", conf)
    assert [bind["node"] for bind in outcome.binds] == ["n2"] * 4


@placing
def test_emptiest_of_three_nodes(simulate: Callable[..., Any], conf: str | None) -> None:
    assert simulate("emptiest-of-three-nodes", conf).binds == [{"pod": "default/a", "node": "n3", "time": 0.0}]


@evicting
def test_second_gang_evicts_nobody(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("second-gang-evicts-nobody", conf)
    assert outcome.evictions == []
    assert by_prefix(outcome.running()) == {"a": 4}


@placing
def test_phase_unknown(simulate: Callable[..., Any], conf: str | None) -> None:
    assert simulate("phase-unknown", conf, until=5).phase("a") == "Running"
    outcome = simulate("phase-unknown", conf)
    assert len(outcome.running()) == 2
    assert outcome.phase("a") == "Unknown"


@placing
def test_queue_that_does_not_exist(simulate: Callable[..., Any], conf: str | None) -> None:
    before = simulate("queue-that-does-not-exist", conf, until=5)
    assert before.reason("a") == "QueueNotFound"
    assert before.running() == []
    outcome = simulate("queue-that-does-not-exist", conf)
    assert [bind["time"] for bind in outcome.binds] == [10.0, 10.0]


@placing
def test_podgroup_that_does_not_exist(simulate: Callable[..., Any], conf: str | None) -> None:
    before = simulate("podgroup-that-does-not-exist", conf, until=5)
    assert before.reason("later") == "PodGroupNotFound"
    outcome = simulate("podgroup-that-does-not-exist", conf)
    assert outcome.running() == ["a-0", "a-1"]
    assert outcome.reason("never") == "PodGroupNotFound"


@placing
def test_priority_class_that_does_not_exist(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("priority-class-that-does-not-exist", conf)
    assert outcome.running() == []
    assert outcome.reason("a") == "PriorityClassNotFound"


def test_quota_lets_in_what_it_covers(simulate: Callable[..., Any]) -> None:
    outcome = simulate("quota-lets-in-what-it-covers")
    assert {bind["pod"].rpartition("-")[0]: bind["time"] for bind in outcome.binds} == {
        "default/a": 0.0,
        "default/b": 30.0,
    }
    assert outcome.reason("c") == "QuotaExceeded"
    assert not [key for key in outcome.pods if key.startswith("default/c-")]
    waiting = simulate("quota-lets-in-what-it-covers", until=10)
    assert (waiting.reason("b"), waiting.phase("b")) == ("QuotaExceeded", "Pending")


def test_capability_is_a_hard_cap(simulate: Callable[..., Any]) -> None:
    outcome = simulate("capability-is-a-hard-cap")
    assert {bind["pod"].rpartition("-")[0]: bind["time"] for bind in outcome.binds} == {
        "default/a": 0.0,
        "default/b": 30.0,
    }
    assert outcome.reason("c") == "QueueCapabilityExceeded"


@evicting
def test_closed_queue(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("closed-queue", conf)
    assert outcome.binds == []
    assert (outcome.reason("a"), outcome.reason("x")) == ("QueueClosed", "QueueClosed")


@evicting
def test_never_preempts(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("never-preempts", conf, extra_cycles=10)
    assert (outcome.evictions, by_prefix(outcome.running())) == ([], {"a": 4})


@evicting
def test_no_victim_before_its_minimum_of_run_time(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("no-victim-before-its-minimum-of-run-time", conf)
    assert [each["time"] for each in outcome.evictions] == [50.0, 50.0]
    assert {bind["time"] for bind in outcome.binds if bind["pod"].startswith("default/b")} == {51.0}


@evicting
def test_never_disrupted(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("never-disrupted", conf, extra_cycles=10)
    assert (outcome.evictions, by_prefix(outcome.running())) == ([], {"a": 4})


@evicting
def test_queue_that_is_not_reclaimable(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("queue-that-is-not-reclaimable", conf, extra_cycles=10)
    assert (outcome.evictions, by_prefix(outcome.running())) == ([], {"a": 4})
    assert outcome.queues["q2"]["deserved"]["cpu"] == "1"


@placing
def test_roles_start_together(simulate: Callable[..., Any], conf: str | None) -> None:
    assert simulate("roles-start-together", conf, until=5).running() == []
    outcome = simulate("roles-start-together", conf)
    assert "a-m" in outcome.running()
    assert len(outcome.running("a-w")) == 3
    assert {bind["time"] for bind in outcome.binds} == {10.0}


@placing
def test_gated_pod(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("gated-pod", conf)
    assert (outcome.running(), outcome.reason("a")) == ([], "Gated")


@placing
def test_minimum_by_annotation(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("minimum-by-annotation", conf)
    assert by_prefix(outcome.running()) == {"b": 3}
    assert outcome.message("a").startswith("4 of 5 pods")


@evicting
def test_preemption_inside_a_job(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("preemption-inside-a-job", conf, extra_cycles=10)
    assert [(each["action"], each["for"]) for each in outcome.evictions] == [("preempt", "default/a")]
    assert "a-x" in outcome.running()
    assert len(outcome.running()) == 4


@evicting
def test_disruption_budget_allows_one(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("disruption-budget-allows-one", conf, until=100, extra_cycles=5)
    assert len(outcome.evictions) == 1
    assert len([name for name in outcome.running() if name in {"b", "c"}]) == 1


@placing
def test_a_stream_of_small_pods_does_not_starve_a_gang(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("gang-is-not-starved-by-a-stream", conf)
    started = [bind["time"] for bind in outcome.binds if "/big-" in bind["pod"]]
    assert len(started) == 4
    assert all(600 <= time <= 660 for time in started)


@evicting
def test_a_group_past_its_lifetime_makes_room_once(simulate: Callable[..., Any], conf: str | None) -> None:
    outcome = simulate("lifetime-ends-for-another", conf)
    assert {(each["pod"].rpartition("/")[2][:1], each["time"]) for each in outcome.evictions} == {("a", 60)}
    assert len(outcome.evictions) == 4
    assert by_prefix(outcome.running()) == {"b": 4}


def test_surplus_makes_room_for_a_held_job(simulate: Callable[..., Any]) -> None:
    outcome = simulate("surplus-makes-room-for-a-held-job", extra_cycles=20)
    assert {(each["action"], each["for"], each["time"]) for each in outcome.evictions} == {
        ("preempt", "default/b", 10.0)
    }
    first = next(cycle for cycle in outcome.cycles if cycle["evictions"])
    assert (first["enqueued"], len(first["evictions"]), first["nominations"]) == (["default/b"], 4, [])
    assert by_prefix(outcome.running()) == {"a": 2, "b": 4}
    assert {bind["time"] for bind in outcome.binds if bind["pod"].startswith("default/b-")} == {11.0}
    assert len(outcome.evictions) == 4


def test_surplus_stays_for_a_held_job_that_would_not_fit(simulate: Callable[..., Any]) -> None:
    case = "surplus-stays-for-a-held-job-that-would-not-fit"
    outcome = simulate(case, extra_cycles=20)
    assert (outcome.evictions, by_prefix(outcome.running())) == ([], {"a": 6})
    assert simulate(case, until=600).phase("b") == "Pending"  # later it comes in queue by its age


def test_surplus_stays_where_a_held_job_has_room(simulate: Callable[..., Any]) -> None:
    outcome = simulate("surplus-stays-where-a-held-job-has-room", extra_cycles=20)
    assert (outcome.evictions, by_prefix(outcome.running())) == ([], {"a": 5, "b": 1})
