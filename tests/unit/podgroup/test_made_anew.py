"""A PodGroup that is made anew under its name does not take the pods of the one before for its own."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.names import API_VERSION
from kbatch.api.objects import OwnerReference, Pod, PodGroup
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Delete, Upsert
from operators.podgroup.controller import Controller
from operators.podgroup.member_index import MemberIndex
from tests.unit.podgroup.build import NOW, group, index, pod
from tests.unit.podgroup.test_jobs import PREFIX, Server, Told

TEMPLATE = {"spec": {"schedulerName": "kube-batch", "containers": [{"name": "c"}]}}


def made(name: str, uid: str, phase: str = "Succeeded", *, kind: str = "PodGroup") -> Pod:
    """A pod that names ns/pg, made from the template of the group of that uid."""
    found = pod(name, phase, node="n", role="w")
    owner = OwnerReference(api_version=API_VERSION, kind=kind, name="pg", uid=uid, controller=True)
    found.metadata.owner_references = (owner,)
    return found


def names(seen: MemberIndex) -> tuple[list[str], list[str]]:
    return sorted(seen.named_members("ns/pg")), sorted(seen.former("ns/pg"))


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def controller(server: Server) -> Controller:
    return Controller(server, ReconcileMetrics(CollectorRegistry()), recorder=Told(), now=lambda: NOW)


def create(server: Server, controller: Controller, **spec: Any) -> None:
    """The PodGroup ns/pg of the uid new, which nobody has let in."""
    roles = [{"name": "w", "minMember": 2, "template": TEMPLATE}]
    body = {
        "metadata": {"name": "pg", "namespace": "ns", "uid": "new", "generation": 1, "creationTimestamp": NOW},
        "spec": {"minMember": 2, "subGroups": roles, **spec},
    }
    server.put(f"{PREFIX}/pg", json.loads(json.dumps(body)))
    controller.hint(Upsert(msgspec.convert(server.objects[f"{PREFIX}/pg"], PodGroup)))


@pytest.mark.parametrize("phase", ["Succeeded", "Running", "Failed", "Pending"])
async def test_it_is_pending_whatever_became_of_them(server: Server, controller: Controller, phase: str) -> None:
    for at in range(2):
        controller.hint(Upsert(made(f"pg-w-{at}", "old", phase)))
    create(server, controller, ttlSecondsAfterFinished=0)
    await controller.reconcile("ns/pg")
    await controller.reconcile("ns/pg")
    status = server.objects[f"{PREFIX}/pg"]["status"]
    assert status["phase"] == "Pending"
    assert [status[name] for name in ("running", "succeeded", "failed", "pending")] == [0, 0, 0, 0]
    assert "conditions" not in status
    assert "allocated" not in status
    assert not any(method == "DELETE" for method, *_ in server.writes)


def test_whose_a_pod_is_follows_the_group_in_any_order() -> None:
    pods = made("a", "old"), made("b", "new"), pod("c"), made("d", "old", kind="Other")
    for seen in (index(*pods, group(uid="new")), index(group(uid="new"), *pods), index(group(uid="old"), *pods)):
        seen.apply(Upsert(group(uid="new", version="2")))
        assert names(seen) == (["ns/b", "ns/c", "ns/d"], ["ns/a"])
        seen.apply(Upsert(group(uid="old", version="3")))
        assert names(seen) == (["ns/a", "ns/c", "ns/d"], ["ns/b"])
        assert seen.put_pod(made("b", "new")) == (set(), True), "nothing is new"
        assert seen.apply(Delete(Pod, "ns", "b")) == {"ns/pg"}
        assert names(seen) == (["ns/a", "ns/c", "ns/d"], [])
        orphaned = made("a", "old")
        orphaned.metadata.owner_references = ()
        seen.apply(Upsert(orphaned))
        seen.apply(Upsert(group(uid="newest", version="4")))
        assert names(seen) == (["ns/a", "ns/c", "ns/d"], [])
        for name in "acd":
            seen.apply(Delete(Pod, "ns", name))
        assert not any((seen._members, seen._former, seen._pods))
