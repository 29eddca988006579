"""Named cases of the plugin flow."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.unit.simulator.conftest import Outcome, Simulate


def conf(told: str = "", actions: str = "enqueue, reclaim, allocate, backfill, preempt") -> str:
    return (
        f'actions: "{actions}"\n'
        "tiers:\n"
        "- plugins: [{name: priority}, {name: gang}, {name: conformance}]\n"
        f"- plugins: [{{name: predicates}}, {{name: flow, arguments: {{{told}}}}}, {{name: nodeorder}}]\n"
    )


def bound_at(outcome: Outcome, time: float) -> dict[str, int]:
    """How many pods of each group were bound then."""
    return dict(Counter(bind["pod"].split("/")[1].split("-")[0] for bind in outcome.binds if bind["time"] == time))


@pytest.mark.parametrize("actions", ["enqueue, reclaim, allocate, backfill, preempt", "allocate"])
@pytest.mark.parametrize(
    ("told", "case", "time", "want"),
    [
        ("halfTime: 1h", "flow-past-usage-counts", 100.0, {"a": 1, "b": 7}),
        ("halfTime: 0", "flow-past-usage-counts", 100.0, {"a": 4, "b": 4}),
        ("halfTime: 50", "flow-past-usage-fades", 150.0, {"a": 4, "b": 4}),
        ("halfTime: 30m", "flow-is-read-back", 0.0, {"a": 1, "b": 3}),
    ],
)
def test_past_usage(simulate: Simulate, actions: str, told: str, case: str, time: float, want: dict[str, int]) -> None:
    assert bound_at(simulate(case, conf(told, actions), until=500), time) == want


def flow_of(outcome: Outcome, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = outcome.queues[queue]["flow"]
    return found


def test_groups_without_a_lifetime_have_their_factor_of_the_fair_share(simulate: Simulate) -> None:
    outcome = simulate("flow-infinite-share", conf("infiniteFactor: 1.2"), until=20)
    assert bound_at(outcome, 0.0) == {"a": 6, "short": 4}
    assert outcome.reason("other") == "InfiniteShareExceeded"
    found = flow_of(outcome, "a")
    assert {name: found[name] for name in ("usage", "unlimitedUsage", "fairShare")} == {
        "usage": 10, "unlimitedUsage": 6, "fairShare": 5,
    }  # fmt: skip


def test_the_budget_is_charged_and_given_back(simulate: Simulate) -> None:
    before = simulate("flow-excess-budget", conf(), until=50)
    assert before.running() == [*(f"x-{at}" for at in range(4)), *(f"y-{at}" for at in range(5))]
    assert before.reason("z") == "ExcessBudgetExceeded"
    assert "would be charged 4 resource-minutes" in before.message("z")
    assert "10 of 10 charged" in before.message("z")
    assert before.json["podgroups"]["default/y"]["excessCharged"] == 10
    assert "excessCharged" not in before.json["podgroups"]["default/x"]
    assert flow_of(before, "a")["excessCharged"] == 10
    after = simulate("flow-excess-budget", conf(), until=200)
    assert after.pods["default/z-0"]["bound"] == 100.0
    assert flow_of(after, "a")["excessCharged"] == 0


def test_a_run_goes_on_until_the_past_has_faded(simulate: Simulate) -> None:
    """Nothing happens any more but that the flow comes down to the factor: then the next one starts."""
    manifests = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: '4'}}
---
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: Queue
metadata: {name: a}
status: {flow: {value: 16, unlimitedValue: 16, usage: 0, unlimitedUsage: 0, time: '2000-01-01T00:00:00Z'}}
---
apiVersion: scheduling.incubator.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: g}
spec: {queue: a}
---
apiVersion: v1
kind: Pod
metadata: {name: g-0, annotations: {scheduling.k8s.io/group-name: g}}
spec: {schedulerName: kube-batch, containers: [{name: main, resources: {requests: {cpu: '1'}}}]}
"""
    outcome = simulate(manifests, conf("infiniteFactor: 1, halfTime: 1h"))
    assert outcome.pods["default/g-0"]["bound"] == pytest.approx(7200, abs=0.01)


def test_without_the_plugin_nothing_is_said_of_flow(simulate: Simulate) -> None:
    assert all("flow" not in queue for queue in simulate("flow-excess-budget", until=20).queues.values())


def test_a_victim_stays_only_where_the_budget_bears_it_beside_the_group_that_it_went_for(simulate: Simulate) -> None:
    outcome = simulate("flow-victim-that-may-not-stay", conf("halfTime: 0", "allocate, preempt"), until=20)
    assert [(each["pod"], each["action"]) for each in outcome.evictions] == [("default/x-0", "preempt")]
    assert not flow_of(outcome, "a").get("excessCharged")


def test_charges_that_make_up_the_budget_exactly_are_within_it(simulate: Simulate) -> None:
    outcome = simulate("flow-budget-to-the-last", conf("halfTime: 0"), until=20)
    assert {each["pod"]: each["time"] for each in outcome.binds} == dict.fromkeys(
        ["default/g0-0", "default/g1-0", "default/g2-0"], 0.0
    )
