"""An API server in memory at the narrow seam, and a world to schedule in."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from kbatch.api.objects import (
    Condition,
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodSpec,
    Queue,
    ResourceRequirements,
)
from kbatch.kube.errors import ApiError
from kbatch.kube.events import EventRecorder
from kbatch.kube.informer import Batch
from kbatch.metrics import SchedulerMetrics
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Event, Unreadable, Upsert
from operators.scheduler.cache import Cache

CREATED = "2026-01-01T00:00:00Z"


@dataclass
class Call:
    method: str
    path: str
    body: Any
    params: Mapping[str, str]


@dataclass
class FakeApi:
    """Answers by method and end of the path; the answers for one are given in turn, the last one for ever."""

    calls: list[Call] = field(default_factory=list)
    answers: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    gate: asyncio.Event | None = None
    """While set and not open, every request waits here."""
    open_: int = 0
    most_open: int = 0

    def on(self, method: str, end: str, *answers: Any) -> None:
        self.answers[method, end] = list(answers)

    async def request(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: Any = None, **_: object
    ) -> bytes:
        self.calls.append(Call(method, path, body, params or {}))
        self.open_ += 1
        self.most_open = max(self.most_open, self.open_)
        try:
            if self.gate is not None:
                await self.gate.wait()
            else:
                await asyncio.sleep(0)
            answer = self._answer(method, path)
        finally:
            self.open_ -= 1
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = answer(self.calls[-1])
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def _answer(self, method: str, path: str) -> Any:
        for (wanted, end), answers in self.answers.items():
            if wanted == method and path.endswith(end):
                return answers.pop(0) if len(answers) > 1 else answers[0]
        return {}

    def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        raise NotImplementedError

    def made(self, method: str, end: str = "") -> list[Call]:
        return [call for call in self.calls if call.method == method and call.path.endswith(end)]


def conflict(message: str = "conflict") -> ApiError:
    return ApiError(409, "Conflict", message)


def metrics() -> SchedulerMetrics:
    return SchedulerMetrics(CollectorRegistry())


def recorder(api: FakeApi) -> EventRecorder:
    return EventRecorder(api, controller="test", instance="test")


def pod(name: str, *, group: str = "g", node: str = "", uid: str = "", version: str = "1") -> Pod:
    metadata = Metadata(
        name=name,
        namespace="ns",
        uid=uid or f"uid-{name}",
        resource_version=version,
        creation_timestamp=CREATED,
        annotations={"scheduling.k8s.io/group-name": group},
    )
    container = Container(resources=ResourceRequirements(requests={"cpu": "1"}))
    return Pod(metadata=metadata, spec=PodSpec(scheduler_name="kube-batch", node_name=node, containers=(container,)))


def node(name: str, cpu: str = "4") -> Node:
    return Node(
        metadata=Metadata(name=name, uid=f"uid-{name}"),
        status=NodeStatus(allocatable={"cpu": cpu, "memory": "8Gi", "pods": "110"}),
    )


def group(
    name: str = "g", *, minimum: int = 1, version: str = "10", conditions: tuple[Condition, ...] = ()
) -> PodGroup:
    return PodGroup(
        metadata=Metadata(
            name=name, namespace="ns", uid=f"uid-{name}", generation=1, resource_version=version,
            creation_timestamp=CREATED,
        ),
        spec=PodGroupSpec(min_member=minimum),
        status=PodGroupStatus(conditions=conditions or None),
    )  # fmt: skip


def queue(name: str = "default") -> Queue:
    return Queue(metadata=Metadata(name=name, uid=f"uid-{name}"))


def told(*objects: Any) -> Batch:
    events: tuple[Event, ...] = tuple(
        one if isinstance(one, Unreadable) or (hasattr(one, "kind") and not hasattr(one, "metadata")) else Upsert(one)
        for one in objects
    )
    return Batch(events, complete=True)


def cache_with(*objects: Any, wall: Callable[[], float] = time.time) -> Cache:
    cache = Cache(ClusterModel(), wall=wall)
    with cache.held():  # however many they are, all of them are known at once
        cache.receive(told(*objects))
    return cache


def finish(steps: Iterable[None]) -> None:
    """Work that is done in pieces, done in one."""
    for _ in steps:
        pass


async def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, condition
        await asyncio.sleep(0.002)
