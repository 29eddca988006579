"""The supervisor that runs an installed chart's processes on this machine, in the place of kubelets.

It outlives the `kbatch up` that started it, and does until `kbatch down` what Kubernetes would do with pods: follows
the Deployments, their ConfigMaps and Secrets, renews tokens, probes, restarts what crashed. What it knows stands in
`state.json` of its folder, so that anybody can look without asking it.

Run as `python -P -m kbatch.localcluster.host FOLDER`.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import shutil
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbatch.localcluster import mirror, pods
from kbatch.localcluster.api import Api
from kbatch.localcluster.container import Container
from kbatch.localcluster.credentials import TokenSource, write_kubeconfig
from kbatch.localcluster.errors import ApiError, ChartError, LocalClusterError, MissingToolError
from kbatch.localcluster.folders import exclusive, state_root
from kbatch.localcluster.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

_PERIOD = 1.0
_MOST_GRACE = 10.0
"""At the end of the whole cluster nobody waits longer than this, whatever grace a pod has."""


@dataclass(frozen=True)
class Assignment:
    """What a supervisor is to run: the Deployments of one release."""

    kubeconfig: str
    namespace: str
    release: str


@dataclass(frozen=True)
class ProcessState:
    """What became of one Deployment's process; `pid` is None while it does not run."""

    component: str
    fingerprint: str
    pid: int | None
    ready: bool
    restarts: int
    ports: dict[str, int]
    message: str


class Folder:
    """The files of one supervisor."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def state(self) -> Path:
        """Where the states of the processes stand."""
        return self.root / "state.json"

    @property
    def log(self) -> Path:
        """The supervisor's own log."""
        return self.root / "host.log"

    def log_of(self, component: str) -> Path:
        """Return the log of one process."""
        return self.root / "logs" / f"{component}.log"

    def pod(self, component: str) -> Path:
        """Return the folder with the credentials and volumes of one process."""
        return self.root / "pods" / component

    def assigned(self) -> bool:
        """Tell whether anything is to be run."""
        return (self.root / "host.json").exists()

    def assignment(self) -> Assignment:
        """Return what is to be run."""
        return Assignment(**json.loads((self.root / "host.json").read_text(encoding="utf-8")))

    def assign(self, assignment: Assignment) -> None:
        """Write down what is to be run."""
        (self.root / "logs").mkdir(parents=True, exist_ok=True)
        _replace(self.root / "host.json", asdict(assignment))

    def states(self) -> dict[str, ProcessState]:
        """Return the processes' states by component; nothing before the supervisor wrote any."""
        try:
            document = json.loads(self.state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {component: ProcessState(**entry) for component, entry in document.items()}

    def ports(self) -> dict[str, int]:
        """Return the host's port for each `component/port name` that has one."""
        try:
            ports: dict[str, int] = json.loads((self.root / "ports.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return ports

    def ensure_ports(self, component: str, names: Mapping[str, int] | list[str]) -> dict[str, int]:
        """Return the host's ports for these ports of a component; once chosen they stay."""
        known = self.ports()
        missing = [name for name in names if f"{component}/{name}" not in known]
        if missing:
            with exclusive(state_root() / "clusters" / "ports.lock"):
                chosen = free_ports(len(missing), reserved_ports())
                known |= {f"{component}/{name}": port for name, port in zip(missing, chosen, strict=True)}
                _replace(self.root / "ports.json", known)
        return {name: known[f"{component}/{name}"] for name in names}


def reserved_ports() -> set[int]:
    """Return the ports that the processes of any cluster of this user were given, whether they listen now or not."""
    files = (state_root() / "clusters").glob("*/host/ports.json")
    return {port for file in files for port in Folder(file.parent).ports().values()}


class Preparation:
    """Makes a pod's surroundings on disk; each call looks at the API server again."""

    def __init__(
        self, folder: Folder, api: Api, assignment: Assignment, program: Callable[[str], str] | None = None
    ) -> None:
        self._folder = folder
        self._api = api
        self._namespace = assignment.namespace
        self._release = assignment.release
        self._program = program or console_script
        self._tokens = TokenSource(api, assignment.namespace)

    def deployments(self) -> list[Mapping[str, Any]]:
        """Return the release's Deployments."""
        answer = self._api.get(
            f"/apis/apps/v1/namespaces/{self._namespace}/deployments"
            f"?labelSelector=app.kubernetes.io/instance%3D{self._release}"
        )
        items: list[Mapping[str, Any]] = answer["items"]
        return items

    def refresh(self, deployment: Mapping[str, Any]) -> None:
        """Bring a pod's volumes and token up to date, where they changed."""
        component = pods.component_of(deployment)
        account = deployment["spec"]["template"]["spec"].get("serviceAccountName", "default")
        uid = deployment["metadata"]["uid"]
        pod = self._folder.pod(component)
        token = self._tokens.get(account, owner=uid)
        mirror.write(pod / "credentials", {"token": token, "ca.crt": self._api.certificate_authority})
        for volume in pods.volumes_of(deployment):
            files = mirror.contents(volume, self._values, functools.partial(self._tokens.get, account, owner=uid))
            target = pod / "volumes" / volume["name"]
            if files is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                mirror.write(target, files)

    def spec(self, deployment: Mapping[str, Any]) -> pods.ProcessSpec:
        """Work out what to run; the volumes are there already."""
        component = pods.component_of(deployment)
        pod = self._folder.pod(component)

        def keys_of(kind: str, name: str) -> Mapping[str, str] | None:
            values = self._values(kind, name)
            return None if values is None else {key: value.decode() for key, value in values.items()}

        spec = pods.process_spec(
            deployment,
            pods.Surroundings(
                mounts=pod / "volumes",
                ports=self._folder.ensure_ports(component, pods.port_names(deployment)),
                keys_of=keys_of,
                key_of=lambda kind, name, key: (keys_of(kind, name) or {}).get(key),
                program=self._program,
            ),
        )
        write_kubeconfig(
            self.kubeconfig(component),
            server=self._api.server,
            authority=pod / "credentials" / "ca.crt",
            token=pod / "credentials" / "token",
            namespace=self._namespace,
        )
        return spec

    def kubeconfig(self, component: str) -> Path:
        """Return where a process finds its credentials."""
        return self._folder.pod(component) / "kubeconfig.yaml"

    def _values(self, kind: str, name: str) -> dict[str, bytes] | None:
        plural = {"ConfigMap": "configmaps", "Secret": "secrets"}[kind]
        try:
            document = self._api.get(f"/api/v1/namespaces/{self._namespace}/{plural}/{name}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return mirror.values(document)


class Supervisor:
    """Keeps one container for each Deployment."""

    def __init__(self, folder: Folder, preparation: Preparation) -> None:
        self._folder = folder
        self._preparation = preparation
        self._containers: dict[str, tuple[str, Container]] = {}
        self._problems: dict[str, str] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Follow the Deployments until `stop`."""
        while not self._wake.is_set():
            try:
                await self._follow()
            except (LocalClusterError, OSError) as error:
                # The API server may be away for a while; the processes go on, as pods would.
                log.warning("%s", error)
            try:
                async with asyncio.timeout(_PERIOD):
                    await self._wake.wait()
            except TimeoutError:
                continue
        await asyncio.gather(*(container.stop(at_most=_MOST_GRACE) for _, container in self._containers.values()))

    def stop(self) -> None:
        """Make `run` end everything and return."""
        self._wake.set()

    async def _follow(self) -> None:
        deployments = {
            pods.component_of(deployment): deployment
            for deployment in await asyncio.to_thread(self._preparation.deployments)
        }
        gone = self._containers.keys() - deployments.keys()
        await asyncio.gather(*(self._forget(component) for component in gone))
        self._problems = {}
        for component, deployment in deployments.items():
            try:
                await self._reconcile(component, deployment)
            except (ChartError, MissingToolError) as error:
                self._problems[component] = str(error)
        self._publish()

    async def _forget(self, component: str) -> None:
        log.info("%s: its Deployment is gone", component)
        await self._containers.pop(component)[1].stop()
        shutil.rmtree(self._folder.pod(component), ignore_errors=True)

    async def _reconcile(self, component: str, deployment: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._preparation.refresh, deployment)
        wanted = pods.fingerprint(deployment)
        current = self._containers.get(component)
        if current and current[0] == wanted:
            return
        spec = await asyncio.to_thread(self._preparation.spec, deployment)
        if current:
            # A Deployment would overlap the two; here they would want the same ports.
            log.info("%s: its Deployment changed", component)
            await current[1].stop()
        container = Container(
            spec,
            credentials=self._preparation.kubeconfig(component),
            log_file=self._folder.log_of(component),
            changed=self._publish,
        )
        self._containers[component] = (wanted, container)

    def _publish(self) -> None:
        """Write the states down; a reader never sees half of them."""
        states = {
            component: asdict(
                ProcessState(
                    component, fingerprint, container.pid, container.ready, container.restarts,
                    dict(container.spec.ports), self._problems.get(component, container.message),
                )
            )
            for component, (fingerprint, container) in self._containers.items()
        }  # fmt: skip
        for component, problem in self._problems.items():
            if component not in states:
                states[component] = asdict(ProcessState(component, "", None, False, 0, {}, problem))
        _replace(self._folder.state, states)


def console_script(name: str) -> str:
    """Return the command of that name that was installed with this kbatch.

    By its own path and not by `-m`: the latter would take a folder `operators` of the user's for ours.
    """
    script = Path(sys.executable).parent / Path(name).name
    if not os.access(script, os.X_OK):
        raise MissingToolError(f"The command {script}", "run make setup, or pip install -e . in this environment")
    return str(script)


def _replace(path: Path, document: object) -> None:
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    temporary.rename(path)


async def supervise(root: Path) -> None:
    """Run until SIGTERM."""
    folder = Folder(root)
    assignment = folder.assignment()
    with Api(Path(assignment.kubeconfig)) as api:
        supervisor = Supervisor(folder, Preparation(folder, api, assignment))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        await supervisor.run()


def main() -> None:
    """Supervise the folder named on the command line."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(supervise(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
