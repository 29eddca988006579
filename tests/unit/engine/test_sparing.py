"""Victims of one step that need not go once a later step of the same action has made more room than it uses."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.objects import Affinity, LabelSelector, PodAffinity, PodAffinityTerm
from kbatch.engine.context import CycleContext
from kbatch.engine.preemption import within_queue
from kbatch.engine.preemption.steps import next_steps
from kbatch.engine.state.jobs import JobState
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from tests.unit.engine.worlds import EVERYTHING, group, members, node, pod, policy, priority_class, queue, run, world

CLASSES = [priority_class("low", 1), priority_class("middle", 50), priority_class("high", 100)]
PREEMPT = EVERYTHING.replace("enqueue, reclaim, ", "")
TERM = PodAffinityTerm(
    topology_key="kubernetes.io/hostname", label_selector=LabelSelector(match_labels={"app": "small"})
)
APART: dict[str, Any] = {
    "labels": {"app": "small"},
    "affinity": Affinity(pod_anti_affinity=PodAffinity(required=(TERM,))),
}


def full(*, of: str = "deserving", small: dict[str, Any] | None = None, **giving: Any) -> ClusterModel:
    """A node of 3 cpu with a victim of 1 and one of 2 of queue `giving`, and two pods of 1 cpu that want room."""
    return world(
        [*CLASSES, queue("giving", **giving), queue("deserving", 9), node("n", "3")],
        group("small", queue="giving", priority_class_name="low"),
        pod("small-0", "1", of="small", on="n", **(small or {})),
        group("large", queue="giving", priority_class_name="middle", at=1),
        pod("large-0", "2", of="large", on="n", at=1),
        group("wanting", queue=of, priority_class_name="high", at=2),
        members("wanting", 2, at=2),
    )


@pytest.mark.parametrize("giving", [{}, {"excess_budget": 1000}])
@pytest.mark.parametrize("of", ["deserving", "giving"])
def test_a_victim_stays_whose_room_is_left_over_by_a_larger_one(of: str, giving: dict[str, Any]) -> None:
    """The least goes for the first pod, the larger one for the second, and would have done for both."""
    found = run(full(of=of, **giving), policy(EVERYTHING), now=3)
    assert found.evicted == ["large-0"]
    assert found.nominated == {"wanting-0": "n", "wanting-1": "n"}


@pytest.mark.parametrize(("of", "lifetime", "gone"), [
    ("deserving", 60, ["large-0"]), ("giving", None, ["large-0"]), ("giving", 60, ["large-0", "small-0"]),
])  # fmt: skip
def test_a_victim_stays_beside_a_budget_unless_somebody_is_charged_for_what_is_decided(
    of: str, lifetime: int | None, gone: list[str]
) -> None:
    """What a group of its queue with a lifetime takes of the budget was reckoned without it."""
    model = full(of=of, excess_budget=1000)
    model.apply(Upsert(group("wanting", queue=of, priority_class_name="high", at=2, lifetime_seconds=lifetime)))
    with_flow = FLOW.replace("allocate, backfill", "reclaim, allocate, backfill").replace("infiniteFactor: 1", "")
    found = run(model, policy(with_flow), now=3)
    assert sorted(found.evicted) == gone


def test_who_stays_is_counted_again_in_what_follows_in_the_cycle() -> None:
    """The room of the one that stays is given to nobody."""
    model = full()
    for one in (group("late", queue="giving", at=3), pod("late-0", of="late", at=3)):
        model.apply(Upsert(one))
    found = run(model, policy(EVERYTHING), now=4)
    assert found.evicted == ["large-0"]
    assert "late-0" not in found.nominated
    assert found.binds == {}


def test_it_goes_where_the_queue_would_hold_more_than_its_capability_with_it() -> None:
    """There is room for it beside the two that want room, and the cap has none."""
    model = full(of="giving", capability={"cpu": "2"})
    found = run(model, policy(EVERYTHING), now=3)
    assert found.evicted == ["large-0", "small-0"]


def test_so_does_a_group_of_which_only_a_part_would_be_within_the_capability() -> None:
    model = world(
        [*CLASSES, queue("giving", capability={"cpu": "2500m"}), node("n", "3")],
        group("small", 2, queue="giving", disruption="Whole", priority_class_name="low"),
        members("small", 2, "500m", on="n"),
        group("large", queue="giving", priority_class_name="middle", at=1),
        pod("large-0", "2", of="large", on="n", at=1),
        group("wanting", queue="giving", priority_class_name="high", at=2),
        members("wanting", 2, at=2),
    )
    found = run(model, policy(EVERYTHING), now=3)
    assert found.evicted == ["large-0", "small-0", "small-1"]


def test_it_goes_where_it_matters_which_pods_stand_beside_one_another() -> None:
    """Of those not all is known that is asked when a pod is placed."""
    found = run(full(small=APART), policy(EVERYTHING), now=3)
    assert found.evicted == ["large-0", "small-0"]


@pytest.mark.parametrize(("elsewhere", "stays"), [("n", True), ("m", False)])
def test_a_group_that_went_as_a_whole_stays_as_a_whole_or_not_at_all(elsewhere: str, *, stays: bool) -> None:
    """Where one of its pods could not stay, the other does not either."""
    model = world(
        [*CLASSES, queue("giving"), node("m", "500m")],
        node("n", "3" if stays else "2500m"),
        group("small", 2, queue="giving", disruption="Whole", priority_class_name="low"),
        [pod("small-0", "500m", of="small", on="n"), pod("small-1", "500m", of="small", on=elsewhere)],
        group("large", 3, queue="giving", disruption="Whole", priority_class_name="middle", at=1),
        [pod(f"large-{at}", cpu, of="large", on="n", at=1) for at, cpu in enumerate(("1", "500m", "500m"))],
        group("wanting", queue="giving", priority_class_name="high", at=2),
        [pod(f"wanting-{at}", "1" if stays else "500m", of="wanting", at=2) for at in range(2 if stays else 3)],
    )
    found = run(model, policy(EVERYTHING), now=3)
    assert set(found.evicted) - {"small-0", "small-1"} == {"large-0", "large-1", "large-2"}
    assert {"small-0", "small-1"} & set(found.evicted) == (set() if stays else {"small-0", "small-1"})


def test_nobody_goes_in_vain_for_who_matters_more_than_a_job_that_finds_room() -> None:
    """Before `late` is placed, room is made for `wanting`, which was tried in vain."""
    model = world(
        [*CLASSES, queue("giving"), node("n", "3", labels={"on": "n"}), node("m", "1")],
        group("small", queue="giving", priority_class_name="low"),
        pod("small-0", "1", of="small", on="n"),
        group("large", queue="giving", priority_class_name="middle", at=1),
        pod("large-0", "2", of="large", on="n", at=1),
        group("wanting", queue="giving", priority_class_name="high", at=2),
        members("wanting", 2, at=2, node_selector={"on": "n"}),
        group("late", queue="giving", priority_class_name="low", at=3),
        pod("late-0", of="late", at=3),
    )
    found = run(model, policy(EVERYTHING.replace("enqueue, reclaim, ", "")), now=4)
    assert found.evicted == ["large-0"]
    assert found.nominated == {"wanting-0": "n", "wanting-1": "n"}
    assert found.binds == {"late-0": "m"}


def test_a_victim_stays_whose_room_is_left_over_by_one_of_another_action() -> None:
    """`allocate` makes room for `one`, of higher priority than `late`, and `preempt` for `two`."""
    model = world(
        [*CLASSES, queue("giving"), node("n", "3", labels={"on": "n"}), node("m", "1")],
        group("large", queue="giving", priority_class_name="low"),
        pod("large-0", "2", of="large", on="n"),
        group("small", queue="giving", priority_class_name="low", at=1),
        pod("small-0", "1", of="small", on="n", at=1),
        group("one", queue="giving", priority_class_name="high", at=2),
        pod("one-0", of="one", at=2, node_selector={"on": "n"}),
        group("two", queue="giving", priority_class_name="middle", at=3),
        pod("two-0", of="two", at=3, node_selector={"on": "n"}),
        group("late", queue="giving", priority_class_name="middle", at=4),
        pod("late-0", of="late", at=4),
    )
    found = run(model, policy(PREEMPT), now=5)
    assert found.evicted == ["large-0"]
    assert found.nominated == {"one-0": "n", "two-0": "n"}
    assert found.binds == {"late-0": "m"}


@pytest.mark.parametrize("disruption", ["Surplus", "Whole"])
def test_of_pods_above_a_minimum_those_stay_that_can(disruption: str) -> None:
    """`large` leaves room for one of the two that went of `small`, which keeps its minimum."""
    model = world(
        [*CLASSES, queue("giving"), node("n", "3500m", labels={"on": "n"}), node("m", "2")],
        group("small", 2, queue="giving", disruption=disruption, priority_class_name="low"),
        [pod(f"small-{at}", "1", of="small", on="m") for at in (0, 1)],
        [pod(f"small-{at}", "500m", of="small", on="n") for at in (2, 3)],
        group("large", queue="giving", priority_class_name="middle", at=1),
        pod("large-0", "2500m", of="large", on="n", at=1),
        group("wanting", queue="giving", priority_class_name="high", at=2),
        [
            pod(f"wanting-{at}", cpu, of="wanting", at=2, node_selector={"on": "n"})
            for at, cpu in enumerate(("500m", "500m", "2"))
        ],
    )
    found = run(model, policy(EVERYTHING.replace("enqueue, reclaim, ", "")), now=4)
    assert found.evicted in (["large-0", "small-2"], ["large-0", "small-3"])


FLOW = """
actions: "allocate, backfill, preempt"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: flow, arguments: {infiniteFactor: 1}}, {name: predicates}, {name: nodeorder}]
"""


def test_a_group_goes_that_would_take_its_queue_over_the_limit_of_a_plugin_only_as_a_whole() -> None:
    """Of 9 cpu the queue may have 4.5; 4 of them go to `gang` and `one`."""
    model = world(
        [*CLASSES, queue("giving"), queue("idle")],
        [node("n", "3", labels={"on": "n"}), node("m", "6", labels={"on": "m"})],
        group("small", 2, queue="giving", disruption="Whole", priority_class_name="low"),
        members("small", 2, "500m", on="n"),
        group("large", queue="giving", priority_class_name="middle", at=1),
        pod("large-0", "2", of="large", on="n", at=1),
        group("gang", 2, queue="giving", priority_class_name="high", at=2),
        pod("gang-0", "500m", of="gang", at=2, node_selector={"on": "n"}),
        pod("gang-1", "2", of="gang", at=2, node_selector={"on": "m"}),
        group("one", queue="giving", priority_class_name="high", at=3),
        pod("one-0", "1500m", of="one", at=3, node_selector={"on": "n"}),
    )
    found = run(model, policy(FLOW), now=4)
    assert found.nominated == {"gang-0": "n", "gang-1": "m", "one-0": "n"}
    assert found.evicted == ["large-0", "small-0", "small-1"]


def test_nobody_goes_for_a_group_that_fails_before_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its second step raises: what it was nominated to ends, and its first victim stays."""
    asked: list[str] = []

    def failing(context: CycleContext, job: JobState) -> Any:
        asked.append(job.key)
        if len(asked) == 2:
            raise RuntimeError("poison")
        return next_steps(context, job)

    monkeypatch.setattr(within_queue, "next_steps", failing)
    model = world(
        [*CLASSES, queue(), node("n", "2")],
        *[pod(name, on="n", priority_class_name="low") for name in ("a", "b")],
        group("wanting", at=1, priority_class_name="high"),
        members("wanting", 2, at=1, priority_class_name="high"),
    )
    found = run(model, policy(PREEMPT), now=5)
    assert found.evicted == []
    assert len(asked) == 2
    assert found.outcome is not None
    assert "poison" in str(found.outcome.errors)
