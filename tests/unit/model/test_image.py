"""A model taken down and built again."""

from __future__ import annotations

from msgspec.structs import replace

from kbatch.api.objects import Pod, PodGroup, PodGroupSpec, Queue, timestamp_us
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Unreadable, Upsert
from kbatch.model.image import build_model, take_image
from tests.unit.scheduler.fakes import group, node, pod, queue


def standing() -> ClusterModel:
    model = ClusterModel()
    for obj in (
        node("n1"),
        node("n2"),
        queue("default"),
        group("g", minimum=2),
        pod("a"),
        pod("b"),
        pod("c", node="n1"),
    ):
        model.apply(Upsert(obj))
    return model


def test_objects_and_sums_are_the_same() -> None:
    model = standing()
    again = build_model(take_image(model))
    again.validate()
    assert again.capacity == model.capacity
    assert again.deserved() == model.deserved()
    assert {key: job.request for key, job in again.jobs.items()} == {
        key: job.request for key, job in model.jobs.items()
    }
    assert take_image(again) == take_image(model)


def test_binds_and_evictions_under_way_are_kept() -> None:
    model = standing()
    model.assume("ns/a", "uid-a", "n2")
    model.evicting("ns/c", "uid-c")
    again = build_model(take_image(model))
    assert again.tasks["ns/a"].assumed
    assert again.tasks["ns/a"].node == "n2"
    assert again.tasks["ns/c"].terminating
    again.forget("ns/a", "uid-a")
    again.not_evicting("ns/c", "uid-c")
    assert not again.tasks["ns/a"].node
    assert not again.tasks["ns/c"].terminating


def test_what_cannot_be_read_closes_its_node_again() -> None:
    model = standing()
    model.apply(Unreadable(Pod, "ns", "x", "uid-x", "n2", "spec.priority: expected int"))
    model.apply(Unreadable(Queue, "", "q", "", "", "odd"))
    again = build_model(take_image(model))
    assert again.unreadable == model.unreadable
    assert not again.table.open[again.table.row["n2"]]
    again.apply(Delete(Pod, "ns", "x"))
    assert again.table.open[again.table.row["n2"]]


def test_pods_of_a_group_that_is_gone_stay_in_its_queue() -> None:
    model = standing()
    model.apply(Upsert(queue("other")))
    model.apply(Upsert(replace(group("g", minimum=2), spec=PodGroupSpec(min_member=2, queue="other"))))
    model.apply(Delete(PodGroup, "ns", "g"))
    held = model.queues["other"].allocated
    assert held == model.tasks["ns/c"].cls.request
    assert model.queues["other"].request == held  # they can start nothing, and so ask for nothing
    again = build_model(take_image(model))
    assert again.jobs["ns/g"].queue == "other"
    assert again.queues["other"].allocated == held
    assert build_model(take_image(model)).jobs["ns/g"].created == timestamp_us("2026-01-01T00:00:00Z")
    assert take_image(build_model(take_image(model))) == take_image(model)
