"""An installation for some namespaces: it works there with Roles, and leaves the rest of the cluster alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.processes import wait_until
from kbatch.localcluster.programs import Programs
from kbatch.localcluster.release import NAMESPACE, Release
from tests.e2e.site import installed

pytestmark = [pytest.mark.control_plane, pytest.mark.installed]

GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{}/podgroups"
TIMEOUT = 30.0


@pytest.fixture(scope="module")
def api(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A cluster of one node with kbatch for the namespaces a and b, and a third one."""
    folder = tmp_path_factory.mktemp("code")
    # No limit on groups: see the last test.
    values = ["--set", "namespaces={a,b}", "--set", "podGroupQuota.count=null"]
    with installed(f"namespaces-{os.getpid()}", programs, folder, values, ("a", "b", "other")) as (_, _, api):
        yield api


def submit(api: Api, namespace: str, pods: int, cpu: int) -> None:
    """A gang of plain pods, one of a template, and a Job in a queue."""
    container = {"name": "m", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": "kube-batch", "restartPolicy": "Never", "containers": [container]}
    role = {"name": "worker", "minMember": pods, "template": {"spec": {"containers": [container]}}}
    kind = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup"}
    api.post(GROUPS.format(namespace), kind | {"metadata": {"name": "plain"}, "spec": {"minMember": pods}})
    api.post(GROUPS.format(namespace), kind | {"metadata": {"name": "made"}, "spec": {"subGroups": [role]}})
    for number in range(pods):
        annotations = {"scheduling.k8s.io/group-name": "plain"}
        metadata = {"name": f"plain-{number}", "annotations": annotations}
        api.post(
            f"/api/v1/namespaces/{namespace}/pods",
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec},
        )
    job = {"parallelism": 1, "completions": 1, "template": {"spec": spec}}
    labels = {"kbatch.dev/queue": "default"}
    metadata = {"name": "queued", "labels": labels}
    api.post(
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job},
    )


def phases(api: Api, namespace: str) -> dict[str, str]:
    groups: list[dict[str, Any]] = api.get(GROUPS.format(namespace))["items"]
    return {group["metadata"]["name"]: group.get("status", {}).get("phase", "") for group in groups}


def bound(api: Api, namespace: str) -> list[str]:
    pods = api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]


def test_groups_run_where_the_installation_is_for_and_wait_for_nobody_elsewhere(api: Api) -> None:
    submit(api, "other", 2, 1)
    running = {"plain": "Running", "made": "Running", "queued": "Running"}
    for namespace in ("a", "b"):
        submit(api, namespace, 2, 1)
        assert wait_until(lambda: phases(api, namespace) == running, TIMEOUT, every=0.1), phases(api, namespace)  # noqa: B023
    # Its groups, Jobs and pods came first, and are as they were made: no phase, no bind, no group for the Job.
    assert set(phases(api, "other")) == {"plain", "made"}
    for group in api.get(GROUPS.format("other"))["items"]:
        assert "status" not in group or not group["status"].get("conditions")
    assert bound(api, "other") == []
    assert not api.get("/apis/batch/v1/namespaces/other/jobs/queued")["spec"].get("suspend")


def test_room_that_others_take_counts(api: Api) -> None:
    taken = {"name": "m", "image": "busybox", "resources": {"requests": {"cpu": 20}}}
    spec = {"schedulerName": "kube-batch", "nodeName": "node-0", "containers": [taken]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large"}, "spec": spec}
    api.post("/api/v1/namespaces/other/pods", pod)
    kind = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "large"}}
    # Of 32 cores 10 are in use by a and b.
    role = {"name": "w", "minMember": 1, "template": {"spec": {"containers": [taken]}}}
    api.post(GROUPS.format("a"), kind | {"spec": {"subGroups": [role]}})

    def refused() -> bool:
        conditions = api.get(f"{GROUPS.format('a')}/large").get("status", {}).get("conditions", [])
        return any(one["type"] == "Scheduled" and one["status"] == "False" for one in conditions)

    assert wait_until(refused, TIMEOUT, every=0.1)
    api.request("DELETE", "/api/v1/namespaces/other/pods/large?gracePeriodSeconds=0")
    assert wait_until(lambda: phases(api, "a")["large"] == "Running", TIMEOUT, every=0.1)


def test_the_accounts_may_change_nothing_elsewhere(api: Api) -> None:
    def may(component: str, verb: str, resource: str, namespace: str, group: str = "") -> bool:
        resource, _, subresource = resource.partition("/")
        asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace}
        review = {
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": f"system:serviceaccount:{NAMESPACE}:kbatch-{component}", "resourceAttributes": asked},
        }  # fmt: skip
        allowed: bool = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"]
        return allowed

    changes = (
        ("podgroup", "create", "pods", ""), ("podgroup", "delete", "pods", ""), ("podgroup", "patch", "jobs", "batch"),
        ("podgroup", "create", "configmaps", ""), ("scheduler", "create", "pods/binding", ""),
        ("scheduler", "create", "pods/eviction", ""), ("queue", "patch", "namespaces", ""),
    )  # fmt: skip
    for component, verb, resource, group in changes:
        assert may(component, verb, resource, "a", group), (component, verb, resource)
        for namespace in ("other", "kube-system", NAMESPACE):
            assert not may(component, verb, resource, namespace, group), (component, verb, resource, namespace)


@pytest.mark.long
def test_a_namespace_holds_no_more_groups_than_its_limit(programs: Programs) -> None:
    """Kubernetes' own controller counts them: of a kind that is new in the cluster after five minutes at the latest."""
    cluster = Cluster(f"limited-{os.getpid()}")
    with cluster.locked():
        cluster.start(programs)
    release = Release(cluster.kubeconfig, cluster.host_folder, programs)
    try:
        with Api(cluster.kubeconfig) as api:
            release.install(["--set", "podGroupQuota.namespaces={default}", "--set", "podGroupQuota.count=2"])
            said: list[str] = []

            def made(name: str) -> bool:
                kind = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup"}
                try:
                    api.post(GROUPS.format("default"), kind | {"metadata": {"name": name}, "spec": {"minMember": 1}})
                except ApiError as error:
                    said.append(error.message)
                    return False
                return True

            started = time.monotonic()
            assert wait_until(lambda: made("one"), 400.0, every=1.0), said
            print(f"the first group was let in after {time.monotonic() - started:.0f} s; before: {set(said)}")
            assert made("two")
            said.clear()
            assert not made("three")
            assert "exceeded quota: kbatch-podgroups" in said[0]
    finally:
        with cluster.locked():
            cluster.remove()
