"""Installing the chart on a local control plane, and running its processes on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from kbatch.localcluster import pods, processes
from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import HOST_MODULE
from kbatch.localcluster.errors import ChartError, StartError, last_line
from kbatch.localcluster.folders import checkout
from kbatch.localcluster.host import Assignment, Folder, ProcessState
from kbatch.localcluster.ports import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kbatch.localcluster.programs import Programs

NAMESPACE = "kbatch-system"
RELEASE = "kbatch"
COMPONENTS = ("scheduler", "podgroup", "queue", "webhook")
_TIMEOUT = 90.0
_HOPELESS = 3
"""A process that ended so often while it is being waited for will not come up."""


class Release:
    """The chart as installed on one cluster, its processes on this machine.

    Args:
        kubeconfig: the administrator's.
        root: a folder for credentials, volumes, logs and states; `host` in the cluster's own folder.
        programs: for Helm.
    """

    def __init__(self, kubeconfig: Path, root: Path, programs: Programs) -> None:
        self.kubeconfig = kubeconfig
        self.folder = Folder(root)
        self._programs = programs

    def values(self) -> dict[str, object]:
        """Return the values that make the chart suit this machine; the rest is the chart's own."""
        port = self.folder.ensure_ports("webhook", ["webhook"])["webhook"]
        scaled: dict[str, dict[str, object]] = {component: {"replicas": 0} for component in COMPONENTS}
        scaled["webhook"]["url"] = f"https://{LOOPBACK}:{port}"
        return {"bindAddress": LOOPBACK, **scaled}

    def install(self, arguments: Sequence[str] = (), *, chart: Path | None = None) -> None:
        """Install or upgrade a chart, else the checkout's; `arguments` go to Helm, for example `--set logLevel=debug`.

        CRDs that were applied without Helm become the release's, as do those from a chart's folder crds.
        """
        self.folder.assign(Assignment(str(self.kubeconfig), NAMESPACE, RELEASE))
        values = self.folder.root / "values.json"
        values.write_text(json.dumps(self.values(), indent=2), encoding="utf-8")
        self.helm(
            "upgrade", "--install", RELEASE, str(chart or checkout() / "charts" / "kbatch"), "--namespace", NAMESPACE,
            "--create-namespace", "--take-ownership", "--values", str(values), *arguments,
        )  # fmt: skip

    def installed(self) -> bool:
        """Tell whether the release is there."""
        found = self.helm("list", "--namespace", NAMESPACE, "--filter", f"^{RELEASE}$", "--deployed", "--short")
        return RELEASE in found.split()

    def helm(self, *arguments: str) -> str:
        """Run Helm as the cluster's administrator and return what it printed; ChartError if it fails."""
        # Helm's own folders: a user's plugins, repositories and defaults are not to matter.
        home = self.folder.root / "helm"
        own = {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        own["KUBECACHEDIR"] = str(home / "discovery")
        ran = subprocess.run(
            [self._programs.helm, "--kubeconfig", self.kubeconfig, *arguments],
            env=os.environ | own, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if ran.returncode != 0:
            raise ChartError(last_line(ran.stderr, ("error",)).removeprefix("Error: "))
        return ran.stdout

    def start(self) -> None:
        """Start the supervisor, unless it runs."""
        if self.supervisor():
            return
        (self.folder.root / "logs").mkdir(parents=True, exist_ok=True)
        # What an earlier supervisor wrote, one that was killed perhaps, must not be taken for the new one's word.
        self.folder.state.unlink(missing_ok=True)
        # -P: a folder `kbatch` or `operators` where the user stands is not ours.
        processes.detach([sys.executable, "-P", "-m", HOST_MODULE, str(self.folder.root)], self.folder.log)

    def stop(self) -> None:
        """End the supervisor and with it every process of the release."""
        processes.end(self.supervisor(), grace=15.0)

    def supervisor(self) -> list[int]:
        """Return the supervisor's pid, [] if it does not run."""
        return sorted(processes.working_on(self.folder.root.parent, {HOST_MODULE}))

    def abandoned(self) -> bool:
        """Tell whether there should be a supervisor and is none."""
        return self.folder.assigned() and not self.supervisor()

    def states(self) -> dict[str, ProcessState]:
        """Return what the supervisor says of its processes; nothing if there is none."""
        return self.folder.states() if self.supervisor() else {}

    def wait_ready(self, timeout: float = _TIMEOUT) -> dict[str, ProcessState]:
        """Wait until the processes run what the Deployments say now, and are ready.

        Raises:
            StartError: one of them does not come up; with the last line of its log.
            ChartError: one of them asks for what this machine cannot give.
        """
        with Api(self.kubeconfig) as api:
            answer = api.get(
                f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments?labelSelector=app.kubernetes.io/instance%3D{RELEASE}"
            )
        wanted = {pods.component_of(deployment): pods.fingerprint(deployment) for deployment in answer["items"]}
        if not wanted:
            raise ChartError(f"the release {RELEASE} has no Deployments in {NAMESPACE}")
        before = {component: state.restarts for component, state in self.folder.states().items()}

        def ready() -> bool:
            if not self.supervisor():
                raise StartError("The supervisor of kbatch's processes", _last_words(self.folder.log), self.folder.log)
            states = self.folder.states()
            for component, state in states.items():
                if component in wanted:
                    self._require_hope(state, before.get(component, 0))
            return all(
                component in states and states[component].ready and states[component].fingerprint == fingerprint
                for component, fingerprint in wanted.items()
            )

        if not processes.wait_until(ready, timeout, every=0.1):
            states = self.folder.states()
            late = next(one for one in wanted if one not in states or not states[one].ready)
            log = self.folder.log_of(late)
            raise StartError(f"kbatch-{late}", f"not ready within {timeout:.0f} s ({_last_words(log)})", log)
        return self.folder.states()

    def _require_hope(self, state: ProcessState, restarts_before: int) -> None:
        if not state.fingerprint:
            raise ChartError(state.message)
        if state.restarts - restarts_before >= _HOPELESS or (
            state.pid is None and state.restarts > restarts_before + 1
        ):
            log = self.folder.log_of(state.component)
            raise StartError(f"kbatch-{state.component}", f"it {state.message} ({_last_words(log)})", log)


def addresses(state: ProcessState) -> tuple[str, str]:
    """Return the URLs of a process's metrics and health; empty where it has none."""
    metrics, health = state.ports.get("metrics"), state.ports.get("health")
    return (
        f"http://{LOOPBACK}:{metrics}/metrics" if metrics else "",
        f"http://{LOOPBACK}:{health}/healthz" if health else "",
    )


def _last_words(log: Path) -> str:
    """Return what a process said last of what went wrong, of its JSON log lines the message alone."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    errors = [line for line in lines if '"level": "error"' in line or '"level": "critical"' in line]
    line = last_line("\n".join(errors or lines))
    try:
        return str(json.loads(line)["message"])
    except (ValueError, KeyError, TypeError):
        return line


def components(states: Mapping[str, ProcessState]) -> list[str]:
    """Return the components in the order in which to show them."""
    known = [component for component in COMPONENTS if component in states]
    return known + sorted(set(states) - set(known))
