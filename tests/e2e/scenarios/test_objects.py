"""Jobs that are more than pods: Services and the like with a group's life, and sets that are managed as one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.scenarios.conftest import KBATCH
from tests.e2e.scenarios.life import job, role, roles, watched
from tests.e2e.scenarios.manifests import gang, queue

if TYPE_CHECKING:
    from tests.e2e.scenarios.conftest import Installed

pytestmark = pytest.mark.installed

EXAMPLE = Path(__file__).parents[3] / "examples" / "objects.yaml"
OBJECTS = ("services,configmaps", "--field-selector", "metadata.name!=kubernetes,metadata.name!=kube-root-ca.crt")


def service(name: str = "{{ group }}") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}


def objects(kbatch: Installed) -> dict[str, dict[str, Any]]:
    """The Services and ConfigMaps that are not Kubernetes' own, by kind and name."""
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in kbatch.items(*OBJECTS)}


def as_alice(kbatch: Installed, *documents: dict[str, Any]) -> str:
    """Apply as a user who has only what she was granted; what was said against it."""
    apply = ["--as=alice", "--as-group=system:authenticated", "apply", "--server-side", "--force-conflicts", "-f", "-"]
    ran = subprocess.run(
        [kbatch.kubectl, "--kubeconfig", kbatch.kubeconfig, *apply],
        input=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return "" if ran.returncode == 0 else ran.stderr


@pytest.fixture
def alice(kbatch: Installed) -> None:
    """She may write PodGroups and ConfigMaps in `default`, nothing else."""
    for arguments in (
        ("role", "alice", "--verb=get,create,patch,update", "--resource=podgroups,configmaps"),
        ("rolebinding", "alice", "--role=alice", "--user=alice"),
    ):
        made = kbatch.run("create", *arguments, "--dry-run=client", "-o", "json")
        kbatch.run("apply", "-f", "-", stdin=made)


def test_the_services_of_a_group_come_before_its_pods_and_go_with_it(kbatch: Installed) -> None:
    kbatch.create_all(gang("blocker", 3, cpu="32"))
    kbatch.wait_phase("blocker", "Running")
    with watched(kbatch) as history:
        kbatch.apply(yaml.safe_load(EXAMPLE.read_text()))
        kbatch.wait_condition("train", "Enqueued", "False")
        assert objects(kbatch) == {}, "nothing before its turn"
        kbatch.run("delete", "podgroup,pods", "--field-selector", "metadata.name!=train", "--wait=false")
        kbatch.wait_phase("train", "Running")
        made = objects(kbatch)
        first = min(int(version) for version, kind, _, pod in history._seen if kind == "Pod" and "train" in str(pod))
    assert set(made) == {"Service/train", "ConfigMap/train-hosts"}
    assert {one["metadata"]["ownerReferences"][0]["name"] for one in made.values()} == {"train"}
    assert max(int(one["metadata"]["resourceVersion"]) for one in made.values()) < first
    hosts = made["ConfigMap/train-hosts"]["data"]["hostfile"].splitlines()
    assert hosts == [f"train-worker-{index}.train.default.svc" for index in range(4)]
    assert [one["name"] for one in kbatch.get("podgroup", "train")["status"]["objects"]] == ["train", "train-hosts"]
    kbatch.run("delete", "podgroup", "train", "--wait=false")
    kbatch.wait("its objects go with it", lambda: objects(kbatch) == {})


def test_they_are_deleted_when_the_group_is_over_and_come_before_a_job_is_resumed(kbatch: Installed) -> None:
    over = roles("short", role("w", 1, "1", seconds="1"), objects=[service()])
    named = {**roles("named"), "spec": {"minMember": 1, "objects": [service()]}}
    kbatch.apply(over, named, job("named", 1, "1", group="named", seconds="1"))
    for name in ("short", "named"):
        kbatch.wait_phase(name, "Completed")
    kbatch.wait("its Service is deleted", lambda: objects(kbatch) == {})
    assert "objects" not in kbatch.get("podgroup", "short")["status"]
    told = {
        (event["regarding"]["name"], event["reason"])
        for event in kbatch.items("events.events.k8s.io")
        if event["regarding"]["kind"] == "PodGroup"
    }
    assert {(name, what) for name in ("short", "named") for what in ("ObjectsMade", "ObjectsDeleted")} <= told


def test_what_somebody_else_made_is_left_alone_and_the_group_waits(kbatch: Installed) -> None:
    kbatch.apply({**service("taken"), "metadata": {"name": "taken", "namespace": "default"}})
    try:
        kbatch.apply(roles("taken", role("w", 1, "1"), objects=[service()]))
        kbatch.wait_condition("taken", "Stalled", "True", "ObjectNameTaken")
        assert kbatch.items("pods") == []
        kbatch.apply(roles("taken", role("w", 1, "1"), objects=[service("other")]))
        kbatch.wait_phase("taken", "Running")
        kbatch.wait_condition("taken", "Stalled", "False")
        kbatch.run("delete", "podgroup", "taken", "--wait=false")
        kbatch.wait("only what is the group's goes", lambda: set(objects(kbatch)) == {"Service/taken"})
    finally:
        kbatch.run("delete", "service", "taken")


@pytest.mark.usefixtures("alice")
def test_nobody_has_made_for_him_what_he_may_not_create(kbatch: Installed) -> None:
    def group(*made: dict[str, Any], **spec: Any) -> dict[str, Any]:
        return {**roles("hers"), "spec": {"minResources": {"cpu": "1"}, "objects": list(made), **spec}}

    files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ group }}"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
    assert "you may not create services in this namespace" in as_alice(kbatch, group(service()))
    assert "only these kinds can be made here: Service (v1), ConfigMap (v1), Ingress" in as_alice(kbatch, group(secret))
    templated = roles("hers", role("w", 1, "1"))
    assert "templates make pods, and you may not create pods in this namespace" in as_alice(kbatch, templated)
    assert as_alice(kbatch, group(files)) == ""
    kbatch.wait("it is made for her", lambda: "ConfigMap/hers" in objects(kbatch))
    assert "you may not create services" in as_alice(kbatch, group(files, service())), "nor by a change"

    kbatch.apply(group(files, service("ours")))
    longer = group(files, service("ours"), scheduleTimeoutSeconds=200)
    assert as_alice(kbatch, longer) == "", "what others wrote stays when she changes the rest"
    assert "you may not create services" in as_alice(kbatch, group(files, service("other")))


def in_set(*documents: dict[str, Any]) -> list[dict[str, Any]]:
    for document in documents:
        if document["kind"] in {"PodGroup", "Job"}:
            document["metadata"].setdefault("labels", {})["kbatch.dev/job-set"] = "night"
    return list(documents)


def command(kbatch: Installed, *given: str) -> Any:
    """What `kbatch ... -o json` says; it must not fail."""
    ran = subprocess.run(
        [KBATCH, *given, "-o", "json", "--kubeconfig", kbatch.kubeconfig],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_job_set_is_suspended_resumed_reprioritized_and_cancelled_as_one(kbatch: Installed) -> None:
    kbatch.apply(queue("other"))
    kbatch.apply(
        *in_set(
            roles("made", role("w", 2, "1"), objects=[service()]),
            *gang("plain", 2),
            job("queued", 2, "1"),
        ),
        *in_set(roles("theirs", role("w", 1, "1"), queue="other")),
        *gang("outside", 1),
    )
    for name in ("made", "plain", "queued", "theirs", "outside"):
        kbatch.wait_phase(name, "Running")
    found = {one["queue"]: one for one in command(kbatch, "job-sets")}
    assert {name: (one["groups"], one["jobs"], one["running"]) for name, one in found.items()} == {
        "default": (3, 1, 6),
        "other": (1, 0, 1),
    }

    command(kbatch, "suspend", "--job-set", "night", "--queue", "default")
    kbatch.wait_condition("made", "Enqueued", "False", "Suspended")
    kbatch.wait_condition("queued", "Enqueued", "False", "JobSuspended")
    kbatch.wait("only plain pods are left of it", lambda: {
        one["metadata"]["name"] for one in kbatch.items("pods")
    } == {"plain-0", "plain-1", "theirs-w-0", "outside-0"})  # fmt: skip
    command(kbatch, "resume", "--job-set", "night", "--queue", "default")
    for name in ("made", "queued"):
        kbatch.wait_phase(name, "Running")

    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "tonight"},
        "value": 9,
    }
    kbatch.apply(urgent)
    changed = command(kbatch, "reprioritize", "--job-set", "night", "--queue", "default", "--priority-class", "tonight")
    assert {one["result"] for one in changed} == {"reprioritized"}
    for name in ("made", "plain", "queued"):
        assert kbatch.get("podgroup", name)["spec"]["priorityClassName"] == "tonight"

    command(kbatch, "cancel", "--job-set", "night", "--queue", "default")
    kbatch.wait("all of it goes, and nothing else", lambda: {
        one["metadata"]["name"] for one in kbatch.items("podgroups,jobs,pods")
    } == {"theirs", "theirs-w-0", "outside", "outside-0"})  # fmt: skip
    kbatch.wait("its objects too", lambda: objects(kbatch) == {})
