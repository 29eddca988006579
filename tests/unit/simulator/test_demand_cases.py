"""What a group asks for, however its work was submitted: named cases, and all ways side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from kbatch.model.cluster import ClusterModel
from kbatch.simulator.cluster import SimulatedCluster
from kbatch.simulator.documents import parse as parse_documents
from kbatch.simulator.manifests import from_documents

Simulate = Callable[..., Any]
Json = dict[str, Any]
API = "scheduling.incubator.k8s.io/v1alpha1"


def test_held_job_reclaims_without_min_resources(simulate: Simulate) -> None:
    outcome = simulate("held-job-reclaims-without-min-resources")
    assert outcome.running("b") == ["b-0", "b-1", "b-2", "b-3", "b-4"]
    assert {bind["time"] for bind in outcome.binds if bind["pod"].startswith("default/b")} == {11.0}
    assert {name: outcome.queues[name]["deserved"] for name in "ab"} == {"a": {"cpu": "20"}, "b": {"cpu": "20"}}
    assert len(outcome.evictions) == 5


@pytest.mark.parametrize(("group", "placeable", "needed"), [("hundred", 64, 100), ("three", 2, 3), ("large", 0, 3)])
def test_held_job_of_which_a_part_fits(simulate: Simulate, group: str, placeable: int, needed: int) -> None:
    outcome = simulate("held-job-of-which-a-part-fits")
    assert outcome.reason(group) == "NotEnoughResources"
    message = outcome.message(group)
    assert message.startswith(f"{placeable} of {needed} pods would fit the cluster")
    assert "0/2 nodes fit: 2 insufficient cpu" in message


def test_pods_of_which_only_min_resources_are_known_are_not_counted(simulate: Simulate) -> None:
    outcome = simulate("held-job-of-which-a-part-fits")
    assert outcome.message("promised").startswith("asks for 100 cpu in its minResources; 2 nodes would hold 64 cpu")


@pytest.mark.parametrize("case", ["quota-counts-the-limits-of-existing-pods-once", "quota-counts-existing-pods-once"])
def test_quotas_count_existing_pods_once(simulate: Simulate, case: str) -> None:
    outcome = simulate(case)
    assert {bind["time"] for bind in outcome.binds} == {0.0}
    assert len(outcome.running()) == 4


def test_group_without_pods_leaves_ageing_to_others(simulate: Simulate) -> None:
    outcome = simulate("group-without-pods-leaves-ageing-to-others")
    assert {bind["time"] for bind in outcome.binds if bind["pod"].startswith("default/big")} == {670.0}


def test_template_of_300000_members(simulate: Simulate) -> None:
    outcome = simulate("template-of-300000-members")
    assert outcome.message("g").startswith("110 of 300000 pods would fit")
    assert outcome.evictions == []


# --- all ways to submit the same work ---------------------------------------------------------------------------------

LEAST = 4
"""Pods of the group, each of 2 CPU and 1 GiB."""


def node(name: str, cpu: int) -> Json:
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}},
    }  # fmt: skip


def queue(name: str) -> Json:
    return {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}}


def template(group: str = "", role: str = "") -> Json:
    meta: Json = {"annotations": {"scheduling.k8s.io/group-name": group}} if group else {}
    if role:
        meta["labels"] = {"kbatch.dev/sub-group": role}
    resources = {"requests": {"cpu": "2", "memory": "1Gi"}}
    return {
        "metadata": meta,
        "spec": {"schedulerName": "kube-batch", "containers": [{"name": "main", "resources": resources}]},
    }


def group(*, promised: bool, roles: list[Json] | None = None) -> Json:
    spec: Json = {"minMember": LEAST, "queue": "mine"}
    if promised:
        spec["minResources"] = {"cpu": str(2 * LEAST), "memory": f"{LEAST}Gi"}
    if roles:
        spec["subGroups"] = roles
    return {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


def job(name: str, count: int, *, label: bool = False, role: str = "", held: bool = True) -> Json:
    meta: Json = {"name": name, "labels": {"kbatch.dev/queue": "mine"}} if label else {"name": name}
    made = template("" if label else "g", role)
    spec = {"suspend": held, "parallelism": count, "completions": count, "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def pods(count: int) -> list[Json]:
    return [
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p-{number}", **template("g")["metadata"]},
            "spec": template()["spec"],
        }
        for number in range(count)
    ]  # fmt: skip


def ways() -> dict[str, list[Json]]:
    """The same four pods, as they can be submitted."""
    found: dict[str, list[Json]] = {"label only": [job("g", LEAST, label=True)]}
    a = {"name": "a", "minMember": 1}
    b = {"name": "b", "minMember": LEAST - 1}
    for promised in (False, True):
        told = "with" if promised else "without"
        found |= {
            f"group, then Job, {told} minResources": [group(promised=promised), job("j", LEAST)],
            f"Job, then group, {told} minResources": [job("j", LEAST), group(promised=promised)],
            f"several Jobs, {told} minResources": [
                group(promised=promised), job("i", 1), job("j", 2), job("k", LEAST - 3),
            ],
            f"Job that nobody held, {told} minResources": [group(promised=promised), job("j", LEAST, held=False)],
            f"plain pods, {told} minResources": [group(promised=promised), *pods(LEAST)],
            f"pods and a Job, {told} minResources": [group(promised=promised), *pods(1), job("j", LEAST - 1)],
            f"roles with templates, {told} minResources": [
                group(promised=promised, roles=[{**a, "template": template()}, {**b, "template": template()}])
            ],
            f"a role with a template and a Job, {told} minResources": [
                group(promised=promised, roles=[{**a, "template": template()}, b]), job("j", LEAST - 1, role="b"),
            ],
        }  # fmt: skip
    return found


def borrowed(cpu: int) -> list[Json]:
    """Another queue's pods, enough to fill everything."""
    made = template()
    made["metadata"] = {"labels": {"kbatch.dev/queue": "theirs"}}
    spec = {"replicas": cpu // 2, "template": made}
    return [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "theirs"}, "spec": spec}]


def text(*parts: list[Json]) -> str:
    return yaml.safe_dump_all([document for part in parts for document in part]) + "\n"


def at_start(source: str) -> ClusterModel:
    """The model as the first cycle finds it."""
    cluster = SimulatedCluster(from_documents(parse_documents(source, "text")))
    cluster.advance(0)
    model = cluster.store.model
    model.validate()
    return model


WAYS = ways()
every_way = pytest.mark.parametrize("way", WAYS)
QUEUES = [queue("mine"), queue("theirs")]


@every_way
def test_every_way_asks_for_the_same(way: str) -> None:
    model = at_start(text([node("n1", 10)], QUEUES, borrowed(10), WAYS[way]))
    assert model.queues["mine"].request == {"cpu": 8000, "memory": LEAST * 2**30}
    assert model.deserved()["mine"] == {"cpu": 5000, "memory": LEAST * 2**30}
    found = model.demand(model.jobs["default/g"])
    assert (found.minimum, found.room) == (model.queues["mine"].request, model.queues["mine"].request)
    assert (found.missing, found.short) == (LEAST, 0)


@every_way
def test_every_way_starts_at_once_where_there_is_room(simulate: Simulate, way: str) -> None:
    outcome = simulate(text([node("n1", 8)], QUEUES, WAYS[way]))
    assert {bind["time"] for bind in outcome.binds} == {0.0}
    assert (outcome.phase("g"), len(outcome.running())) == ("Running", LEAST)


@every_way
def test_every_way_reclaims_its_share(simulate: Simulate, way: str) -> None:
    late = {"simulate.kbatch.dev/arrival": "5"}
    documents = [{**each, "metadata": {**each["metadata"]}} for each in WAYS[way]]
    for document in documents:
        document["metadata"]["annotations"] = {**document["metadata"].get("annotations", {}), **late}
    outcome = simulate(text([node("n1", 8), node("n2", 8)], QUEUES, borrowed(16), documents))
    mine = [bind for bind in outcome.binds if not bind["pod"].startswith("default/theirs")]
    assert {bind["time"] for bind in mine} == {6.0}
    assert (outcome.phase("g"), len(mine), len(outcome.evictions)) == ("Running", LEAST, LEAST)
    assert outcome.queues["mine"]["deserved"] == {"cpu": "8", "memory": "4Gi"}


@every_way
def test_every_way_says_alike_what_the_cluster_is_too_small_for(simulate: Simulate, way: str) -> None:
    outcome = simulate(text([node("n1", 5), node("n2", 3)], QUEUES, WAYS[way]))
    assert outcome.reason("g") == "NotEnoughResources"
    assert outcome.message("g").startswith("3 of 4 pods")
    assert "0/2 nodes fit: 2 insufficient cpu" in outcome.message("g")
    assert (outcome.binds, outcome.phase("g")) == ([], "Pending")


@every_way
def test_every_way_is_kept_within_the_capability(simulate: Simulate, way: str) -> None:
    capped = {**queue("mine"), "spec": {"capability": {"cpu": "7"}}}
    outcome = simulate(text([node("n1", 9)], [capped], WAYS[way]))
    assert outcome.reason("g") == "QueueCapabilityExceeded"
    assert outcome.message("g").startswith("asks for 8 cpu, over the capability of Queue mine: 0 used and 0 reserved")
    assert outcome.binds == []


@every_way
@pytest.mark.parametrize(("hard", "fits"), [("7", False), ("8", True)])
def test_every_way_is_kept_within_the_quota(simulate: Simulate, way: str, hard: str, fits: bool) -> None:
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"requests.cpu": hard, "pods": str(LEAST)}},
    }  # fmt: skip
    outcome = simulate(text([node("n1", 9), quota], QUEUES, WAYS[way]))
    if fits:
        assert (outcome.phase("g"), len(outcome.running())) == ("Running", LEAST)
    elif "pods" not in way and "nobody held" not in way:  # an API server does not take pods over a quota
        assert outcome.reason("g") == "QuotaExceeded"
        assert outcome.message("g").startswith("asks for 8 requests.cpu, over ResourceQuota q: 0 used")


def test_the_surplus_of_a_held_job_asks_like_pods_that_exist() -> None:
    """Six pods of a minimum of four: the share is divided by what will be there, not by the minimum."""
    held = at_start(text([node("n1", 99)], QUEUES, [group(promised=False), job("j", 6)]))
    plain = at_start(text([node("n1", 99)], QUEUES, [group(promised=False), *pods(6)]))
    assert held.queues["mine"].request == plain.queues["mine"].request == {"cpu": 12000, "memory": 6 * 2**30}
    assert held.demand(held.jobs["default/g"]).room == plain.demand(plain.jobs["default/g"]).room


def test_a_job_that_its_user_suspended_asks_for_nothing(simulate: Simulate) -> None:
    mine = job("j", LEAST)
    mine["metadata"]["annotations"] = {"kbatch.dev/suspended": "false"}
    source = text([node("n1", 8)], QUEUES, [group(promised=True), mine])
    assert at_start(source).queues["mine"].request == {}
    assert simulate(source).reason("g") == "JobSuspended"


def test_a_group_that_its_user_suspended_asks_for_nothing_and_makes_no_pods(simulate: Simulate) -> None:
    held = group(promised=True)
    held["spec"]["suspend"] = True
    role = {"name": "w", "minMember": LEAST, "template": job("j", 1)["spec"]["template"]}
    held["spec"]["subGroups"] = [role]
    source = text([node("n1", 8)], QUEUES, [held])
    assert at_start(source).queues["mine"].request == {}
    outcome = simulate(source)
    assert (outcome.reason("g"), outcome.pods) == ("Suspended", {})
    held["spec"]["suspend"] = False
    assert len(simulate(text([node("n1", 8)], QUEUES, [held])).pods) == LEAST
