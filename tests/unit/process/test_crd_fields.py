"""CRDs that are older than the process."""

from __future__ import annotations

import copy
import logging
from typing import Any

import pytest

from kbatch.api.crd import DEFINITIONS, definition
from kbatch.kube.kinds import PODGROUPS, PODS, QUEUES, AnyKind
from kbatch.process import preflight
from kbatch.process.crd_fields import lacking, missing_fields
from kbatch.process.preflight import Preflight
from tests.unit.kube.server import Answer, refuses, says, serving

KINDS = {"PodGroup": PODGROUPS, "Queue": QUEUES}
SCHEMAS = {one.kind: definition(one)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for one in DEFINITIONS}
GROUPS = says({"groups": [{"versions": [{"groupVersion": "scheduling.incubator.k8s.io/v1alpha1"}]}]})
SERVED = says({"resources": [{"name": "podgroups"}, {"name": "queues"}]})
EMPTY = says({"metadata": {}, "items": []})


def document(**schemas: dict[str, Any]) -> Answer:
    """What the API server says of these kinds."""
    named = {
        f"io.k8s.incubator.scheduling.v1alpha1.{kind}": {
            **schema,
            "x-kubernetes-group-version-kind": [
                {"group": "scheduling.incubator.k8s.io", "kind": kind, "version": "v1alpha1"}
            ],
        }
        for kind, schema in schemas.items()
    }
    return says({"openapi": "3.0.0", "components": {"schemas": {"io.k8s.Status": {"type": "object"}, **named}}})


def older() -> dict[str, Any]:
    """PodGroups as they were before some fields."""
    schema: dict[str, Any] = copy.deepcopy(SCHEMAS["PodGroup"])
    del schema["properties"]["status"]["properties"]["finished"]
    del schema["properties"]["spec"]["properties"]["subGroups"]["items"]["properties"]["topology"]
    return schema


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_the_crds_of_this_release_lack_nothing(kind: AnyKind) -> None:
    assert list(missing_fields(kind.type, SCHEMAS[kind.name])) == []


def test_a_schema_without_any_of_it_lacks_all_there_is() -> None:
    bare: dict[str, Any] = {"properties": {"spec": {"properties": {}}, "status": {"properties": {}}}}
    missing = list(missing_fields(PODGROUPS.type, bare))
    assert {"spec.minMember", "spec.subGroups", "status.phase", "status.finished"} <= set(missing)
    assert not [one for one in missing if one.startswith("metadata")]


async def test_the_fields_that_are_missing_are_named_by_their_place() -> None:
    async with serving() as server, server.client() as client:
        server.answers = [document(PodGroup=older(), Queue=SCHEMAS["Queue"])]
        assert await lacking(client, [PODGROUPS, QUEUES, PODS]) == {
            "podgroups.scheduling.incubator.k8s.io": ["spec.subGroups[].topology", "status.finished"]
        }
        assert [path for _, path, _ in server.requests] == ["/openapi/v3/apis/scheduling.incubator.k8s.io/v1alpha1"]


async def test_a_kind_that_the_document_does_not_know_yet_is_left_out() -> None:
    async with serving() as server, server.client() as client:
        server.answers = [document(Queue=SCHEMAS["Queue"])]
        assert await lacking(client, [PODGROUPS, QUEUES]) == {}


async def test_kinds_of_which_there_is_no_document_yet_are_left_out() -> None:
    async with serving() as server, server.client() as client:
        server.answers = [refuses(404, "NotFound", "no document")]
        assert await lacking(client, [PODGROUPS, QUEUES]) == {}
        assert len(server.requests) == 1


@pytest.mark.parametrize("answer", [refuses(403, "Forbidden", "no"), says(["no", "document"])])
async def test_who_cannot_be_asked_holds_nobody_up(answer: Answer, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server, server.client() as client:
        server.answers = [GROUPS, SERVED, answer]
        with caplog.at_level(logging.INFO):
            await Preflight(client, needed=[PODGROUPS]).wait()
    assert "could not be compared" in caplog.text


async def test_an_older_crd_is_said_with_what_to_do_and_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as server, server.client() as client:
        server.answers = [GROUPS, SERVED, EMPTY, document(PodGroup=older(), Queue=SCHEMAS["Queue"])]
        looking = Preflight(client, needed=[PODGROUPS, QUEUES], listed=[PODGROUPS])
        await looking.wait()
    assert looking.check() is None
    (said,) = [one.getMessage() for one in caplog.records if one.name == preflight.__name__]
    assert "podgroups.scheduling.incubator.k8s.io is of an older release, without spec.subGroups[].topology" in said
    assert said.endswith("kubectl apply --server-side -f crds/")
