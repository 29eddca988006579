"""The load whose pods all differ: the same for the same seed, no pod like another, nothing that contradicts itself."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from tests import varied
from tests.bench.live import differing

NODES = 8


def groups(seed: int, count: int = 150) -> list[list[dict[str, Any]]]:
    draw = random.Random(seed)
    return [varied.group(draw, "ns", f"g{number}", draw.randint(1, 20), 3.0, nodes=NODES) for number in range(count)]


def pods_of(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in documents if one["kind"] == "Pod"]


ALL = groups(1)
PODS = [pod for documents in ALL for pod in pods_of(documents)]


def test_equal_seeds_give_equal_loads() -> None:
    assert groups(1, 20) == ALL[:20]
    assert groups(2, 20) != ALL[:20]


def test_no_pod_is_like_another() -> None:
    specs = Counter(json.dumps(pod["spec"], sort_keys=True) for pod in PODS)
    assert specs.most_common(1)[0][1] == 1
    assert len(specs) > 1000


@pytest.mark.parametrize(
    "differs",
    [
        lambda pod: pod["spec"].get("nodeSelector"),
        lambda pod: "nodeAffinity" in pod["spec"].get("affinity", {}),
        lambda pod: "podAffinity" in pod["spec"].get("affinity", {}),
        lambda pod: "podAntiAffinity" in pod["spec"].get("affinity", {}),
        lambda pod: pod["spec"].get("topologySpreadConstraints"),
        lambda pod: pod["spec"].get("tolerations"),
        lambda pod: pod["spec"].get("initContainers"),
        lambda pod: pod["spec"].get("priorityClassName"),
        lambda pod: pod["spec"]["containers"][0].get("ports"),
        lambda pod: any("ephemeral" in one for one in pod["spec"].get("volumes", ())),
        lambda pod: any("persistentVolumeClaim" in one for one in pod["spec"].get("volumes", ())),
        lambda pod: pod["metadata"].get("ownerReferences"),
        lambda pod: "kbatch.dev/sub-group" in pod["metadata"]["labels"],
    ],
)  # fmt: skip
def test_some_pods_have_it_and_some_have_not(differs: Any) -> None:
    having = sum(bool(differs(pod)) for pod in PODS)
    assert len(PODS) / 100 < having < len(PODS) * 0.9


def test_a_group_has_enough_pods_and_each_role_its_own() -> None:
    for documents in ALL:
        spec = next(one["spec"] for one in documents if one["kind"] == "PodGroup")
        pods = pods_of(documents)
        roles = Counter(pod["metadata"]["labels"].get("kbatch.dev/sub-group") for pod in pods)
        if "subGroups" in spec:
            assert {one["name"]: one["minMember"] for one in spec["subGroups"]} == roles
        else:
            assert len(pods) // 2 <= spec["minMember"] <= len(pods)
        assert {pod["spec"].get("priorityClassName") for pod in pods} == {spec.get("priorityClassName")}


def test_each_claim_has_a_volume_of_its_own_where_its_pod_may_stand() -> None:
    for documents in ALL:
        volumes = {one["spec"]["claimRef"]["name"]: one for one in documents if one["kind"] == "PersistentVolume"}
        claims = {one["metadata"]["name"] for one in documents if one["kind"] == "PersistentVolumeClaim"}
        for pod in pods_of(documents):
            for one in pod["spec"].get("volumes", ()):
                if "emptyDir" in one:
                    continue
                volume = volumes.pop(f"{pod['metadata']['name']}-data")
                named = one.get("persistentVolumeClaim", {}).get("claimName")
                assert named is None or named in claims
                where = volume["spec"].get("nodeAffinity", {}).get("required")
                zones = where and where["nodeSelectorTerms"][0]["matchExpressions"][0]["values"]
                assert zones == (list(pod["spec"]["nodeSelector"].values()) if zones else None)
        assert not volumes


def test_owners_are_told_apart_and_named_by_uid() -> None:
    owned = 0
    for documents in ALL:
        owners = {one["metadata"]["name"] for one in varied.owners_of(documents)}
        made = varied.with_owners(documents, lambda one: f"uid of {one['metadata']['name']}")
        assert len(made) == len(documents) - len(owners)
        for pod in pods_of(made):
            for reference in pod["metadata"].get("ownerReferences", ()):
                owned += 1
                assert reference["uid"] == f"uid of {reference['name']}"
                assert reference["name"] in owners
    assert owned > 100


def test_a_template_is_like_no_other() -> None:
    draw = random.Random(3)
    specs = [varied.template(draw, f"j{number}", 4, 2.0, nodes=NODES, labels={"a": "b"}) for number in range(50)]
    assert len({json.dumps(one["spec"], sort_keys=True) for one in specs}) == 50
    assert all(one["metadata"]["labels"]["a"] == "b" for one in specs)
    assert not any("ports" in container for one in specs for container in one["spec"]["containers"])


def test_nodes_have_zones_and_each_eighth_is_reserved() -> None:
    marks = [varied.marks(number) for number in range(16)]
    assert Counter(next(iter(one["metadata"]["labels"].values())) for one in marks) == dict.fromkeys(
        ("z0", "z1", "z2", "z3"), 4
    )
    assert [number for number, one in enumerate(marks) if one["spec"]["taints"]] == [7, 15]


def test_the_benchmarks_backlog_has_as_many_pods_as_it_is_to_have_and_they_come_last() -> None:
    made = differing.documents("row", 123, 500)
    pods = pods_of(made)
    assert len(pods) == 123
    assert made[-123:] == pods
    assert len({json.dumps(pod["spec"], sort_keys=True) for pod in pods}) == 123
