"""What the benchmarks do to the API server: make pods and groups, watch them being bound, bind them without deciding.

One observer serves all rows: it watches the row's pods with the typed client and notes when each is first seen with a
node, so that every scheduler, and the bare loop, is measured by the same eyes.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from kbatch.api.objects import Pod
from kbatch.kube.client import Client
from kbatch.kube.errors import ApiError
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import PODS
from kbatch.kube.writes import bind
from kbatch.model.events import Delete, Upsert
from operators.scheduler.dispatch import PARALLELISM
from tests.bench.live.contestants import Contestant, filled

NAMESPACE = "bench"
PARALLEL = 64
"""Requests of those who make objects, at once."""

BINDS = PARALLELISM
"""Binds of the bare loop at once: as many as kbatch sends."""
LABEL = "bench.kbatch.dev/row"
STANDING = "standing"
"""The row of the pods that stay."""


@dataclass(frozen=True, slots=True)
class Shape:
    """So many gangs of so many pods; `gangs` 0 stands for plain pods without any group object."""

    pods: int
    gangs: int = 0

    @property
    def size(self) -> int:
        return self.pods // self.gangs if self.gangs else 1

    @property
    def name(self) -> str:
        return f"{self.gangs} x {self.size}" if self.gangs else "plain pods"


@dataclass(slots=True)
class Seen:
    """When things happened, in seconds of the wall clock, by the pods' names."""

    sent: dict[str, float] = field(default_factory=dict)
    """The creation was sent."""
    made: dict[str, float] = field(default_factory=dict)
    """The creation was answered."""
    bound: dict[str, float] = field(default_factory=dict)
    """The watch showed the pod with a node."""
    uids: dict[str, str] = field(default_factory=dict)
    gone: int = 0


@asynccontextmanager
async def observing(client: Client, row: str, *, everywhere: bool = False) -> AsyncIterator[Seen]:
    """Watch the row's pods while the context is open: in the one namespace, or everywhere (names must differ then)."""
    seen = Seen()
    namespace = None if everywhere else NAMESPACE
    informer = Informer(client, PODS, namespace=namespace, label_selector=f"{LABEL}={row}")

    async def watch() -> None:
        async for batch in informer:
            now = time.time()
            for event in batch.events:
                if isinstance(event, Upsert) and isinstance(event.obj, Pod):
                    name = event.obj.metadata.name
                    seen.uids[name] = event.obj.metadata.uid
                    if event.obj.spec.node_name and name not in seen.bound:
                        seen.bound[name] = now
                elif isinstance(event, Delete):
                    seen.gone += 1

    task = asyncio.create_task(watch())
    try:
        await asyncio.wait_for(informer.synced.wait(), 60)
        yield seen
    finally:
        task.cancel()


def pod_of(
    row: str, name: str, contestant: Contestant, group: str = "", size: int = 1, cpu: str = "1", **extra: Any
) -> dict[str, Any]:
    """A one-CPU pod for the contestant, of a gang if `group` is named."""
    words = {"group": group, "size": str(size), "namespace": NAMESPACE}
    metadata: dict[str, Any] = filled(contestant.metadata, words) if group else {}
    metadata |= {"name": name, "namespace": NAMESPACE}
    metadata["labels"] = {**metadata.get("labels", {}), LABEL: row}
    metadata["annotations"] = {**metadata.get("annotations", {}), **extra.pop("annotations", {})}
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    spec = {
        "schedulerName": contestant.scheduler_name, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "containers": [container], **extra,
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


Creation = tuple[str, dict[str, Any]]
"""Where, and what."""


def creations(row: str, shape: Shape, contestant: Contestant) -> Iterator[Creation]:
    """All that has to be made, in order: each group, then its pods."""
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    if not shape.gangs:
        for index in range(shape.pods):
            yield pods, pod_of(row, f"{row}-{index}", contestant)
        return
    for number in range(shape.gangs):
        group = f"{row}-g{number}"
        words = {"group": group, "size": str(shape.size), "namespace": NAMESPACE}
        yield filled(contestant.group_path, words), filled(contestant.group, words)
        for index in range(shape.size):
            yield pods, pod_of(row, f"{group}-{index}", contestant, group, shape.size)


async def in_parallel(jobs: Iterable[Callable[[], Awaitable[object]]], parallel: int = PARALLEL) -> None:
    """Run the jobs in their order, so many at a time."""
    waiting = deque(jobs)

    async def work() -> None:
        while waiting:
            await waiting.popleft()()

    async with asyncio.TaskGroup() as group:
        for _ in range(parallel):
            group.create_task(work())


async def create(client: Client, seen: Seen, path: str, body: dict[str, Any]) -> None:
    """Make one object, and note when, if it is a pod."""
    name = body["metadata"]["name"]
    sent = time.time()
    try:
        await client.request("POST", path, body=body)
    except ApiError as error:
        if error.status != 409:
            raise
    if body["kind"] == "Pod":
        seen.sent[name], seen.made[name] = sent, time.time()


async def create_all(client: Client, seen: Seen, all_of_it: Iterable[Creation]) -> None:
    """Make everything, 64 requests at a time, in its order."""
    await in_parallel(
        (lambda path=path, body=body: create(client, seen, path, body))  # type: ignore[misc]
        for path, body in list(all_of_it)
    )


async def bare_loop(client: Client, seen: Seen, nodes: int) -> None:
    """The ceiling: POST a Binding for every pod seen, without deciding anything."""
    await in_parallel(
        (
            (lambda name=name, uid=uid, node=index % nodes: bind(  # type: ignore[misc]
                client, namespace=NAMESPACE, name=name, uid=uid, node=f"node-{node}"
            ))
            for index, (name, uid) in enumerate(sorted(seen.uids.items()))
        ),
        BINDS,
    )  # fmt: skip


async def until(condition: Callable[[], bool], seconds: float, check: Callable[[], None] = lambda: None) -> bool:
    """Poll until the condition holds; False once so many seconds have passed."""
    deadline = time.monotonic() + seconds
    while not condition():
        check()
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


async def clear(client: Client, path: str, names: Iterable[str]) -> None:
    """Delete these objects of a collection, many at a time; those that are gone are fine."""

    async def remove(name: str) -> None:
        try:
            await client.request(
                "DELETE", f"{path}/{name}", body={"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            )
        except ApiError as error:
            if error.status != 404:
                raise

    await in_parallel([(lambda name=name: remove(name)) for name in names])  # type: ignore[misc]


async def sweep(client: Client, contestant: Contestant, seen: Seen | None = None) -> None:
    """Delete whatever stands in the namespace, but for standing pods, and wait until a row's pods are gone.

    One by one: a request for a whole collection of 3,000 pods takes the API server three times the CPU.
    """
    if contestant.group_path:
        groups = filled(contestant.group_path, {"namespace": NAMESPACE})
        await clear(client, groups, await _names(client, groups))
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    await clear(client, pods, await _names(client, pods, labelSelector=f"{LABEL}!={STANDING}"))
    if seen is not None:
        await until(lambda: seen.gone >= len(seen.uids), 60)


async def _names(client: Client, path: str, **params: str) -> list[str]:
    listed = json.loads(await client.request("GET", path, params=params, timeout_seconds=90))
    return [one["metadata"]["name"] for one in listed["items"]]
