"""Who may go for whom, where little is missing for another answer."""

from typing import Any

import pytest

from kbatch.api.objects import (
    LabelSelector,
    Metadata,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from tests.unit.engine.worlds import EVERYTHING, group, members, node, pod, policy, priority_class, queue, run, world

NO_ENQUEUE = EVERYTHING.replace("enqueue, ", "")
BY = policy(NO_ENQUEUE)
CLASSES = [priority_class("low", 1), priority_class("mid", 50), priority_class("high", 100)]


def budget(name: str = "b", allowed: int | None = None, **spec: Any) -> PodDisruptionBudget:
    """Of the pods of the app v; `allowed` is what its controller says."""
    found = PodDisruptionBudget(
        metadata=Metadata(name=name, namespace="ns"),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "v"}), **spec),
    )
    if allowed is not None:
        found.status = PodDisruptionBudgetStatus(disruptions_allowed=allowed, expected_pods=2, observed_generation=1)
    return found


# --- what serves another preemptor ------------------------------------------------------------------------------------


def test_who_stays_gets_what_one_with_a_lifetime_just_like_it_may_not_have() -> None:
    """Of equal priority a group with a lifetime takes nothing from one without; the next, which has none, may."""
    found = run(
        world(
            queue(), node("n1", "4"), group("big"), members("big", 4, on="n1"),
            group("a", at=1, lifetime_seconds=60), pod("a-0", of="a", at=1),
            group("b", at=2), pod("b-0", of="b", at=2),
        ),
        BY,
    )  # fmt: skip
    assert len(found.evicted) == 1
    assert found.nominated == {"b-0": "n1"}


def test_who_matters_more_gets_what_one_just_like_it_that_comes_first_may_not_have() -> None:
    """Where jobs come by age, a group that matters less is tried first, in vain."""
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "2"), group("v", priority_class_name="mid"), *members("v", 2, on="n1")],
            group("a", at=1, priority_class_name="low"), pod("a-0", of="a", at=1),
            group("b", at=2, priority_class_name="high"), pod("b-0", of="b", at=2),
        ),
        policy(NO_ENQUEUE.replace("{name: priority}", "{name: priority, enableJobOrder: false}")),
    )  # fmt: skip
    assert len(found.evicted) == 1
    assert found.nominated == {"b-0": "n1"}


def test_who_holds_less_gets_what_one_just_like_it_that_holds_more_may_not_have() -> None:
    """Where jobs come by age, one with two of six pods is tried first, in vain, and then one with a single pod."""
    found = run(
        world(
            [queue(), node("n1", "6"), group("v"), *members("v", 3, on="n1")],
            [group("a", at=1), *members("a", 2, on="n1"), pod("a-9", of="a", at=1)],
            [group("b", at=2), *members("b", 1, on="n1"), pod("b-9", of="b", at=2)],
        ),
        policy(NO_ENQUEUE.replace("{name: drf}", "{name: drf, enableJobOrder: false}")),
    )
    assert len(found.evicted) == 1
    assert found.evicted[0].startswith("v-")
    assert found.nominated == {"b-9": "n1"}


# --- disruption budgets -----------------------------------------------------------------------------------------------


def test_a_victim_that_was_only_tried_uses_up_no_budget() -> None:
    """The gang would need two, of which one may go: nobody goes for it, and one for the single pod behind it."""
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "2"), budget(min_available=1)],
            [group("v", priority_class_name="low"), *members("v", 2, on="n1", labels={"app": "v"})],
            [group("a", 2, at=1, priority_class_name="high"), *members("a", 2, at=1)],
            [group("b", at=2, priority_class_name="high"), pod("b-0", "500m", of="b", at=2)],
        ),
        BY,
    )
    assert len(found.evicted) == 1
    assert found.nominated == {"b-0": "n1"}


@pytest.mark.parametrize("evicting", [True, False])
def test_evictions_that_the_budgets_controller_has_not_seen_count(evicting: bool) -> None:
    model = world(
        [*CLASSES, queue(), node("n1", "3"), budget(allowed=1)],
        [group("v", priority_class_name="low"), *members("v", 3, on="n1", labels={"app": "v"})],
        [group("a", 1, at=1, priority_class_name="high"), pod("a-0", "2" if evicting else "1", of="a", at=1)],
    )
    if evicting:
        model.evicting("ns/v-0", "u-v-0")
    assert len(run(model, BY).evicted) == (0 if evicting else 1)


# --- candidates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("disruption", "evicted"), [("Never", 0), ("Surplus", 1)])
def test_who_is_never_disrupted_stays_whoever_comes(disruption: str, evicted: int) -> None:
    found = run(
        world(
            [*CLASSES, queue(), node("n1", "2"), group("v", priority_class_name="low", disruption=disruption)],
            [*members("v", 2, on="n1"), group("a", at=1, priority_class_name="high"), pod("a-0", of="a", at=1)],
        ),
        BY,
    )
    assert len(found.evicted) == evicted
