"""Pods of a PodGroup that had a group's name before it: they hold what they hold, and are none of its."""

from __future__ import annotations

import pytest

from kbatch.api.names import API_VERSION
from kbatch.api.objects import OwnerReference, Pod, PodGroup
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Delete, Upsert
from kbatch.model.image import build_model, take_image
from kbatch.model.made_for import is_former, made_for
from tests.unit.engine.worlds import EVERYTHING, Simulation, group, node, pod, policy, queue, world

FORMER = "ns/j##old"


def named(uid: str, **spec: object) -> PodGroup:
    found = group("j", 2, **spec)  # type: ignore[arg-type]
    found.metadata.uid = uid
    return found


def made(name: str, uid: str, phase: str = "Running", *, kind: str = "PodGroup", version: str = API_VERSION) -> Pod:
    found = pod(name, of="j", on="n" if phase != "Pending" else "")
    owner = OwnerReference(api_version=version, kind=kind, name="j", uid=uid, controller=True)
    found.metadata.owner_references = (owner,)
    found.status.phase = phase
    return found


def members(model: ClusterModel) -> dict[str, list[str]]:
    model.validate()
    return {key: sorted(job.tasks) for key, job in model.jobs.items()}


def test_only_a_controller_that_is_our_podgroup_says_for_which_a_pod_was_made() -> None:
    assert made_for(made("a", "u")) == "u"
    assert made_for(made("a", "u", kind="ReplicaSet")) == ""
    assert made_for(made("a", "u", version="scheduling.x-k8s.io/v1alpha1")) == ""
    orphaned = made("a", "u")
    orphaned.metadata.owner_references = (OwnerReference(api_version=API_VERSION, kind="PodGroup", uid="u"),)
    assert made_for(orphaned) == ""
    assert is_former("old", "new")
    assert not any(is_former(*uids) for uids in (("u", "u"), ("", "u"), ("u", ""), ("", "")))


@pytest.mark.parametrize("phase", ["Running", "Succeeded"])
def test_pods_of_the_group_before_let_nobody_in(phase: str) -> None:
    old = [made(f"old-{at}", "old", phase) for at in range(2)]
    simulation = Simulation(world(queue(), node("n", "8"), named("new"), old), policy(EVERYTHING), recreate=False)
    verdict = simulation.cycle().verdicts["ns/j"]
    assert not verdict.enqueued
    assert not verdict.scheduled


def test_they_hold_their_room_and_count_in_the_queue_of_their_group() -> None:
    model = world(queue("q"), node("n", "8"), named("old", queue="q"), made("a", "old"), made("b", "old"))
    model.apply(Upsert(named("new", queue="q")))
    assert members(model) == {"ns/j": [], FORMER: ["ns/a", "ns/b"]}
    assert (model.jobs["ns/j"].holding, model.jobs[FORMER].holding) == (0, 2)
    assert model.jobs[FORMER].orphan
    assert model.jobs[FORMER].name == "ns/j"
    assert model.queues["q"].allocated == {"cpu": 2000}
    assert model.table.idle["cpu"].tolist() == [6000]
    again = build_model(take_image(model))
    assert members(again) == members(model)
    assert again.queues["q"].allocated == {"cpu": 2000}
    for name in "ab":
        model.apply(Delete(Pod, "ns", name))
    assert members(model) == {"ns/j": []}
    assert not model.queues["q"].allocated


@pytest.mark.parametrize("first", ["pods", "group"])
def test_it_does_not_matter_what_is_heard_first(first: str) -> None:
    pods = [made("a", "old"), made("b", "new")]
    order: list[Pod | PodGroup] = [*pods, named("new")] if first == "pods" else [named("new"), *pods]
    model = world(queue(), node("n", "8"))
    for obj in order:
        model.apply(Upsert(obj))
    assert members(model) == {"ns/j": ["ns/b"], FORMER: ["ns/a"]}


def test_a_group_that_is_heard_of_after_its_pods_gets_them() -> None:
    model = world(queue(), node("n", "8"), named("old"), made("a", "old"), made("b", "new"))
    assert members(model) == {"ns/j": ["ns/a"], "ns/j##new": ["ns/b"]}
    model.apply(Upsert(named("new")))
    assert members(model) == {"ns/j": ["ns/b"], FORMER: ["ns/a"]}


def test_where_no_group_has_the_name_all_pods_are_of_one_orphan() -> None:
    model = world(queue("q"), node("n", "8"), named("new", queue="q"), made("a", "old"))
    model.apply(Delete(PodGroup, "ns", "j"))
    assert members(model) == {"ns/j": ["ns/a"]}
    assert model.jobs["ns/j"].queue == "q"
    model.apply(Upsert(named("newer", queue="q")))
    assert members(model) == {"ns/j": [], FORMER: ["ns/a"]}


def test_a_pod_that_lost_its_controller_is_a_member() -> None:
    model = world(queue(), node("n", "8"), named("new"), made("a", "old"))
    model.apply(Upsert(pod("a", of="j", on="n")))
    assert members(model) == {"ns/j": ["ns/a"]}


def test_what_goes_with_its_group_does_not_stay_for_ever() -> None:
    """Where a group with a lifetime is deleted, its pods go a moment later: they do not count as endless meanwhile.
    Pods that nobody takes away do, and so do those of a group without a lifetime while it stands.
    """
    held = {"cpu": 2000}
    model = world(
        queue("q"), node("n", "8"), named("u", queue="q", lifetime_seconds=60), made("a", "u"), made("b", "u")
    )
    assert {"cpu": model.queues["q"].ending["cpu"]} == held
    model.apply(Delete(PodGroup, "ns", "j"))
    model.validate()
    where = model.jobs["ns/j"].queue
    assert {"cpu": model.queues[where].ending["cpu"]} == held
    model.apply(Upsert(pod("a", of="j", on="n")))
    model.validate()
    assert not model.queues[where].ending.get("cpu")
    model.apply(Upsert(named("u", queue="q")))
    model.apply(Upsert(made("a", "u")))
    model.validate()
    assert not model.queues["q"].ending.get("cpu")
