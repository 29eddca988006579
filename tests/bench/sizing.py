"""What the four processes take.

    python -m tests.bench.sizing [--groups N] [--pods PER_GROUP] [--pods-first] [--out FILE.jsonl]

A local cluster with the chart installed, N groups of so many pods of one core each, half of which find room. Of each
process: CPU seconds and peak memory while the groups came and were decided on, memory and cores at rest, and the peak
of one that is started when all is there already: that lists everything at once. One JSON line a process. The programs
are those of this checkout, whatever is installed in the environment. Each size takes minutes: all objects are real.

With `--pods-first` the pods are there before a process runs, so that their creation has the machine for itself. The
groups come when the processes run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kbatch.localcluster.api import Api
from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.nodes import ensure_nodes
from kbatch.localcluster.processes import wait_until
from kbatch.localcluster.programs import ensure_programs
from kbatch.localcluster.release import COMPONENTS, Release
from tests.e2e.versions import commands_of

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "default"
GROUPS = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CORES = 32
"""Of a node of the local cluster."""
REST_SECONDS = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Taken:
    """What one process took; memory in MiB, CPU in seconds, or in cores at rest."""

    groups: int
    pods: int
    process: str
    cpu_seconds: float
    peak: int
    at_rest: int
    cores_at_rest: float
    peak_after_start: int


def memory(pid: int) -> tuple[int, int]:
    """Resident memory of a process and its peak, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    values = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return int(values["VmRSS"]) >> 10, int(values["VmHWM"]) >> 10


def cpu(pid: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def objects(groups: int, pods: int) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each group with its pods."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spec = {"schedulerName": "kube-batch", "restartPolicy": "Never", "containers": [container]}
    for number in range(groups):
        name = f"g{number:05}"
        group = {
            "apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"minMember": pods},
        }  # fmt: skip
        annotations = {"scheduling.k8s.io/group-name": name}
        yield group, [
            {
                "apiVersion": "v1", "kind": "Pod", "spec": spec,
                "metadata": {"name": f"{name}-{index}", "namespace": NAMESPACE, "annotations": annotations},
            }
            for index in range(pods)
        ]  # fmt: skip


def pids(release: Release) -> dict[str, int]:
    """The processes by component; all of them run."""
    found = {component: state.pid for component, state in release.states().items()}
    return {component: found[component] or 0 for component in COMPONENTS}


def settled(release: Release, limit: float) -> None:
    """Return when all processes together have taken less than half a core for 5 s; TimeoutError if they never do."""
    running = pids(release)

    def quiet() -> bool:
        before = sum(map(cpu, running.values()))
        time.sleep(5.0)
        return sum(map(cpu, running.values())) - before < 2.5

    if not wait_until(quiet, limit, every=0.1):
        raise TimeoutError(f"the processes are still at work after {limit:.0f} s")


def submit(api: Api, path: str, bodies: Iterator[dict[str, Any]]) -> None:
    """Create them, and say on standard error how far that is."""
    began, count = time.monotonic(), 0
    while some := list(itertools.islice(bodies, 10_000)):
        api.post_all(path, some)
        count += len(some)
        print(f"{count} {path.rpartition('/')[2]} after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def measure(release: Release, api: Api, groups: int, pods: int, *, pods_first: bool) -> list[Taken]:
    """Submit all, wait until everything is decided on, and look at the processes. `pods_first`: before they run."""
    ensure_nodes(api, max(1, groups * pods // 2 // CORES))
    patience = 300.0 + groups * pods / 500
    if pods_first:
        submit(api, PODS, (pod for _, members in objects(groups, pods) for pod in members))
    release.start()
    release.wait_ready(patience)
    before = {component: cpu(pid) for component, pid in pids(release).items()}
    submit(api, GROUPS, (group for group, _ in objects(groups, pods)))
    if not pods_first:
        submit(api, PODS, (pod for _, members in objects(groups, pods) for pod in members))
    settled(release, 900.0 + groups * pods / 50)
    while_made = {component: (cpu(pid) - before[component], memory(pid)[1]) for component, pid in pids(release).items()}
    first = {component: cpu(pid) for component, pid in pids(release).items()}
    time.sleep(REST_SECONDS)
    at_rest = {
        component: (memory(pid)[0], (cpu(pid) - first[component]) / REST_SECONDS)
        for component, pid in pids(release).items()
    }
    release.stop()
    release.start()
    release.wait_ready(patience)
    settled(release, patience)
    return [
        Taken(
            groups, groups * pods, component, round(while_made[component][0], 1), while_made[component][1],
            at_rest[component][0], round(at_rest[component][1], 3), memory(pid)[1],
        )
        for component, pid in pids(release).items()
    ]  # fmt: skip


def main() -> int:
    """Measure one size on a cluster of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5, help="of each group")
    parser.add_argument("--pods-first", action="store_true", help="make the pods before the processes run")
    parser.add_argument("--out", type=Path, help="append the lines to this file")
    options = parser.parse_args()
    programs = ensure_programs(print)
    cluster = Cluster("sizing")
    with cluster.locked():
        cluster.start(programs)
    release = Release(cluster.kubeconfig, cluster.host_folder, programs)
    try:
        with Api(cluster.kubeconfig) as api, tempfile.TemporaryDirectory() as folder:
            release.install()
            with commands_of(ROOT, Path(folder) / "code"):
                taken = measure(release, api, options.groups, options.pods, pods_first=options.pods_first)
    finally:
        with cluster.locked():
            cluster.remove()
    lines = "".join(json.dumps(asdict(one)) + "\n" for one in taken)
    print(lines, end="")
    if options.out:
        with options.out.open("a", encoding="utf-8") as out:
            out.write(lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
