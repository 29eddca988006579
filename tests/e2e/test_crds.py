"""The CRDs on a real API server: what it takes, what it refuses and in which words, what it fills in and shows."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from kbatch.api.names import API_VERSION
from kbatch.api.objects import PodGroup, PodGroupStatus
from kbatch.kube import kinds
from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.localcluster.api import Api
from kbatch.localcluster.errors import ApiError
from kbatch.process.crd_fields import lacking
from kbatch.resources import QuantityError, parse_quantity

if TYPE_CHECKING:
    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "tests" / "data" / "seeds"
NAMESPACE = f"crds-{os.getpid()}"
BASE = f"/apis/{API_VERSION}"
GROUPS = f"{BASE}/namespaces/{NAMESPACE}/podgroups"
QUEUES = f"{BASE}/queues"
NOW = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shared control plane with the CRDs of this checkout, and a namespace of this module."""
    control_plane.run_kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    names = [f"crd/{plural}.scheduling.incubator.k8s.io" for plural in ("podgroups", "queues")]
    control_plane.run_kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    deadline = time.monotonic() + 30
    while control_plane.run_kubectl("get", "podgroups,queues", "-A", check=False).returncode != 0:
        assert time.monotonic() < deadline, "the API server does not serve the new kinds"
    control_plane.run_kubectl("create", "namespace", NAMESPACE)
    control_plane.run_kubectl("-n", NAMESPACE, "wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    yield control_plane
    control_plane.run_kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def api(cluster: ControlPlane) -> Iterator[Api]:
    with cluster.api() as api:
        yield api
        for path in (GROUPS, QUEUES):
            for item in api.get(path)["items"]:
                if path == GROUPS or item["metadata"]["name"].startswith("crds-"):
                    with suppress(ApiError):
                        api.request("DELETE", f"{path}/{item['metadata']['name']}")


def _group(spec: Any, name: str = "g") -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def _queue(spec: Any, name: str = "crds-q") -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def _create(api: Api, document: dict[str, Any]) -> dict[str, Any]:
    path = GROUPS if document["kind"] == "PodGroup" else QUEUES
    created: dict[str, Any] = api.post(f"{path}?fieldValidation=Strict", document)
    return created


def _refusal(api: Api, document: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as caught:
        _create(api, document)
    assert caught.value.status in (400, 422)
    return str(caught.value)


def _apply_status(api: Api, path: str, manager: str, document: dict[str, Any]) -> dict[str, Any]:
    applied: dict[str, Any] = api.request(
        "PATCH", f"{path}/status?fieldManager={manager}", document, content_type="application/apply-patch+yaml"
    )
    return applied


def test_the_server_stores_the_definitions_as_they_are_written(cluster: ControlPlane) -> None:
    compared = cluster.run_kubectl("diff", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"), check=False)
    assert (compared.returncode, compared.stdout) == (0, ""), compared.stderr


# --- the seeds --------------------------------------------------------------------------------------------------------


class _LaterStatus(PodGroupStatus, kw_only=True):
    later: str = ""


class _LaterGroup(PodGroup, kw_only=True):
    status: _LaterStatus = msgspec.field(default_factory=_LaterStatus)


async def test_the_server_says_which_fields_of_a_process_it_does_not_have(cluster: ControlPlane) -> None:
    later = kinds.Kind(
        _LaterGroup, "PodGroup", kinds.PODGROUPS.group, kinds.PODGROUPS.version, "podgroups", namespaced=True
    )
    async with Client(load_credentials(str(cluster.kubeconfig)), user_agent="kbatch-test") as client:
        for _ in range(150):  # the document follows the CRDs by a moment
            found = await lacking(client, [later, kinds.QUEUES])
            if found:
                break
            await asyncio.sleep(0.2)
        assert found == {"podgroups.scheduling.incubator.k8s.io": ["status.later"]}
        assert await lacking(client, [kinds.PODGROUPS, kinds.QUEUES]) == {}


def test_the_seeds_manifests_apply_unchanged(cluster: ControlPlane, api: Api) -> None:
    for name in ("job.yaml", "queue.yaml"):
        cluster.run_kubectl("-n", NAMESPACE, "apply", "--validate=strict", "-f", str(SEEDS / name))
    group = api.get(f"{GROUPS}/qj-1")
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (6, "demo")
    assert api.get(f"{QUEUES}/demo")["spec"] == {"weight": 1, "reclaimable": True, "state": "Open"}
    assert cluster.kubectl_json("-n", NAMESPACE, "get", "job", "qj-1")["spec"]["parallelism"] == 6
    cluster.run_kubectl("delete", "queue", "demo")
    cluster.run_kubectl("-n", NAMESPACE, "delete", "job", "qj-1")


def test_the_seeds_pod_applies_once_its_priority_class_has_a_version_that_is_served(cluster: ControlPlane) -> None:
    old = (SEEDS / "priority-class.yaml").read_text()
    refused = cluster.run_kubectl("apply", "-f", "-", stdin=old, check=False)
    assert 'no matches for kind "PriorityClass" in version "scheduling.k8s.io/v1beta1"' in refused.stderr
    cluster.run_kubectl("apply", "-f", "-", stdin=old.replace("v1beta1", "v1"))
    cluster.run_kubectl("-n", NAMESPACE, "apply", "--validate=strict", "-f", str(SEEDS / "pod.yaml"))
    assert cluster.kubectl_json("-n", NAMESPACE, "get", "pod", "pod-ns01-r01")["spec"]["priority"] == 1000
    cluster.run_kubectl("-n", NAMESPACE, "delete", "pod", "pod-ns01-r01", "--force")
    cluster.run_kubectl("delete", "priorityclass", "high-priority")


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minMember": -1}, "spec.minMember in body should be greater than or equal to 1"),
        ({"minMember": 0}, "spec.minMember in body should be greater than or equal to 1"),
        ({"minMember": "six"}, "spec.minMember in body must be of type integer"),
        ({"minMembers": 6}, 'unknown field "spec.minMembers"'),
        ({"scheduleTimeoutSeconds": 0}, "spec.scheduleTimeoutSeconds in body should be greater than or equal to 1"),
        ({"lifetimeSeconds": -1}, "spec.lifetimeSeconds in body should be greater than or equal to 0"),
        ({"minRuntimeSeconds": -1}, "spec.minRuntimeSeconds in body should be greater than or equal to 0"),
        ({"queue": ""}, "spec.queue in body should be at least 1 chars long"),
        ({"queue": "Not A Name"}, "spec.queue in body should match"),
        ({"disruption": "Sometimes"}, 'supported values: "Surplus", "Whole", "Never"'),
        ({"topology": {"mode": "Soft"}}, 'spec.topology.mode: Unsupported value: "Soft"'),
        ({"topology": {"maxHops": -1}}, "spec.topology.maxHops in body should be greater than or equal to 0"),
        ({"minResources": {"cpu": "-1"}}, "spec.minResources: Invalid value: amounts must not be negative"),
        ({"minResources": {"cpu": -1}}, "spec.minResources: Invalid value: amounts must not be negative"),
        ({"minResources": {"cpu": "much"}}, "spec.minResources.cpu in body should match"),
        ({"minResources": {"memory": "9Pi"}}, "spec.minResources: Invalid value: amounts must not be larger than 2^53"),
        ({"minResources": {"cpu": "9007199254740993m"}}, "amounts must not be larger than 2^53"),
        ({"minResources": {"r" * 318: 1}}, "the name of a resource must not be longer than 317 characters"),
        ({"minResources": {f"r{n}": 1 for n in range(33)}}, "spec.minResources: Too many: 33: must have at most 32"),
        ({"subGroups": [{"minMember": 1}]}, "spec.subGroups[0].name: Required value"),
        ({"subGroups": [{"name": "A_b"}]}, "spec.subGroups[0].name in body should match"),
        ({"subGroups": [{"name": "a", "minMember": -1}]}, "spec.subGroups[0].minMember in body should be greater"),
        ({"subGroups": [{"name": "a"}, {"name": "a"}]}, 'spec.subGroups[1]: Duplicate value: {"name":"a"}'),
        ({"subGroups": [{"name": "a", "template": "x"}]}, "spec.subGroups[0].template in body must be of type object"),
        (
            {"subGroups": [{"name": "a"}, {"name": "b", "minMember": 3, "maxMember": 2}]},
            "spec.subGroups[1].maxMember: Invalid value: maxMember 2 is below minMember 3",
        ),
        ({"subGroups": [{"name": f"r{n}"} for n in range(65)]}, "spec.subGroups: Too many: 65: must have at most 64"),
    ],
)
def test_a_wrong_pod_group_is_refused_with_the_field_named(api: Api, spec: dict[str, Any], message: str) -> None:
    assert message in _refusal(api, _group(spec))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"weight": 0}, "spec.weight in body should be greater than or equal to 1"),
        ({"weight": -3}, "spec.weight in body should be greater than or equal to 1"),
        ({"weight": 1.5}, "spec.weight"),
        ({"wieght": 1}, 'unknown field "spec.wieght"'),
        ({"state": "Shut"}, 'supported values: "Open", "Closed"'),
        ({"capability": {"cpu": "-1m"}}, "spec.capability: Invalid value: amounts must not be negative"),
        ({"capability": {"r" * 5000: 1}}, "the name of a resource must not be longer than 317 characters"),
        ({"parent": "crds-q"}, "spec.parent: Invalid value: a queue cannot be its own parent"),
    ],
)
def test_a_wrong_queue_is_refused_with_the_field_named(api: Api, spec: dict[str, Any], message: str) -> None:
    assert message in _refusal(api, _queue(spec))


def test_kubectl_says_which_field_is_unknown(cluster: ControlPlane) -> None:
    document = json.dumps(_group({"minMember": 1, "minmember": 2}))
    ran = cluster.run_kubectl("-n", NAMESPACE, "apply", "--validate=strict", "-f", "-", stdin=document, check=False)
    assert ran.returncode != 0
    assert 'unknown field "spec.minmember"' in ran.stderr


# --- what is taken, and what is filled in -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        {"minMember": 1_000_000},
        {"lifetimeSeconds": 0},
        {"scheduleTimeoutSeconds": 1},
        {"minResources": {"cpu": 1, "memory": "1.5Gi", "nvidia.com/gpu": "0", "other": "1e3", "more": "+5"}},
        {"minResources": {"cpu": "9007199254740992m", "memory": "8Pi"}},
        {"minResources": {}},
        {"subGroups": [{"name": "a", "minMember": 3, "maxMember": 3}, {"name": "b"}]},
        {"subGroups": [{"name": f"r{n}", "minMember": 1} for n in range(64)]},
        {"disruption": "Whole", "topology": {"maxHops": 0, "mode": "Required"}, "priorityClassName": "high"},
    ],
)
def test_what_stands_at_the_edge_of_a_rule_is_taken_as_written(api: Api, spec: dict[str, Any]) -> None:
    created = _create(api, _group(spec))["spec"]
    for name, value in spec.items():
        if name == "subGroups":
            assert [{**role, "minMember": role.get("minMember", 0)} for role in value] == created[name]
        else:
            assert created[name] == value


def _reads(text: str) -> bool:
    try:
        return parse_quantity("memory", text) >= 0
    except QuantityError:
        return False


def _takes(api: Api, text: str) -> bool:
    try:
        _create(api, _group({"minResources": {"memory": text}}))
    except ApiError as error:
        if error.status != 422:
            raise
        return False
    api.request("DELETE", f"{GROUPS}/g")
    return True


def test_the_server_takes_exactly_the_quantities_that_kbatch_reads(api: Api) -> None:
    """Whatever stands in minResources can be counted: nothing that is stored is unreadable later."""
    numbers = ("0", "1", "+1", "-1", "-0", ".5", "5.", "0.1", "9007199254740992", "9007199254740993", "1.2.3", "")
    suffixes = ("", "n", "u", "m", "k", "M", "P", "E", "Ki", "Gi", "Pi", "Ei", "e3", "E-3", "e-999", "e999", "K", "mi")
    differing = {}
    for text in (f"{number}{suffix}" for number in numbers for suffix in suffixes):
        if (taken := _takes(api, text)) is not _reads(text):
            differing[text] = taken
    assert differing == {}


@pytest.mark.parametrize("spec", [{}, None])
def test_defaults_of_a_pod_group(api: Api, spec: Any) -> None:
    assert _create(api, _group(spec))["spec"] == {
        "minMember": 1,
        "queue": "default",
        "minRuntimeSeconds": 0,
        "disruption": "Surplus",
        "scheduleTimeoutSeconds": 300,
        "badNodeLimit": 2,
    }


def test_defaults_of_roles_and_of_a_queue(api: Api) -> None:
    created = _create(api, _group({"topology": {}, "subGroups": [{"name": "a", "topology": {"maxHops": 2}}]}))
    assert created["spec"]["topology"] == {}, "which mode holds where none is given depends on maxHops"
    assert created["spec"]["subGroups"] == [{"name": "a", "minMember": 0, "topology": {"maxHops": 2}}]
    assert _create(api, _queue({}))["spec"] == {"weight": 1, "reclaimable": True, "state": "Open"}


def test_a_roles_pod_template_is_kept_to_the_letter(api: Api) -> None:
    template = {
        "metadata": {"labels": {"app": "x"}, "annotations": {"a/b": "c"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "env": [{"name": "INDEX", "value": "{{ index }}"}]}],
            "someFieldOfTheFuture": {"deep": [1, 2.5, None]},
        },
    }
    created = _create(api, _group({"subGroups": [{"name": "a", "template": template}]}))
    assert created["spec"]["subGroups"][0]["template"] == template


def test_a_queue_cannot_change_while_the_group_runs(api: Api) -> None:
    for phase, changes in (("Pending", True), ("InQueue", True), ("Running", False), ("Unknown", False)):
        name = f"g-{phase.lower()}"
        _create(api, _group({"queue": "one"}, name))
        _apply_status(api, f"{GROUPS}/{name}", "test", _status(name, phase=phase))
        change = {"spec": {"queue": "two", "minMember": 2}}
        arguments = ("PATCH", f"{GROUPS}/{name}", change)
        if changes:
            changed = api.request(*arguments, content_type="application/merge-patch+json")
            assert changed["spec"]["queue"] == "two"
        else:
            with pytest.raises(ApiError, match=r"spec\.queue: .*spec\.queue cannot change while the group runs"):
                api.request(*arguments, content_type="application/merge-patch+json")
            change["spec"].pop("queue")
            assert api.request(*arguments, content_type="application/merge-patch+json")["spec"]["minMember"] == 2


# --- status -----------------------------------------------------------------------------------------------------------


def _condition(type_: str, status: str = "True", reason: str = "Because") -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": "m", "lastTransitionTime": NOW}


def _status(name: str, **status: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": {"name": name}, "status": status}


def test_status_is_its_own_subresource(api: Api) -> None:
    created = _create(api, _group({}) | {"status": {"phase": "Running"}})
    assert created["status"] == {"phase": "Pending"}, "what every new group says, written by nobody"
    path = f"{GROUPS}/g"
    changed = _apply_status(api, path, "test", _status("g", phase="InQueue") | {"spec": {"minMember": 9}})
    assert changed["status"] == {"phase": "InQueue"}
    assert changed["spec"]["minMember"] == 1
    assert changed["metadata"]["generation"] == created["metadata"]["generation"]


def test_two_writers_share_a_status_condition_by_condition(api: Api) -> None:
    _create(api, _group({}))
    path = f"{GROUPS}/g"
    scheduler, operator = "kbatch-scheduler", "kbatch-podgroup"
    scheduled = [_condition("Enqueued"), _condition("Scheduled", "False", "NotEnoughResources")]
    _apply_status(api, path, scheduler, _status("g", conditions=scheduled, schedulingAttempts=1))
    both = _apply_status(api, path, operator, _status("g", phase="InQueue", conditions=[_condition("Stalled")]))
    assert [one["type"] for one in both["status"]["conditions"]] == ["Enqueued", "Scheduled", "Stalled"]
    assert (both["status"]["phase"], both["status"]["schedulingAttempts"]) == ("InQueue", 1)

    # An equal apply changes nothing, not even the resourceVersion.
    again = _apply_status(api, path, operator, _status("g", phase="InQueue", conditions=[_condition("Stalled")]))
    assert again["metadata"]["resourceVersion"] == both["metadata"]["resourceVersion"]

    # What a writer leaves out of what it owned is gone, and nothing else.
    fewer = _apply_status(
        api, path, scheduler, _status("g", conditions=[_condition("Scheduled", "True", "GangPlaced")])
    )
    assert [(one["type"], one["status"]) for one in fewer["status"]["conditions"]] == [
        ("Scheduled", "True"),
        ("Stalled", "True"),
    ]
    assert "schedulingAttempts" not in fewer["status"]

    # Another writer's field is not taken without force.
    with pytest.raises(ApiError, match=r'conflict with "kbatch-podgroup".*phase') as caught:
        _apply_status(api, path, scheduler, _status("g", phase="Running"))
    assert caught.value.status == 409


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({"phase": "Started"}, 'status.phase: Unsupported value: "Started"'),
        ({"running": -1}, "status.running: Invalid value: -1"),
        ({"conditions": [{"type": "A", "status": "Maybe"}]}, "status.conditions[0].status"),
        ({"conditions": [{"type": "A", "status": "True", "lastTransitionTime": "noon"}]}, "lastTransitionTime"),
    ],
)
def test_a_wrong_status_is_refused(api: Api, status: dict[str, Any], message: str) -> None:
    _create(api, _group({}))
    with pytest.raises(ApiError) as caught:
        _apply_status(api, f"{GROUPS}/g", "test", _status("g", **status))
    assert message in str(caught.value)


def test_a_whole_status_of_either_kind_is_stored_as_sent(api: Api) -> None:
    counters = {"running": 2, "succeeded": 0, "failed": 0, "pending": 1}
    group = {
        "phase": "Running",
        **counters,
        "subGroups": [{"name": "a", **counters}],
        "allocated": {"cpu": "1500m", "memory": "2Gi"},
        "conditions": [_condition("Scheduled") | {"observedGeneration": 3}],
        "schedulingAttempts": 4,
        "excessCharged": "12.5",
        "estimatedStart": {
            "time": "2026-01-01T00:00:00Z",
            "latest": "2026-01-01T00:10:00Z",
            "basis": "reservation",
        },
    }
    _create(api, _group({}))
    assert _apply_status(api, f"{GROUPS}/g", "test", _status("g", **group))["status"] == group
    amounts = {"cpu": "3", "memory": "9Gi", "nvidia.com/gpu": "0"}
    queue = {
        "state": "Open",
        "deserved": amounts,
        "allocated": amounts,
        "requested": amounts,
        "share": "1.25",
        "pending": 1,
        "inqueue": 2,
        "running": 3,
        "completed": 4,
        "conditions": [_condition("Ready")],
    }
    created = _create(api, _queue({}))
    document = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": created["metadata"]["name"]}}
    assert _apply_status(api, f"{QUEUES}/crds-q", "test", document | {"status": queue})["status"] == queue


# --- what people see --------------------------------------------------------------------------------------------------


def test_kubectl_shows_phase_numbers_queue_and_reason(cluster: ControlPlane, api: Api) -> None:
    _create(api, _group({"minMember": 3, "queue": "team"}))
    start = {"time": "2126-01-01T00:00:00Z", "latest": "2126-01-01T00:00:00Z", "basis": "reservation"}
    waiting = _condition("Scheduled", "False", "NotEnoughResources") | {"message": "2 of 3 pods can be placed"}
    _apply_status(
        api,
        f"{GROUPS}/g",
        "test",
        _status("g", phase="Pending", running=0, pending=3, conditions=[waiting], estimatedStart=start),
    )
    lines = cluster.run_kubectl("-n", NAMESPACE, "get", "pg").stdout.splitlines()
    assert lines[0].split() == ["NAME", "PHASE", "MIN", "RUNNING", "QUEUE", "REASON", "START", "AGE"]
    assert lines[1].split()[:-1] == ["g", "Pending", "3", "0", "team", "NotEnoughResources", "2126-01-01T00:00:00Z"]
    wide = cluster.run_kubectl("-n", NAMESPACE, "get", "podgroup", "g", "-o", "wide").stdout
    assert "2 of 3 pods can be placed" in wide


def test_kubectl_shows_the_minimum_of_roles_where_it_is_filled_in(cluster: ControlPlane, api: Api) -> None:
    roles = [{"name": "ps", "minMember": 1}, {"name": "w", "minMember": 3}]
    for name, spec in (("filled", {"subGroups": roles, "minimum": 4}), ("not", {"minMember": 2})):
        _create(api, _group(spec, name))
    lines = cluster.run_kubectl("-n", NAMESPACE, "get", "pg").stdout.splitlines()
    assert {line.split()[0]: line.split()[2] for line in lines[1:]} == {"filled": "4", "not": "2"}


def test_kubectl_shows_a_queue(cluster: ControlPlane, api: Api) -> None:
    _create(api, _queue({"weight": 4}))
    document = {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": "crds-q"}}
    status = {"share": "0.5", "deserved": {"cpu": "6"}, "allocated": {"cpu": "3"}, "pending": 1, "running": 2}
    _apply_status(api, f"{QUEUES}/crds-q", "test", document | {"status": status | {"inqueue": 0}})
    lines = cluster.run_kubectl("get", "q", "crds-q").stdout.splitlines()
    assert lines[0].split() == [
        "NAME", "WEIGHT", "STATE", "SHARE", "DESERVED-CPU", "ALLOCATED-CPU", "PENDING", "INQUEUE", "RUNNING", "AGE"
    ]  # fmt: skip
    assert lines[1].split()[:-1] == ["crds-q", "4", "Open", "0.5", "6", "3", "1", "0", "2"]


def test_one_word_gets_both_kinds(cluster: ControlPlane, api: Api) -> None:
    _create(api, _group({}))
    _create(api, _queue({}))
    shown = cluster.run_kubectl("-n", NAMESPACE, "get", "kbatch", "-o", "name").stdout.split()
    assert "podgroup.scheduling.incubator.k8s.io/g" in shown
    assert "queue.scheduling.incubator.k8s.io/crds-q" in shown


def test_groups_are_selected_by_queue_and_phase(cluster: ControlPlane, api: Api) -> None:
    for name, queue, phase in (("a", "one", "Running"), ("b", "one", "Pending"), ("c", "two", "Running")):
        _create(api, _group({"queue": queue}, name))
        _apply_status(api, f"{GROUPS}/{name}", "test", _status(name, phase=phase))
    select = ("-n", NAMESPACE, "get", "pg", "-o", "name", "--field-selector")
    assert cluster.run_kubectl(*select, "spec.queue=one").stdout.split() == [
        "podgroup.scheduling.incubator.k8s.io/a",
        "podgroup.scheduling.incubator.k8s.io/b",
    ]
    both = cluster.run_kubectl(*select, "spec.queue=one,status.phase=Running").stdout.split()
    assert both == ["podgroup.scheduling.incubator.k8s.io/a"]


def test_kubectl_explains_fields(cluster: ControlPlane) -> None:
    text = cluster.run_kubectl("explain", "podgroup.spec.minMember").stdout
    assert "Pods that must be placed together" in text
