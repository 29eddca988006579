"""What groups are told of evictions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from kbatch.engine import Eviction, Transaction
from kbatch.kube.errors import ApiError, Cause
from kbatch.kube.events import EventRecorder
from operators.scheduler.dispatch import Dispatcher
from tests.unit.scheduler.fakes import FakeApi, cache_with, group, metrics, node, pod, queue, until


class Recorder(EventRecorder):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__(FakeApi(), controller="test", instance="test")
        self.all: list[tuple[str, str, str, str]] = []

    def tell(self, regarding: Any, type_: str, reason: str, action: str, note: str, *, share: float = 1.0) -> bool:
        self.all.append((regarding.kind, regarding.name, reason, note))
        return True


async def test_the_victims_group_and_the_beneficiary_are_told_once_for_a_plan() -> None:
    api, told = FakeApi(), Recorder()
    victims = [pod(f"v{index}", group="victim", node="n") for index in range(10)]
    cache = cache_with(queue(), node("n"), group("victim"), group("winner"), *victims)
    api.on("POST", "/pods/v9/eviction", {}, ApiError(429, "TooManyRequests", "budget", (Cause("DisruptionBudget"),)))
    dispatcher = Dispatcher(api, cache, metrics=metrics(), recorder=told)
    task = asyncio.create_task(dispatcher.run())
    evictions = tuple(Eviction(f"ns/v{index}", f"uid-v{index}", "n", "reclaim", "ns/winner") for index in range(10))
    assert dispatcher.submit(Transaction("ns/winner", evictions=evictions, job="ns/winner"))
    await until(lambda: dispatcher.in_flight == 0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    groups = [(name, reason, note) for kind, name, reason, note in told.all if kind == "PodGroup"]
    assert [(name, reason) for name, reason, _ in groups] == [
        ("victim", "Evicted"),
        ("winner", "VictimsEvicted"),
        ("winner", "EvictionRefused"),
    ]
    assert groups[0][2].startswith("9 pods (ns/v0, ns/v1,")
    assert groups[0][2].endswith("and 1 more) evicted by reclaim for ns/winner")
