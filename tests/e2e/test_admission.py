"""Admission on a real API server: what is filled in, held back, refused, and never passed."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kbatch.api.objects import PodGroup
from kbatch.kube import errors
from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.localcluster.errors import ApiError
from kbatch.model.minresources import minimum_of
from tests.e2e.operator_process import eventually
from tests.e2e.webhook_replicas import LEDGERS, NAMESPACE, Replicas

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.conftest import ControlPlane

pytestmark = [pytest.mark.control_plane, pytest.mark.installed]

SECONDS = 30.0
MARKED_SECONDS = 2.0
"""Within this time after a quota is made the webhook is asked."""
PAIRS = Path(__file__).parents[1] / "unit" / "webhooks" / "certificates"
GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{}/podgroups"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
PODS = "/api/v1/namespaces/{}/pods"
QUEUES = "/apis/scheduling.incubator.k8s.io/v1alpha1/queues"


def container(cpu: str = "1") -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}


def podgroup(name: str | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name} if name else {"generateName": "group-"}
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": metadata, "spec": spec,
    }  # fmt: skip


def job(name: str | None, *, queue: str = "", group: str = "", scheduler: str = "", **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name} if name else {"generateName": "job-"}
    if queue:
        metadata["labels"] = {"kbatch.dev/queue": queue}
    template: dict[str, Any] = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
    if scheduler:
        template["spec"]["schedulerName"] = scheduler
    if group:
        template["metadata"] = {"annotations": {"scheduling.k8s.io/group-name": group}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


def pod(name: str, *, group: str = "", scheduler: str = "kube-batch", cpu: str = "1") -> dict[str, Any]:
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": scheduler, "containers": [container(cpu)]},
    }


class Space:
    """A namespace of a test's own."""

    def __init__(self, control_plane: ControlPlane, name: str) -> None:
        self.control_plane = control_plane
        self.name = name
        self.api = control_plane.api()

    def create(self, path: str, body: dict[str, Any], *, dry_run: bool = False) -> Any:
        return self.api.post(path.format(self.name) + ("?dryRun=All" if dry_run else ""), body)

    def refused(self, path: str, body: dict[str, Any], *, dry_run: bool = False) -> ApiError:
        with pytest.raises(ApiError) as caught:
            self.create(path, body, dry_run=dry_run)
        return caught.value

    def get(self, path: str, name: str) -> Any:
        return self.api.get(f"{path.format(self.name)}/{name}")

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api.get(path.format(self.name))["items"]
        return found

    def patch(self, path: str, name: str, change: dict[str, Any], subresource: str = "") -> Any:
        return self.api.request(
            "PATCH", f"{path.format(self.name)}/{name}{subresource}", change,
            content_type="application/merge-patch+json",
        )  # fmt: skip

    def quota(self, name: str = "quota", **hard: str) -> None:
        limits = {key.replace("_", "."): value for key, value in hard.items()}
        self.create(
            "/api/v1/namespaces/{}/resourcequotas",
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": limits}},
        )
        # The quota's controller fills in what is used; the webhook's watch is a moment behind.
        path = f"/api/v1/namespaces/{self.name}/resourcequotas/{name}"
        eventually(lambda: "used" in self.api.get(path).get("status", {}), SECONDS, "the quota is counted")

    def live(self) -> list[dict[str, Any]]:
        """The groups that are not over."""
        return [one for one in self.items(GROUPS) if one.get("status", {}).get("phase") != "Completed"]

    def let_in(self, name: str) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {"type": "Enqueued", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now}
        self.patch(GROUPS, name, {"status": {"phase": "InQueue", "conditions": [condition]}}, "/status")


@pytest.fixture(scope="module")
def replicas(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    if control_plane.components is None:
        pytest.skip("the API server of a foreign cluster does not reach this machine")
    with Replicas(control_plane, tmp_path_factory.mktemp("webhook")) as replicas, replicas.operator():
        yield replicas


_NUMBERS = itertools.count()


@pytest.fixture
def space(control_plane: ControlPlane, replicas: Replicas) -> Iterator[Space]:
    name = f"admission-{next(_NUMBERS)}"
    control_plane.run_kubectl("create", "namespace", name)
    made = Space(control_plane, name)
    yield made
    made.api.close()
    control_plane.run_kubectl("delete", "namespace", name, "--wait=false")


def called(space: Space) -> bool:
    """Whether the API server has taken up the configuration: a new group comes back filled in."""
    template = {"spec": {"containers": [container()]}}
    answer = space.create(
        GROUPS, podgroup(subGroups=[{"name": "w", "minMember": 1, "template": template}]), dry_run=True
    )
    return "minResources" in answer["spec"]


@pytest.fixture
def queueing(replicas: Replicas, space: Space) -> Space:
    """A namespace under the default policy."""
    if replicas.values != {}:
        replicas.start()
    eventually(lambda: called(space), SECONDS, "the API server calls the webhook")
    return space


def test_min_resources_follow_from_templates_and_from_the_owning_job(queueing: Space) -> None:
    template = {"spec": {"containers": [container("500m")]}}
    roles = [{"name": "a", "minMember": 2, "template": template}, {"name": "b", "minMember": 1, "template": template}]
    created = queueing.create(GROUPS, podgroup("templates", subGroups=roles))
    assert created["spec"]["minResources"] == {"cpu": "1500m"}
    owner = queueing.create(JOBS, job("owner", suspend=True))
    owned = podgroup("owned", minMember=3)
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "owner", "uid": owner["metadata"]["uid"]}
    ]
    assert queueing.create(GROUPS, owned)["spec"]["minResources"] == {"cpu": "3"}
    owned["metadata"] = {**owned["metadata"], "name": "stranger"}
    owned["metadata"]["ownerReferences"][0]["uid"] = "0b8e2a4c-0000-4000-8000-000000000000"
    assert "minResources" not in queueing.create(GROUPS, owned)["spec"]
    assert "minResources" not in queueing.create(GROUPS, podgroup("plain", minMember=3))["spec"]


def test_kubectl_and_kbatch_show_one_minimum(queueing: Space, control_plane: ControlPlane) -> None:
    def shown() -> set[str]:
        """What kubectl, and the command `groups`, have in their column MIN."""
        lines = control_plane.run_kubectl("-n", queueing.name, "get", "podgroup", "roles").stdout.splitlines()
        group = msgspec.convert(queueing.get(GROUPS, "roles"), PodGroup)
        return {dict(zip(lines[0].split(), lines[1].split(), strict=False))["MIN"], str(minimum_of(group.spec))}

    def roles(least: int) -> dict[str, Any]:
        return {"subGroups": [{"name": "a", "minMember": 1}, {"name": "b", "minMember": least}]}

    queueing.create(GROUPS, podgroup("roles", **roles(3)))
    assert shown() == {"4"}
    for change, minimum in ((roles(5), "6"), ({"minMember": 9}, "9"), ({"minMember": 1, "subGroups": None}, "1")):
        queueing.patch(GROUPS, "roles", {"spec": change})
        assert shown() == {minimum}


def test_a_group_larger_than_a_quota_is_refused_with_the_numbers(queueing: Space) -> None:
    queueing.quota(requests_cpu="10", pods="8")
    large = podgroup("large", minMember=1, minResources={"cpu": "11"})
    error = eventually(lambda: _try(lambda: queueing.create(GROUPS, large, dry_run=True)), SECONDS, "the quota is seen")
    assert error.status == 403
    assert "asks for 11 requests.cpu, over ResourceQuota quota: 0 used and 0 reserved of 10" in str(error)
    assert queueing.refused(GROUPS, large).status == 403
    assert "asks for 9 pods" in str(queueing.refused(GROUPS, podgroup("many", minMember=9)))
    # Together over the quota, each within: they are taken, and wait.
    for name in ("a", "b", "c"):
        queueing.create(GROUPS, podgroup(name, minMember=1, minResources={"cpu": "10"}))
    raised = {"spec": {"minResources": {"cpu": "12"}}}
    with pytest.raises(ApiError, match="asks for 12"):
        queueing.patch(GROUPS, "a", raised)
    queueing.patch(GROUPS, "a", {"spec": {"minResources": {"cpu": "4"}}})


def _try(action: Any) -> ApiError | None:
    try:
        action()
    except ApiError as error:
        return error
    return None


def test_an_old_group_that_breaks_a_new_rule_can_be_edited_elsewhere(queueing: Space, replicas: Replicas) -> None:
    queueing.create(GROUPS, podgroup("old", minMember=1, minResources={"cpu": "50"}))
    queueing.quota(requests_cpu="10")
    probe = podgroup("probe", minMember=1, minResources={"cpu": "50"})
    eventually(lambda: _try(lambda: queueing.create(GROUPS, probe, dry_run=True)), SECONDS, "the quota is seen")
    queueing.patch(GROUPS, "old", {"spec": {"scheduleTimeoutSeconds": 60}})
    queueing.patch(GROUPS, "old", {"spec": {"minResources": {"cpu": "40"}}})
    with pytest.raises(ApiError, match="asks for 41"):
        queueing.patch(GROUPS, "old", {"spec": {"minResources": {"cpu": "41"}}})
    queueing.api.request("DELETE", GROUPS.format(queueing.name) + "/old")


def test_a_template_that_cannot_be_rendered_is_refused_with_its_place(queueing: Space) -> None:
    def templated(text: str) -> dict[str, Any]:
        one = {**container(), "args": ["--rank={{ index }}", text]}
        return podgroup("t", subGroups=[{"name": "w", "minMember": 2, "template": {"spec": {"containers": [one]}}}])

    place = "spec.subGroups[0].template.spec.containers[0].args[1]"
    error = queueing.refused(GROUPS, templated("{{ indx }}"))
    assert error.status == 422
    assert f"{place}: 'indx' is undefined" in str(error)
    assert "no element 7" in str(queueing.refused(GROUPS, templated("{{ peers[7] }}")))
    queueing.create(GROUPS, templated("{{ peers|join(',') }}"))


def test_jobs_that_wait_for_a_group_are_created_suspended(queueing: Space, replicas: Replicas) -> None:
    mark = "kbatch.dev/suspended"
    queued = queueing.create(JOBS, job("queued", queue="default", parallelism=4))
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["annotations"][mark] == "true"
    template = queued["spec"]["template"]
    assert template["spec"]["schedulerName"] == "kube-batch"
    assert template["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "queued"}

    generated = queueing.create(JOBS, job(None, queue="default"))
    name = generated["metadata"]["name"]
    assert name.startswith("job-")
    assert len(name) > len("job-")
    assert generated["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name

    grouped = queueing.create(JOBS, job("grouped", group="somebody", scheduler="kube-batch"))
    assert grouped["spec"]["suspend"] is True
    assert grouped["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "somebody"

    by_hand = queueing.create(JOBS, job("by-hand", queue="default", suspend=True))
    assert mark not in by_hand["metadata"].get("annotations", {})
    assert by_hand["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "by-hand"

    for left_alone in (
        job("foreign", group="somebody"),
        job("other", queue="default", scheduler="volcano"),
        job("plain", scheduler="kube-batch"),
    ):
        assert "annotations" not in queueing.create(JOBS, left_alone)["metadata"]
        assert queueing.get(JOBS, left_alone["metadata"]["name"])["spec"]["suspend"] is False

    # No pod of any of them was ever made; a resumed Job is not suspended again.
    assert [one for one in queueing.items(PODS) if one["metadata"]["labels"]["job-name"] == "queued"] == []
    queueing.patch(JOBS, "queued", {"spec": {"suspend": False}})
    assert queueing.get(JOBS, "queued")["spec"]["suspend"] is False


def test_what_is_reserved_is_not_used_by_others(queueing: Space, control_plane: ControlPlane) -> None:
    queueing.quota(requests_cpu="10")
    queueing.create(GROUPS, podgroup("holder", minMember=6, minResources={"cpu": "6"}))
    queueing.let_in("holder")
    queueing.create(GROUPS, podgroup("early", minMember=1, minResources={"cpu": "1"}))
    error = eventually(
        lambda: _try(lambda: queueing.create(PODS, pod("probe", cpu="5"), dry_run=True)),
        SECONDS,
        "the reservation is seen",
    )
    assert error.status == 403
    assert "asks for 5 requests.cpu, over ResourceQuota quota: 0 used and 6 reserved of 10" in str(error)
    # What is promised to nobody may be used; a group's own pods use what it was promised, and count once.
    queueing.create(PODS, pod("free", cpu="3"))
    for index in range(4):
        queueing.create(PODS, pod(f"holder-{index}", group="holder"))
    eventually(
        lambda: "7 used" in str(_try(lambda: queueing.create(PODS, pod("p", cpu="2"), dry_run=True)) or ""),
        SECONDS, "the pods are seen",
    )  # fmt: skip
    assert queueing.refused(PODS, pod("early-0", group="early", cpu="2")).status == 403
    queueing.create(PODS, pod("early-1", group="early"))
    # Other schedulers' pods are not looked at, unless their namespace asks for it.
    queueing.create(PODS, pod("foreign", scheduler="default-scheduler", cpu="1"), dry_run=True)
    control_plane.run_kubectl("label", "namespace", queueing.name, "kbatch.dev/quota-guard=enforce")
    foreign = pod("foreign", scheduler="default-scheduler", cpu="1")
    eventually(lambda: _try(lambda: queueing.create(PODS, foreign, dry_run=True)), SECONDS, "foreign pods are reviewed")
    for index in (4, 5):
        queueing.create(PODS, pod(f"holder-{index}", group="holder"))


def marked(space: Space) -> bool:
    labels = space.api.get(f"/api/v1/namespaces/{space.name}")["metadata"]["labels"]
    return bool(labels.get("kbatch.dev/quota") == "true")


def reviews(space: Space) -> int:
    """How often the API server has asked about pods, by its own count."""
    name = "apiserver_admission_webhook_admission_duration_seconds_count"
    lines = [line for line in str(space.api.request("GET", "/metrics")).splitlines() if line.startswith(name)]
    return sum(int(line.rpartition(" ")[2]) for line in lines if 'name="pod-reservations.kbatch.dev"' in line)


def test_only_pods_of_namespaces_with_a_quota_are_shown_to_the_webhook(queueing: Space) -> None:
    """From the quota to the label of its namespace, to the webhook being asked, and back."""

    def asked() -> bool:
        before = reviews(queueing)
        queueing.create(PODS, pod("probe"), dry_run=True)
        return reviews(queueing) > before

    assert not marked(queueing)
    assert not asked()
    queueing.create(
        "/api/v1/namespaces/{}/resourcequotas",
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "9"}}},
    )
    began = time.monotonic()
    eventually(lambda: marked(queueing), SECONDS, "the namespace is labelled")
    eventually(asked, SECONDS, "the webhook is asked")
    assert time.monotonic() - began < MARKED_SECONDS
    # What an owner of the namespace takes away comes again.
    queueing.control_plane.run_kubectl("label", "namespace", queueing.name, "kbatch.dev/quota-")
    eventually(lambda: marked(queueing), SECONDS, "it is labelled again")
    queueing.api.request("DELETE", f"/api/v1/namespaces/{queueing.name}/resourcequotas/q")
    eventually(lambda: not marked(queueing), SECONDS, "the label is gone")
    eventually(lambda: not asked(), SECONDS, "the webhook is not asked")


def test_a_queue_is_deleted_only_when_its_groups_are_gone(queueing: Space) -> None:
    name = f"{queueing.name}-research"
    path = f"{QUEUES}/{name}"
    queue = {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": {},
    }  # fmt: skip
    queueing.create(QUEUES, queue)

    def refused(target: str = path) -> ApiError | None:
        return _try(lambda: queueing.api.request("DELETE", f"{target}?dryRun=All"))

    def says(numbers: str) -> None:
        eventually(lambda: numbers in str(refused() or ""), SECONDS, f"{numbers} are seen")

    eventually(lambda: refused() is None, SECONDS, "an empty queue may go")
    for group in ("a", "b", "c", "over"):
        queueing.create(GROUPS, podgroup(group, queue=name))
    for group, phase in (("a", "Running"), ("b", "InQueue"), ("over", "Completed")):
        queueing.patch(GROUPS, group, {"status": {"phase": phase}}, "/status")
    says("still has 3 groups (2 pending or in queue, 1 running)")
    with pytest.raises(ApiError, match=f"Queue {name} still has 3 groups .*: delete or move them first") as caught:
        queueing.api.request("DELETE", path)
    assert caught.value.status == 403
    with pytest.raises(ApiError, match="still has 3 groups"):  # each of a collection is reviewed by itself
        queueing.api.request("DELETE", f"{QUEUES}?fieldSelector=metadata.name%3D{name}")
    assert queueing.api.get(path)["metadata"]["name"] == name
    # One is moved, one deleted, one ends: then nothing is in the way, also not what is over.
    queueing.patch(GROUPS, "c", {"spec": {"queue": "elsewhere"}})
    queueing.api.request("DELETE", f"{GROUPS.format(queueing.name)}/b")
    says("still has 1 group (1 running): delete it first")
    queueing.patch(GROUPS, "a", {"status": {"phase": "Failed"}}, "/status")
    eventually(lambda: refused() is None, SECONDS, "the queue is empty again")
    assert queueing.api.get(path)["metadata"]["name"] == name  # until here all was tried only
    queueing.api.request("DELETE", path)
    assert _try(lambda: queueing.api.get(path)) is not None


def parallel(space: Space, bodies: list[dict[str, Any]], *, wanted: int) -> tuple[list[str], list[str]]:
    """Create all these groups at once: the names of those that were made, and why others were refused.

    On a busy machine some requests get no answer in time, and what they were granted is kept for half a minute: so
    those that were refused try again until as many as wanted are made.
    """

    async def create() -> tuple[list[str], list[str]]:
        made: list[str] = []
        refused: list[str] = []
        credentials = load_credentials(str(space.control_plane.kubeconfig))
        async with Client(credentials, connections=len(bodies)) as client:

            async def one(body: dict[str, Any]) -> dict[str, Any] | None:
                try:
                    answer = await client.request("POST", GROUPS.format(space.name), body=body, attempts=1)
                except errors.ApiError as error:
                    if error.status == 409:  # it was made, and the answer was lost
                        made.append(body["metadata"]["name"])
                        return None
                    if error.status == 403:
                        refused.append(str(error))
                    return body
                except errors.NoAnswerError:
                    return body
                made.append(json.loads(answer)["metadata"]["name"])
                return None

            left = bodies
            deadline = time.monotonic() + 2 * SECONDS
            while len(made) < wanted and left and time.monotonic() < deadline:
                left = [body for body in await asyncio.gather(*(one(body) for body in left)) if body is not None]
                assert len(space.live()) <= 100
        return made, refused

    return asyncio.run(create())


def ledger(space: Space) -> dict[str, Any] | None:
    """The namespace's ledger; None if it has none."""
    try:
        found: dict[str, Any] = space.api.get(f"/api/v1/namespaces/{LEDGERS}/configmaps/kbatch-ledger-{space.name}")
    except ApiError as error:
        if error.status != 404:
            raise
        return None
    return found


@pytest.fixture
def rejecting(replicas: Replicas, space: Space) -> Space:
    """A namespace with a quota of 100 cores under the policy Reject, with two replicas."""
    wanted: dict[str, object] = {"quotaPolicy": "Reject"}
    if replicas.values != wanted:
        replicas.start(2, **wanted)
    eventually(lambda: _filled(space), SECONDS, "the API server calls the webhook")
    space.quota(requests_cpu="100")
    probe = podgroup("probe", minMember=1, minResources={"cpu": "101"})
    for _ in range(4):  # both replicas have seen it
        eventually(lambda: _try(lambda: space.create(GROUPS, probe, dry_run=True)), SECONDS, "the quota is seen")
    return space


@pytest.mark.parametrize("named", [True, False], ids=["named", "generated"])
def test_the_sum_of_all_groups_never_passes_the_quota(rejecting: Space, named: bool) -> None:
    bodies = [podgroup(f"g-{n}" if named else None, minMember=1, minResources={"cpu": "1"}) for n in range(200)]
    started = time.monotonic()
    made, refused = parallel(rejecting, bodies, wanted=100)
    print(f"200 creations at once: {len(made)} made in {time.monotonic() - started:.2f} s")
    assert len(rejecting.live()) == 100
    assert any("asks for 1 requests.cpu, over ResourceQuota quota" in text for text in refused)
    assert any("100 reserved of 100" in text for text in refused)
    # What ended makes room for as much, and no more.
    names = [one["metadata"]["name"] for one in rejecting.live()]
    for name in names[:10]:
        rejecting.patch(GROUPS, name, {"status": {"phase": "Completed"}}, "/status")
    for name in names[10:20]:
        rejecting.api.request("DELETE", f"{GROUPS.format(rejecting.name)}/{name}")
    more = [podgroup(f"h-{n}", minMember=1, minResources={"cpu": "1"}) for n in range(40)]
    parallel(rejecting, more, wanted=20)
    assert len(rejecting.live()) == 100


def test_a_group_that_is_raised_is_held_against_the_sum(rejecting: Space) -> None:
    for name, cpu in (("a", "60"), ("b", "30")):
        rejecting.create(GROUPS, podgroup(name, minMember=1, minResources={"cpu": cpu}))
    with pytest.raises(ApiError, match="asks for 80"):
        rejecting.patch(GROUPS, "a", {"spec": {"minResources": {"cpu": "80"}}})
    rejecting.patch(GROUPS, "a", {"spec": {"minResources": {"cpu": "70"}}})
    assert rejecting.refused(GROUPS, podgroup("c", minMember=1, minResources={"cpu": "1"})).status == 403
    rejecting.patch(GROUPS, "a", {"spec": {"minResources": {"cpu": "10"}}})
    eventually(
        lambda: _try(lambda: rejecting.create(GROUPS, podgroup("c", minMember=1, minResources={"cpu": "60"}))) is None,
        SECONDS, "what was given up can be had",
    )  # fmt: skip


def test_a_dry_run_has_no_effect(rejecting: Space) -> None:
    body = podgroup("dry", minMember=1, minResources={"cpu": "90"})
    for _ in range(3):
        rejecting.create(GROUPS, body, dry_run=True)
    assert ledger(rejecting) is None
    rejecting.create(GROUPS, body)
    owned = ledger(rejecting)
    assert owned is not None
    (owner,) = owned["metadata"]["ownerReferences"]  # so it goes with its namespace
    assert owner["uid"] == rejecting.api.get(f"/api/v1/namespaces/{rejecting.name}")["metadata"]["uid"]
    assert (
        rejecting.refused(GROUPS, podgroup("more", minMember=1, minResources={"cpu": "20"}), dry_run=True).status == 403
    )


def test_certificates_are_rotated_without_a_lost_request(replicas: Replicas, space: Space) -> None:
    pairs = {
        name: {end: (PAIRS / f"{name}.{end}").read_text() for end in ("crt", "key")} for name in ("first", "second")
    }
    trusted = "".join(pair["crt"] for pair in pairs.values())
    space.create(
        f"/api/v1/namespaces/{NAMESPACE}/secrets",
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "given"}, "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": pairs["first"]["crt"], "tls.key": pairs["first"]["key"], "ca.crt": trusted},
        },
    )  # fmt: skip
    certificates = {"source": "secret", "secretName": "given", "caBundle": trusted}
    replicas.start(2, failurePolicy="Fail", certificates=certificates)
    eventually(lambda: _filled(space), SECONDS, "the API server calls the webhook")
    stop = threading.Event()
    lost: list[str] = []
    answered = itertools.count()

    def through_the_server(index: int) -> None:
        with space.control_plane.api() as api:
            while not stop.is_set():
                try:
                    api.post(GROUPS.format(space.name) + "?dryRun=All", podgroup(f"g-{index}", minMember=1))
                    next(answered)
                except ApiError as error:
                    lost.append(str(error))

    def by_new_connections(port: int) -> None:
        context = ssl.create_default_context(cadata=trusted)
        while not stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=5) as plain:
                    context.wrap_socket(plain, server_hostname="127.0.0.1").close()
                next(answered)
            except OSError as error:
                lost.append(repr(error))

    def served(port: int) -> str:
        return ssl.get_server_certificate(("127.0.0.1", port), timeout=5)

    ports = replicas.balancer.targets
    work = [(through_the_server, 0), (through_the_server, 1), *((by_new_connections, port) for port in ports)]
    threads = [threading.Thread(target=target, args=(argument,)) for target, argument in work]
    for thread in threads:
        thread.start()
    try:
        for name in ("second", "first"):
            before = next(answered)
            for end in ("crt", "key"):  # one after the other: for a moment they do not belong together
                (replicas.folder / "certificates" / f"tls.{end}").write_text(pairs[name][end])
            wanted = ssl.PEM_cert_to_DER_cert(pairs[name]["crt"])
            for port in ports:
                eventually(
                    lambda port=port, wanted=wanted: ssl.PEM_cert_to_DER_cert(served(port)) == wanted,  # type: ignore[misc]
                    SECONDS, f"the {name} certificate is served",
                )  # fmt: skip
            assert next(answered) > before + 10
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert lost == []


def _filled(space: Space) -> bool:
    try:
        return called(space)
    except ApiError:
        return False  # failurePolicy Fail, and the new configuration is not in force yet
