"""What is lost with a pod, and that those go first with which the least is lost."""

from __future__ import annotations

from typing import Any

import pytest

from kbatch.api.names import LAST_CHECKPOINT_ANNOTATION
from kbatch.api.objects import Pod, PodGroup
from kbatch.engine.state.lost_work import LostWork
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.times import SECOND
from tests.unit.engine.worlds import (
    EPOCH,
    EVERYTHING,
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


def saved(obj: Any, at: str) -> Any:
    """The same with a checkpoint at `minute:second` of the first hour."""
    told = at if "T" in at or not at[0].isdigit() else f"2026-01-01T00:{at}Z"
    obj.metadata.annotations = {**(obj.metadata.annotations or {}), LAST_CHECKPOINT_ANNOTATION: told}
    return obj


def lost(model: ClusterModel, key: str, *names: str, minute: int = 10) -> int:
    job = model.jobs[key]
    work = LostWork(EPOCH + minute * 60 * SECOND, {"cpu": 4000, "memory": 0, "x.y/gpu": 2, "disk": 1})
    return work.of(job, [job.tasks[f"ns/{name}"] for name in names])


def part(seconds: int, of: int = 4) -> int:
    return seconds * SECOND * ((1 << 32) // of)


def test_lost_is_the_time_since_the_checkpoint_times_the_part_of_the_cluster() -> None:
    model = world(
        queue(), node("n1"), group("g"), [saved(pod("a", of="g", on="n1"), "09:00"), pod("b", of="g", on="n1")]
    )
    assert lost(model, "ns/g", "a") == part(60)
    assert lost(model, "ns/g", "b") == part(600), "since it stands there"
    assert lost(model, "ns/g", "a", "b") == part(660)


def test_a_pods_own_word_goes_before_its_groups() -> None:
    told = saved(group("g"), "05:00")
    model = world(queue(), node("n1"), told, [saved(pod("a", of="g", on="n1"), "02:00"), pod("b", of="g", on="n1")])
    assert (lost(model, "ns/g", "a"), lost(model, "ns/g", "b")) == (part(480), part(300))


@pytest.mark.parametrize(("word", "seconds"), [("soon", 540), ("30:00", 0), ("00:30", 540)])
def test_nothing_is_lost_before_the_start_or_after_now(word: str, seconds: int) -> None:
    model = world(queue(), node("n1"), group("g"), saved(pod("a", of="g", on="n1", at=60), word))
    assert lost(model, "ns/g", "a") == part(seconds)


def test_the_model_knows_whether_anybody_says_so() -> None:
    model = world(queue(), node("n1"), group("g"), pod("a", of="g", on="n1"))
    assert not model.checkpointed
    model.apply(Upsert(saved(pod("a", of="g", on="n1"), "01:00")))
    model.apply(Upsert(saved(group("g"), "01:00")))
    assert len(model.checkpointed) == 2
    model.apply(Upsert(group("g")))
    assert len(model.checkpointed) == 1
    model.apply(Delete(Pod, "ns", "a"))
    assert not model.checkpointed
    model.apply(Upsert(saved(group("g"), "01:00")))
    model.apply(Delete(PodGroup, "ns", "g"))
    assert not model.checkpointed


def victims(*standing: Any) -> list[str]:
    preemptor = [group("b", priority_class_name="high", at=1), *members("b", 1)]
    low = group("a", priority_class_name="low")
    return run(
        world([*CLASSES, queue(), node("n1", "2"), low], standing, preemptor), policy(EVERYTHING), now=60
    ).evicted


def test_who_loses_least_goes_before_who_is_younger() -> None:
    old, young = pod("old", of="a", on="n1", at=1), pod("young", of="a", on="n1", at=9)
    assert victims(old, young) == ["young"]
    assert victims(saved(pod("old", of="a", on="n1", at=1), "00:50"), young) == ["old"]


def test_priority_goes_before_lost_work() -> None:
    """The pod that matters less goes, although all its work is lost and next to nothing of the other's."""
    less = pod("less", of="a", on="n1", at=1, priority=1)
    more = saved(pod("more", of="a", on="n1", at=9, priority=2), "00:59")
    assert victims(less, more) == ["less"]
