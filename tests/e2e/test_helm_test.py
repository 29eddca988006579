"""`helm test` on a local cluster: Helm makes its pods, and their programs run here, where no kubelet is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.credentials import TokenSource
from kbatch.localcluster.errors import ApiError, ChartError
from kbatch.localcluster.nodes import ensure_nodes
from kbatch.localcluster.processes import wait_until
from kbatch.localcluster.programs import Programs
from kbatch.localcluster.release import NAMESPACE, RELEASE, Release

pytestmark = [pytest.mark.control_plane, pytest.mark.installed]

NAME = f"{RELEASE}-gang-test"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GROUPS = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"


class Kubelet:
    """Runs the pod of `helm test` as a kubelet would, but here: its command, with the token of its account."""

    def __init__(self, api: Api, folder: Path) -> None:
        self._api = api
        self._folder = folder
        self._over = threading.Event()
        self.said: list[str] = []

    def run(self) -> None:
        """Run each pod of that name once."""
        done: set[str] = set()
        while not self._over.wait(0.1):
            try:
                pod = self._api.get(f"{PODS}/{NAME}")
            except ApiError:
                continue
            if pod["metadata"]["uid"] in done:
                continue
            done.add(pod["metadata"]["uid"])
            (container,) = pod["spec"]["containers"]
            (self._folder / "token").write_bytes(
                TokenSource(self._api, NAMESPACE).get(pod["spec"]["serviceAccountName"])
            )
            (self._folder / "ca.crt").write_bytes(self._api.certificate_authority)
            server = urlsplit(self._api.server)
            where = {"KUBERNETES_SERVICE_HOST": server.hostname or "", "KUBERNETES_SERVICE_PORT": str(server.port)}
            ran = subprocess.run(
                [sys.executable, *container["command"][1:], *container["args"]],
                env={**where, "SERVICE_ACCOUNT": str(self._folder)}, capture_output=True, text=True, check=False,
            )  # fmt: skip
            self.said.append(ran.stdout + ran.stderr)
            phase = "Failed" if ran.returncode else "Succeeded"
            self._api.request(
                "PATCH", f"{PODS}/{NAME}/status", {"status": {"phase": phase}},
                content_type="application/merge-patch+json",
            )  # fmt: skip

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


@pytest.fixture(scope="module")
def cluster(programs: Programs) -> Iterator[Cluster]:
    cluster = Cluster(f"helm-test-{os.getpid()}")
    with cluster.locked():
        cluster.start(programs)
    try:
        yield cluster
    finally:
        with cluster.locked():
            cluster.remove()


def test_helm_test_places_a_gang_and_says_why_where_it_cannot(
    cluster: Cluster, programs: Programs, tmp_path: Path
) -> None:
    release = Release(cluster.kubeconfig, cluster.host_folder, programs)
    release.install(["--set", "tests.gang.timeoutSeconds=20"])
    release.start()
    release.wait_ready()
    with Api(cluster.kubeconfig) as api:
        # Nobody runs the test's pod: Helm gives it up, and leaves nothing of it.
        with pytest.raises(ChartError):
            release.helm("test", RELEASE, "--namespace", NAMESPACE, "--filter", f"name={NAME}", "--timeout", "3s")
        assert api.get(PODS)["items"] == []
        kubelet = Kubelet(api, tmp_path)
        with kubelet.at_work():
            # A cluster without a node: the test fails, with the group's own reason.
            with pytest.raises(ChartError):
                release.helm("test", RELEASE, "--namespace", NAMESPACE, "--filter", f"name={NAME}")
            assert wait_until(lambda: bool(kubelet.said), 10)
            assert "0 of 2 pods bound" in kubelet.said[0]
            assert "0 of 2 pods would fit" in kubelet.said[0]
            assert api.get(PODS)["items"] == api.get(GROUPS)["items"] == [], "Helm deletes a test that failed, too"
            ensure_nodes(api, 1)
            said = release.helm("test", RELEASE, "--namespace", NAMESPACE, "--filter", f"name={NAME}", "--logs")
        assert "Succeeded" in said
        assert kubelet.said[1].startswith("both pods were bound (node-0, node-0)")
        # Nothing of it is left, its account with its rights neither.
        assert api.get(PODS)["items"] == api.get(GROUPS)["items"] == []
        for path in (
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
        ):
            assert NAME not in [item["metadata"]["name"] for item in api.get(path)["items"]]
