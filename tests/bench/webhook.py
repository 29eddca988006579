"""How many PodGroup reviews one replica of the webhook answers on one core, without and with the ledger.

    python -m tests.bench.webhook [--kubeconfig FILE] [--reviews N] [--json FILE]

64 reviews are under way at a time, in a namespace with a quota and 2,000 live groups. Under the policy `Reject` each is
written to the ledger of a real API server first; none of the groups is ever made, so the ledger grows as it never would
else. The webhook has the first core, and to itself: what plays the API server, and the API server, share the others.
What they all do meanwhile is not the webhook's: the sharper figure is its CPU time for each review. Pods are reviewed
too, in the same namespace before and after a group was let in. The status is 1 where a limit of PodGroups is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.errors import ApiError
from kbatch.localcluster.cluster import Cluster, Options
from kbatch.localcluster.programs import ensure_programs

PARALLEL = 64
LIVE = 2_000
LEAST_RATE = 800.0
MOST_P99 = 0.1
FIRST_CORE = min(os.sched_getaffinity(0))
NAMESPACE = "bench-webhook"
CERTIFICATES = Path(__file__).parents[1] / "unit" / "webhooks" / "certificates"
GROUPS = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"


def podgroup(name: str) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}}
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "minMember": 2,
            "queue": "default",
            "subGroups": [{"name": "w", "minMember": 2, "template": template}],
        },
    }


def pod(name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}}
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 32} for number in range(8)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": {"app": "bench"},
            "annotations": {"scheduling.k8s.io/group-name": "live-1"},
        },
        "spec": {
            "schedulerName": "kube-batch",
            "containers": [{"name": "c", "image": "i", "resources": resources, "env": env}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
    }  # fmt: skip


def review(name: str, kind: str = "PodGroup") -> bytes:
    group, version = ("scheduling.incubator.k8s.io", "v1alpha1") if kind == "PodGroup" else ("", "v1")
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": name,
                "kind": {"group": group, "version": version, "kind": kind},
                "resource": {"group": group, "version": version, "resource": f"{kind.lower()}s"},
                "name": name, "namespace": NAMESPACE, "operation": "CREATE", "userInfo": {"username": "bench"},
                "object": podgroup(name) if kind == "PodGroup" else pod(name), "oldObject": None, "dryRun": False,
            },
        }
    ).encode()  # fmt: skip


async def prepare(client: Client) -> None:
    """The namespace, its quota and its live groups."""
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1000000", "pods": "1000000"}}}
    await _create(client, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await _create(client, f"/api/v1/namespaces/{NAMESPACE}/resourcequotas", quota)
    limit = asyncio.Semaphore(32)

    async def one(index: int) -> None:
        async with limit:
            body = podgroup(f"live-{index}")
            body["spec"]["minResources"] = {"cpu": "200m"}
            await _create(client, GROUPS, body)

    await asyncio.gather(*(one(index) for index in range(LIVE)))


async def let_in(client: Client, name: str) -> None:
    """A group is in queue: what its minimum asks for is reserved."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    enqueued = {"type": "Enqueued", "status": "True", "reason": "Bench", "message": "", "lastTransitionTime": now}
    status = {"status": {"phase": "InQueue", "conditions": [enqueued]}}
    await client.request("PATCH", f"{GROUPS}/{name}/status", body=status, content_type="application/merge-patch+json")


async def _create(client: Client, path: str, body: dict[str, Any]) -> None:
    try:
        await client.request("POST", path, body=body)
    except ApiError as error:
        if error.status != 409:
            raise


def start(kubeconfig: Path, policy: str, log: Path) -> subprocess.Popen[bytes]:
    """One replica, on the first core."""
    folder = log.parent / "certificates"
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes((CERTIFICATES / "first.crt").read_bytes())
    (folder / "tls.key").write_bytes((CERTIFICATES / "first.key").read_bytes())
    command = [
        str(Path(sys.executable).with_name("kbatch-webhook")), f"--kubeconfig={kubeconfig}", "--port=0",
        "--health-port=0", "--metrics-port=0", f"--certificates={folder}", f"--quota-policy={policy}",
        "--ledger-namespace=default", "--log-format=text",
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    os.sched_setaffinity(process.pid, {FIRST_CORE})
    return process


def port_of(log: Path) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = log.read_text("utf-8")
        if "reviewing on port " in text:
            return int(text.partition("reviewing on port ")[2].split()[0])
        time.sleep(0.05)
    raise SystemExit(f"the webhook did not start:\n{log.read_text('utf-8')}")


class Line(asyncio.Protocol):
    """One connection that asks for one review after the other. It does little, so that it measures the webhook."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._bodies: Iterator[bytes] = iter(())
        self._took: list[float] = []
        self._done: asyncio.Future[None] | None = None
        self._received = b""
        self._started = 0.0

    async def ask(self, path: str, bodies: Iterator[bytes], took: list[float]) -> None:
        """Ask until there is nothing more to ask; `took` gets the seconds of each."""
        self._path, self._bodies, self._took = path, bodies, took
        self._done = self._loop.create_future()
        self._next()
        await self._done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length:")[2].split()[0]):
            return
        self._took.append(time.perf_counter() - self._started)
        if not (head.startswith(b"HTTP/1.1 200 ") and b'"allowed":true' in body):
            self._end(RuntimeError(f"refused: {head!r} {body!r}"))
            return
        self._received = b""
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionError("the webhook closed the connection"))

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def _next(self) -> None:
        body = next(self._bodies, None)
        if body is None:
            self._end(None)
            return
        head = f"POST {self._path}?timeout=5s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._started = time.perf_counter()
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _end(self, error: Exception | None) -> None:
        if self._done is None or self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)


async def measure(process: int, port: int, kind: str, reviews: int) -> dict[str, Any]:
    """The figures of so many reviews, over connections that are there already."""
    context = ssl.create_default_context(cafile=str(CERTIFICATES / "first.crt"))
    loop = asyncio.get_running_loop()
    lines = [
        line
        for _, line in await asyncio.gather(
            *(
                loop.create_connection(Line, "127.0.0.1", port, ssl=context, server_hostname="localhost")
                for _ in range(PARALLEL)
            )
        )
    ]
    path = "/podgroup-defaults" if kind == "PodGroup" else "/pod-reservations"
    for number in (4 * PARALLEL, reviews):  # the first fill caches
        bodies = iter([review(f"{secrets.token_hex(3)}-{index}", kind) for index in range(number)])
        took: list[float] = []
        before, started = cpu_seconds(process), time.perf_counter()
        await asyncio.gather(*(line.ask(path, bodies, took) for line in lines))
        seconds, used = time.perf_counter() - started, cpu_seconds(process) - before
    for line in lines:
        line.close()
    took.sort()
    return {
        "reviews": reviews, "rate": round(reviews / seconds, 1),
        "p50_ms": round(took[len(took) // 2] * 1000, 1), "p99_ms": round(took[int(len(took) * 0.99)] * 1000, 1),
        "cpu_ms_per_review": round(used / reviews * 1000, 3), "rss_mib": resident_mib(process),
        "load": round(os.getloadavg()[0], 2),
    }  # fmt: skip


def keep_off(core: int, folder: str) -> None:
    """Keep this process, and those that have the folder in their command line, off a core."""
    others = os.sched_getaffinity(0) - {core}
    if not others:
        return
    for process in Path("/proc").glob("[0-9]*"):
        try:
            own = int(process.name) == os.getpid()
            if own or folder in (process / "cmdline").read_bytes().decode("utf-8", "replace"):
                for task in (process / "task").iterdir():
                    os.sched_setaffinity(int(task.name), others)
        except (OSError, ValueError):
            continue  # it has ended


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text("ascii").partition("VmRSS:")[2].split()[0]) // 1024


async def run(kubeconfig: Path, reviews: int) -> list[dict[str, Any]]:
    """The figures of both policies, and of pods."""
    figures = []
    async with Client(load_credentials(str(kubeconfig))) as client:
        await prepare(client)
        for kind, policy, reserved in (
            ("PodGroup", "Queue", False),
            ("PodGroup", "Reject", False),
            ("Pod", "Queue", False),
            ("Pod", "Queue", True),
        ):
            if reserved:
                await let_in(client, "live-0")
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder) / "webhook.log"
                process = start(kubeconfig, policy, log)
                try:
                    port = await asyncio.to_thread(port_of, log)
                    figure = await measure(process.pid, port, kind, reviews)
                finally:
                    process.terminate()
                    process.wait()
            figures.append({"kind": kind, "policy": policy, "reserved": reserved, **figure})
            print(json.dumps(figures[-1]), flush=True)
    return figures


def main() -> int:
    """Measure; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--reviews", type=int, default=4000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.kubeconfig:
        figures = asyncio.run(run(chosen.kubeconfig, chosen.reviews))
    else:
        programs = ensure_programs(lambda line: print(line, flush=True))
        cluster = Cluster(f"bench-webhook-{os.getpid()}")
        with cluster.locked():
            cluster.start(programs, Options())
            try:
                crds = Path(__file__).parents[2] / "crds"
                kubectl = [str(programs.kubectl), "--kubeconfig", str(cluster.kubeconfig)]
                subprocess.run([*kubectl, "apply", "-f", str(crds)], check=True)
                subprocess.run(
                    [*kubectl, "wait", "--for=condition=Established", "--timeout=60s", "-f", str(crds)], check=True
                )
                keep_off(FIRST_CORE, str(cluster.folder))
                figures = asyncio.run(run(cluster.kubeconfig, chosen.reviews))
            finally:
                cluster.remove()
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(figure) + "\n" for figure in figures))
    groups = [figure for figure in figures if figure["kind"] == "PodGroup"]
    missed = [figure for figure in groups if figure["rate"] < LEAST_RATE or figure["p99_ms"] > MOST_P99 * 1000]
    for figure in missed:
        print(f"MISS {figure['policy']}: {figure['rate']}/s, p99 {figure['p99_ms']} ms", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
