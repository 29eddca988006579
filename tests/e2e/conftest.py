"""A real Kubernetes API server for the tests end to end.

Which one: the cluster that KBATCH_E2E_KUBECONFIG names; one of kind, where KBATCH_E2E_KIND is set; else a control plane
of this machine (kbatch/localcluster). The latter two are started for the session and removed after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import STAGES, Cluster, Options
from kbatch.localcluster.components import Components
from kbatch.localcluster.nodes import ensure_nodes
from kbatch.localcluster.programs import Programs, ensure_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class ControlPlane:
    """A running cluster without any of kbatch's processes or CRDs, unless an earlier test installed them."""

    kubeconfig: Path
    kubectl: Path
    helm: Path
    server: str
    components: Components | None
    """What can be killed and restarted; None on a cluster that is not ours to break."""
    logs: Path | None
    """The folder with the components' logs (and audit.log); None where they are out of reach."""

    def api(self) -> Api:
        """A blocking client with the administrator's rights; use it in a `with`."""
        return Api(self.kubeconfig)

    def run_kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; with `check`, a failure fails the test and shows what it said."""
        ran = subprocess.run(
            [self.kubectl, "--kubeconfig", self.kubeconfig, *arguments],
            input=stdin, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if check and ran.returncode != 0:
            pytest.fail(f"kubectl {' '.join(arguments)}: {ran.stderr}")
        return ran

    def run_helm(self, home: Path, *arguments: str) -> str:
        """Run helm as the administrator, with its folders below `home`; a failure fails the test."""
        own = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        ran = subprocess.run(
            [self.helm, "--kubeconfig", self.kubeconfig, *arguments],
            env=os.environ | own, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if ran.returncode != 0:
            pytest.fail(f"helm {' '.join(arguments)}: {ran.stderr}")
        return ran.stdout

    def kubectl_json(self, *arguments: str) -> Any:
        """Run kubectl with `-o json` and return the document."""
        return json.loads(self.run_kubectl(*arguments, "-o", "json").stdout)

    def ensure_nodes(self, count: int) -> None:
        """Have the kwok nodes node-0 … Ready."""
        with self.api() as api:
            ensure_nodes(api, count)


def _say(line: str) -> None:
    print(f"control plane: {line}", flush=True)


@pytest.fixture(scope="session")
def programs() -> Programs:
    """The built programs (kubectl, helm, the control plane)."""
    return ensure_programs(_say)


@pytest.fixture(scope="session")
def start_control_plane(programs: Programs) -> Iterator[Callable[..., ControlPlane]]:
    """Start control planes of one's own: `start_control_plane(audit_policy=..., extra_args=(...))`.

    For tests that need other options than the shared one, or that break it.  All end with the session.
    """
    started: list[Cluster] = []

    def start(**options: Any) -> ControlPlane:
        # Each worker of each run is a process, so that runs side by side do not meet.
        name = f"e2e-{os.getpid()}-{len(started)}"
        cluster = Cluster(name)
        with cluster.locked():
            if cluster.folder.exists():
                cluster.remove()
            record = cluster.start(programs, Options(**options))
        started.append(cluster)
        return ControlPlane(
            cluster.kubeconfig, programs.kubectl, programs.helm, record.server,
            Components(cluster, programs), cluster.logs,
        )  # fmt: skip

    yield start
    for cluster in started:
        with cluster.locked():
            cluster.remove()


@pytest.fixture(scope="session")
def control_plane(
    request: pytest.FixtureRequest, programs: Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """The cluster that the whole session shares."""
    if given := os.environ.get("KBATCH_E2E_KUBECONFIG"):
        with _kwok(programs, Path(given), tmp_path_factory):
            yield _foreign(Path(given), programs)
    elif os.environ.get("KBATCH_E2E_KIND"):
        name = f"kbatch-e2e-{os.getpid()}"
        kubeconfig = tmp_path_factory.mktemp("kind") / "kubeconfig"
        subprocess.run(
            ["kind", "create", "cluster", "--name", name, "--kubeconfig", kubeconfig, "--wait", "5m"], check=True
        )
        try:
            with _kwok(programs, kubeconfig, tmp_path_factory):
                yield _foreign(kubeconfig, programs)
        finally:
            subprocess.run(["kind", "delete", "cluster", "--name", name], check=True)
    else:
        yield request.getfixturevalue("start_control_plane")()


def _foreign(kubeconfig: Path, programs: Programs) -> ControlPlane:
    return ControlPlane(kubeconfig, programs.kubectl, programs.helm, Api(kubeconfig).server, None, None)


@contextlib.contextmanager
def _kwok(programs: Programs, kubeconfig: Path, folders: pytest.TempPathFactory) -> Iterator[None]:
    """Run kwok on this host for the fake nodes of a cluster that has none of its own."""
    with (folders.mktemp("kwok") / "kwok.log").open("w") as log:
        process = subprocess.Popen(
            [
                programs.path("kwok"), "--kubeconfig", kubeconfig, "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", "--server-address=127.0.0.1:0",
                "--config", STAGES,
            ],
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=30)
