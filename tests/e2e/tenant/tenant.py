"""Two tenants of one installation: the one that attacks, and its neighbour, whose work must go on."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kbatch.localcluster.api import Api
from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.processes import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.e2e.scenarios.conftest import Installed
    from tests.e2e.tenant.stream import Stream

ATTACKER, NEIGHBOUR, SYSTEM = "team-a", "team-b", "kbatch-system"
STANDING = "standing"
STANDING_PODS = 4
KBATCH = "scheduling.incubator.k8s.io/v1alpha1"
GROUPS = f"/apis/{KBATCH}/namespaces/{{}}/podgroups"
QUEUES = f"/apis/{KBATCH}/queues"
PODS = "/api/v1/namespaces/{}/pods"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
CONFIGMAPS = "/api/v1/namespaces/{}/configmaps"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
MERGE = "application/merge-patch+json"
SECONDS = 30.0
"""Within this time whatever is waited for must have happened."""


def group(name: str, minimum: int = 1, **spec: Any) -> dict[str, Any]:
    """A PodGroup in the queue of the attacker."""
    return {
        "apiVersion": KBATCH, "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"minMember": minimum, "queue": ATTACKER, **spec},
    }  # fmt: skip


def role(text: str, *, name: str = "w", minimum: int = 1, **more: Any) -> dict[str, Any]:
    """A role whose members have a text as an argument."""
    return {"name": name, "minMember": minimum, "template": template(args=[text]), **more}


def template(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "image": "i", **container}]}}


def pod(name: str, of: str = "", cpu: str = "10m", **spec: Any) -> dict[str, Any]:
    """A pod of ours; of a group, or by itself in the queue of the attacker."""
    metadata: dict[str, Any] = {"name": name, "labels": {"kbatch.dev/queue": ATTACKER}}
    if of:
        metadata = {"name": name, "annotations": {"scheduling.k8s.io/group-name": of}}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"schedulerName": "kube-batch", "restartPolicy": "Never", "containers": [container], **spec},
    }  # fmt: skip


def job(name: str, queue: str = ATTACKER, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": {"kbatch.dev/queue": queue}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], **spec}}},
    }  # fmt: skip


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


@dataclass
class Tenant:
    """The attacker: what it can do by its own rights, and what its tests look at with the administrator's."""

    installed: Installed
    api: Api
    """With the rights of `edit` in its own namespace."""
    admin: Api
    stream: Stream
    """The neighbour's."""
    token: str
    kubeconfig: Path
    """What `api` was made of."""
    clients: list[Api] = field(default_factory=list)
    """Of one attack's own."""

    def create(self, path: str, body: dict[str, Any], namespace: str = ATTACKER, query: str = "") -> Any:
        return self.api.post(path.format(namespace) + query, body)

    def post_text(self, path: str, text: str) -> Any:
        """Create what stands in a text that is JSON."""
        api = self.alone(**{"Content-Type": "application/json"})
        connection = next(iter(api._connections(SECONDS)))
        try:
            connection.request("POST", path.format(ATTACKER), text, api._headers)
            answer = connection.getresponse()
            said = answer.read().decode()
        finally:
            connection.close()
        if answer.status > 299:
            raise ApiError("POST", path, answer.status, said)
        return answer.status

    def alone(self, **headers: str) -> Api:
        """A client of its own: after some refusals the API server closes the connection."""
        api = Api(self.kubeconfig)
        self.clients.append(api)
        api._headers |= headers
        return api

    @contextlib.contextmanager
    def without_the_webhook(self) -> Iterator[None]:
        """The webhook for PodGroups passed by, as while none answers."""
        configuration = self.get(WEBHOOKS)["items"][0]
        path = f"{WEBHOOKS}/{configuration['metadata']['name']}"
        nobody = {"namespaceSelector": {"matchLabels": {"of": "nobody"}}}
        changed = [one | nobody if one["name"].startswith("podgroup") else one for one in configuration["webhooks"]]
        self._administer(path, {"webhooks": changed})
        try:
            self.wait("it is asked no more", lambda: not self._filled_in())
            yield
        finally:
            self._administer(path, {"webhooks": configuration["webhooks"]})
            self.wait("it is asked again", self._filled_in)

    def _administer(self, path: str, change: Any) -> None:
        self.admin.request("PATCH", path, change, content_type=MERGE)

    def _filled_in(self) -> bool:
        """Whether the webhook fills in what a group needs."""
        template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
        body = group("probe", subGroups=[{"name": "w", "minMember": 1, "template": template}])
        return "minResources" in self.create(GROUPS, body, query="?dryRun=All")["spec"]

    def patch(self, path: str, change: Any) -> Any:
        return self.api.request("PATCH", path, change, content_type=MERGE)

    def delete(self, path: str) -> Any:
        return self.api.request("DELETE", path)

    def get(self, path: str, namespace: str = ATTACKER) -> Any:
        """What is there, in the administrator's eyes."""
        return self.admin.get(path.format(namespace))

    def items(self, path: str, namespace: str = ATTACKER) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get(path, namespace)["items"]
        return found

    def create_all(self, path: str, bodies: Iterable[dict[str, Any]], parallel: int = 16) -> None:
        """Create many, as fast as the API server takes them."""
        self.api.post_all(path.format(ATTACKER), bodies, parallel=parallel)

    def flood(self, count: int, act: Callable[[int], object], parallel: int = 16) -> dict[int, int]:
        """Do it so often, so many at a time; how often which status came."""

        def one(number: int) -> int:
            try:
                act(number)
            except ApiError as error:
                return error.status
            return 200

        with ThreadPoolExecutor(parallel) as pool:
            statuses = list(pool.map(one, range(count)))
        return {status: statuses.count(status) for status in sorted(set(statuses))}

    def wait(self, what: str, condition: Callable[[], object], seconds: float = SECONDS) -> None:
        assert wait_until(lambda: bool(condition()), seconds, every=0.1), f"not within {seconds:.0f} s: {what}"

    def bound(self, name: str) -> bool:
        return bool(self.get(f"{PODS}/{name}")["spec"].get("nodeName"))

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        conditions = self.get(f"{GROUPS}/{name}").get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    def holds(self) -> dict[str, str]:
        """What the attacker's queue holds of the cluster, by the queue's status."""
        held = self.get(f"{QUEUES}/{ATTACKER}").get("status", {}).get("allocated", {})
        return {name: amount for name, amount in held.items() if amount != "0"}

    def neighbours_group(self) -> dict[str, Any]:
        """The neighbour's group that stands all the time."""
        found: dict[str, Any] = self.get(f"{GROUPS}/{STANDING}", NEIGHBOUR)
        return found

    def neighbour_is_whole(self) -> None:
        """The neighbour's standing gang runs as it did."""
        members = [one for one in self.items(PODS, NEIGHBOUR) if one["metadata"]["name"].startswith(f"{STANDING}-")]
        assert len(members) == STANDING_PODS
        for one in members:
            assert one["spec"].get("nodeName"), one["metadata"]["name"]
            assert "deletionTimestamp" not in one["metadata"], one["metadata"]["name"]

    def neighbours_gang(self) -> float:
        """A gang of the neighbour's from its creation until all of it has nodes, in seconds; it is deleted then."""
        return self.stream.gang()

    def processes(self) -> dict[str, tuple[int | None, int]]:
        """The pid of each of kbatch's processes, and how often it was started anew."""
        states = self.installed.states()
        return {name: (state.pid, state.restarts) for name, state in states.items()}

    def ready(self) -> bool:
        """Whether all of them are."""
        return all(state.ready for state in self.installed.states().values())

    def seen(self, name: str) -> bool:
        """Whether the scheduler has said something of the pod."""
        found = self.get(f"{PODS}/{name}")
        return bool(found["spec"].get("nodeName") or found["status"].get("conditions"))

    @contextlib.contextmanager
    def watching(self, count: int) -> Iterator[None]:
        """So many watches of its namespace, that are open and of which nobody reads anything."""
        address = urlsplit(self.api.server)
        assert address.hostname is not None
        context = ssl.create_default_context(cadata=self.api.certificate_authority.decode("ascii"))
        token = {"Authorization": f"Bearer {self.token}"}
        with contextlib.ExitStack() as stack:
            for index in range(count):
                connection = http.client.HTTPSConnection(
                    address.hostname, address.port, context=context, timeout=SECONDS
                )
                stack.callback(connection.close)
                path = (GROUPS if index % 2 else PODS).format(ATTACKER)
                connection.request("GET", f"{path}?watch=true&timeoutSeconds=120", headers=token)
                assert connection.getresponse().status == http.client.OK
            yield

    def knock(self, path: str, body: bytes = b"{}", **headers: str) -> int:
        """Ask the webhook itself, whose port is open to the cluster; the status."""
        connection = self.connection()
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
            return connection.getresponse().status
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPSConnection:
        host, port = self.webhook
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, context=context, timeout=SECONDS)

    @property
    def webhook(self) -> tuple[str, int]:
        """Where it listens: a port scan finds that. The paths are not known to tenants."""
        url = urlsplit(self.get(WEBHOOKS)["items"][0]["webhooks"][0]["clientConfig"]["url"])
        assert url.hostname is not None
        assert url.port is not None
        return url.hostname, url.port

    def clean(self) -> None:
        """Take away whatever the attacks left."""
        while self.clients:
            self.clients.pop().close()
        kinds = (JOBS, GROUPS, PODS)

        def gone() -> bool:
            left = 0
            for kind in kinds:
                path = kind.format(ATTACKER)
                found = self.admin.get(path)["items"]
                left += len(found)
                for one in found:
                    if one["metadata"].get("finalizers"):
                        self._unlock(f"{path}/{one['metadata']['name']}")
                if found:
                    self.admin.request("DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")
            return not left

        self.wait("what the attack made is gone", gone, 90)

    def _unlock(self, path: str) -> None:
        with contextlib.suppress(ApiError):  # it is gone already
            self.admin.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
