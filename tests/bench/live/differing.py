"""A backlog in which no two pods are alike: of no use is there what the scheduler keeps for each kind of pods."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable

from kbatch.kube.client import MERGE
from tests import varied
from tests.bench.live.contestants import KBATCH
from tests.bench.live.load import LABEL, NAMESPACE, Creation, Shape, clear, create_all, in_parallel, observing
from tests.bench.live.rows import Bench, Figure
from tests.varied import Document, path_of

MOST = 20
"""Pods of a group."""


def documents(row: str, pods: int, nodes: int) -> list[Document]:
    """Groups of 1 to MOST pods, so many pods in all, and what these need."""
    draw = random.Random(13)
    found: list[Document] = []
    number = 0
    while pods:
        size = min(pods, draw.randint(1, MOST))
        found += varied.group(draw, NAMESPACE, f"{row}-g{number}", size, 0, nodes=nodes, labels={LABEL: row})
        pods, number = pods - size, number + 1
    # First what the pods need, then the groups, then the pods: so all is there when they are.
    return sorted(found, key=lambda one: (one["kind"] == "Pod", one["kind"] == "PodGroup"))


async def differing(bench: Bench, pods: int) -> Figure:
    """A row as `Bench.backlog`, of pods that all differ, on nodes in zones of which some are reserved."""
    client, nodes = bench.client, bench.plane.nodes
    made: list[Document] = []

    async def load(row: str) -> Iterable[Creation]:
        made.extend(documents(row, pods, nodes))
        async with observing(client, "nothing") as seen:
            await create_all(
                client, seen, [(path_of(one), one) for one in (*varied.fixtures(), *varied.owners_of(made))]
            )
        listed = json.loads(await client.request("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps"))["items"]
        uids = {one["metadata"]["name"]: one["metadata"]["uid"] for one in listed}
        owned = varied.with_owners(made, lambda one: str(uids[one["metadata"]["name"]]))
        return [(path_of(one), one) for one in owned]

    await _mark(bench, {f"node-{number}": varied.marks(number) for number in range(nodes)})
    try:
        figure = await bench.backlog(KBATCH, Shape(pods), load=load)
    finally:
        await _mark(bench, {f"node-{number}": varied.NO_MARKS for number in range(nodes)})
        for kind in ("PersistentVolumeClaim", "PersistentVolume", "ConfigMap"):
            of_it = [one for one in made if one["kind"] == kind]
            if of_it:
                await clear(client, path_of(of_it[0]), [one["metadata"]["name"] for one in of_it])
    figure.shape = "pods that all differ"
    return figure


async def _mark(bench: Bench, patches: dict[str, Document]) -> None:
    async def patch(name: str) -> None:
        await bench.client.request("PATCH", f"/api/v1/nodes/{name}", body=patches[name], content_type=MERGE)

    await in_parallel([(lambda name=name: patch(name)) for name in patches])  # type: ignore[misc]
