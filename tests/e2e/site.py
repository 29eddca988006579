"""A cluster of one node with kbatch at work, and the groups, gangs and Jobs that tests of outages put into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.nodes import ensure_nodes
from kbatch.localcluster.processes import wait_until
from kbatch.localcluster.programs import Programs
from kbatch.localcluster.release import NAMESPACE, Release
from tests.e2e.versions import commands_of

ROOT: Final = Path(__file__).resolve().parents[2]
API: Final = "/apis/scheduling.incubator.k8s.io/v1alpha1"
GROUPS, QUEUES = f"{API}/namespaces/default/podgroups", f"{API}/queues"
JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
TIMEOUT: Final = 60.0
KIND: Final = {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup"}


def container(cpu: str = "100m") -> dict[str, Any]:
    """What a pod consists of."""
    return {"name": "m", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}


@dataclass(frozen=True)
class Site:
    """A cluster of one node with kbatch at work."""

    cluster: Cluster
    release: Release
    api: Api

    @contextmanager
    def without(self, component: str) -> Iterator[None]:
        """One process is away: its Deployment is deleted, and comes back at the end with all it needs."""
        self.api.request("DELETE", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/kbatch-{component}")
        assert wait_until(lambda: component not in self.release.states(), TIMEOUT, every=0.1)
        try:
            yield
        finally:
            self.release.install()
            self.release.wait_ready()

    def group(self, name: str, **spec: Any) -> None:
        self.api.post(GROUPS, KIND | {"metadata": {"name": name}, "spec": {"minMember": 2, **spec}})

    def gang(self, name: str, *, size: int = 2, cpu: str = "100m", **spec: Any) -> None:
        """Plain pods and their group, of which all are the minimum."""
        self.group(name, minMember=size, **spec)
        for number in range(size):
            metadata = {"name": f"{name}-{number}", "annotations": {"scheduling.k8s.io/group-name": name}}
            pod = {"schedulerName": "kube-batch", "containers": [container(cpu)]}
            self.api.post(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})

    def job(self, name: str, *, label: bool = False, cpu: str = "100m") -> dict[str, Any]:
        """A Job of two pods, of a group of its name or in the queue by its label; as the API server took it."""
        annotations = {} if label else {"scheduling.k8s.io/group-name": name}
        template = {
            "metadata": {"annotations": annotations},
            "spec": {"schedulerName": "kube-batch", "restartPolicy": "Never", "containers": [container(cpu)]},
        }
        metadata = {"name": name, "labels": {"kbatch.dev/queue": "default"} if label else {}}
        spec = {"parallelism": 2, "completions": 2, "template": template}
        made: dict[str, Any] = self.api.post(
            JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        )
        return made

    def status(self, name: str) -> dict[str, Any]:
        """What stands in a group's status; empty where there is no such group."""
        try:
            status: dict[str, Any] = self.api.get(f"{GROUPS}/{name}").get("status", {})
        except ApiError as error:
            if error.status != 404:
                raise
            return {}
        return status

    def phase(self, name: str) -> str:
        return str(self.status(name).get("phase", ""))

    def conditions(self, name: str) -> dict[str, str]:
        return {one["type"]: one["status"] for one in self.status(name).get("conditions", [])}

    def pods(self, prefix: str) -> list[dict[str, Any]]:
        """The pods whose names begin so."""
        return [pod for pod in self.api.get(PODS)["items"] if pod["metadata"]["name"].startswith(prefix)]

    def bound(self, prefix: str) -> int:
        return sum(1 for pod in self.pods(prefix) if pod["spec"].get("nodeName"))

    def soon(self, what: Callable[[], bool], name: str) -> None:
        assert wait_until(what, TIMEOUT, every=0.1), self.api.get(f"{GROUPS}/{name}")

    def runs(self, *names: str) -> None:
        for name in names:
            self.soon(lambda: self.phase(name) == "Running", name)  # noqa: B023


@contextmanager
def standing(name: str, programs: Programs, folder: Path) -> Iterator[Site]:
    """Have a cluster of this name while the context is open, with the gang `always` running; `folder` is for it."""
    with installed(name, programs, folder) as (cluster, release, api):
        site = Site(cluster, release, api)
        site.gang("always")
        site.runs("always")
        yield site


@contextmanager
def installed(
    name: str, programs: Programs, folder: Path, values: Sequence[str] = (), namespaces: Sequence[str] = ()
) -> Iterator[tuple[Cluster, Release, Api]]:
    """Have a cluster of one node and with kbatch while the context is open.

    `folder` is for it, `values` are options of `helm install`, `namespaces` are made before.
    """
    cluster = Cluster(name)
    with cluster.locked():
        cluster.start(programs)
    release = Release(cluster.kubeconfig, cluster.host_folder, programs)
    try:
        with Api(cluster.kubeconfig) as api:
            ensure_nodes(api, 1)
            for each in namespaces:
                api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}})
            release.install(values)
            with commands_of(ROOT, folder):
                release.start()
            release.wait_ready()
            yield cluster, release, api
    finally:
        with cluster.locked():
            cluster.remove()
