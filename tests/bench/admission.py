"""What the product's admission costs the API server: CPU time for each pod that is created.

    python -m tests.bench.admission [queues] [pods] [--charts FOLDER ...] [--pairs N] [--pods N] [--json FILE]

`queues`: dry runs of PodGroups and of pods, with and without the label of a queue, while there is one Queue and while
there are 200, with each chart given. `pods`: 5,000 pods of our scheduler are created in a namespace without a
ResourceQuota, with what the chart asks of the API server and without it, in pairs; how often the API server called a
webhook for pods is read from its own metrics. No process of kbatch runs, but the queue operator, for what policies go
by. The status is 1 where a webhook was called, or the median of the pairs (of the CPU time of the whole control plane)
is more than 5 % above 1.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import COMPONENTS, Cluster, Options
from kbatch.localcluster.errors import ApiError
from kbatch.localcluster.programs import Programs, ensure_programs
from tests.bench.webhook import cpu_seconds

CHART: Final = Path(__file__).parents[2] / "charts" / "kbatch"
RELEASE: Final = "bench"
OWN: Final = "bench-system"
NAMESPACE: Final = "bench-pods"
ASKING: Final = ("validatingadmissionpolicybindings", "mutatingwebhookconfigurations")
BLOCKS: Final = 5
QUIET_SECONDS: Final = 1.5
QUEUES: Final = 200
DRY_RUNS: Final = 300
PARALLEL: Final = 16
MOST: Final = 1.05
API: Final = "scheduling.incubator.k8s.io/v1alpha1"
QUEUE_PATH: Final = f"/apis/{API}/queues"
POD_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
WEBHOOKS: Final = "apiserver_admission_webhook_admission_duration_seconds_count"
_NUMBERS: Final = itertools.count()


class Bench:
    """A control plane of its own, and the chart on it or not."""

    def __init__(self, cluster: Cluster, programs: Programs, folder: Path) -> None:
        self.cluster = cluster
        self.api = Api(cluster.kubeconfig)
        self._programs = programs
        self._folder = folder

    def helm(self, *arguments: str) -> None:
        own = {f"HELM_{kind}_HOME": str(self._folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        command = [str(self._programs.helm), "--kubeconfig", str(self.cluster.kubeconfig), *arguments]
        subprocess.run(command, env=os.environ | own, check=True, capture_output=True)

    @contextlib.contextmanager
    def installed(self, chart: Path) -> Iterator[None]:
        """The chart without its processes, in force."""
        values = self._folder / "values.json"
        none: dict[str, Any] = {name: {"replicas": 0} for name in ("scheduler", "podgroup", "queue")}
        none["webhook"] = {"replicas": 0, "url": "https://127.0.0.1:9"}
        values.write_text(json.dumps(none))
        self.helm(
            "install", RELEASE, str(chart), "--namespace", OWN, "--create-namespace", "--values", str(values),
        )  # fmt: skip
        try:
            self.wait(lambda: self.refused(pod("probe", priority="system-node-critical")), "the policies are in force")
            yield
        finally:
            self.helm("uninstall", RELEASE, "--namespace", OWN, "--wait")
            self.wait(
                lambda: not self.refused(pod("probe", priority="system-node-critical")), "the policies are not in force"
            )

    @contextlib.contextmanager
    def operated(self) -> Iterator[None]:
        """The queue operator runs, with the administrator's rights, as the chart describes it."""
        deployment = self.api.get(f"/apis/apps/v1/namespaces/{OWN}/deployments/{RELEASE}-kbatch-queue")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        given = {"$(POD_NAMESPACE)": OWN, "$(POD_NAME)": "bench", "$(BIND_ADDRESS)": "127.0.0.1"}
        arguments = []
        for argument in container["args"]:
            for name, value in given.items():
                argument = argument.replace(name, value)
            if "$(" not in argument:
                arguments.append(argument)
        command = [
            str(Path(sys.executable).with_name("kbatch-queue")), *arguments, "--health-port=0", "--metrics-port=0",
            f"--kubeconfig={self.cluster.kubeconfig}",
        ]  # fmt: skip
        with (self._folder / "queue.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()

    def refused(self, body: dict[str, Any]) -> bool:
        """Whether a pod is refused."""
        return not self.tried(POD_PATH, body)

    def tried(self, path: str, body: dict[str, Any]) -> bool:
        """A dry run; whether it would be taken."""
        try:
            self.api.post(f"{path}?dryRun=All", body)
        except ApiError as error:
            if error.status in {403, 422}:
                return False
            raise
        return True

    def delete(self, path: str) -> None:
        self.api.request("DELETE", f"{path}?gracePeriodSeconds=0")

    def wait(self, ask: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not ask():
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {seconds:.0f} s: {what}")
            time.sleep(0.1)

    def cpu(self, components: Sequence[str] = ("kube-apiserver",)) -> float:
        """CPU seconds of these so far."""
        pids = [self.cluster.pid(component) for component in components]
        if None in pids:
            raise SystemExit("a part of the control plane has ended")
        return sum(cpu_seconds(pid) for pid in pids if pid is not None)

    def spent(self, path: str, bodies: list[dict[str, Any]]) -> float:
        """CPU seconds of the API server while these are created."""
        before = self.cpu()
        with ThreadPoolExecutor(PARALLEL) as pool:
            for _ in pool.map(lambda body: self.api.post(path, body), bodies):
                pass
        return self.cpu() - before

    def asking(self) -> list[tuple[str, dict[str, Any]]]:
        """By what the API server is told to ask anything: each collection's path, and one object of the release."""
        found = []
        for collection in ASKING:
            path = f"/apis/admissionregistration.k8s.io/v1/{collection}"
            listed = self.api.get(f"{path}?labelSelector=app.kubernetes.io/instance%3D{RELEASE}")
            for one in listed["items"]:
                metadata = {key: one["metadata"][key] for key in ("name", "labels", "annotations")}
                found.append((path, {**one, "metadata": metadata}))
        return found

    def ask(self, made: list[tuple[str, dict[str, Any]]], wanted: bool) -> None:
        """Have the API server ask what the release wants it to, or nothing."""
        for path, body in made:
            with contextlib.suppress(ApiError):  # it is so already
                if wanted:
                    self.api.post(path, body)
                else:
                    self.delete(f"{path}/{body['metadata']['name']}")
        critical = pod("probe", priority="system-node-critical")
        self.wait(lambda: self.refused(critical) == wanted, "the policies are as they should be")
        self.wait(self.quiet, "the API server rests")  # it compiles the policies in steps of a second

    def quiet(self) -> bool:
        """Whether the API server does little for longer than it takes to find out what it is to ask."""
        before = self.cpu()
        time.sleep(QUIET_SECONDS)
        return self.cpu() - before < QUIET_SECONDS * 0.1

    def clear(self) -> None:
        """Delete all pods."""
        names = [one["metadata"]["name"] for one in self.api.get(POD_PATH)["items"]]
        with ThreadPoolExecutor(PARALLEL) as pool:
            for _ in pool.map(lambda name: self.delete(f"{POD_PATH}/{name}"), names):
                pass

    def called(self) -> int:
        """How often the API server called a webhook for pods so far."""
        text = self.api.request("GET", "/metrics")
        lines = [line for line in str(text).splitlines() if line.startswith(WEBHOOKS) and "pod-reservations" in line]
        return sum(int(float(line.rpartition(" ")[2])) for line in lines)


def pod(name: str, queue: str = "", priority: str = "") -> dict[str, Any]:
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "128Mi"}}
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 32} for number in range(8)]
    spec: dict[str, Any] = {
        "schedulerName": "kube-batch",
        "containers": [{"name": "c", "image": "i", "resources": resources, "env": env}],
    }
    if priority:
        spec["priorityClassName"] = priority
    metadata = {"name": name, "labels": {"app": "bench"} | ({"kbatch.dev/queue": queue} if queue else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def podgroup(name: str, queue: str) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name}, "spec": {"minMember": 2, "queue": queue}}


def queue(index: int) -> dict[str, Any]:
    """Each is open to a team; the first few to that of the namespace."""
    team = "bench" if index < 5 else f"team-{index}"
    spec = {"weight": 1, "namespaceSelector": {"matchLabels": {"team": team}}}
    return {"apiVersion": API, "kind": "Queue", "metadata": {"name": f"queue-{index}"}, "spec": spec}


def of_queues(bench: Bench, charts: list[Path]) -> Iterator[dict[str, Any]]:
    """The cost of each kind of object by the number of Queues."""
    kinds: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
        "pod": (POD_PATH, pod),
        "pod with the label": (POD_PATH, lambda name: pod(name, "queue-0")),
        "group": (f"/apis/{API}/namespaces/{NAMESPACE}/podgroups", lambda name: podgroup(name, "queue-0")),
    }
    for chart in charts:
        with bench.installed(chart), bench.operated():
            for number in (1, QUEUES):
                for index in range(QUEUES):
                    with contextlib.suppress(ApiError):
                        bench.delete(f"{QUEUE_PATH}/queue-{index}")
                bench.api.post_all(QUEUE_PATH, [queue(index) for index in [*range(number - 1), QUEUES - 1]])
                if number == 1:
                    bench.api.post_all(QUEUE_PATH, [queue(0)])
                bench.wait(lambda: bench.refused(pod("p", f"queue-{QUEUES - 1}")), "the policies know the Queues")
                bench.wait(lambda: not bench.refused(pod("p", "queue-0")), "the namespace may use its own")
                figures: dict[str, list[float]] = {kind: [] for kind in kinds}
                for _ in range(3):
                    for kind, (path, make) in kinds.items():
                        bodies = [make(f"p-{next(_NUMBERS)}") for _ in range(DRY_RUNS)]
                        spent = bench.spent(f"{path}?dryRun=All", bodies)
                        figures[kind].append(spent / DRY_RUNS * 1000)
                for kind, found in figures.items():
                    yield {
                        "chart": str(chart), "queues": number, "kind": kind,
                        "cpu_ms": round(statistics.median(found), 2), "all": [round(one, 2) for one in found],
                    }  # fmt: skip


def of_pods(bench: Bench, chart: Path, pairs: int, pods: int) -> Iterator[dict[str, Any]]:
    """Pairs of so many creations with and without what the chart asks of the API server.

    On a busy machine the same work costs now more, now less: each half of a pair is made in blocks, by turns.
    """
    ratios = []
    block = pods // BLOCKS
    with bench.installed(chart):
        made = bench.asking()
        bench.spent(POD_PATH, [pod(f"p-{next(_NUMBERS)}") for _ in range(block)])  # the first fills caches
        for number in range(pairs):
            spent = {True: 0.0, False: 0.0}
            whole = {True: 0.0, False: 0.0}
            called = 0
            for turn in range(2 * BLOCKS):
                asked = (turn + number) % 4 in {1, 2}
                bench.ask(made, asked)
                before = bench.called()  # what was called for probes does not count
                began = bench.cpu(COMPONENTS)
                spent[asked] += bench.spent(POD_PATH, [pod(f"p-{next(_NUMBERS)}") for _ in range(block)])
                whole[asked] += bench.cpu(COMPONENTS) - began
                called += bench.called() - before
            bench.ask(made, True)
            bench.clear()
            ratios.append(whole[True] / whole[False])
            yield {
                "chart": str(chart), "pair": number, "pods": block * BLOCKS, "calls": called,
                "api_server": [round(spent[one], 2) for one in (True, False)],
                "control_plane": [round(whole[one], 2) for one in (True, False)],
                "api_server_ratio": round(spent[True] / spent[False], 3), "ratio": round(ratios[-1], 3),
            }  # fmt: skip
    yield {"chart": str(chart), "pairs": pairs, "median": round(statistics.median(ratios), 3)}


def main() -> int:
    """Measure; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", help="queues, pods; both without")
    parser.add_argument("--charts", type=Path, nargs="+", default=[CHART])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    what = chosen.what or ["queues", "pods"]
    figures: list[dict[str, Any]] = []
    programs = ensure_programs(lambda line: print(line, flush=True))
    cluster = Cluster(f"bench-admission-{os.getpid()}")
    with cluster.locked(), tempfile.TemporaryDirectory() as folder:
        cluster.start(programs, Options())
        try:
            bench = Bench(cluster, programs, Path(folder))
            labels = {"team": "bench"}
            bench.api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": labels}})
            for chart in chosen.charts if "pods" in what else ():
                for figure in of_pods(bench, chart, chosen.pairs, chosen.pods):
                    figures.append(figure)
                    print(json.dumps(figure), flush=True)
            for figure in of_queues(bench, chosen.charts) if "queues" in what else ():
                figures.append(figure)
                print(json.dumps(figure), flush=True)
        finally:
            cluster.remove()
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(figure) + "\n" for figure in figures))
    missed = [one for one in figures if one.get("calls") or one.get("median", 0) > MOST]
    for figure in missed:
        print(f"MISS {json.dumps(figure)}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
