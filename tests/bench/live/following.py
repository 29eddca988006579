"""The observer of the installed product: when pods of a row are bound and run, and when their groups say so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kbatch.api.objects import Pod, PodGroup
from kbatch.kube.client import Client
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import PODGROUPS, PODS
from kbatch.model.events import Delete, Upsert
from tests.bench.live.load import LABEL, NAMESPACE, Seen


@dataclass(slots=True)
class Followed(Seen):
    """When things happened, in seconds of the wall clock, by name."""

    running: dict[str, float] = field(default_factory=dict)
    """The watch showed the pod Running."""
    said: dict[str, float] = field(default_factory=dict)
    """The watch showed the group with the phase Running."""


@asynccontextmanager
async def following(client: Client, row: str, *, groups: bool) -> AsyncIterator[Followed]:
    """Watch the row's pods, and with `groups` those of its namespace that are named after it, while this is open."""
    seen = Followed()
    pods = Informer(client, PODS, namespace=NAMESPACE, label_selector=f"{LABEL}={row}")
    podgroups = Informer(client, PODGROUPS, namespace=NAMESPACE)

    async def watch_pods() -> None:
        async for batch in pods:
            now = time.time()
            for event in batch.events:
                if isinstance(event, Upsert) and isinstance(event.obj, Pod):
                    name = event.obj.metadata.name
                    seen.uids[name] = event.obj.metadata.uid
                    if event.obj.spec.node_name:
                        seen.bound.setdefault(name, now)
                    if event.obj.status.phase == "Running":
                        seen.running.setdefault(name, now)
                elif isinstance(event, Delete):
                    seen.gone += 1

    async def watch_groups() -> None:
        async for batch in podgroups:
            now = time.time()
            for event in batch.events:
                if (
                    isinstance(event, Upsert)
                    and isinstance(event.obj, PodGroup)
                    and event.obj.status.phase == "Running"
                ):
                    name = event.obj.metadata.name
                    if name.startswith(f"{row}-"):
                        seen.said.setdefault(name, now)

    tasks = [asyncio.create_task(watch_pods())]
    if groups:
        tasks.append(asyncio.create_task(watch_groups()))
    try:
        await asyncio.wait_for(pods.synced.wait(), 60)
        if groups:
            await asyncio.wait_for(podgroups.synced.wait(), 60)
        yield seen
    finally:
        for task in tasks:
            task.cancel()
