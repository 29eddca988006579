"""What the API server refused: the engine looks elsewhere until the refusal ends."""

from __future__ import annotations

from kbatch.api.objects import Pod
from kbatch.api.reasons import NotEnoughResources
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
    Decisions,
    group,
    members,
    node,
    pod,
    policy,
    priority_class,
    queue,
    run,
    world,
)

CLASSES = [priority_class("low", 1), priority_class("high", 100)]


def crowded() -> ClusterModel:
    """One node full of two low pods, and a high one that wants the place of either: the youngest goes, w."""
    low = group("low", priority_class_name="low")
    high = group("high", at=9, priority_class_name="high")
    return world(
        CLASSES, [queue(), node("n", "2"), low, high], pod("v", of="low", on="n"), pod("w", of="low", on="n", at=1),
        members("high", 1, at=9),
    )  # fmt: skip


def by_everything(model: ClusterModel, now: int = 0) -> Decisions:
    return run(model, policy(EVERYTHING), now=now)


def wake(found: Decisions) -> int | None:
    assert found.outcome is not None
    return found.outcome.next_wake


def test_a_victim_that_was_refused_is_none_until_that_ends() -> None:
    model = crowded()
    assert by_everything(model).evicted == ["w"]
    model.refuse_eviction("ns/w", "u-w", EPOCH + 10 * SECOND, "a webhook says no")
    found = by_everything(model)
    assert found.evicted == ["v"]
    assert wake(found) == EPOCH + 10 * SECOND
    assert by_everything(model, 9).evicted == ["v"]
    assert by_everything(model, 10).evicted == ["w"]
    assert not model.refusals.evictions


def test_where_all_were_refused_the_group_waits_and_the_cycle_wakes_for_the_first() -> None:
    model = crowded()
    model.refuse_eviction("ns/v", "u-v", EPOCH + 20 * SECOND)
    model.refuse_eviction("ns/w", "u-w", EPOCH + 10 * SECOND)
    first = by_everything(model)
    assert first.evicted == []
    assert first.reason("high")
    assert first.outcome is not None
    assert first.outcome.next_wake == EPOCH + 10 * SECOND
    again = run(model, policy(EVERYTHING), now=10, memo=first.outcome.memo)
    assert again.evicted == ["w"]


def test_a_group_goes_as_a_whole_only_if_none_of_its_pods_was_refused() -> None:
    low = group("low", 2, priority_class_name="low", disruption="Whole")
    high = group("high", at=9, priority_class_name="high")
    model = world(
        CLASSES, [queue(), node("n", "2"), low, high], pod("v", of="low", on="n"), pod("w", of="low", on="n"),
        members("high", 1, at=9),
    )  # fmt: skip
    assert by_everything(model).evicted == ["v", "w"]
    model.refuse_eviction("ns/v", "u-v", None)
    assert by_everything(model).evicted == []
    assert by_everything(model, 1_000_000).evicted == []


def test_a_node_that_refused_a_pod_takes_the_others_of_its_gang() -> None:
    model = world([queue(), node("a"), node("b", "1"), group("g", 3)], members("g", 3))
    assert run(model).binds == dict.fromkeys(("g-0", "g-1", "g-2"), "a")
    model.refuse_bind("ns/g-1", "u-g-1", "a", EPOCH + 5 * SECOND, "not here")
    found = run(model)
    assert found.binds == {"g-0": "a", "g-1": "b", "g-2": "a"}
    assert wake(found) == EPOCH + 5 * SECOND
    model.refuse_bind("ns/g-1", "u-g-1", "b", EPOCH + 5 * SECOND, "nor here")
    stuck = run(model)
    assert stuck.binds == {}
    reason = stuck.verdicts["ns/g"].reason
    assert reason is not None
    assert "2 refused the pod" in reason.message
    assert stuck.outcome is not None
    assert sorted(run(model, now=5, memo=stuck.outcome.memo).binds) == ["g-0", "g-1", "g-2"]


def test_a_node_that_refused_is_not_the_whole_clusters_fault() -> None:
    """The group is not told that the cluster is too small for it."""
    model = world([queue(), node("a"), group("g")], members("g", 1))
    model.refuse_bind("ns/g-0", "u-g-0", "a", None)
    assert run(model, policy(EVERYTHING)).reason("g") == "NotEnoughResources"
    assert isinstance(run(model, policy(EVERYTHING)).verdicts["ns/g"].reason, NotEnoughResources)


def test_a_nomination_to_a_node_that_refused_the_pod_ends() -> None:
    model = world([queue(), node("a", "1"), node("b", "1"), group("g")], pod("x", on="a", cpu="1"), pod("y", on="b"))
    waiting = members("g", 1)[0]
    waiting.status.nominated_node_name = "a"
    model.apply(Upsert(waiting))
    model.evicting("ns/x", "u-x")
    assert run(model).nominated == {}
    model.refuse_bind("ns/g-0", "u-g-0", "a", EPOCH + SECOND)
    assert run(model).nominated == {"g-0": None}


def test_a_refusal_ends_with_the_pod_that_it_was_about() -> None:
    model = world([queue(), node("a"), group("g")], members("g", 1), pod("v", on="a"))
    model.refuse_bind("ns/g-0", "another", "a", None)
    model.refuse_eviction("ns/v", "another", None)
    assert dict(model.refusals.binds) == dict(model.refusals.evictions) == {}, "said of other pods of these names"
    model.refuse_bind("ns/g-0", "u-g-0", "a", None)
    model.refuse_eviction("ns/v", "u-v", None)
    model.apply(Delete(Pod, "ns", "g-0"))
    model.apply(Delete(Pod, "ns", "v"))
    assert dict(model.refusals.binds) == dict(model.refusals.evictions) == {}


def test_a_refusal_that_a_wrong_clock_dated_holds_nobody_up() -> None:
    model = crowded()
    model.refuse_eviction("ns/w", "u-w", EPOCH + 7200 * SECOND)
    assert by_everything(model).evicted == ["w"]


def test_classes_come_back_when_refusals_end() -> None:
    model = world([queue(), node("a"), node("b"), group("g", 2)], members("g", 2))
    one, two = model.tasks["ns/g-0"], model.tasks["ns/g-1"]
    assert one.cls is two.cls
    model.refuse_bind("ns/g-0", "u-g-0", "a", EPOCH + SECOND)
    assert model.tasks["ns/g-0"].cls is not two.cls
    model.assume("ns/g-0", "u-g-0", "b")
    assert model.tasks["ns/g-0"].cls is two.cls, "while it holds a node, it is like the others"
    model.forget("ns/g-0", "u-g-0")
    assert model.tasks["ns/g-0"].cls.avoids == {"a"}
    model.lapse(EPOCH + SECOND)
    assert model.tasks["ns/g-0"].cls is two.cls
    model.validate()


def test_a_gang_bound_in_part_is_taken_back_but_for_whom_the_server_keeps() -> None:
    started = group("g", 3)
    model = world([queue(), node("n", "2"), started], members("g", 3))
    for name in ("g-0", "g-1"):
        bound = pod(name, of="g", on="n")
        model.apply(Upsert(bound))
    late = 3_600
    assert run(model, now=late).evicted == ["g-0", "g-1"]
    model.refuse_eviction("ns/g-0", "u-g-0", EPOCH + (late + 5) * SECOND)
    assert run(model, now=late).evicted == ["g-1"]
