"""What the auditor says of budgets and quotas: made-up misdeeds, and what is right."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.auditor.test_rules import Story

APP = {"app": "x"}


def guarded(count: int, least: Any = 2, phase: str = "Running", **more: Any) -> Story:
    """So many pods of one application on a node, and its budget."""
    story = Story()
    story.budget("keep", least, APP, **more)
    story.group("low", 1, Scheduled="True x")
    for index in range(count):
        story.pod(f"p{index}", "low", labels=APP)
        story.pod(f"p{index}", "low", node="n1", labels=APP)
        story.pod(f"p{index}", "low", node="n1", labels=APP, phase=phase)
    story.wait(5)
    return story


def evict(story: Story, name: str, *, gone: bool = False, phase: str = "Running") -> None:
    """The watch shows it first, then the record is read; or the pod is gone by then."""
    story.pod(name, "low", node="n1", labels=APP, phase=phase, evicted=True)
    if gone:
        story.pod(name, "low", node="n1", labels=APP, phase=phase, evicted=True, change="DELETED")
    story.evict(name, "preempt", "ns/high")


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("budget", [{"least": 2}, {"least": "50%", "wanted": 2}])
def test_an_eviction_leaves_what_a_budget_wants(gone: bool, budget: dict[str, Any]) -> None:
    story = guarded(3, **budget)
    evict(story, "p0", gone=gone)
    assert story.rules == []
    evict(story, "p1", gone=gone)
    assert story.rules == ["over budget"]
    assert "1 of 2" in str(story.judge.violations[0])
    assert "ns/p0 (Running) evicted" in str(story.judge.violations[0])


@pytest.mark.parametrize("gone", [False, True])
def test_a_pod_that_has_not_started_counts_in_no_budget(gone: bool) -> None:
    story = guarded(3, phase="Pending")
    evict(story, "p0", gone=gone, phase="Pending")
    evict(story, "p1", gone=gone, phase="Pending")
    assert story.rules == []


def test_somebody_elses_eviction_is_not_ours() -> None:
    story = guarded(2)
    story.pod("p0", "low", node="n1", labels=APP, evicted=True)
    story.evict("p0", by="")
    assert story.rules == []


def test_of_other_pods_a_budget_says_nothing() -> None:
    story = guarded(2)
    story.pod("q", "low")
    story.pod("q", "low", node="n1")
    story.pod("q", "low", node="n1", evicted=True)
    story.evict("q", "preempt", "ns/high")
    story.budget("keep", 2, APP, change="DELETED")
    evict(story, "p0")
    assert story.rules == []


@pytest.mark.parametrize(("seconds", "rules"), [(0, []), (3, ["over budget"])])
def test_a_pod_that_has_just_ended_was_there_when_another_was_evicted(seconds: int, rules: list[str]) -> None:
    story = guarded(3)
    story.pod("p2", "low", node="n1", labels=APP, phase="Succeeded")
    story.wait(seconds)
    evict(story, "p0")
    assert [rule for rule in story.rules if rule == "over budget"] == rules


@pytest.mark.parametrize("hard", [{"requests.cpu": "4"}, {"cpu": "4"}])
def test_no_more_is_promised_than_a_quota_has(hard: dict[str, str]) -> None:
    story = Story()
    story.quota("team", hard)
    story.pod("used", cpu="1")
    story.group("a", 3, asks={"cpu": "3"}, Enqueued="True Admitted")
    story.group("waits", 3, asks={"cpu": "3"}, Enqueued="False QuotaExceeded")
    story.wait(10)
    assert story.rules == []
    story.group("b", 1, asks={"cpu": "1"}, Enqueued="True Admitted")
    story.wait(4)
    assert story.rules == []
    story.wait(3)
    assert story.rules == ["over quota"]


def test_what_a_group_has_pods_for_is_promised_no_more() -> None:
    story = Story()
    story.quota("team", {"requests.cpu": "4"})
    story.group("a", 3, asks={"cpu": "3"}, Enqueued="True Admitted")
    for index in range(3):
        story.pod(f"a-{index}", "a")
    story.group("b", 1, asks={"cpu": "1"}, Enqueued="True Admitted")
    story.wait(10)
    assert story.rules == []


def test_quotas_with_scopes_of_other_resources_and_gone_ones_are_let_be() -> None:
    story = Story()
    story.quota("scoped", {"cpu": "1"}, scopes=("BestEffort",))
    story.quota("gpus", {"requests.nvidia.com/gpu": "1"})
    story.quota("old", {"cpu": "1"})
    story.quota("old", {"cpu": "1"}, "DELETED")
    story.group("a", 3, asks={"cpu": "3"}, Enqueued="True Admitted")
    story.wait(10)
    assert story.rules == []
