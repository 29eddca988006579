"""Breaking a control plane on purpose, and mending it: what the tests of outages do to it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from kbatch.localcluster import processes
from kbatch.localcluster.cluster import SCHEDULER, Cluster
from kbatch.localcluster.errors import LocalClusterError

if TYPE_CHECKING:
    from kbatch.localcluster.programs import Programs


class Components:
    """The parts of one running cluster: `etcd`, `kube-apiserver`, `kube-controller-manager`, `kwok-controller`."""

    def __init__(self, cluster: Cluster, programs: Programs) -> None:
        self._cluster = cluster
        self._programs = programs

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal that ends a component, and return when its process is gone.

        SIGTERM may take the API server a minute, as it waits for open watches.
        """
        pid = self._pid(component)
        os.kill(pid, number)
        if not processes.wait_until(lambda: not processes.alive(pid), 90.0):
            raise LocalClusterError(f"{component} (process {pid}) survives {number.name}.")
        # Otherwise the starter, which asks only whether the number is in use, may take a zombie for the component.
        (self._cluster.pids / f"{component}.pid").unlink()

    def start_dead(self) -> None:
        """Start every component that does not run, and wait until the API server is ready."""
        self._cluster.restart_dead(self._programs)

    def restart(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Kill a component, start it again, and wait until the API server is ready."""
        self.kill(component, number)
        self.start_dead()

    def pause(self, component: str) -> None:
        """Stop a component in the middle of whatever it does; its connections stay open and silent."""
        os.kill(self._pid(component), signal.SIGSTOP)

    def resume(self, component: str) -> None:
        """Let a paused component go on."""
        os.kill(self._pid(component), signal.SIGCONT)

    def start_scheduler(self) -> int:
        """Start kube-scheduler, for comparison with it, and return its pid; `remove` of the cluster ends it."""
        pid = processes.detach(
            [
                self._programs.path(SCHEDULER), f"--kubeconfig={self._cluster.kubeconfig}",
                "--leader-elect=false", "--secure-port=0", "--kube-api-qps=100000", "--kube-api-burst=100000",
            ],
            self._cluster.logs / f"{SCHEDULER}.log",
        )  # fmt: skip
        (self._cluster.pids / f"{SCHEDULER}.pid").write_text(str(pid), encoding="ascii")
        return pid

    def _pid(self, component: str) -> int:
        pid = self._cluster.pid(component)
        if pid is None:
            raise LocalClusterError(f"{component} of the cluster {self._cluster.name} does not run.")
        return pid
