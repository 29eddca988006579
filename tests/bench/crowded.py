"""kbatch as installed, where a thousand gangs wait: does a small group get the place that has just come free, and when?

    python -m tests.bench.crowded [--groups 1000|10000] [--seconds N] [--without-pods PART] [--json FILE]

kbatch is installed by its chart on a control plane of its own and its four processes run as the chart says. 40 nodes
are full of 1,280 groups of one pod; behind them wait gangs of 8 to 27 pods of many shapes: one role or two of unlike
size, with and without node selector, topology spread and minResources, three priorities, four queues, namespaces with
and without ResourceQuota. First a minute in which nothing changes is looked at: processor time of kbatch's processes.
Then in each second one running pod ends and one group of one pod comes that fits its place. The time of a pod is from
*sending* its creation until a watch shows it with a node. The status is 1 where a limit is missed.

The whole must be over 600 s after the first gang came: from then on a free place is kept for the gang that has waited
longest (ageing), and the small groups behind it wait, as they should. So with 10,000 gangs most are to come without
pods (`--without-pods 0.9`), as they do in clusters with delayed pod creation: 175,000 pods are not made in that time.
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

from kbatch.kube.client import Client
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
QUEUES: Final = 4
NAMESPACES: Final = (FIRST, *(f"{FIRST}-{index}" for index in range(1, 4)))
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
    for name, value in (("low", 1), ("mid", 10), ("high", 100)):
        yield "/apis/scheduling.k8s.io/v1/priorityclasses", {
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        }  # fmt: skip
    for index in range(QUEUES):
        yield f"/apis/{API}/queues", {
            "apiVersion": API, "kind": "Queue", "metadata": {"name": f"q{index}"}, "spec": {"weight": 1},
        }  # fmt: skip
    for namespace in NAMESPACES[1::2]:
        yield f"/api/v1/namespaces/{namespace}/resourcequotas", {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota", "namespace": namespace},
            "spec": {"hard": {"requests.cpu": "100000"}},
        }  # fmt: skip


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


def small(row: str, name: str, index: int) -> list[Creation]:
    """A group of one pod; of all that come, each queue and each namespace has the same part."""
    namespace = NAMESPACES[index // QUEUES % len(NAMESPACES)]
    return [
        group(namespace, name, index % QUEUES, "high", minMember=1),
        pod(row, namespace, f"{name}-0", name, "high"),
    ]


def gang(index: int, chance: random.Random, *, with_pods: bool) -> Iterator[Creation]:
    """A gang that waits, and its pods."""
    name, namespace = f"w{index:05}", chance.choice(NAMESPACES)
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
    yield group(namespace, name, chance.randrange(QUEUES), priority, **spec)
    if not with_pods:
        return
    extra: dict[str, Any] = {}
    if index % 3 == 0:
        extra["nodeSelector"] = {"kubernetes.io/os": "linux"}
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
    for path, body in small("small", f"s{number:05}", gone):
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
