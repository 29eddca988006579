"""Fragmentation: what is idle and of no use to the pods that wait; and the nodes in use."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kbatch.api.objects import AnyObject
from kbatch.engine.cooperative import finish
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from kbatch.model.fragmentation import MOST_CLASSES, Mix, measuring, opened
from tests.unit.engine.worlds import queue, world
from tests.unit.plugins.views import node, pod

GPU = "x.y/gpu"


def machine(name: str, cpu: int, gpus: int = 0, **more: Any) -> AnyObject:
    gpu = {GPU: str(gpus)} if gpus else {}
    return node(name, status={"allocatable": {"cpu": str(cpu), "memory": "100", "pods": "9", **gpu}}, **more)


def asking(name: str, cpu: int, gpus: int = 0, **more: Any) -> AnyObject:
    return pod(name, requests={"cpu": str(cpu), **({GPU: str(gpus)} if gpus else {})}, **more)


def told(model: ClusterModel) -> dict[str, Fraction]:
    return finish(measuring(model.table, finish(Mix().looking(model))))


def test_what_a_class_cannot_use_is_told_by_resource() -> None:
    # Two such pods use 6 of 8 cores of the one node, and none of the other, which has no GPU.
    found = told(world(queue(), machine("a", 8, 4), machine("b", 4), asking("p", 3, 1)))
    assert found == {"cpu": Fraction(6, 12), GPU: Fraction(2, 4)}


def test_it_is_the_mean_over_the_classes_that_ask_for_the_resource() -> None:
    model = world(queue(), machine("a", 8, 4), asking("p", 8, 4), asking("q", 6), asking("r", 1), asking("s", 1))
    assert told(model) == {"cpu": (0 + Fraction(2, 8) + 0) / 3, GPU: Fraction(0)}


def test_what_is_used_is_not_idle() -> None:
    held = pod("h", "a", requests={"cpu": "6"})
    assert told(world(queue(), machine("a", 8), machine("b", 2), held, asking("p", 4))) == {"cpu": Fraction(1)}
    assert told(world(queue(), machine("a", 8), machine("b", 2), held, asking("p", 2))) == {"cpu": Fraction(0)}


def test_a_node_where_a_pod_may_not_stand_is_of_no_use_to_it() -> None:
    taint: dict[str, Any] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    assert told(world(queue(), machine("a", 4), machine("b", 4, **taint), asking("p", 1))) == {"cpu": Fraction(1, 2)}


def test_a_node_that_takes_nothing_new_has_nothing_idle() -> None:
    assert told(world(queue(), machine("a", 4), machine("b", 4, unschedulable=True), asking("p", 1))) == {"cpu": 0}


def test_nothing_is_said_where_nobody_waits_or_nothing_is_idle() -> None:
    assert told(world(queue(), machine("a", 4))) == {}
    full = pod("h", "a", requests={"cpu": "4"})
    assert told(world(queue(), machine("a", 4), full, asking("p", 1))) == {}


def test_no_more_classes_count_than_the_most_common() -> None:
    many = [asking(f"p{at}", at + 2) for at in range(MOST_CLASSES)]
    rare = asking("rare", 1000)
    model = world(queue(), machine("a", 400), *many, *[asking(f"q{at}", 1) for at in range(2)], rare)
    classes = finish(Mix().looking(model))
    assert len(classes) == MOST_CLASSES
    assert classes[0].request == {"cpu": 1000}
    assert all(cls.request != {"cpu": 1_000_000} for cls in classes)


def test_a_mix_follows_the_groups() -> None:
    model, mix = world(queue(), machine("a", 4), asking("p", 1)), Mix()
    assert [cls.request for cls in finish(mix.looking(model))] == [{"cpu": 1000}]
    model.apply(Upsert(asking("q", 2)))
    assert [cls.request for cls in finish(mix.looking(model))] == [{"cpu": 1000}, {"cpu": 2000}]
    model.apply(Upsert(pod("p", "a")))
    assert [cls.request for cls in finish(mix.looking(model))] == [{"cpu": 2000}]


def test_opened_are_the_nodes_with_pods_of_ours() -> None:
    foreign = pod("f", "b", schedulerName="other")
    model = world(queue(), machine("a", 4), machine("b", 4), machine("c", 4), pod("p", "a"), foreign)
    assert opened(model.table) == ["a"]
