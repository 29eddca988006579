"""One named control plane on this machine: start, look, stop.

Everything of a cluster lies in one folder, `<state>/clusters/<name>`; every process of it names that folder in its
arguments. So a left-over of a crash is found by looking, whatever was or was not written down, and cleaning up is
ending those processes and removing the folder.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from kbatch.localcluster import processes
from kbatch.localcluster.api import Api
from kbatch.localcluster.errors import ApiError, InvalidNameError, NoSuchClusterError, StartError, last_line
from kbatch.localcluster.folders import exclusive, require_free, state_root
from kbatch.localcluster.ports import LOOPBACK, free_ports, require_free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbatch.localcluster.programs import Programs

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kwok-controller")
"""The programs that run always, in the order in which they start."""

SCHEDULER = "kube-scheduler"
HOST_MODULE = "kbatch.localcluster.host"
_READY_TIMEOUT = 60.0
_ATTEMPTS = 3
_ROOM_FOR_STATE = 500 * 2**20
_FAIR = (
    "kube-apiserver=enable-priority-and-fairness=true",
    "kube-apiserver=max-requests-inflight=400",
    "kube-apiserver=max-mutating-requests-inflight=200",
)
"""Kubernetes' own defaults, which kwokctl turns off together with the limits of clients."""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", re.ASCII)
STAGES = Path(__file__).with_name("stages.yaml")
"""How kwok plays the kubelet."""


class State(enum.Enum):
    """What became of a cluster."""

    ABSENT = "absent"
    RUNNING = "running"
    BROKEN = "broken"
    """Left over: something of it exists (files, processes), but it does not work as a whole."""


@dataclass(frozen=True)
class Options:
    """What can be chosen about a control plane."""

    api_port: int | None = None
    """The API server's port; by default any that is free."""
    audit_policy: Path | None = None
    """An audit policy file: the API server then logs to `logs/audit.log` of its folder."""
    extra_args: tuple[str, ...] = ()
    """`COMPONENT=FLAG=VALUE`, for example `kube-apiserver=watch-cache=false`."""
    pods_at_once: int = 4
    """For so many pods at one time kwok writes what their kubelets would; 4 is kwok's own. On a busy machine that is a
    few pods a second: those bound wait a long time until they run."""
    priority_and_fairness: bool = False
    """Whether the API server limits how many requests it serves at one time and shares them out among its users, as
    servers of real clusters do; otherwise it takes whatever comes."""


@dataclass(frozen=True)
class Record:
    """What is written down about a cluster, once its processes have been started."""

    name: str
    server: str
    programs: str
    ports: list[int]
    api_port: int
    extra: dict[str, str] = field(default_factory=dict)


def _clusters() -> Path:
    """The folder with one folder for each cluster."""
    return state_root() / "clusters"


def started() -> list[str]:
    """Return the names of the clusters that were started and not taken down, whether they still run or not."""
    folder = _clusters()
    found = (each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else ()
    return sorted(name for name in found if _NAME.fullmatch(name) and Cluster(name).record() is not None)


class Cluster:
    """A named cluster, whether it exists or not."""

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidNameError(name)
        self.name = name
        self.folder = _clusters() / name
        # kwokctl keeps its clusters in clusters/NAME of its working folder.
        self._kwok_home = self.folder / "kwok"
        self.runtime = self._kwok_home / "clusters" / name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.runtime / "kubeconfig.yaml"

    @property
    def logs(self) -> Path:
        """The folder with a log file for each component."""
        return self.runtime / "logs"

    @property
    def pids(self) -> Path:
        """The folder with a pid file for each component."""
        return self.runtime / "pids"

    @property
    def host_folder(self) -> Path:
        """The folder of the processes that stand in for pods (see host.py)."""
        return self.folder / "host"

    def api(self) -> Api:
        """Return a client with the administrator's rights."""
        if not self.kubeconfig.exists():
            raise NoSuchClusterError(self.name, started())
        return Api(self.kubeconfig)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other `up` and `down` of this name waiting."""
        with exclusive(self.folder.parent / f"{self.name}.lock"):
            yield

    def record(self) -> Record | None:
        """Return what was written down at the start, None if it never came so far."""
        try:
            return Record(**json.loads((self.folder / "cluster.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def pid(self, component: str) -> int | None:
        """Return the process of a component, None if it does not run."""
        try:
            pid = int((self.pids / f"{component}.pid").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None
        # A pid file may outlive its process, and the number be given to another one.
        mine = any(f"{self.folder}/" in argument for argument in processes.arguments(pid)[1:])
        return pid if mine and processes.alive(pid) else None

    def state(self) -> State:
        """Look what there is."""
        if self.record() is None:
            return State.BROKEN if self.folder.exists() or self._strays() else State.ABSENT
        return State.RUNNING if self.complete() and self.healthy() else State.BROKEN

    def complete(self) -> bool:
        """Tell whether the cluster was started as a whole and all of its components run."""
        return self.record() is not None and all(self.pid(component) for component in COMPONENTS)

    def healthy(self) -> bool:
        """Tell whether the API server says that it is ready."""
        try:
            with self.api() as api:
                return bool(api.request("GET", "/readyz", timeout=5.0) == "ok")
        except (ApiError, OSError):
            return False

    def start(self, programs: Programs, options: Options | None = None) -> Record:
        """Start a cluster that is absent, and return when its API server is ready and its core objects exist.

        Whatever goes wrong, an interrupt included, nothing of it stays. Where others took one of its ports before its
        server listened, it begins anew with other ports. The caller holds the lock.
        """
        options = options or Options()
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._start(programs, options)
            except StartError as error:
                if not error.port_taken:
                    raise
        return self._start(programs, options)

    def _start(self, programs: Programs, options: Options) -> Record:
        self.folder.mkdir(parents=True)
        try:
            require_free(self.folder, _ROOM_FOR_STATE)
            # From the choice of the ports until all of them are open, no other cluster chooses any.
            with exclusive(self.folder.parent / "ports.lock"):
                record = self._create(programs, options)
                self._wait_ready()
            # The last step: a cluster without a record is a left-over.
            (self.folder / "cluster.json").write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        except BaseException:
            self.remove()
            raise
        return record

    def restart_dead(self, programs: Programs) -> None:
        """Start those components that do not run, and wait until the API server is ready."""
        for component in self._dead():
            (self.pids / f"{component}.pid").unlink()
        self._kwokctl(programs, "start", "cluster", "--name", self.name)
        self._wait_ready()

    def remove(self) -> None:
        """End every process of this cluster and remove its folder; nothing happens if there is nothing."""
        # The supervisor first, and gently: it ends its own processes.
        processes.end(processes.working_on(self.folder, {HOST_MODULE}), grace=15.0)
        processes.end(self._strays())
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _dead(self) -> list[str]:
        """Return the components that were started and do not run."""
        dead = []
        for component in COMPONENTS:
            file = self.pids / f"{component}.pid"
            # An empty one is just being written.
            if file.exists() and file.stat().st_size and self.pid(component) is None:
                dead.append(component)
        return dead

    def _strays(self) -> dict[int, str]:
        return processes.working_on(self.folder, {*COMPONENTS, SCHEDULER, HOST_MODULE, "kwokctl"})

    def _create(self, programs: Programs, options: Options) -> Record:
        reserved = {port for record in all_records() for port in record.ports}
        ports = free_ports(5, reserved)
        if options.api_port is not None:
            ports[0] = require_free_port(options.api_port, "the API server")
        self._kwok_home.mkdir()
        configuration = self._kwok_home / "kwok.yaml"
        documents = (
            yaml.safe_dump(_kwokctl_configuration(programs, options, ports)),
            yaml.safe_dump(_kwok_configuration(options)),
            STAGES.read_text(encoding="utf-8"),
        )
        configuration.write_text("---\n".join(documents), encoding="utf-8")
        arguments = ["create", "cluster", "--name", self.name, "--config", str(configuration), "--kubeconfig", ""]
        fair = _FAIR if options.priority_and_fairness else ()
        for argument in ("kube-controller-manager=leader-elect=false", *fair, *options.extra_args):
            arguments += ["--extra-args", argument]
        self._kwokctl(programs, *arguments)
        server = f"https://{LOOPBACK}:{ports[0]}"
        return Record(self.name, server, str(programs.bin), ports, ports[0])

    def _kwokctl(self, programs: Programs, *arguments: str) -> None:
        """Run kwokctl apart from our terminal: an interrupt there must reach us alone, we know how to clean up."""
        log = self.folder / "kwokctl.log"
        own = {"KWOK_WORKDIR": str(self._kwok_home), "KUBECACHEDIR": str(self._kwok_home / "discovery")}
        with log.open("a", encoding="utf-8") as output:
            process = subprocess.Popen(
                [programs.kwokctl, *arguments], env=os.environ | own,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            try:
                # It waits for minutes for a component that has died already.
                processes.wait_until(
                    lambda: process.poll() is not None or bool(self._dead()), _READY_TIMEOUT, every=0.05
                )
            finally:
                ended = process.poll() is not None
                if not ended:
                    process.kill()
                    process.wait()
        for component in self._dead():
            raise StartError(component, self._last_words(component))
        if not ended:
            raise StartError("The control plane", f"no answer within {_READY_TIMEOUT:.0f} s")
        if process.returncode != 0:
            raise StartError("The control plane", _reason(log))

    def _wait_ready(self) -> None:
        """Wait for what `kubectl create` of any object needs: the server itself and what the controllers make."""

        def ready() -> bool:
            for component in COMPONENTS:
                if self.pid(component) is None:
                    raise StartError(component, self._last_words(component))
            try:
                api.get("/readyz")
                api.get("/api/v1/namespaces/default/serviceaccounts/default")
            except ApiError:
                return False
            return True

        with self.api() as api:
            in_time = processes.wait_until(ready, _READY_TIMEOUT, every=0.1)
        if not in_time:
            raise StartError("The API server", f"not ready within {_READY_TIMEOUT:.0f} s")

    def _last_words(self, component: str) -> str:
        """Return why a component died; its log goes with the folder, so that the sentence has to carry it."""
        try:
            text = (self.logs / f"{component}.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ""
        return f"it ended at once ({last_line(text, ('error:', 'fatal', 'panic'))})"


def all_records() -> list[Record]:
    """Return the records of all clusters of this user, in the order of their names."""
    folders = sorted((state_root() / "clusters").glob("*/cluster.json"))
    records = (Cluster(folder.parent.name).record() for folder in folders)
    return [record for record in records if record]


def _reason(log: Path) -> str:
    return last_line(log.read_text(encoding="utf-8", errors="replace"), ("level=error", "ERROR", "error"))


def _kwok_configuration(options: Options) -> dict[str, object]:
    """Kwok's own defaults, but for one: who names any of these options must name all of them."""
    chosen = {
        "cidr": "10.0.0.0/24",
        "enableDebuggingHandlers": True,
        "enableProfilingHandler": True,
        "nodeLeaseParallelism": 4,
        "nodePlayStageParallelism": 4,
        "podPlayStageParallelism": options.pods_at_once,
        "podsOnNodeSyncParallelism": 1,
        "enablePodsOnNodeSyncListPager": True,
        "enablePodsOnNodeSyncStreamWatch": False,
    }
    return {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": chosen}


def _kwokctl_configuration(programs: Programs, options: Options, ports: list[int]) -> dict[str, object]:
    api, etcd, etcd_peer, controller_manager, kwok = ports
    chosen: dict[str, object] = {
        "runtime": "binary",
        "bindAddress": LOOPBACK,
        "disable": [SCHEDULER],
        "disableQPSLimits": True,
        "securePort": True,
        "kubeAuthorization": True,
        "kubeAdmission": True,
        "etcdBinary": str(programs.path("etcd")),
        "kubeApiserverBinary": str(programs.path("kube-apiserver")),
        "kubeControllerManagerBinary": str(programs.path("kube-controller-manager")),
        "kubeSchedulerBinary": str(programs.path(SCHEDULER)),
        "kwokControllerBinary": str(programs.path("kwok")),
        "kubectlBinary": str(programs.kubectl),
        "kubeApiserverPort": api,
        "etcdPort": etcd,
        "etcdPeerPort": etcd_peer,
        "kubeControllerManagerPort": controller_manager,
        "kwokControllerPort": kwok,
    }
    if options.audit_policy:
        chosen["kubeAuditPolicy"] = str(options.audit_policy.resolve())
    return {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokctlConfiguration", "options": chosen}
