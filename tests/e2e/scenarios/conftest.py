"""An installed kbatch: the chart put in by Helm, its four processes running as its Deployments say."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.components import Components
from kbatch.localcluster.host import Folder
from kbatch.localcluster.nodes import ensure_nodes
from kbatch.localcluster.processes import wait_until
from kbatch.localcluster.programs import ensure_programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kbatch.localcluster.host import ProcessState

KBATCH = Path(sys.executable).parent / "kbatch"
NODES = 3
NAMESPACE = "kbatch-system"
_READS = "kbatch_scheduler_configuration_reloads_total"
TIMEOUT = 30.0
"""Seconds within which whatever a test waits for must have happened; most things take well under one."""


@dataclass
class Installed:
    """A cluster with kbatch in it, as a user meets it: through kubectl."""

    name: str
    kubeconfig: Path
    kubectl: Path
    components: Components | None
    """What can be killed and restarted; None on a cluster that is not ours to break."""
    node_count: int = 0
    created: list[dict[str, Any]] = field(default_factory=list)

    def run(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        ran = subprocess.run(
            [self.kubectl, "--kubeconfig", self.kubeconfig, *arguments],
            input=stdin, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if check and ran.returncode != 0:
            pytest.fail(f"kubectl {' '.join(arguments)}: {ran.stderr}")
        return ran.stdout

    def get(self, *arguments: str) -> Any:
        return json.loads(self.run("get", *arguments, "-o", "json"))

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(*arguments)["items"]
        return items

    def apply(self, *documents: dict[str, Any]) -> None:
        self.run(
            "apply",
            "--server-side",
            "-f",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)}),
        )

    @contextlib.contextmanager
    def watching_pods(self) -> Iterator[Iterator[str]]:
        """The names of pods as they are bound from now on, each once, as soon as the API server says so."""
        columns = '{.metadata.name} {.spec.nodeName}{"\\n"}'
        with subprocess.Popen(
            [self.kubectl, "--kubeconfig", self.kubeconfig, "get", "pods", "-w", "-o", f"jsonpath={columns}"],
            stdout=subprocess.PIPE, text=True,
        ) as watch:  # fmt: skip
            assert watch.stdout is not None
            lines = watch.stdout
            lines.readline()  # the first pod: from here on the watch is open

            def bound() -> Iterator[str]:
                seen = set()
                for line in lines:
                    name, _, node = line.strip().partition(" ")
                    if node and name not in seen:
                        seen.add(name)
                        yield name

            try:
                yield bound()
            finally:
                watch.kill()

    def create_all(self, documents: list[dict[str, Any]], parallel: int = 16) -> None:
        """Create many pods or groups at once, faster than kubectl would."""
        with self.api() as api:
            for kind, path in (
                ("PodGroup", "/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/default/podgroups"),
                ("Pod", "/api/v1/namespaces/default/pods"),
            ):
                api.post_all(path, [document for document in documents if document["kind"] == kind], parallel=parallel)

    def api(self) -> Api:
        return Api(self.kubeconfig)

    def ensure_nodes(self, count: int) -> None:
        with self.api() as api:
            ensure_nodes(api, count)
        self.node_count = max(self.node_count, count)

    def report(self) -> dict[str, Any]:
        """What `kbatch status -o json` says now; the pids change when a process is restarted."""
        ran = subprocess.run(
            [KBATCH, "status", "--name", self.name, "-o", "json"], capture_output=True, text=True, check=True
        )
        report: dict[str, Any] = json.loads(ran.stdout)
        return report

    def states(self) -> dict[str, ProcessState]:
        """What the supervisor of kbatch's processes says of each of them."""
        return Folder(Cluster(self.name).host_folder).states()

    def pid(self, process: str) -> int:
        """Its process id; 0 while it waits for its next start. `kbatch status` would take a second to say so."""
        return self.states()[process].pid or 0

    def metric(self, process: str, series: str) -> float:
        """A series of one of kbatch's processes now, e.g. `kbatch_leader` or `name{label="x"}`; 0 if absent."""
        address = self.report()["processes"][process]["metrics"]
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 -- on loopback
            lines = answer.read().decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{series} ")), 0.0)

    def kill(self, process: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to one of kbatch's processes; its pid."""
        pid = self.pid(process)
        assert pid, f"{process} does not run"
        os.kill(pid, number)
        return pid

    def forgive(self) -> None:
        """Replace the pods of processes that were started again, so that the next start does not wait either.

        A container that ends again and again waits up to five minutes for its next start; that of a new pod does not.
        """
        before = {name: state.fingerprint for name, state in self.states().items() if state.restarts}
        if not before:
            return
        self.run("rollout", "restart", "-n", NAMESPACE, *(f"deployment/kbatch-{name}" for name in before))

        def replaced() -> bool:
            now = self.states()
            return all(now[name].ready and now[name].fingerprint != before[name] for name in before)

        self.wait(f"{', '.join(before)} run in new pods", replaced, 60)

    def wait(self, what: str, condition: Callable[[], bool], timeout: float = TIMEOUT) -> None:
        """Wait until the condition holds; the test fails with what the PodGroups look like if it never does."""
        if not wait_until(condition, timeout, every=0.1):
            groups = self.run("get", "podgroups", "-A", "-o", "wide", check=False)
            details = self.run(
                "get",
                "podgroups",
                "-A",
                "-o",
                "jsonpath={range .items[*]}{.metadata.name}: {.status}{'\\n'}{end}",
                check=False,
            )
            pytest.fail(f"not within {timeout:.0f} s: {what}\n{groups}\n{details[:6000]}")

    def wait_phase(self, group: str, phase: str, timeout: float = TIMEOUT) -> dict[str, Any]:
        self.wait(
            f"{group} is {phase}", lambda: self.get("podgroup", group).get("status", {}).get("phase") == phase, timeout
        )
        found: dict[str, Any] = self.get("podgroup", group)
        return found

    def condition(self, group: str, name: str) -> dict[str, Any]:
        """One condition of a group; empty while there is none."""
        conditions = self.get("podgroup", group).get("status", {}).get("conditions", [])
        return next((condition for condition in conditions if condition["type"] == name), {})

    def wait_condition(self, group: str, name: str, status: str, reason: str | None = None) -> dict[str, Any]:
        def there() -> bool:
            found = self.condition(group, name)
            return found.get("status") == status and (reason is None or found.get("reason") == reason)

        self.wait(f"{group} has {name}={status} {reason or ''}", there)
        return self.condition(group, name)

    def configuration(self) -> str:
        """The text of the scheduler's configuration."""
        text: str = self.get("configmap", "kbatch-scheduler", "-n", NAMESPACE)["data"]["scheduler.yaml"]
        return text

    def configure(self, text: str) -> None:
        """Change the scheduler's configuration, and wait until the scheduler has read it, whatever it thinks of it."""

        def reads() -> float:
            return sum(self.metric("scheduler", f'{_READS}{{result="{result}"}}') for result in ("ok", "refused"))

        before = reads()
        patch = json.dumps({"data": {"scheduler.yaml": text}})
        self.run("patch", "configmap", "kbatch-scheduler", "-n", NAMESPACE, "--type=merge", "-p", patch)
        self.wait("the configuration is read", lambda: reads() > before)

    def explain(self, group: str) -> dict[str, Any]:
        """What `kbatch explain` says of a group of the namespace `default`."""
        ran = subprocess.run(
            [KBATCH, "explain", f"default/{group}", "-o", "json", "--kubeconfig", str(self.kubeconfig)],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        said: dict[str, Any] = json.loads(ran.stdout)
        return said

    def clean(self) -> None:
        """Delete what the tests made, and wait until it is gone."""
        self.run("delete", "jobs,podgroups,pods", "--all", "--wait=false", "--grace-period=0")
        self.wait("pods are gone", lambda: not self.items("pods"))
        self.wait("groups are gone", lambda: not self.items("podgroups"))
        self.wait("queues are gone", self._without_queues)

    def take_nodes_away(self) -> None:
        """Delete the nodes that a test had made."""
        if self.node_count > NODES:
            more = [f"node-{index}" for index in range(NODES, self.node_count)]
            self.run("delete", "nodes", *more, "--ignore-not-found")
            self.node_count = NODES

    def _without_queues(self) -> bool:
        """Delete the queues: refused as long as the webhook has not seen that their groups are gone."""
        others = ("queues", "--field-selector", "metadata.name!=default")
        self.run("delete", *others, "--wait=false", check=False)
        return not self.items(*others)


def install(name: str, nodes: int, *flags: str) -> Installed:
    ran = subprocess.run(
        [KBATCH, "up", "--name", name, "--nodes", str(nodes), *flags, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if ran.returncode != 0:
        subprocess.run([KBATCH, "down", "--name", name], check=False)
        pytest.fail(f"kbatch up failed:\n{ran.stderr}\n{ran.stdout}")
    report = json.loads(ran.stdout)
    programs = ensure_programs(print)
    return Installed(
        name, Path(report["kubeconfig"]), Path(report["kubectl"]), Components(Cluster(name), programs), nodes
    )


@pytest.fixture(scope="session")
def installations() -> Iterator[dict[str, Installed]]:
    """By name what is installed in this process; all ends with it."""
    made: dict[str, Installed] = {}
    try:
        yield made
    finally:
        for name in made:
            subprocess.run([KBATCH, "down", "--name", name], check=True)


@pytest.fixture(scope="module")
def installed(request: pytest.FixtureRequest, installations: dict[str, Installed]) -> Iterator[Installed]:
    """kbatch on three nodes of 32 cores: one installation for all modules of this process that leave it as it is.

    Modules that break it, or upgrade the chart, say `OWN_CLUSTER = True`.
    """
    if os.environ.get("KBATCH_E2E_KUBECONFIG"):
        pytest.skip("needs a cluster of its own: the number of its nodes is part of what is tested")
    own = getattr(request.module, "OWN_CLUSTER", False)
    name = f"{request.module.__name__.rpartition('.')[2].replace('_', '-') if own else 'test-scenarios'}-{os.getpid()}"
    if name not in installations:
        installations[name] = install(name, NODES)
    yield installations[name]
    if own:
        del installations[name]
        subprocess.run([KBATCH, "down", "--name", name], check=True)


@pytest.fixture
def kbatch(installed: Installed) -> Iterator[Installed]:
    """The installation, with nothing of an earlier test in it."""
    installed.ensure_nodes(NODES)
    yield installed
    installed.clean()
    installed.take_nodes_away()
