"""Replicas of `kbatch-webhook` on this host, behind one address, with the chart's arguments, rights and certificate.

And the queue operator, without which no policy knows of a Queue, and no pod is shown to the webhook.
"""

from __future__ import annotations

import base64
import itertools
import json
import selectors
import socket
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kbatch.localcluster.credentials import write_kubeconfig
from tests.e2e.operator_process import OperatorProcess, eventually

if TYPE_CHECKING:
    from tests.e2e.conftest import ControlPlane

CHART = Path(__file__).parents[2] / "charts" / "kbatch"
NAMESPACE = "kbatch-admission"
RELEASE = "admission"
LEDGERS = "admission-kbatch-ledgers"


class Balancer:
    """Passes each connection on to the next of some local ports, as a Service does."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.targets: list[int] = []
        self._turns = itertools.count()
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        targets = list(self.targets)
        turn = next(self._turns)
        for attempt in range(len(targets)):
            try:
                server = socket.create_connection(("127.0.0.1", targets[(turn + attempt) % len(targets)]), timeout=2)
            except OSError:
                continue  # a replica that is down is none of the Service's endpoints
            with client, server, selectors.DefaultSelector() as selector:
                server.settimeout(None)
                selector.register(client, selectors.EVENT_READ, server)
                selector.register(server, selectors.EVENT_READ, client)
                try:
                    while True:
                        for key, _ in selector.select():
                            data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                            if not data:
                                return
                            key.data.sendall(data)
                except OSError:
                    return
        client.close()


@dataclass
class Replicas:
    """The chart, installed with no process of its own, and `count` replicas of the webhook as it describes them."""

    control_plane: ControlPlane
    folder: Path
    balancer: Balancer = field(default_factory=Balancer)
    processes: list[OperatorProcess] = field(default_factory=list)
    values: dict[str, object] | None = None
    """The webhook's values by which the replicas that run were started."""

    def __enter__(self) -> Self:
        self.helm("install", "--create-namespace")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.balancer.close()
        self._helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")

    def helm(self, command: str, *flags: str, **webhook: object) -> None:
        values: dict[str, Any] = {name: {"replicas": 0} for name in ("scheduler", "podgroup", "queue")}
        values["webhook"] = {"replicas": 0, "url": f"https://127.0.0.1:{self.balancer.port}", **webhook}
        path = self.folder / "values.json"
        path.write_text(json.dumps(values))
        # The CRDs may be another test's, which applied them with kubectl.
        own = ["--namespace", NAMESPACE, "--take-ownership", "--force-conflicts"]
        self._helm(command, RELEASE, str(CHART), *own, *flags, "--values", str(path))

    def _helm(self, *arguments: str) -> None:
        self.control_plane.run_helm(self.folder, *arguments)

    def start(self, count: int = 1, **webhook: object) -> None:
        """Upgrade to these values, and run replicas until `stop`; returns when the API server calls them."""
        self.stop()
        self.helm("upgrade", **webhook)
        arguments = self._arguments("webhook")
        kubeconfig = self._kubeconfig("webhook")
        self.mount()
        ports = _free_ports(count)
        for port in ports:
            flags = [flag for flag in arguments if not flag.startswith("--port=")]
            process = OperatorProcess("webhook", kubeconfig, self.folder, *flags, f"--port={port}")
            self.processes.append(process)
            process.__enter__()
        for process in self.processes:
            eventually(lambda one=process: one.health()[0] == 200, 60, process.log)  # type: ignore[misc]
        self.balancer.targets = ports
        self.values = webhook

    def operator(self) -> OperatorProcess:
        """The queue operator as the chart describes it, for a `with`."""
        return OperatorProcess("queue", self._kubeconfig("queue"), self.folder, *self._arguments("queue"))

    def stop(self) -> None:
        self.values = None
        self.balancer.targets = []
        while self.processes:
            self.processes.pop().__exit__(None, None, None)

    def mount(self) -> None:
        """The Secrets' content in folders, as a kubelet would have it."""
        deployment = self.control_plane.kubectl_json("get", "deployment", f"{RELEASE}-kbatch-webhook", "-n", NAMESPACE)
        volumes = {volume["name"]: volume for volume in deployment["spec"]["template"]["spec"]["volumes"]}
        for volume in ("certificates", "path"):
            name = volumes[volume]["secret"]["secretName"]
            secret = self.control_plane.kubectl_json("get", "secret", name, "-n", NAMESPACE)
            folder = self.folder / volume
            folder.mkdir(exist_ok=True)
            for name, text in secret["data"].items():
                (folder / name).write_bytes(base64.b64decode(text))

    def _arguments(self, component: str) -> list[str]:
        """The container's own arguments, its variables and mounts as they are here."""
        name = f"{RELEASE}-kbatch-{component}"
        deployment = self.control_plane.kubectl_json("get", "deployment", name, "-n", NAMESPACE)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        here = {f"/etc/kbatch/{volume}": str(self.folder / volume) for volume in ("certificates", "path")}
        here["$(POD_NAMESPACE)"] = NAMESPACE
        arguments = []
        for argument in container["args"]:
            for name, value in here.items():
                argument = argument.replace(name, value)
            if "$(" not in argument:  # addresses, ports and identities are chosen here
                arguments.append(argument)
        return arguments

    def _kubeconfig(self, component: str) -> Path:
        """A kubeconfig with the rights of the chart's ServiceAccount, and no others."""
        with self.control_plane.api() as api:
            authority = self.folder / "authority.crt"
            authority.write_bytes(api.certificate_authority)
        account = f"{RELEASE}-kbatch-{component}"
        token = self.folder / f"{component}.token"
        token.write_text(self.control_plane.run_kubectl("create", "token", account, "-n", NAMESPACE).stdout.strip())
        path = self.folder / f"{component}.yaml"
        write_kubeconfig(
            path,
            server=self.control_plane.server,
            authority=authority,
            token=token,
            namespace=NAMESPACE,
        )
        return path


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
