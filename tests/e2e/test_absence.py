"""What goes on and what does not while one of the processes is away; and a backup of what users wrote, restored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.processes import wait_until
from kbatch.localcluster.programs import Programs
from tests.e2e.site import GROUPS, JOBS, KIND, PODS, QUEUES, TIMEOUT, Site, container, standing

pytestmark = [pytest.mark.control_plane, pytest.mark.long]

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def site(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with standing(f"absence-{os.getpid()}", programs, tmp_path_factory.mktemp("code")) as site:
        yield site


def test_without_a_scheduler_nothing_starts_and_nothing_ends(site: Site) -> None:
    with site.without("scheduler"):
        site.gang("s-plain")
        site.group("s-job")
        assert site.job("s-job")["spec"]["suspend"] is True  # the webhook holds it
        # The operator counts; nobody lets the groups in, and no reason is told.
        site.soon(lambda: site.status("s-plain").get("pending") == 2, "s-plain")
        assert site.phase("s-plain") == "Pending"
        assert not {"Enqueued", "Scheduled"} & site.conditions("s-plain").keys()
        assert site.bound("s-") == 0
        assert site.phase("always") == "Running"
    site.runs("s-plain", "s-job")


def test_without_the_podgroup_operator_pods_start_and_nobody_says_so(site: Site) -> None:
    with site.without("podgroup"):
        site.gang("p-plain")
        site.soon(lambda: site.bound("p-plain") == 2, "p-plain")
        site.soon(lambda: site.conditions("p-plain").get("Scheduled") == "True", "p-plain")
        assert site.phase("p-plain") == "Pending"  # the CRD's default
        # Jobs stay held and templates make no pods, though both are let in.
        site.group("p-job")
        site.job("p-job")
        role = {"name": "w", "minMember": 2, "template": {"spec": {"containers": [container()]}}}
        site.group("p-made", subGroups=[role])
        for name in ("p-job", "p-made"):
            site.soon(lambda: site.conditions(name).get("Enqueued") == "True", name)  # noqa: B023
        assert site.api.get(f"{JOBS}/p-job")["spec"]["suspend"] is True
        assert site.bound("p-job") == site.bound("p-made") == 0
        # A Job by its label alone waits for the group that the operator makes for it.
        site.job("p-label", label=True)
        with pytest.raises(ApiError, match="not found"):
            site.api.get(f"{GROUPS}/p-label")
    site.runs("p-plain", "p-job", "p-made", "p-label")


def test_without_the_queue_operator_only_the_report_stands_still(site: Site) -> None:
    def running() -> int:
        return int(site.api.get(f"{QUEUES}/default")["status"].get("running", 0))

    with site.without("queue"):
        before = running()
        site.gang("q-plain")
        site.runs("q-plain")
        assert running() == before
        site.api.post(QUEUES, KIND | {"kind": "Queue", "metadata": {"name": "q-new"}, "spec": {}})
        site.gang("q-other", queue="q-new")
        site.runs("q-other")
        assert "status" not in site.api.get(f"{QUEUES}/q-new")
    site.soon(lambda: running() > before and "status" in site.api.get(f"{QUEUES}/q-new"), "q-other")


def test_without_a_webhook_jobs_in_queues_are_refused_and_others_are_not_held(site: Site) -> None:
    with site.without("webhook"):
        with pytest.raises(ApiError, match=r"queued-job-suspension\.kbatch\.dev"):
            site.job("w-label", label=True)
        site.group("w-job")
        assert not site.job("w-job")["spec"].get("suspend")
        site.runs("w-job")  # its pods came at once, and waited for their group as plain pods do
        site.gang("w-plain")
        site.runs("w-plain")
    assert site.job("w-label", label=True)["spec"]["suspend"] is True
    site.runs("w-label")


def test_fields_of_a_newer_release_are_left_as_they_are(site: Site) -> None:
    """The CRDs are newer than all four processes, as between the upgrade of the one and of the others."""

    def patient(method: str, path: str, body: Any, **options: Any) -> None:
        """For a moment after a CRD has changed the API server has nothing of its kind."""

        def done() -> bool:
            try:
                site.api.request(method, path, body, **options)
            except ApiError as error:
                if error.status != 429:
                    raise
                return False
            return True

        assert wait_until(done, TIMEOUT, every=0.1), path

    merge = {"content_type": "application/merge-patch+json"}
    for plural in ("podgroups", "queues"):
        crd = site.api.get(f"{CRDS}/{plural}.scheduling.incubator.k8s.io")
        for part in ("spec", "status"):
            schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part]
            schema["properties"]["later"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        site.api.request("PUT", f"{CRDS}/{plural}.scheduling.incubator.k8s.io", crd)
    later = {"later": {"words": ["by", "others"]}}

    def taken() -> bool:
        """Whether the new schema is in force."""
        patient("PATCH", f"{QUEUES}/default", {"spec": later, "status": {}}, **merge)
        return "later" in site.api.get(f"{QUEUES}/default")["spec"]

    assert wait_until(taken, TIMEOUT, every=0.2)
    site.group("n-new", **later)
    patient("PATCH", f"{GROUPS}/n-new/status", {"status": later}, **merge)
    patient("PATCH", f"{QUEUES}/default/status", {"status": later}, **merge)
    assert site.job("n-new")["spec"]["suspend"] is True
    site.runs("n-new")
    site.soon(lambda: site.status("n-new").get("running") == 2, "n-new")
    for path in (f"{GROUPS}/n-new", f"{QUEUES}/default"):
        kept = site.api.get(path)
        assert (kept["spec"]["later"], kept["status"]["later"]) == (later["later"], later["later"]), path


def test_a_backup_of_queues_and_groups_brings_them_back_beside_their_pods(site: Site) -> None:
    """All CRDs are deleted, and with them whatever users had written; the pods run on."""
    site.gang("b-runs")
    site.runs("b-runs")
    kept = [*site.api.get(QUEUES)["items"], *site.api.get(GROUPS)["items"]]
    groups = {one["metadata"]["name"] for one in kept if one["kind"] == "PodGroup" or "minMember" in one["spec"]}
    pods = {pod["metadata"]["uid"] for pod in site.api.get(PODS)["items"] if pod["metadata"]["name"].startswith("b-")}
    for name in ("podgroups", "queues"):
        site.api.request("DELETE", f"{CRDS}/{name}.scheduling.incubator.k8s.io")

    def gone() -> bool:
        return not [crd for crd in site.api.get(CRDS)["items"] if "incubator" in crd["metadata"]["name"]]

    assert wait_until(gone, TIMEOUT, every=0.2)
    site.release.install()
    for one in kept:
        made = {
            "apiVersion": KIND["apiVersion"], "kind": "PodGroup" if "minMember" in one["spec"] else "Queue",
            "metadata": {key: one["metadata"].get(key) for key in ("name", "labels", "annotations")},
            "spec": one["spec"],
        }  # fmt: skip

        def posted(made: dict[str, Any] = made) -> bool:
            try:
                site.api.post(GROUPS if made["kind"] == "PodGroup" else QUEUES, made)
            except ApiError as error:
                return error.status == 409  # the operator was quicker with the default queue
            return True

        assert wait_until(posted, TIMEOUT, every=0.2), made
    site.runs("b-runs", "always")
    assert {one["metadata"]["name"] for one in site.api.get(GROUPS)["items"]} >= groups
    after = {pod["metadata"]["uid"] for pod in site.api.get(PODS)["items"] if pod["metadata"]["name"].startswith("b-")}
    assert after == pods
    site.gang("b-new")
    site.runs("b-new")
