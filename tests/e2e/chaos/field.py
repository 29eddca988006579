"""The field of the fault tests: a control plane, schedulers that may be harmed, and the auditor that watches."""

from __future__ import annotations

import functools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import yaml

from kbatch.localcluster.api import Api
from kbatch.localcluster.credentials import TokenSource, write_kubeconfig
from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.nodes import ensure_nodes, node
from kbatch.localcluster.processes import wait_until
from tests import varied
from tests.e2e.auditor.allowances import Limits
from tests.e2e.auditor.audit_log import AuditLog, Write
from tests.e2e.auditor.auditor import Auditor
from tests.e2e.auditor.world import GROUP_NAME
from tests.e2e.chaos.clock import Clock
from tests.e2e.chaos.load import GROUPS, create, persist
from tests.e2e.chaos.replica import Replica

if TYPE_CHECKING:
    from tests.e2e.conftest import ControlPlane

ROOT = Path(__file__).parents[3]
NAMESPACE = "kbatch-system"
LEASE = "kbatch-scheduler"
LISTED = "everything is listed"
"""What a replica says when it stands by, or leads."""
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
QUICK_LEASE = ("--lease-duration=4s", "--renew-deadline=3s", "--retry-period=500ms")
"""So that a test of a take-over need not wait for the durations that the chart ships."""


@dataclass
class Field:
    """A cluster with kbatch's CRDs and rights, and no process of kbatch but those that a test starts."""

    plane: ControlPlane
    folder: Path
    api: Api
    replicas: list[Replica] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    @functools.cached_property
    def log(self) -> AuditLog:
        """The API server's audit log."""
        assert self.plane.logs is not None
        return AuditLog(self.plane.logs / "audit.log")

    # --- what is set up -----------------------------------------------------------------------------------------------

    def install(self) -> None:
        """CRDs, the default queue, and the rights that the chart gives."""
        run = self.plane.run_kubectl
        run("apply", "--server-side", "-f", str(ROOT / "crds"))
        run("wait", "--for=condition=Established", "--timeout=30s", "-f", str(ROOT / "crds"))
        rendered = subprocess.run(
            [self.plane.helm, "template", "kbatch", str(ROOT / "charts/kbatch"), "--namespace", NAMESPACE],
            capture_output=True, text=True, timeout=60, check=True,
        ).stdout  # fmt: skip
        kinds = {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ConfigMap"}
        documents = [one for one in yaml.safe_load_all(rendered) if one and one["kind"] in kinds]
        run("create", "namespace", NAMESPACE)
        run("apply", "-f", "-", stdin=yaml.safe_dump_all(documents))
        configuration = next(one for one in documents if "scheduler.yaml" in (one.get("data") or {}))
        (self.folder / "scheduler.yaml").write_text(configuration["data"]["scheduler.yaml"], encoding="utf-8")
        persist(lambda: create(self.api, [queue("default"), *varied.fixtures()]))

    def kubeconfig(self, component: str, server: str | None = None) -> Path:
        """Credentials of the chart's ServiceAccount for a component; by way of another server (a proxy) if given."""
        token = self.folder / f"{component}.token"
        token.write_bytes(TokenSource(self.api, NAMESPACE).get(f"kbatch-{component}"))
        authority = self.folder / "ca.crt"
        authority.write_bytes(self.api.certificate_authority)
        path = self.folder / f"{component}-{'proxied' if server else 'direct'}.kubeconfig"
        write_kubeconfig(path, server=server or self.api.server, authority=authority, token=token, namespace=NAMESPACE)
        return path

    @property
    def decisions(self) -> Path:
        """Where the schedulers keep their decision logs, a folder for each identity."""
        return self.folder / "decisions"

    def ensure_nodes(self, count: int, *, alike: bool = False) -> None:
        """Have node-0 … Ready, 32 cores each, and no others; with the zones and taints of `varied`, or all alike.

        Whatever a test before has left of them.
        """
        wanted = {f"node-{index}": index for index in range(count)}
        create(self.api, [varied.marked(node(name), index) for name, index in wanted.items()])
        for one in self.items("/api/v1/nodes"):
            name = one["metadata"]["name"]
            if name not in wanted:
                self.delete(f"/api/v1/nodes/{name}")
            elif varied.is_marked(one) == alike or one["spec"].get("unschedulable"):
                patch = varied.NO_MARKS if alike else varied.marks(wanted[name])
                spec = patch["spec"] | {"unschedulable": False}
                self.patch(f"/api/v1/nodes/{name}", patch | {"spec": spec})
        ensure_nodes(self.api, count)

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """A namespace of a test's own; what is in it goes with the test."""
        name = f"t{os.getpid() % 1000}-{next(self._numbers)}"
        create(self.api, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
        self.wait("the namespace is usable", lambda: bool(self.items(f"/api/v1/namespaces/{name}/serviceaccounts")))
        try:
            yield name
        finally:
            self.clear(name)

    def clear(self, namespace: str) -> None:
        """Delete a namespace and all that is in it; its pods are gone when this returns, as their room is needed."""
        pods = f"/api/v1/namespaces/{namespace}/pods"
        self.delete(f"{GROUPS}/namespaces/{namespace}/podgroups")
        names = [pod["metadata"]["name"] for pod in self.items(pods)]
        with ThreadPoolExecutor(16) as pool:  # a quarter of the time that a deletion of the collection takes
            list(pool.map(lambda name: self.delete(f"{pods}/{name}?gracePeriodSeconds=0"), names))
        wait_until(lambda: not self.items(pods), 60, every=0.1)
        self.delete(f"/api/v1/namespaces/{namespace}")
        self.delete(f"/api/v1/persistentvolumes?labelSelector={quote(varied.VOLUMES_OF, safe='')}%3D{namespace}")

    # --- replicas -----------------------------------------------------------------------------------------------------

    @contextmanager
    def schedulers(
        self,
        *identities: str,
        flags: tuple[str, ...] = QUICK_LEASE,
        server: str | None = None,
        clocks: Mapping[str, Clock] = MappingProxyType({}),
    ) -> Iterator[list[Replica]]:
        """Replicas of the scheduler with these identities, ended with the context; the one that leads comes first.

        Those that have a clock of their own, by identity, do not go by the machine's.
        """
        self.delete(f"{LEASES}/{LEASE}")
        kubeconfig = self.kubeconfig("scheduler", server)
        common = (
            f"--lease-namespace={NAMESPACE}", f"--lease-name={LEASE}",
            f"--scheduler-conf={self.folder / 'scheduler.yaml'}", "--log-level=info", *flags,
        )  # fmt: skip
        made = [
            Replica(
                "scheduler",
                one,
                kubeconfig,
                self.folder,
                *common,
                f"--decision-log={self.decisions / one}",
                clock=clocks.get(one),
            )
            for one in identities
        ]
        self.replicas = made
        listed = [replica.log().count(LISTED) for replica in made]
        try:
            for replica in made:
                replica.start()
            for replica, before in zip(made, listed, strict=True):
                self.wait(f"{replica.identity} is there", lambda: replica.log().count(LISTED) > before)  # noqa: B023
            self.wait("somebody leads", lambda: self.leader() in identities)
            made.sort(key=lambda one: one.identity != self.leader())
            yield made
        finally:
            for replica in made:
                replica.stop()
            for replica in made:
                replica.close()

    @contextmanager
    def audited(self, limits: Limits | None = None, **options: Any) -> Iterator[Auditor]:
        """The auditor watches while the context is open, and must be silent at its end."""
        with Auditor(self.plane.kubeconfig, self.log, limits, lease=LEASE, **options) as auditor:
            yield auditor
            auditor.silent()

    def leader(self) -> str:
        """Who holds the Lease; empty for nobody."""
        try:
            return str(self.api.get(f"{LEASES}/{LEASE}")["spec"].get("holderIdentity") or "")
        except ApiError:
            return ""

    def rob(self, seconds: int) -> float:
        """Somebody who is no replica takes the Lease for so long, whoever holds it; when, by the wall clock."""
        stamp = "2030-01-01T00:00:00.000000Z"
        spec = {"holderIdentity": "thief", "leaseDurationSeconds": seconds, "renewTime": stamp, "acquireTime": stamp}
        at = time.time()
        self.patch(f"{LEASES}/{LEASE}", {"spec": spec})
        return at

    # --- requests -----------------------------------------------------------------------------------------------------

    def items(self, path: str) -> list[dict[str, Any]]:
        """The objects at a path, whatever happens to the server meanwhile."""
        found: list[dict[str, Any]] = persist(lambda: self.api.get(path))["items"]
        return found

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        return self.items(f"/api/v1/namespaces/{namespace}/pods")

    def groups(self, namespace: str) -> list[dict[str, Any]]:
        return self.items(f"{GROUPS}/namespaces/{namespace}/podgroups")

    def delete(self, path: str) -> None:
        """Delete an object or a collection; what is gone already is fine."""
        try:
            persist(lambda: self.api.request("DELETE", path, timeout=60))
        except ApiError as error:
            if error.status != 404:
                raise

    def patch(self, path: str, body: dict[str, Any], *, content_type: str = "application/merge-patch+json") -> None:
        """Patch an object."""
        persist(lambda: self.api.request("PATCH", path, body, content_type=content_type))

    def bound(self, namespace: str) -> int:
        """Pods of a namespace that have a node."""
        return sum(bool(pod["spec"].get("nodeName")) for pod in self.pods(namespace))

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait(self, what: str, condition: Callable[[], object], timeout: float = 60.0, *, every: float = 0.1) -> None:
        """Wait until the condition holds; the failure shows the ends of the replicas' logs."""
        if not wait_until(lambda: bool(condition()), timeout, every=every):
            logs = "\n".join(f"--- {one.identity}\n{one.log()[-4000:]}" for one in self.replicas)
            raise AssertionError(f"not within {timeout:.0f} s: {what}\n{logs}")

    def drained(self, namespace: str, timeout: float = 90.0) -> None:
        """Wait until every pod whose gang can be whole has a node; then every such gang says that it is scheduled."""
        late: list[str] = []

        def waiting() -> bool:
            groups = {one["metadata"]["name"]: one for one in self.groups(namespace)}
            members: dict[str, list[dict[str, Any]]] = {}
            for pod in self.pods(namespace):
                if not pod["metadata"].get("deletionTimestamp"):
                    members.setdefault(pod["metadata"]["annotations"][GROUP_NAME], []).append(pod)
            late[:] = [
                f"{name}: {sum(bool(pod['spec'].get('nodeName')) for pod in pods)} of {len(pods)} placed, "
                f"Scheduled={_scheduled(groups[name])}"
                for name, pods in members.items()
                if name in groups
                and _enough(groups[name]["spec"], pods)
                and not (all(pod["spec"].get("nodeName") for pod in pods) and _scheduled(groups[name]))
            ]
            return bool(late)

        if not wait_until(lambda: not waiting(), timeout, every=0.2):
            self.wait(f"the queue drains; late: {late[:20]}", lambda: False, 0.0)


def queue(name: str, weight: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight},
    }


def binds(writes: list[Write], identity: str, since: float = 0.0) -> list[Write]:
    """Binds that the server took from one replica after a moment."""
    return [
        one
        for one in writes
        if one.resource == "pods/binding" and one.identity == identity and one.succeeded and one.received >= since
    ]


def at_random_moments(stop: threading.Event, act: Callable[[], None], pause: Callable[[], float]) -> threading.Thread:
    """A thread that acts again and again, with a pause before each time, until told to stop."""

    def run() -> None:
        while not stop.wait(pause()):
            act()

    thread = threading.Thread(target=run, name="trouble", daemon=True)
    thread.start()
    return thread


def _enough(spec: dict[str, Any], pods: list[dict[str, Any]]) -> bool:
    """Whether a group has the pods that it needs, of each role too: who took them away took it from the queue."""
    roles = [(pod["metadata"].get("labels") or {}).get("kbatch.dev/sub-group") for pod in pods]
    return len(pods) >= spec.get("minMember", 1) and all(
        roles.count(one["name"]) >= one.get("minMember", 0) for one in spec.get("subGroups") or ()
    )


def _scheduled(document: dict[str, Any]) -> bool:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Scheduled" and one["status"] == "True" for one in conditions)


def now() -> float:
    """The wall clock, as the audit log has it."""
    return time.time()
