"""Objects besides pods: made before the pods, once; deleted when the group is over; never another's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.objects import Job, Pod, PodGroup
from kbatch.kube.errors import ApiError
from kbatch.kube.events import Regarding
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Upsert
from operators.podgroup.controller import Controller
from operators.podgroup.event_notes import Teller
from operators.podgroup.kinds import parse_kinds
from operators.podgroup.objects import Objects
from tests.unit.podgroup.build import NOW

KINDS = parse_kinds("v1/Service=services, v1/ConfigMap=configmaps,networking.k8s.io/v1/Ingress=ingresses")
ROLE = {"name": "w", "minMember": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
WEB = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "{{ group }}-web"}}
MISSPELT = 'Service in version "v1" cannot be handled as a Service: strict decoding error: unknown field "sepc"'
FILES = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "files"}}


class Server:
    """Keeps what is made, by path without its prefix; the group is kept as `group`."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.group: dict[str, Any] = {}
        self.did: list[str] = []
        self.refuse: dict[str, ApiError] = {}
        self.version = 100

    async def request(
        self, method: str, path: str, *, body: Any = None, params: Mapping[str, str] | None = None, **_: Any
    ) -> bytes:
        short = path.partition("/namespaces/ns/")[2]
        name = f"{short}/{body['metadata']['name']}" if method == "POST" else short
        self.did.append(f"{method} {name}")
        if error := self.refuse.get(f"{method} {name}"):
            raise error
        if method == "POST" and "sepc" in body and (params or {}).get("fieldValidation") == "Strict":
            raise ApiError(400, "BadRequest", MISSPELT)
        self.version += 1
        if "podgroups" in path:
            self.group["metadata"]["resourceVersion"] = str(self.version)
            before = self.group.get("status", {})
            conditions = {
                one["type"]: one for one in before.get("conditions", []) + body["status"].get("conditions", [])
            }
            self.group["status"] = {**before, "objects": [], **body["status"], "conditions": list(conditions.values())}
            return json.dumps(self.group).encode()
        if method == "POST":
            if name in self.objects:
                raise ApiError(409, "AlreadyExists")
            self.objects[name] = {**body, "metadata": {**body["metadata"], "uid": f"uid-{self.version}"}}
        elif name not in self.objects:
            raise ApiError(404, "NotFound")
        found = self.objects[name]
        if method == "DELETE":
            assert body["preconditions"]["uid"] == found["metadata"]["uid"]
            del self.objects[name]
        return json.dumps(found).encode()

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError


class Rig:
    """The controller with ns/pg, which has objects, and a server that keeps them."""

    def __init__(self, *objects: dict[str, Any], roles: bool = True) -> None:
        self.server = Server()
        self.told: list[tuple[str, str]] = []
        self.roles = roles
        self.generation = 0
        self.controller = self.anew()
        self.server.group = {"metadata": {"namespace": "ns", "name": "pg", "uid": "uid-pg"}}
        self.write(*objects)

    def tell(self, regarding: Regarding, type_: str, reason: str, action: str, note: str) -> None:
        self.told.append((reason, note))

    def remark(self, regarding: Regarding, reason: str, action: str, note: str) -> None:
        self.tell(regarding, "Normal", reason, action, note)

    def anew(self) -> Controller:
        """A process that starts, and has heard of nothing."""
        self.controller = Controller(
            self.server,
            ReconcileMetrics(CollectorRegistry()),
            recorder=self,
            object_kinds=KINDS,
            now=lambda: NOW,
        )
        return self.controller

    def write(self, *objects: dict[str, Any]) -> None:
        """The user writes these objects."""
        self.generation += 1
        self.server.group["spec"] = {"objects": list(objects), "subGroups": [ROLE] if self.roles else []}
        self.see(enqueued=None)

    def see(self, *, enqueued: bool | None, **status: Any) -> None:
        """The watch tells of the group, and of what the scheduler said."""
        self.server.version += 1
        metadata = self.server.group["metadata"]
        metadata |= {"resourceVersion": str(self.server.version), "generation": self.generation}
        kept = self.server.group.setdefault("status", {})
        kept |= status
        if enqueued is not None:
            others = [one for one in kept.get("conditions", []) if one["type"] != "Enqueued"]
            kept["conditions"] = [*others, {"type": "Enqueued", "status": "True" if enqueued else "False"}]
        self.controller.hint(Upsert(msgspec.convert(self.server.group, PodGroup)))

    async def work(self) -> list[str]:
        """Reconcile once; what was asked of the server."""
        self.server.did.clear()
        await self.controller.reconcile("ns/pg")
        return list(self.server.did)

    def stalled(self) -> tuple[str, str, str]:
        found = next(one for one in self.server.group["status"]["conditions"] if one["type"] == "Stalled")
        return found["status"], found["reason"], found["message"]


async def test_objects_come_in_queue_and_before_the_first_pod_and_stand_in_the_status() -> None:
    rig = Rig(WEB, FILES)
    assert await rig.work() == ["PATCH podgroups/pg/status"]
    rig.see(enqueued=True)
    assert await rig.work() == [
        "POST services/pg-web",
        "POST configmaps/files",
        "PATCH podgroups/pg/status",
        "POST pods/pg-w-0",
    ]
    assert rig.server.group["status"]["phase"] == "InQueue"
    assert rig.server.group["status"]["objects"] == [
        {"apiVersion": "v1", "kind": "Service", "name": "pg-web"},
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "files"},
    ]
    assert rig.server.objects["services/pg-web"]["metadata"]["ownerReferences"][0]["uid"] == "uid-pg"
    assert ("ObjectsMade", "made Service pg-web, ConfigMap files") in rig.told
    assert await rig.work() == []
    rig.anew()
    rig.see(enqueued=None)
    assert "POST services/pg-web" not in await rig.work(), "a new process reads in the status what there is"


async def test_they_stay_while_the_group_is_sent_back_and_go_when_it_is_over() -> None:
    rig = Rig(WEB)
    rig.see(enqueued=True)
    await rig.work()
    rig.see(enqueued=False)
    assert [one for one in await rig.work() if "services" in one] == []
    rig.see(enqueued=True, phase="Running")
    rig.server.group["metadata"]["annotations"] = {"kbatch.dev/replacement-limit": "0"}
    failed = {
        "metadata": {
            "name": "pg-w-0",
            "namespace": "ns",
            "uid": "p",
            "annotations": {"scheduling.k8s.io/group-name": "pg"},
            "labels": {"kbatch.dev/sub-group": "w"},
            "ownerReferences": [{"kind": "PodGroup", "uid": "uid-pg", "controller": True}],
        },
        "status": {"phase": "Failed"},
    }
    rig.controller.hint(Upsert(msgspec.convert(failed, Pod)))
    rig.see(enqueued=None)
    did = await rig.work()
    assert did[:3] == ["GET services/pg-web", "DELETE services/pg-web", "PATCH podgroups/pg/status"]
    assert (rig.server.group["status"]["phase"], rig.server.group["status"]["objects"]) == ("Failed", [])
    assert ("ObjectsDeleted", "deleted Service pg-web") in rig.told
    assert [one for one in await rig.work() if "services" in one] == []


async def test_an_object_of_anothers_is_neither_taken_nor_deleted() -> None:
    rig = Rig(WEB)
    theirs = {"metadata": {"name": "pg-web", "uid": "theirs", "ownerReferences": [{"uid": "somebody"}]}}
    rig.server.objects["services/pg-web"] = theirs
    rig.see(enqueued=True)
    assert "POST pods/pg-w-0" not in await rig.work()
    assert rig.stalled() == ("True", "ObjectNameTaken", "Service pg-web exists and does not belong to the group")
    assert rig.server.group["status"]["phase"] == "InQueue"
    rig.write()
    rig.see(enqueued=None, objects=[{"apiVersion": "v1", "kind": "Service", "name": "pg-web"}])
    assert "DELETE services/pg-web" not in await rig.work()
    assert rig.server.objects["services/pg-web"] is theirs


async def test_one_that_a_process_made_before_it_could_say_so_is_found_again() -> None:
    rig = Rig(WEB)
    owned = {"metadata": {"name": "pg-web", "uid": "u", "ownerReferences": [{"uid": "uid-pg"}]}}
    rig.server.objects["services/pg-web"] = owned
    rig.see(enqueued=True)
    assert "POST pods/pg-w-0" in await rig.work()
    assert [one["name"] for one in rig.server.group["status"]["objects"]] == ["pg-web"]


@pytest.mark.parametrize(
    ("wrong", "reason", "said"),
    [
        ({**WEB, "metadata": {"name": "{{ nobody }}"}}, "TemplateError", "objects[0].metadata.name: 'nobody'"),
        ({**WEB, "kind": "Secret"}, "ObjectRefused", "objects: no Secret of v1 can be made here; Service, ConfigMap"),
        ({**WEB, "kind": "Ingress"}, "ObjectRefused", "objects: no Ingress of v1 can be made here"),
    ],
)
async def test_what_cannot_be_made_keeps_the_pods_away_and_is_said_until_it_is_mended(
    wrong: dict[str, Any], reason: str, said: str
) -> None:
    rig = Rig(wrong)
    rig.see(enqueued=True)
    assert await rig.work() == ["PATCH podgroups/pg/status"]
    status, code, message = rig.stalled()
    assert (status, code) == ("True", reason)
    assert message.startswith(said)
    assert rig.told.count((reason, message)) == 1
    assert await rig.work() == []
    rig.write(WEB)
    await rig.work()
    await rig.work()
    assert "pods/pg-w-0" in rig.server.objects
    assert rig.stalled()[0] == "False"


async def test_an_object_with_a_field_that_its_kind_does_not_have_is_refused_with_the_servers_words() -> None:
    rig = Rig({**WEB, "sepc": {"clusterIP": "None"}})
    rig.see(enqueued=True)
    assert await rig.work() == ["POST services/pg-web", "PATCH podgroups/pg/status"]
    assert rig.stalled() == ("True", "ObjectRefused", f"Service pg-web: {MISSPELT}")
    assert rig.server.objects == {}


async def test_what_the_server_refuses_is_tried_again_after_a_while_and_other_errors_at_once() -> None:
    rig = Rig(WEB, FILES, roles=False)
    now = 1000.0
    rig.controller._objects = Objects(rig.server, Teller(rig, NOW), KINDS, clock=lambda: now)
    rig.see(enqueued=True)
    rig.server.refuse["POST configmaps/files"] = ApiError(403, "Forbidden", "exceeded quota")
    assert await rig.work() == ["POST services/pg-web", "POST configmaps/files", "PATCH podgroups/pg/status"]
    assert rig.stalled() == ("True", "ObjectRefused", "ConfigMap files: exceeded quota")
    assert [one["name"] for one in rig.server.group["status"]["objects"]] == ["pg-web"]
    assert await rig.work() == []
    now += 31
    rig.server.refuse["POST configmaps/files"] = ApiError(503, "ServiceUnavailable")
    with pytest.raises(ApiError):
        await rig.work()
    with pytest.raises(ApiError):
        await rig.work()
    rig.server.refuse.clear()
    assert "POST configmaps/files" in await rig.work()
    assert rig.stalled()[0] == "False", "also of a group that makes no pods"


async def test_a_job_is_not_resumed_before_the_objects_are_there() -> None:
    rig = Rig(WEB, roles=False)
    held = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "j", "annotations": {"kbatch.dev/suspended": "true"}},
        "spec": {
            "suspend": True,
            "template": {
                "metadata": {"annotations": {"scheduling.k8s.io/group-name": "pg"}},
                "spec": {"schedulerName": "kube-batch"},
            },
        },
    }
    rig.controller.hint(Upsert(msgspec.convert(held, Job)))
    rig.server.objects["jobs/j"] = held
    rig.server.refuse["POST services/pg-web"] = ApiError(422, "Invalid", "no")
    rig.see(enqueued=True)
    assert "PATCH jobs/j" not in await rig.work()
    rig.server.refuse.clear()
    rig.write({**WEB, "metadata": {"name": "web"}})
    did = await rig.work()
    assert did.index("POST services/web") < did.index("PATCH jobs/j")


async def test_what_is_no_longer_wanted_is_deleted_and_what_is_new_is_made() -> None:
    rig = Rig(WEB)
    rig.see(enqueued=True)
    await rig.work()
    rig.write(FILES)
    assert {"DELETE services/pg-web", "POST configmaps/files"} <= set(await rig.work())
    assert [one["name"] for one in rig.server.group["status"]["objects"]] == ["files"]


def test_the_kinds_are_read_and_those_that_would_lend_rights_are_refused() -> None:
    assert {kind.path("ns", "x") for kind in KINDS.values()} == {
        "/api/v1/namespaces/ns/services/x",
        "/api/v1/namespaces/ns/configmaps/x",
        "/apis/networking.k8s.io/v1/namespaces/ns/ingresses/x",
    }
    assert parse_kinds("") == {}
    for text in ("v1/Service", "Service=services", "v1/service=services"):
        with pytest.raises(ValueError, match="is no kind such as"):
            parse_kinds(text)
    for group in ("rbac.authorization.k8s.io/v1/Role=roles", "scheduling.incubator.k8s.io/v1alpha1/PodGroup=podgroups"):
        with pytest.raises(ValueError, match="is made for users"):
            parse_kinds(group)


async def test_stalled_goes_where_the_objects_that_were_refused_are_wanted_no_more() -> None:
    rig = Rig(WEB, roles=False)
    rig.server.refuse["POST services/pg-web"] = ApiError(422, "Invalid", "no")
    rig.see(enqueued=True)
    await rig.work()
    assert rig.stalled()[0] == "True"
    rig.write()
    rig.see(enqueued=True)
    await rig.work()
    assert rig.stalled()[0] == "False"
