"""From the chart before its CRDs were templates to this one, and back, while groups run and wait."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.errors import ApiError, ChartError
from kbatch.localcluster.nodes import ensure_nodes
from kbatch.localcluster.processes import wait_until
from kbatch.localcluster.programs import Programs
from kbatch.localcluster.release import NAMESPACE, RELEASE, Release
from tests.e2e.versions import commands_of

pytestmark = [pytest.mark.control_plane, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
BEFORE = "e5c7129"
"""The last version whose chart has its CRDs in the folder crds."""
GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
CRD_NAMES = ("podgroups.scheduling.incubator.k8s.io", "queues.scheduling.incubator.k8s.io")
CORES = 32
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout of the older version."""
    folder = tmp_path_factory.mktemp("before")
    if subprocess.run(["git", "-C", ROOT, "cat-file", "-e", f"{BEFORE}^{{commit}}"], check=False).returncode:
        pytest.skip(f"{BEFORE} is not in this clone's history")
    packed = subprocess.run(["git", "-C", ROOT, "archive", BEFORE], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
    return folder


@dataclass(frozen=True)
class Site:
    """A cluster of two nodes of 32 cores, with whichever version is at work."""

    release: Release
    api: Api
    folder: Path

    @contextmanager
    def running(self, code: Path) -> Iterator[None]:
        """The processes of a version, ready; all ended with the context, so that no two versions overlap."""
        with commands_of(code, self.folder / code.name):
            self.release.start()
        try:
            self.release.wait_ready()
            yield
        finally:
            self.release.stop()

    def get(self, path: str) -> Any:
        """An object or list, as soon as it can be read: after a change of its CRD the API server needs a moment."""
        answers: list[Any] = []

        def answered() -> bool:
            try:
                answers.append(self.api.get(path))
            except ApiError as error:
                if error.status != 429:
                    raise
            return bool(answers)

        assert wait_until(answered, TIMEOUT, every=0.1), path
        return answers[0]

    def items(self, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(path)["items"]
        return items

    def phase(self, name: str) -> str:
        phase: str = self.get(f"{GROUPS}/{name}").get("status", {}).get("phase", "")
        return phase

    def becomes(self, name: str, phase: str) -> None:
        assert wait_until(lambda: self.phase(name) == phase, TIMEOUT, every=0.1), (name, self.get(f"{GROUPS}/{name}"))

    def standing(self) -> dict[str, Any]:
        """Of all that runs: what would differ had anything touched it."""
        pods = {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"], pod["spec"]["nodeName"], pod["status"].get("startTime"),
                pod["metadata"].get("deletionTimestamp"), pod["metadata"].get("labels"),
            )
            for pod in self.items(PODS)
            if pod["spec"].get("nodeName")
        }  # fmt: skip
        jobs = {job["metadata"]["name"]: (job["metadata"]["uid"], job["spec"]) for job in self.items(JOBS)}
        groups = {one["metadata"]["name"]: (one["metadata"]["uid"], one["spec"]) for one in self.items(GROUPS)}
        crds = {name: self.api.get(f"{CRDS}/{name}")["metadata"]["uid"] for name in CRD_NAMES}
        queue = self.get("/apis/scheduling.incubator.k8s.io/v1alpha1/queues/default")["metadata"]["uid"]
        return {"pods": pods, "jobs": jobs, "groups": groups, "crds": crds, "queue": queue}


@pytest.fixture
def site(programs: Programs, tmp_path: Path) -> Iterator[Site]:
    cluster = Cluster(f"upgrade-{os.getpid()}")
    with cluster.locked():
        cluster.start(programs)
    try:
        with Api(cluster.kubeconfig) as api:
            ensure_nodes(api, 2)
            yield Site(Release(cluster.kubeconfig, cluster.host_folder, programs), api, tmp_path)
    finally:
        with cluster.locked():
            cluster.remove()


def job(name: str, pods: int, cpu: int, **metadata: Any) -> dict[str, Any]:
    """A Job whose pods run until it is deleted."""
    template = {
        "metadata": {"annotations": {} if "labels" in metadata else {"scheduling.k8s.io/group-name": name}},
        "spec": {
            "schedulerName": "kube-batch",
            "restartPolicy": "Never",
            "containers": [{"name": "m", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}],
        },
    }
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **metadata},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }  # fmt: skip


def group(name: str, minimum: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"minMember": minimum, **spec},
    }  # fmt: skip


def fill(site: Site) -> None:
    """A gang of a Job, one of a template, a Job by its label alone: they run. Two that wait for their room."""
    role = {
        "name": "worker", "minMember": 2,
        "template": {"spec": {"containers": [{"name": "m", "image": "b", "resources": {"requests": {"cpu": 8}}}]}},
    }  # fmt: skip
    for path, body in (
        (GROUPS, group("runs", 3)), (JOBS, job("runs", 3, 8)), (GROUPS, group("made", 2, subGroups=[role])),
        (JOBS, job("labelled", 2, 4, labels={"kbatch.dev/queue": "default"})),
    ):  # fmt: skip
        site.api.post(path, body)
    for name in ("runs", "made", "labelled"):
        site.becomes(name, "Running")
    for name in ("waits-1", "waits-2"):
        site.api.post(GROUPS, group(name, 3))
        site.api.post(JOBS, job(name, 3, 8))
    site.becomes("waits-1", "Pending")
    site.becomes("waits-2", "Pending")


def end(site: Site, name: str) -> None:
    site.api.request("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")
    site.api.request("DELETE", f"{GROUPS}/{name}")


def kept_while(site: Site, change: Callable[[], None]) -> None:
    """Do something, and see that nothing that ran before has been touched by it."""
    standing = site.standing()
    change()
    after = site.standing()
    for name, (_, spec) in after["groups"].items():  # a newer CRD may have defaults for what an older one did not know
        for key in spec.keys() - standing["groups"].get(name, ("", spec))[1].keys():
            spec.pop(key)
    for kind, things in standing.items():
        assert after[kind] == things, kind


def test_an_upgrade_and_a_rollback_leave_what_runs_and_what_waits_goes_on(site: Site, before: Path) -> None:
    site.release.install(chart=before / "charts" / "kbatch")
    with site.running(before):
        fill(site)

    def upgrade() -> None:
        with pytest.raises(ChartError, match="invalid ownership metadata"):
            site.release.helm(
                "upgrade",
                RELEASE,
                str(ROOT / "charts" / "kbatch"),
                "--namespace",
                NAMESPACE,
                "--reset-then-reuse-values",
            )
        site.release.install()

    kept_while(site, upgrade)
    with site.running(ROOT):
        kept_while(site, lambda: None)
        assert {site.phase(name) for name in ("runs", "made", "labelled")} == {"Running"}
        assert {site.phase(name) for name in ("waits-1", "waits-2")} == {"Pending"}
        end(site, "runs")
        assert wait_until(lambda: "Running" in {site.phase("waits-1"), site.phase("waits-2")}, TIMEOUT, every=0.1)
    served = site.api.get(f"{CRDS}/{CRD_NAMES[0]}")
    assert served["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"

    def rollback() -> None:
        site.release.helm("rollback", RELEASE, "1", "--namespace", NAMESPACE)

    kept_while(site, rollback)
    with site.running(before):
        assert {site.phase(name) for name in ("made", "labelled")} == {"Running"}
        first = "waits-1" if site.phase("waits-1") == "Running" else "waits-2"
        end(site, first)
        site.becomes(({"waits-1", "waits-2"} - {first}).pop(), "Running")
    # The newer CRDs are still there, and the way forward is open.
    kept_while(site, site.release.install)
    with site.running(ROOT):
        assert {site.phase(name) for name in ("made", "labelled")} == {"Running"}


def test_crds_that_were_given_to_the_release_need_no_flag(site: Site, before: Path) -> None:
    site.release.install(chart=before / "charts" / "kbatch")
    owner = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE}
    patch = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": owner}}
    for name in CRD_NAMES:
        site.api.request("PATCH", f"{CRDS}/{name}", patch, content_type="application/merge-patch+json")
    chart, values = ROOT / "charts" / "kbatch", site.release.folder.root / "values.json"
    site.release.helm("upgrade", RELEASE, str(chart), "--namespace", NAMESPACE, "--values", str(values))
    for name in CRD_NAMES:
        assert site.api.get(f"{CRDS}/{name}")["metadata"]["labels"]["helm.sh/chart"].startswith("kbatch-")


def test_the_crds_and_what_is_in_them_outlive_the_release(site: Site) -> None:
    site.release.install()
    assert wait_until(lambda: _posted(site, GROUPS, group("kept", 1)), TIMEOUT, every=0.2)
    site.release.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    assert site.get(f"{GROUPS}/kept")["spec"]["minMember"] == 1
    # A release of the same name finds them as its own; another one is told that there is one, whatever its flags.
    chart = str(ROOT / "charts" / "kbatch")
    site.release.helm("install", RELEASE, chart, "--namespace", NAMESPACE)
    for flags in ([], ["--take-ownership"], ["--set", "crds.enabled=false"], ["--set", "fullnameOverride=second"]):
        for name, namespace in (("second", NAMESPACE), (RELEASE, "second")):
            with pytest.raises(ChartError, match=f"as release {RELEASE} in namespace {NAMESPACE}: a cluster has one"):
                site.release.helm("install", name, chart, "--namespace", namespace, "--create-namespace", *flags)
    site.release.helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
    # Of what is left the CRDs alone are somebody's.
    with pytest.raises(ChartError, match="invalid ownership metadata"):
        site.release.helm("install", "second", chart, "--namespace", NAMESPACE)
    site.release.helm("install", "second", chart, "--namespace", NAMESPACE, "--take-ownership")


def _posted(site: Site, path: str, body: dict[str, Any]) -> bool:
    try:
        site.api.post(path, body)
    except ApiError:
        return False
    return True
