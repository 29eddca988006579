"""Queues that are open to some namespaces: groups of others wait with a reason, run nothing, and ask for no share."""

from __future__ import annotations

from typing import Any

from kbatch.api.objects import LabelSelector, LabelSelectorRequirement, Metadata, Namespace, Queue
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from tests.unit.engine.test_pods_to_come import held_job
from tests.unit.engine.worlds import EVERYTHING, group, members, node, pod, policy, queue, run, world

ALL = policy(EVERYTHING)


def namespace(**labels: str) -> Namespace:
    """That of all groups and pods of these tests."""
    return Namespace(metadata=Metadata(name="ns", labels=labels))


def selecting(**labels: str) -> LabelSelector:
    return LabelSelector(match_labels=labels)


def research(**more: Any) -> Queue:
    """Open to the namespaces of team a."""
    return queue("research", namespace_selector=selecting(team="a"), **more)


def test_a_group_of_another_namespace_waits_with_the_reason_and_its_pods_do_not_run() -> None:
    objects = [research(), node("n1"), group("g", 2, queue="research"), members("g", 2), pod("x", queue="research")]
    for labels in ({}, {"team": "b"}):
        found = run(world(namespace(**labels), *objects), ALL)
        assert found.binds == {}
        assert (found.reason("g"), found.reason("x")) == ("QueueNotAllowed", "QueueNotAllowed")
        reason = found.verdicts["ns/g"].reason
        assert reason is not None
        assert reason.message.startswith("Queue research is not open to namespace ns: ")
        assert not found.verdicts["ns/g"].pods_unschedulable  # no node would help
    assert sorted(run(world(namespace(team="a"), *objects), ALL).binds) == ["g-0", "g-1", "x"]


def test_who_is_selected_follows_the_labels_as_kubernetes_matches_them() -> None:
    def runs(selector: LabelSelector | None, *more: Any) -> bool:
        model = world(queue("q", namespace_selector=selector), node("n1"), pod("x", queue="q"), *more)
        return bool(run(model, ALL).binds)

    assert runs(None)
    assert runs(LabelSelector())
    # Each namespace has its own name as a label, also one of which nothing is known.
    assert runs(LabelSelector(match_labels={"kubernetes.io/metadata.name": "ns"}))
    assert not runs(LabelSelector(match_labels={"kubernetes.io/metadata.name": "other"}))
    shut = LabelSelectorRequirement(key="team", operator="NotIn", values=("b", "c"))
    assert runs(LabelSelector(match_expressions=(shut,)))
    assert not runs(LabelSelector(match_expressions=(shut,)), namespace(team="c"))


def test_it_goes_on_in_the_cycle_after_labels_or_queue_changed_and_back() -> None:
    model = world(research(), node("n1"), group("g", 1, queue="research"), members("g", 1))
    assert run(model, ALL).reason("g") == "QueueNotAllowed"
    steps: list[tuple[Any, bool]] = [
        (Upsert(namespace(team="a")), True),
        (Upsert(namespace(team="b")), False),
        (Upsert(queue("research")), True),
        (Upsert(research()), False),
        (Upsert(namespace(team="a")), True),
        (Delete(Namespace, "", "ns"), False),
    ]
    for event, open_ in steps:
        model.apply(event)
        assert bool(run(model, ALL).binds) is open_, event


def test_the_memo_knows_of_it() -> None:
    model = world(research(), namespace(team="b"), node("n1"), group("g", 1, queue="research"), members("g", 1))
    first = run(model, ALL)
    assert first.outcome is not None
    model.apply(Upsert(namespace(team="a")))
    assert run(model, ALL, memo=first.outcome.memo, state=first.outcome.state).binds == {"g-0": "n1"}


def test_what_runs_goes_on_and_nothing_is_added() -> None:
    model = world(
        research(), namespace(team="b"), node("n1"), group("g", 1, queue="research"),
        pod("g-0", of="g", on="n1"), pod("g-1", of="g"),
    )  # fmt: skip
    found = run(model, ALL)
    assert (found.binds, found.evicted) == ({}, [])
    assert model.queues["research"].request == model.queues["research"].allocated == {"cpu": 1000}


def requested(model: ClusterModel, name: str) -> int:
    model.validate()
    return model.queues[name].request.get("cpu", 0)


def test_naming_a_queue_raises_no_share() -> None:
    """Neither by pods that wait, nor by minResources, nor by Jobs that are held."""
    objects = [
        node("n1"), queue("default"), pod("own"), pod("x", "2", queue="research"),
        group("a", 2, queue="research"), members("a", 2),
        group("b", 3, queue="research", min_resources={"cpu": "3"}),
        group("c", 3, queue="research"), held_job("c", 3),
    ]  # fmt: skip
    shut = world(research(), namespace(team="b"), *objects)
    assert requested(shut, "research") == 0
    assert shut.deserved()["default"]["cpu"] == 1000
    assert requested(world(research(), namespace(team="a"), *objects), "research") == 2000 + 2000 + 3000 + 3000


def test_a_reservation_ends_when_the_queue_is_shut() -> None:
    """Room that was promised to a group of a namespace that may no longer use the queue is others'."""
    waiting = group("b", 3, queue="research", min_resources={"cpu": "3"})
    model = world(research(), queue("default"), namespace(team="a"), node("n1"), waiting, held_job("b", 3))
    assert run(model, ALL).verdicts["ns/b"].enqueued
    model.apply(Upsert(namespace(team="b")))
    found = run(model, ALL)
    assert not found.verdicts["ns/b"].enqueued
    assert found.reason("b") == "QueueNotAllowed"
