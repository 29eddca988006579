"""A group counts for no more than its pods were admitted with, and before it has pods nobody goes for it."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.objects import Pod
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.test_pods_to_come import elastic, held_job, wanting
from tests.unit.engine.worlds import EVERYTHING, group, members, node, pod, policy, priority_class, queue, run, world

ALL = policy(EVERYTHING)
CLASSES = [priority_class("low", 1), priority_class("high", 100), priority_class("system-node-critical", 2_000_001_000)]


def priorities(*objects: Any) -> tuple[int, int]:
    job = world(*CLASSES, *objects).jobs["ns/g"]
    return job.priority, job.proven


@pytest.mark.parametrize(
    ("named", "of_pods", "value"),
    [
        ("high", [100, 100], 100),
        ("high", [200, 100], 100),
        ("high", [100, 7], 7),
        ("system-node-critical", [0, 0], 0),
        ("low", [100], 1),
        ("high", [-5], -5),
        ("", [100, 7], 7),
        ("", [7], 7),
        ("gone", [3], 3),
    ],
)
def test_a_class_is_bounded_by_the_lowest_of_the_pods(named: str, of_pods: list[int], value: int) -> None:
    pods = [pod(f"g-{at}", of="g", priority=each) for at, each in enumerate(of_pods)]
    assert priorities(group("g", priority_class_name=named), pods) == (value, value)


def test_a_group_whose_class_does_not_exist_asks_its_queue_for_nothing_until_it_does() -> None:
    model = world(
        queue(), node("n1", "8"), group("g", 2, priority_class_name="gone"), pod("g-0", "2", of="g", on="n1"),
        pod("g-1", "2", of="g"), group("h", priority_class_name="gone", min_resources={"cpu": "4"}),
    )  # fmt: skip
    assert model.queues["default"].request == {"cpu": 2000}
    assert model.deserved()["default"] == {"cpu": 2000}
    model.apply(Upsert(priority_class("gone", 5)))
    assert model.queues["default"].request == {"cpu": 8000}
    model.validate()


def test_pods_of_a_class_are_taken_at_its_value() -> None:
    assert priorities(group("g", priority_class_name="high"), pod("x", of="g", priority_class_name="low"))[0] == 1


def test_pods_that_no_api_server_has_admitted_bound_nothing() -> None:
    """As manifests that are simulated have them."""
    assert priorities(group("g", priority_class_name="high"), members("g", 2)) == (100, 100)
    assert priorities(group("g", priority_class_name="high"), members("g", 2), pod("x", of="g", priority=3))[0] == 3


def test_pods_that_have_ended_bound_nothing_and_one_that_goes_gives_the_group_its_own_back() -> None:
    model = world(*CLASSES, group("g", priority_class_name="high"), pod("a", of="g", priority=100))
    ended = pod("b", of="g", priority=0)
    ended.status.phase = "Failed"
    model.apply(Upsert(ended))
    assert model.jobs["ns/g"].priority == 100
    model.apply(Upsert(pod("c", of="g", priority=0)))
    assert model.jobs["ns/g"].priority == 0
    model.apply(Delete(Pod, "ns", "c"))
    assert model.jobs["ns/g"].priority == 100


def test_before_there_are_pods_a_class_orders_and_proves_nothing() -> None:
    assert priorities(group("g", priority_class_name="high")) == (100, 0)
    default = priority_class("usual", 50, global_default=True)
    assert priorities(default, group("g", priority_class_name="high")) == (100, 50)
    assert priorities(default, group("g", priority_class_name="low")) == (1, 1)


def test_nobody_is_evicted_for_a_class_that_only_the_group_names() -> None:
    running = members("low", 4, on="n1", priority=0)
    claims = group("g", 4, at=9, priority_class_name="system-node-critical")
    model = world(*CLASSES, queue(), node("n1", "4"), group("low", 1), running, claims, members("g", 4, priority=0))
    assert run(model, ALL).evicted == []
    honest = members("g", 4, priority=100)
    model = world(*CLASSES, queue(), node("n1", "4"), group("low", 1), running, claims, honest)
    assert len(run(model, ALL).evicted) > 0


def test_for_pods_to_come_nobody_goes_by_what_their_group_names() -> None:
    """Its pods will say what its class is worth, and then go by it."""
    dear = [elastic(priority_class_name="low"), members("a", 4, on="n1", priority=1)]
    claims = [wanting(priority_class_name="high"), held_job("b", 2, priority_class_name="high")]
    assert run(world(*CLASSES, queue(), node("n1", "4"), *dear, *claims), ALL).evicted == []
    never_said = [group("a", 2), members("a", 4, on="n1", priority=0)]
    assert run(world(*CLASSES, queue(), node("n1", "4"), *never_said, *claims), ALL).evicted == []
    equal = [elastic(), members("a", 4, on="n1", priority=0)]
    assert run(world(*CLASSES, queue(), node("n1", "4"), *equal, *claims), ALL).evicted == []
    plain = [wanting(), held_job("b", 2)]
    assert len(run(world(*CLASSES, queue(), node("n1", "4"), *equal, *plain), ALL).evicted) == 2
