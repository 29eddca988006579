"""kbatch as installed, where a thousand gangs wait: does a small group get the place that has just come free, and when?

    python -m tests.bench.crowded [--groups 1000|10000] [--seconds N] [--without-pods PART] [--json FILE]

kbatch is installed by its chart on a control plane of its own and its four processes run as the chart says. 40 nodes
are full of 1,280 groups of one pod; behind them wait gangs of 8 to 27 pods of many shapes: one role or two of unlike
size, with and without a node selector that half of the nodes meet, topology spread and minResources, three priorities;
four queues of unlike weight, one of which has no more capability than it holds; namespaces with and without
ResourceQuota. One quota leaves room for four small groups and for no gang: one gang in twenty waits for it, as a
PodGroup without pods, for the API server refuses these.

First a minute in which nothing changes is looked at: processor time of kbatch's processes. Then in each second one
running pod ends and one group of one pod comes that fits its place, of the same queue and namespace; priority and
requests vary. The time of a pod is from *sending* its creation until a watch shows it with a node. The status is 1
where a limit is missed.

The whole must be over 600 s after the first gang came: from then on a free place is kept for the gang that has waited
longest (ageing), and the small groups behind it wait, as they should. So with 10,000 gangs most are to come without
pods (`--without-pods 0.9`), as they do in clusters with delayed pod creation: 175,000 pods are not made in that time.

The first pods are spread over the queues as the queues' weights say, so that nobody has a right to what another holds,
and they have the highest priority of all that wait but the small groups: a gang gets none of their places.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kbatch.kube.client import MERGE, Client
from kbatch.kube.credentials import load_credentials
from kbatch.localcluster.up import down, status, up
from tests.bench.engine import keep
from tests.bench.live.contestants import KBATCH, used_by
from tests.bench.live.load import NAMESPACE as FIRST
from tests.bench.live.load import (
    Creation,
    Seen,
    clear,
    create,
    create_all,
    observing,
    pod_of,
    until,
)
from tests.bench.stopping import end_when_asked

NODES: Final = 40
CPUS: Final = 32
WEIGHTS: Final = (1, 2, 3, 1)
"""Of the queues."""
IN_TURN: Final = tuple(queue for queue, weight in enumerate(WEIGHTS) for _ in range(weight))
"""The queues of the groups of one pod, in turn."""
CAPPED: Final = len(WEIGHTS) - 1
"""The queue whose capability is what its running pods take."""
NAMESPACES: Final = (FIRST, *(f"{FIRST}-{index}" for index in range(1, 4)))
BOUND: Final = NAMESPACES[3]
"""The namespace whose quota binds."""
SPARE: Final = 4
"""Pods for which this quota leaves room: fewer than any gang has. What is used is counted a moment after a pod ends."""
CPU_REQUESTS: Final = "1", "950m", "900m"
MEMORY_REQUESTS: Final = "1Gi", "2Gi", "512Mi", "1536Mi"
"""Of the small groups, in turn; what the smaller ones leave of a place is too little for anybody."""
API: Final = "scheduling.incubator.k8s.io/v1alpha1"
IDLE_SECONDS: Final = 60.0
IDLE_LIMIT: Final = 0.05
"""Cores of all of kbatch's processes together while nothing changes."""
LIMITS: Final = {1000: 1.0, 10_000: 2.0}
"""Seconds, p99 from the creation of a small group's pod to its bind, by the number of gangs that wait."""
PATIENCE: Final = 30.0
"""So long the last of the small groups may take, before it counts as never bound."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What a run gave; seconds, and cores of each of kbatch's processes while nothing changed and under the changes."""

    groups: int
    pods: int
    came: int
    bound: int
    p50: float
    p99: float
    longest: float
    idle: Mapping[str, float]
    busy: Mapping[str, float]
    met: bool


def standing() -> Iterator[Creation]:
    """What everything else stands on."""
    for namespace in NAMESPACES:
        yield "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    for name, value in (("low", 1), ("mid", 10), ("high", 100), ("urgent", 1000)):
        yield "/apis/scheduling.k8s.io/v1/priorityclasses", {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        }  # fmt: skip
    first = [place(at) for at in range(NODES * CPUS)]
    for index, weight in enumerate(WEIGHTS):
        spec: dict[str, Any] = {"weight": weight}
        if index == CAPPED:
            spec["capability"] = {"cpu": str(sum(queue == index for queue, _ in first))}
        yield f"/apis/{API}/queues", {
            "apiVersion": API, "kind": "Queue", "metadata": {"name": f"q{index}"}, "spec": spec,
        }  # fmt: skip
    runs = sum(namespace == BOUND for _, namespace in first)
    for namespace, cpus in ((NAMESPACES[1], 100_000), (BOUND, runs + SPARE)):
        yield f"/api/v1/namespaces/{namespace}/resourcequotas", {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota", "namespace": namespace},
            "spec": {"hard": {"requests.cpu": str(cpus)}},
        }  # fmt: skip


def place(index: int) -> tuple[int, str]:
    """The queue and the namespace of a group of one pod: each queue has its part, and each namespace as many."""
    return IN_TURN[index % len(IN_TURN)], NAMESPACES[index // len(IN_TURN) % len(NAMESPACES)]


def group(namespace: str, name: str, queue: int, priority: str, **spec: Any) -> Creation:
    """A PodGroup."""
    body = {"priorityClassName": priority, "queue": f"q{queue}", **spec}
    return f"/apis/{API}/namespaces/{namespace}/podgroups", {
        "apiVersion": API, "kind": "PodGroup", "metadata": {"name": name, "namespace": namespace}, "spec": body,
    }  # fmt: skip


def pod(row: str, namespace: str, name: str, of: str, priority: str, **extra: Any) -> Creation:
    """A pod of a group."""
    body = pod_of(row, name, KBATCH, of, priorityClassName=priority, **extra)
    body["metadata"]["namespace"] = namespace
    return f"/api/v1/namespaces/{namespace}/pods", body


def small(
    row: str, name: str, index: int, priority: str = "high", cpu: str = "1", memory: str = "1Gi"
) -> list[Creation]:
    """A group of one pod, in the queue and the namespace of this index."""
    queue, namespace = place(index)
    path, body = pod(row, namespace, f"{name}-0", name, priority, cpu=cpu)
    body["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    return [group(namespace, name, queue, priority, minMember=1), (path, body)]


def gang(index: int, chance: random.Random, *, with_pods: bool) -> Iterator[Creation]:
    """A gang that waits, and its pods."""
    name, namespace = f"w{index:05}", chance.choice(NAMESPACES[:3]) if index % 20 else BOUND
    with_pods = with_pods and namespace != BOUND
    size, cpus = chance.randint(8, 27), chance.choice((1, 1, 2, 4))
    priority = chance.choice(("low", "low", "mid", "high"))
    roles = [("", size, cpus)]
    if index % 4 == 3:
        roles = [("master", 2, 4), ("worker", size - 2, 1)]
    spec: dict[str, Any] = {"minMember": size}
    if roles[0][0]:
        spec["subGroups"] = [{"name": role, "minMember": count} for role, count, _ in roles]
    if index % 2 == 0 or not with_pods:
        total = sum(count * each for _, count, each in roles)
        spec["minResources"] = {"cpu": str(total), "memory": f"{sum(count for _, count, _ in roles)}Gi"}
    yield group(namespace, name, chance.randrange(len(WEIGHTS)), priority, **spec)
    if not with_pods:
        return
    extra: dict[str, Any] = {}
    if index % 3 == 0:
        extra["nodeSelector"] = {"kind": "ab"[index % 2]}
    if index % 5 == 4:
        selector = {"matchLabels": {"app": name}}
        extra["topologySpreadConstraints"] = [
            {
                "maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": selector,
            }
        ]  # fmt: skip
    for role, count, each in roles:
        for number in range(count):
            path, body = pod("waiting", namespace, f"{name}-{role}{number}", name, priority, cpu=str(each), **extra)
            body["metadata"]["labels"]["app"] = name
            if role:
                body["metadata"]["labels"]["kbatch.dev/sub-group"] = role
            yield path, body


async def label_nodes(client: Client) -> None:
    """Half of the nodes are of one kind, half of another."""
    for index in range(NODES):
        body = {"metadata": {"labels": {"kind": "ab"[index % 2]}}}
        await client.request("PATCH", f"/api/v1/nodes/node-{index}", body=body, content_type=MERGE)


def cpu_of(name: str) -> dict[str, float]:
    """Seconds of the processor that each process of an installed kbatch has taken so far; none has children."""
    return {part: used_by(one.pid).cpu for part, one in status(name)[1].processes.items() if one.pid is not None}


async def cores(name: str, seconds: float) -> dict[str, float]:
    """Cores that each process takes during the next so many seconds."""
    before, began = cpu_of(name), time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    return {part: (now - before.get(part, 0.0)) / passed for part, now in cpu_of(name).items()}


async def at_rest(name: str, seconds: float) -> None:
    """Wait until kbatch takes little, or so many seconds have passed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if sum((await cores(name, 5.0)).values()) < 2 * IDLE_LIMIT:
            return


async def run(name: str, kubeconfig: str, groups: int, seconds: int, without_pods: float) -> Figure:
    """Fill the cluster, let much wait, and then change one thing in each second."""
    chance = random.Random(7)
    async with Client(load_credentials(kubeconfig), user_agent="crowded", connections=64) as client:
        made = Seen()
        await label_nodes(client)
        for path, body in standing():
            await create(client, made, path, body)
        async with observing(client, "running", everywhere=True) as running:
            count = NODES * CPUS
            await create_all(client, made, (each for at in range(count) for each in small("running", f"r{at:05}", at)))
            if not await until(lambda: len(running.bound) >= count, 300):
                raise SystemExit(f"{len(running.bound)} of the {count} pods that fill the cluster have a node")
        print(f"{count} pods run; {groups} gangs come", flush=True)
        waiting = [each for at in range(groups) for each in gang(at, chance, with_pods=chance.random() >= without_pods)]
        pods = sum(body["kind"] == "Pod" for _, body in waiting)
        await create_all(client, made, waiting)
        await at_rest(name, 300)
        idle = await cores(name, IDLE_SECONDS)
        print(f"{groups} gangs of {pods} pods wait; cores while nothing changes: {shown(idle)}", flush=True)
        async with observing(client, "small", everywhere=True) as seen:
            before, began = cpu_of(name), time.monotonic()
            order = list(range(count))
            chance.shuffle(order)
            async with asyncio.TaskGroup() as tasks:
                for number in range(seconds):
                    tasks.create_task(one_change(client, seen, order[number], number))
                    await asyncio.sleep(max(0.0, began + number + 1 - time.monotonic()))
            await until(lambda: len(seen.bound) >= seconds, PATIENCE)
            passed = time.monotonic() - began
            busy = {part: (now - before.get(part, 0.0)) / passed for part, now in cpu_of(name).items()}
            waits = sorted(seen.bound.get(pod, math.inf) - sent for pod, sent in seen.sent.items())
    p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    bound = sum(wait < math.inf for wait in waits)
    met = bound == seconds and p99 <= LIMITS.get(groups, LIMITS[10_000]) and sum(idle.values()) <= IDLE_LIMIT
    return Figure(groups, pods, seconds, bound, waits[len(waits) // 2], p99, waits[-1], idle, busy, met)


async def one_change(client: Client, seen: Seen, gone: int, number: int) -> None:
    """A running pod ends and its group goes; a group of one pod of the same queue and namespace comes."""
    before = small("running", f"r{gone:05}", gone)
    for path, body in reversed(before):
        await clear(client, path, [body["metadata"]["name"]])
    coming = small(
        "small", f"s{number:05}", gone, ("high", "urgent")[number % 2],
        CPU_REQUESTS[number % len(CPU_REQUESTS)], MEMORY_REQUESTS[number % len(MEMORY_REQUESTS)],
    )  # fmt: skip
    for path, body in coming:
        await create(client, seen, path, body)


def shown(parts: Mapping[str, float]) -> str:
    """Cores by process, and their sum."""
    return ", ".join(f"{part} {each:.3f}" for part, each in parts.items()) + f", together {sum(parts.values()):.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.crowded")
    parser.add_argument("--groups", type=int, default=1000, help="gangs that wait")
    parser.add_argument("--seconds", type=int, default=120, help="how many changes, one in each second")
    parser.add_argument(
        "--without-pods", type=float, default=0.0, help="part of the gangs whose pods are yet to be made"
    )
    parser.add_argument("--json", type=Path, help="write one JSON line to this file")
    chosen = parser.parse_args()
    name = f"crowded-{os.getpid()}"
    try:
        report = up(name, nodes=NODES, control_plane_only=False, progress=lambda line: print(line, flush=True))
        figure = asyncio.run(run(name, report.kubeconfig, chosen.groups, chosen.seconds, chosen.without_pods))
    finally:
        down(name)
    limit = LIMITS.get(chosen.groups, LIMITS[10_000])
    print(
        f"{'ok  ' if figure.met else 'MISS'} {figure.bound} of {figure.came} small groups bound, "
        f"p50 {figure.p50:.2f} s, p99 {figure.p99:.2f} (limit {limit:g}), longest {figure.longest:.2f}; "
        f"cores while nothing changes {shown(figure.idle)} (limit {IDLE_LIMIT:g}), "
        f"with one change in a second {shown(figure.busy)}"
    )
    return keep([figure], chosen.json)


if __name__ == "__main__":
    end_when_asked()
    sys.exit(main())
