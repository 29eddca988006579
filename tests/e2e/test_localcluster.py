"""The local control plane: it starts, it is the real thing, it is mended, and nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster import processes
from kbatch.localcluster.cluster import COMPONENTS, Cluster, State

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kbatch.localcluster.programs import Programs
    from tests.e2e.conftest import ControlPlane

pytestmark = pytest.mark.control_plane

# The commands alone, however the rest of the command line stands.
COMMAND = "import typer; from kbatch.cli.cluster import register; app = typer.Typer(); register(app); app()"


def kbatch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def up(name: str, *arguments: str) -> Any:
    ran = kbatch("up", "--name", name, "--control-plane-only", "--nodes", "1", "-o", "json", *arguments)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def pids(cluster: Cluster) -> dict[str, int | None]:
    return {component: cluster.pid(component) for component in COMPONENTS}


def leaves_nothing(cluster: Cluster) -> bool:
    return cluster.state() is State.ABSENT and not processes.working_on(cluster.folder, COMPONENTS)


@pytest.fixture
def names(programs: Programs) -> Iterator[list[str]]:
    """Two names of clusters that exist neither before nor after."""
    names = [f"one-{os.getpid()}", f"two-{os.getpid()}"]
    yield names
    for name in names:
        kbatch("down", "--name", name)


def test_the_shared_control_plane_is_kubernetes_with_nodes(control_plane: ControlPlane) -> None:
    assert control_plane.kubectl_json("version")["serverVersion"]["gitVersion"] == "v1.36.1"
    control_plane.ensure_nodes(3)
    nodes = {item["metadata"]["name"]: item for item in control_plane.kubectl_json("get", "nodes")["items"]}
    assert {"node-0", "node-1", "node-2"} <= nodes.keys()
    allocatable = nodes["node-2"]["status"]["allocatable"]
    assert (allocatable["cpu"], allocatable["memory"], allocatable["pods"]) == ("32", "256Gi", "110")
    # Role-based access control is in force: nobody in particular may do nothing in particular.
    refused = control_plane.run_kubectl("auth", "can-i", "list", "pods", "--as", "nobody", check=False)
    assert refused.stdout.strip() == "no"


def test_clusters_live_side_by_side_and_end_alone(names: list[str]) -> None:
    first, second = (Cluster(name) for name in names)
    reports = [up(name) for name in names]
    assert reports[0].keys() == {"name", "kubeconfig", "kubectl", "processes"}
    assert reports[0]["name"] == names[0]
    ports = [set(cluster.record().ports) for cluster in (first, second)]  # type: ignore[union-attr]
    assert not ports[0] & ports[1]

    # Once more: nothing changes.
    before = pids(first)
    assert up(names[0]) == reports[0]
    assert pids(first) == before

    ran = kbatch("status", "--name", names[0], "-o", "json")
    assert (ran.returncode, json.loads(ran.stdout)) == (0, {"state": "running", **reports[0]})

    assert kbatch("down", "--name", names[0]).returncode == 0
    assert leaves_nothing(first)
    assert second.state() is State.RUNNING
    assert kbatch("down", "--name", names[1]).returncode == 0
    assert leaves_nothing(second)


def test_a_cluster_left_over_from_a_crash_is_replaced(names: list[str]) -> None:
    cluster = Cluster(names[0])
    up(names[0])
    before = pids(cluster)
    for component in ("etcd", "kube-apiserver"):
        os.kill(before[component] or 0, signal.SIGKILL)
    assert processes.wait_until(lambda: cluster.state() is State.BROKEN, 10)
    ran = kbatch("status", "--name", names[0])
    assert (ran.returncode, "broken" in ran.stdout) == (1, True)

    ran = kbatch("up", "--name", names[0], "--control-plane-only", "--nodes", "1")
    assert ran.returncode == 0
    assert "left over from a crash" in ran.stderr
    after = pids(cluster)
    assert None not in after.values()
    assert not any(processes.alive(pid) for pid in before.values() if pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing(names: list[str], number: signal.Signals) -> None:
    cluster = Cluster(names[0])
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "up", "--name", names[0], "--control-plane-only"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # In the middle of it: some component runs already.
    assert processes.wait_until(lambda: bool(processes.working_on(cluster.folder, COMPONENTS)), 30)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "kbatch: interrupted; nothing that was started is left running."
    assert leaves_nothing(cluster)


def test_a_component_that_cannot_start_is_one_sentence(names: list[str], programs: Programs) -> None:
    from kbatch.localcluster.cluster import Options
    from kbatch.localcluster.errors import LocalClusterError

    cluster = Cluster(names[0])
    with pytest.raises(LocalClusterError, match="did not start") as caught:
        cluster.start(programs, Options(extra_args=("kube-apiserver=no-such-flag=1",)))
    assert "\n" not in str(caught.value)
    assert "no-such-flag" in str(caught.value)
    assert leaves_nothing(cluster)


def test_components_are_killed_paused_and_started_again(start_control_plane: Any) -> None:
    plane: ControlPlane = start_control_plane()
    plane.ensure_nodes(1)
    assert plane.components
    for component in ("kube-apiserver", "etcd", "kube-controller-manager", "kwok-controller"):
        plane.components.restart(component)
    plane.run_kubectl("create", "namespace", "still-here")

    plane.components.pause("kube-apiserver")
    late = plane.run_kubectl("get", "namespaces", "--request-timeout=1s", check=False)
    assert late.returncode != 0
    plane.components.resume("kube-apiserver")
    assert "still-here" in plane.run_kubectl("get", "namespaces").stdout


def test_kube_scheduler_and_an_audit_log_come_on_demand(start_control_plane: Any, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    plane: ControlPlane = start_control_plane(audit_policy=policy)
    plane.ensure_nodes(1)
    assert plane.components
    plane.components.start_scheduler()
    plane.run_kubectl("run", "plain", "--image=busybox")
    plane.run_kubectl("wait", "--for=condition=Ready", "pod/plain", "--timeout=30s")
    assert plane.logs
    lines = (plane.logs / "audit.log").read_text().splitlines()
    bindings = [
        line
        for line in lines
        if json.loads(line)["requestURI"].startswith("/api/v1/namespaces/default/pods/plain/binding")
    ]
    assert bindings
