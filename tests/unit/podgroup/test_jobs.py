"""Jobs that wait, and the groups that are made for them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from kbatch.api.names import GROUP_NAME_ANNOTATION, OWN_GROUP_ANNOTATION, QUEUE_LABEL, SUSPENDED_ANNOTATION
from kbatch.api.objects import Condition, Job, PodGroup
from kbatch.kube.errors import ApiError
from kbatch.kube.events import Regarding
from kbatch.metrics import ReconcileMetrics
from kbatch.model.events import Delete, Upsert
from operators.podgroup.controller import Controller
from tests.unit.podgroup.build import NOW, condition, pod

PREFIX = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/ns/podgroups"
JOBS = "/apis/batch/v1/namespaces/ns/jobs"


class Server:
    """Keeps objects by path, merges patches, and moves versions; refuses a patch of another version."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[str, str, Any]] = []
        self.refusal: ApiError | None = None
        self.version = 100

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.writes.append((method, path.removesuffix("/status"), body))
        if self.refusal is not None:
            raise self.refusal
        self.version += 1
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in self.objects:
                raise ApiError(409, "AlreadyExists")
            stored = json.loads(json.dumps(body))
            stored["metadata"]["uid"] = f"uid-{self.version}"
        else:
            base = path.removesuffix("/status")
            if base not in self.objects:
                raise ApiError(404, "NotFound")
            stored = self.objects[base]
            wanted = body["metadata"].get("resourceVersion")
            if wanted is not None and wanted != stored["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict")
            stored = merged(stored, body)
            path = base
        stored["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = stored
        return json.dumps(stored).encode()

    def stream(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError

    def job(self) -> Job:
        return msgspec.convert(self.objects[f"{JOBS}/j"], Job)

    def put(self, path: str, body: dict[str, Any]) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = body


def merged(target: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, Mapping):
        return change
    result = dict(target) if isinstance(target, Mapping) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class Told:
    def __init__(self) -> None:
        self.all: list[tuple[str, str, str]] = []

    def tell(self, regarding: Regarding, type_: str, reason: str, action: str, note: str) -> None:
        self.all.append((regarding.kind, reason, note))

    def remark(self, regarding: Regarding, reason: str, action: str, note: str) -> None:
        self.tell(regarding, "Normal", reason, action, note)

    def reasons(self, kind: str) -> list[str]:
        return [reason for of, reason, _ in self.all if of == kind]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def controller(server: Server, told: Told) -> Controller:
    return Controller(server, ReconcileMetrics(CollectorRegistry()), recorder=told, now=lambda: NOW)


def submit(
    server: Server,
    controller: Controller,
    *,
    mark: str | None = "true",
    suspend: bool = True,
    named: str = "",
    uid: str = "uid-j",
    queue: str = "research",
    own: bool = False,
    **spec: Any,
) -> None:
    """The Job j, as the webhook leaves it; `own`: that has given it the name of its group."""
    marks = {SUSPENDED_ANNOTATION: mark} if mark else {}
    server.put(
        f"{JOBS}/j",
        {
            "metadata": {
                "namespace": "ns",
                "name": "j",
                "uid": uid,
                "labels": {QUEUE_LABEL: queue},
                "annotations": {**marks, **({OWN_GROUP_ANNOTATION: "true"} if own else {})},
            },
            "spec": {
                "suspend": suspend,
                "parallelism": 3,
                **spec,
                "template": {
                    "metadata": {"annotations": {GROUP_NAME_ANNOTATION: named}} if named else {},
                    "spec": {
                        "schedulerName": "kube-batch",
                        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
                    },
                },
            },
        },
    )
    controller.hint(Upsert(server.job()))


def say(server: Server, controller: Controller, *conditions: Condition) -> None:
    """The scheduler's conditions on the group, as the watch brings them."""
    stored = server.objects[f"{PREFIX}/j"]
    stored.setdefault("status", {})["conditions"] = msgspec.to_builtins(conditions)
    server.put(f"{PREFIX}/j", stored)
    controller.hint(Upsert(msgspec.convert(stored, PodGroup)))


def job_writes(server: Server) -> list[Any]:
    return [body for method, path, body in server.writes if path.startswith(JOBS)]


async def test_a_job_with_a_queue_gets_a_group_and_waits(server: Server, controller: Controller) -> None:
    submit(server, controller)
    assert await controller.reconcile("ns/j") == "written"
    spec = server.objects[f"{PREFIX}/j"]["spec"]
    assert spec == {"minMember": 3, "queue": "research", "minResources": {"cpu": "6"}}
    await controller.reconcile("ns/j")
    assert not job_writes(server)


async def test_a_job_with_an_empty_queue_leaves_its_group_in_the_default_queue(
    server: Server, controller: Controller
) -> None:
    submit(server, controller, named="j", queue="")
    assert await controller.reconcile("ns/j") == "written"
    made = server.objects[f"{PREFIX}/j"]
    assert made["spec"] == {"minMember": 3, "minResources": {"cpu": "6"}}
    made["spec"]["queue"] = "everybody"  # the API server's default
    server.put(f"{PREFIX}/j", made)
    controller.hint(Upsert(msgspec.convert(made, PodGroup)))
    await controller.reconcile("ns/j")
    writes = len(server.writes)
    assert await controller.reconcile("ns/j") == "unchanged"
    assert len(server.writes) == writes
    server.objects[f"{JOBS}/j"]["spec"]["parallelism"] = 5
    server.put(f"{JOBS}/j", server.objects[f"{JOBS}/j"])
    controller.hint(Upsert(server.job()))
    await controller.reconcile("ns/j")
    spec = server.objects[f"{PREFIX}/j"]["spec"]
    assert (spec["minMember"], spec["queue"]) == (5, "everybody")


async def test_it_is_resumed_after_the_status_says_that_it_is_in_queue(
    server: Server, controller: Controller, told: Told
) -> None:
    submit(server, controller)
    await controller.reconcile("ns/j")
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    *_, status, resumed = server.writes
    assert status[2]["status"]["phase"] == "InQueue"
    assert resumed[2]["spec"]["suspend"] is False
    assert server.objects[f"{JOBS}/j"]["spec"]["template"]["metadata"]["annotations"] == {GROUP_NAME_ANNOTATION: "j"}
    assert await controller.reconcile("ns/j") == "unchanged"
    assert told.reasons("Job") == ["Released"]
    assert told.reasons("PodGroup") == ["Enqueued"]


async def test_it_is_suspended_again_when_it_is_sent_back_without_a_pod_on_a_node(
    server: Server, controller: Controller
) -> None:
    submit(server, controller)
    await controller.reconcile("ns/j")
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    controller.hint(Upsert(pod("j-0", named="j")))
    say(server, controller, condition("Enqueued", "False"))
    await controller.reconcile("ns/j")
    assert server.job().spec.suspend
    assert (server.job().metadata.annotations or {})[SUSPENDED_ANNOTATION] == "true"
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    assert not server.job().spec.suspend


async def test_it_is_left_alone_once_a_pod_has_a_node(server: Server, controller: Controller) -> None:
    submit(server, controller, mark="false", suspend=False, named="j")
    await controller.reconcile("ns/j")
    controller.hint(Upsert(pod("j-0", named="j", node="n")))
    say(server, controller, condition("Enqueued", "False"))
    await controller.reconcile("ns/j")
    assert not job_writes(server)


async def test_whoever_resumes_it_himself_takes_it_over(server: Server, controller: Controller, told: Told) -> None:
    submit(server, controller, suspend=False)
    await controller.reconcile("ns/j")
    await controller.reconcile("ns/j")
    assert SUSPENDED_ANNOTATION not in (server.job().metadata.annotations or {})
    assert told.reasons("Job") == ["LetGo"]
    say(server, controller, condition("Enqueued", "False"))
    await controller.reconcile("ns/j")
    assert not server.job().spec.suspend


async def test_a_change_at_the_same_moment_is_not_overruled(server: Server, controller: Controller) -> None:
    submit(server, controller)
    await controller.reconcile("ns/j")
    server.objects[f"{JOBS}/j"]["metadata"]["resourceVersion"] = "999"
    say(server, controller, condition("Enqueued"))
    with pytest.raises(ApiError, match="Conflict"):
        await controller.reconcile("ns/j")
    assert server.job().spec.suspend


async def test_a_group_that_waits_follows_its_job(server: Server, controller: Controller) -> None:
    submit(server, controller)
    await controller.reconcile("ns/j")
    server.objects[f"{JOBS}/j"]["spec"]["parallelism"] = 5
    server.objects[f"{JOBS}/j"]["metadata"]["resourceVersion"] = "500"
    controller.hint(Upsert(server.job()))
    await controller.reconcile("ns/j")
    spec = server.objects[f"{PREFIX}/j"]["spec"]
    assert (spec["minMember"], spec["minResources"]) == (5, {"cpu": "10"})
    assert await controller.reconcile("ns/j") == "unchanged"


@pytest.mark.parametrize(
    ("parallelism", "wanted"), [(1, (1, {"cpu": "2"})), (2, (2, {"cpu": "4"})), (9, None), (0, None)]
)
async def test_a_group_whose_job_runs_needs_no_more_pods_than_the_job_has_at_one_time(
    server: Server, controller: Controller, parallelism: int, wanted: tuple[int, dict[str, str]] | None
) -> None:
    submit(server, controller)
    await controller.reconcile("ns/j")
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    assert not server.job().spec.suspend
    before = server.objects[f"{PREFIX}/j"]["spec"]
    server.objects[f"{JOBS}/j"]["spec"]["parallelism"] = parallelism
    server.objects[f"{JOBS}/j"]["metadata"]["resourceVersion"] = "500"
    controller.hint(Upsert(server.job()))
    await controller.reconcile("ns/j")
    spec = server.objects[f"{PREFIX}/j"]["spec"]
    assert (spec["minMember"], spec["minResources"]) == (wanted or (before["minMember"], before["minResources"]))
    assert await controller.reconcile("ns/j") == "unchanged"


async def test_what_the_user_has_said_of_a_running_jobs_group_stays(server: Server, controller: Controller) -> None:
    submit(server, controller)
    await controller.reconcile("ns/j")
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    held = server.objects[f"{PREFIX}/j"]
    held["spec"]["minResources"] = {"cpu": "99"}
    server.put(f"{PREFIX}/j", held)
    controller.hint(Upsert(msgspec.convert(held, PodGroup)))
    server.objects[f"{JOBS}/j"]["spec"]["parallelism"] = 1
    server.objects[f"{JOBS}/j"]["metadata"]["resourceVersion"] = "500"
    controller.hint(Upsert(server.job()))
    await controller.reconcile("ns/j")
    spec = server.objects[f"{PREFIX}/j"]["spec"]
    assert (spec["minMember"], spec["minResources"]) == (1, {"cpu": "99"})


async def test_who_changes_the_queue_of_a_job_that_runs_is_told_once_that_it_stays(
    server: Server, controller: Controller, told: Told
) -> None:
    submit(server, controller)
    await controller.reconcile("ns/j")
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    before = server.objects[f"{PREFIX}/j"]["spec"]["queue"]
    for labelled, resource_version in (("elsewhere", "500"), ("", "501"), (before, "502"), ("elsewhere", "503")):
        server.objects[f"{JOBS}/j"]["metadata"]["labels"] = {QUEUE_LABEL: labelled}
        server.objects[f"{JOBS}/j"]["metadata"]["resourceVersion"] = resource_version
        controller.hint(Upsert(server.job()))
        await controller.reconcile("ns/j")
        await controller.reconcile("ns/j")
    assert server.objects[f"{PREFIX}/j"]["spec"]["queue"] == before
    assert told.reasons("Job") == ["Released", "QueueLabelIgnored", "QueueLabelIgnored"]


async def test_a_group_that_was_given_another_priority_keeps_it(server: Server, controller: Controller) -> None:
    submit(server, controller)
    await controller.reconcile("ns/j")
    await controller.reconcile("ns/j")
    held = server.objects[f"{PREFIX}/j"]
    held["spec"]["priorityClassName"] = "high"
    server.put(f"{PREFIX}/j", held)
    controller.hint(Upsert(msgspec.convert(held, PodGroup)))
    assert await controller.reconcile("ns/j") == "unchanged"
    server.objects[f"{JOBS}/j"]["spec"]["parallelism"] = 5
    server.objects[f"{JOBS}/j"]["metadata"]["resourceVersion"] = "500"
    controller.hint(Upsert(server.job()))
    await controller.reconcile("ns/j")
    spec = server.objects[f"{PREFIX}/j"]["spec"]
    assert (spec["minMember"], spec["priorityClassName"]) == (5, "high")


@pytest.mark.parametrize("named", ["", "j"])
async def test_a_foreign_group_of_the_jobs_name_is_not_joined(
    server: Server, controller: Controller, told: Told, named: str
) -> None:
    """Whether or not the webhook has given the template the Job's name."""
    server.put(f"{PREFIX}/j", {"metadata": {"namespace": "ns", "name": "j", "uid": "other"}, "spec": {}})
    controller.hint(Upsert(msgspec.convert(server.objects[f"{PREFIX}/j"], PodGroup)))
    submit(server, controller, named=named, own=bool(named))
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    assert not job_writes(server)
    assert told.reasons("Job") == ["PodGroupNameTaken"]


@pytest.mark.parametrize("status", ["True", "False"])
async def test_a_job_made_anew_waits_for_a_group_of_its_own(
    server: Server, controller: Controller, told: Told, status: str
) -> None:
    submit(server, controller, named="j")
    await controller.reconcile("ns/j")
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    assert not server.job().spec.suspend
    controller.hint(Delete(Job, "ns", "j"))
    submit(server, controller, named="j", uid="uid-new", parallelism=100)
    say(server, controller, condition("Enqueued", status))
    written = job_writes(server)
    assert await controller.reconcile("ns/j") in {"unchanged", "written"}
    assert job_writes(server) == written
    assert told.reasons("Job") == ["Released"]
    # Its group goes with the Job before it.
    del server.objects[f"{PREFIX}/j"]
    controller.hint(Delete(PodGroup, "ns", "j"))
    assert await controller.reconcile("ns/j") == "written"
    made = server.objects[f"{PREFIX}/j"]
    assert (made["metadata"]["ownerReferences"][0]["uid"], made["spec"]["minMember"]) == ("uid-new", 100)
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    assert not server.job().spec.suspend


async def test_a_job_made_anew_joins_a_group_that_its_user_made(server: Server, controller: Controller) -> None:
    submit(server, controller, named="j")
    await controller.reconcile("ns/j")
    held = server.objects[f"{PREFIX}/j"]
    held["metadata"]["ownerReferences"][0]["controller"] = False
    server.put(f"{PREFIX}/j", held)
    controller.hint(Delete(Job, "ns", "j"))
    submit(server, controller, named="j", uid="uid-new")
    say(server, controller, condition("Enqueued"))
    await controller.reconcile("ns/j")
    assert not server.job().spec.suspend


async def test_nobody_is_asked_for_the_group_that_is_made_for_the_job(
    server: Server, controller: Controller, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is made as long as the Job is to run no pods."""
    now = 100.0
    monkeypatch.setattr(controller._jobs, "_clock", lambda: now)
    submit(server, controller, named="j", own=True, parallelism=0)
    for _ in range(2):
        assert await controller.reconcile("ns/j") == "gone"
        now += 11
    assert told.all == []


async def test_a_job_whose_group_nobody_makes_is_told_once_after_a_while(
    server: Server, controller: Controller, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(controller._jobs, "_clock", lambda: now)
    submit(server, controller, named="nowhere")
    assert await controller.reconcile("ns/nowhere") == "gone"
    assert told.all == []
    now += 11
    for _ in range(2):
        assert await controller.reconcile("ns/nowhere") == "gone"
    words = "it waits without pods: PodGroup ns/nowhere does not exist; create it, or remove the pods' group annotation"
    assert told.all == [("Job", "PodGroupNotFound", words)]
    server.put(f"{PREFIX}/nowhere", {"metadata": {"namespace": "ns", "name": "nowhere", "uid": "u"}, "spec": {}})
    controller.hint(Upsert(msgspec.convert(server.objects[f"{PREFIX}/nowhere"], PodGroup)))
    await controller.reconcile("ns/nowhere")
    assert len(controller._jobs) == 0


async def test_a_job_that_runs_past_its_group_is_not_told(
    server: Server, controller: Controller, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(controller._jobs, "_clock", lambda: now)
    submit(server, controller, named="nowhere", suspend=False)
    await controller.reconcile("ns/nowhere")
    now += 11
    await controller.reconcile("ns/nowhere")
    assert told.all == []


async def test_a_group_that_is_refused_is_said_on_the_job(server: Server, controller: Controller, told: Told) -> None:
    submit(server, controller)
    server.refusal = ApiError(403, "Forbidden", "minResources exceed the quota")
    with pytest.raises(ApiError):
        await controller.reconcile("ns/j")
    assert told.reasons("Job") == ["PodGroupRefused"]


async def test_the_owner_is_told_why_its_group_waits_once_for_each_reason(
    server: Server, controller: Controller, told: Told
) -> None:
    submit(server, controller)
    await controller.reconcile("ns/j")
    server.objects[f"{PREFIX}/j"]["metadata"]["creationTimestamp"] = NOW
    for _ in range(3):
        say(server, controller, condition("Scheduled", "False", "NotEnoughResources"))
        await controller.reconcile("ns/j")
    say(server, controller, condition("Scheduled", "False", "QuotaExceeded"))
    await controller.reconcile("ns/j")
    assert told.reasons("Job") == ["NotEnoughResources", "QuotaExceeded"]


async def test_a_group_is_told_why_it_waits_once_the_reason_has_stood_for_a_while(
    server: Server, controller: Controller, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("operators.podgroup.event_notes.time.monotonic", lambda: now)
    submit(server, controller)
    await controller.reconcile("ns/j")
    server.objects[f"{PREFIX}/j"]["metadata"]["creationTimestamp"] = NOW
    for reason in ("NotEnoughTasks", "NotEnoughResources"):
        say(server, controller, condition("Scheduled", "False", reason, "2 of 3 pods"))
        await controller.reconcile("ns/j")
        now += 6
    assert told.reasons("PodGroup") == []
    now += 5
    for reason in ("NotEnoughResources", "QuotaExceeded", "NotEnoughResources"):
        say(server, controller, condition("Scheduled", "False", reason, "2 of 3 pods"))
        await controller.reconcile("ns/j")
        now += 11
        await controller.reconcile("ns/j")
    assert [one for one in told.all if one[0] == "PodGroup"] == [
        ("PodGroup", "NotEnoughResources", "2 of 3 pods"),
        ("PodGroup", "QuotaExceeded", "2 of 3 pods"),
    ]
    assert told.reasons("Job") == ["NotEnoughTasks", "NotEnoughResources", "QuotaExceeded"]
