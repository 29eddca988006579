"""A mixed trace: two queues, gangs of many sizes that come and end, one that claims its share, one that is urgent.

The cluster is filled by the greedy queue first, so that what comes later is served by reclaim and preemption.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from tests.bench.live.contestants import KBATCH
from tests.bench.live.load import (
    NAMESPACE,
    Creation,
    Shape,
    create,
    create_all,
    observing,
    pod_of,
    sweep,
    until,
)
from tests.bench.live.plane import requests_so_far
from tests.bench.live.rows import Bench, Figure, percentile

API = "scheduling.incubator.k8s.io/v1alpha1"
GROUPS = f"/apis/{API}/namespaces/{NAMESPACE}/podgroups"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


def gang(
    row: str, name: str, size: int, queue: str, cpu: str, *, seconds: int = 0, priority: str = "", surplus: bool = False
) -> list[Creation]:
    """A group and its pods; with `seconds` they end by themselves, with `surplus` all but one may be evicted."""
    spec: dict[str, Any] = {"minMember": 1 if surplus else size, "queue": queue}
    extra: dict[str, Any] = {"priorityClassName": priority} if priority else {}
    if priority:
        spec["priorityClassName"] = priority
    notes = {"simulate.kbatch.dev/duration": str(seconds)} if seconds else {}
    made: list[Creation] = [
        (
            GROUPS,
            {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec},
        )
    ]
    for index in range(size):
        body = pod_of(row, f"{name}-{index}", KBATCH, name, size, cpu, annotations=notes, **extra)
        made.append((PODS, body))
    return made


async def mixed(bench: Bench, pods: int) -> Figure:
    """Fill the cluster from one queue; then another claims its share, and an urgent gang pushes in."""
    client, nodes = bench.client, bench.plane.nodes
    figure = bench._figure(KBATCH.name, Shape(pods), "mixed")
    figure.shape = "mixed trace"
    row = figure.row
    for name in ("mixed-a", "mixed-b"):
        await _made("/apis/" + API + "/queues", bench, {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}})
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
        "metadata": {"name": "mixed-urgent"},
    }  # fmt: skip
    await _made("/apis/scheduling.k8s.io/v1/priorityclasses", bench, urgent)
    draw = random.Random(7)
    standing: list[Creation] = []
    for number in range(nodes // 5):  # ten pods of 16 CPU each: the whole cluster
        standing += gang(row, f"{row}-a{number}", 10, "mixed-a", "16", surplus=True)
    flow: list[list[Creation]] = [
        gang(row, f"{row}-s{number}", draw.choice((1, 4, 16, 32)), "mixed-b", "1", seconds=draw.randint(1, 5))
        for number in range(pods // 50)
    ]
    flow.insert(len(flow) // 2, gang(row, f"{row}-u", 20, "mixed-a", "16", priority="mixed-urgent"))
    later = {body["metadata"]["name"] for one in flow for _, body in one if body["kind"] == "Pod"}
    async with observing(client, row) as seen:
        with bench._running(KBATCH) as running:
            running.start()
            before = await requests_so_far(client)
            await create_all(client, seen, standing)
            await until(lambda: len(seen.bound) >= 2 * nodes, 120, running.check)
            first, servers = running.use(), bench.plane.cpu()
            async with asyncio.TaskGroup() as group:
                for one in flow:
                    for path, body in one:
                        group.create_task(create(client, seen, path, body))
                    await asyncio.sleep(0.25)
            await until(lambda: later <= seen.bound.keys(), 120, running.check)
            await bench._used(figure, running, first, servers, seen)
        waits = [seen.bound[name] - seen.sent[name] for name in later if name in seen.bound and name in seen.sent]
        figure.pods, figure.bound = len(later), len(waits)
        figure.wait_p50, figure.wait_p99 = percentile(waits, 0.5), percentile(waits, 0.99)
        figure.note = (
            f"{seen.gone} pods ended, were evicted or deleted; waits are of what came after the cluster was full"
        )
        figure.requests = dict(await requests_so_far(client) - before)
        await sweep(client, KBATCH, seen)
    return figure


async def _made(path: str, bench: Bench, body: dict[str, Any]) -> None:
    async with observing(bench.client, "nothing") as seen:
        await create(bench.client, seen, path, body)
