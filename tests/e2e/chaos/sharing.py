"""Queues, priorities and quotas contend for what is there, while things break."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Sequence
from typing import Any

from tests.e2e.auditor.allowances import FAILING, Limits
from tests.e2e.chaos.field import Field, queue
from tests.e2e.chaos.load import GROUPS, Stream, create, elastic, group
from tests.e2e.chaos.stream import NODES
from tests.e2e.proxy.faults import Fault, Script
from tests.e2e.proxy.proxy import Proxy


def contention(
    field: Field, *, seconds: float, seed: int, kill_every: float | None = None, faults: Sequence[Fault] = ()
) -> dict[str, int]:
    """Queues take back what is theirs, and groups of higher priority take from lower ones; how many pods by which.

    One queue holds the whole cluster with groups that need few of their pods, some of them under disruption budgets,
    some not to be disrupted, some only as a whole. Another one, that deserves three quarters, asks again and again; and
    so do groups of high priority of both. With `kill_every`, the leader is killed so often; with `faults`, a proxy
    injects them, and how often each is among what is returned.
    """
    script = Script(seed, faults)
    draw = random.Random(seed)
    field.ensure_nodes(NODES, alike=True)
    create(field.api, [queue("rich", 1), queue("poor", 3), _priority("chaos-low", 1), _priority("chaos-high", 1000)])
    # Whose victims are refused again and again waits for others, longer each time.
    limits = Limits(beneficiary=FAILING) if faults else Limits()
    with (
        Proxy(field.api.server, field.api.certificate_authority, script) as proxy,
        field.namespace() as space,
        field.schedulers("a", "b", flags=(), server=proxy.url if faults else None) as replicas,
        field.audited(limits, hindered=script.hindered) as auditor,
    ):
        create(field.api, _whole_cluster(space), parallel=16)
        field.wait("one queue has it all", lambda: auditor.bound(space) == NODES * 32)
        # Budgets protect no pod that has not started.
        field.wait("all of it runs", lambda: all(pod["status"]["phase"] == "Running" for pod in field.pods(space)))
        with field.plane.api() as one, field.plane.api() as other, contextlib.ExitStack() as streams:
            poor = Stream(one, space, seed=seed, rate=1.5, sizes=(4, 16), duration=(1, 4), prefix="poor", shape=_poor)
            streams.enter_context(poor)
            high = Stream(other, space, seed=seed, rate=1, sizes=(2, 6), duration=(1, 4), prefix="high", shape=_high)
            streams.enter_context(high)
            if kill_every is not None:  # else what can be taken is taken once
                more = Stream(
                    streams.enter_context(field.plane.api()), space, seed=seed, rate=1, sizes=(8, 16),
                    duration=(10, 20), prefix="more", shape=_rich,
                )  # fmt: skip
                streams.enter_context(more)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                left = end - time.monotonic()
                time.sleep(left if kill_every is None else min(left, kill_every * draw.uniform(0.5, 1.5)))
                if kill_every is not None:
                    leader = field.leader()
                    for replica in replicas:
                        if replica.identity == leader:
                            replica.kill()
        script.quiet()
        field.drained(space, 120)
        assert auditor.bound(space)
        for replica in replicas:
            assert "cycle failed" not in replica.log(), replica.log()[-4000:]
        counts = {action: auditor.evictions(action) for action in ("reclaim", "preempt")}
    for name in ("rich", "poor"):
        field.delete(f"{GROUPS}/queues/{name}")
    return counts | script.counts()


def _whole_cluster(space: str) -> list[dict[str, Any]]:
    """16 groups of 16 pods that need 4 of them, in the queue `rich`: a quarter each is not to be disrupted at all, only
    as a whole, and under a budget; the rest is there for whoever has a right to it."""
    documents = []
    for index in range(16):
        disruption = ("Surplus", "Never", "Whole", "Surplus")[index % 4]
        documents += elastic(
            space, f"base-{index:02}", 16, 4, queue="rich", priority="chaos-low", disruption=disruption
        )
        if index % 4 == 3:
            documents.append(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"namespace": space, "name": f"base-{index:02}"},
                    "spec": {"minAvailable": 12, "selector": {"matchLabels": {"group": f"base-{index:02}"}}},
                }
            )
    return documents


def _poor(draw: random.Random, space: str, name: str, size: int, seconds: float) -> list[dict[str, Any]]:
    priority = draw.choice(("", "chaos-low", "chaos-high"))
    return elastic(space, name, size, draw.choice((size, size // 2)), queue="poor", priority=priority, duration=seconds)


def _high(draw: random.Random, space: str, name: str, size: int, seconds: float) -> list[dict[str, Any]]:
    return elastic(space, name, size, size, queue="rich", priority="chaos-high", duration=seconds)


def _rich(draw: random.Random, space: str, name: str, size: int, seconds: float) -> list[dict[str, Any]]:
    disruption = draw.choice(("Surplus", "Surplus", "Whole"))
    return elastic(space, name, size, 2, queue="rich", priority="chaos-low", duration=seconds, disruption=disruption)


def _priority(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
    }  # fmt: skip


def quota(field: Field, *, seconds: float, seed: int, kill_every: float) -> dict[str, int]:
    """Groups that have no pods yet come in queue under a quota, and go; how many came, and how many had to wait for it.

    The leader is killed about every `kill_every` seconds.
    """
    draw = random.Random(seed)
    field.ensure_nodes(NODES)
    admitted: set[str] = set()
    waited: set[str] = set()
    with (
        field.namespace() as space,
        field.schedulers("a", "b", flags=()) as replicas,
        field.audited() as auditor,
        field.plane.api() as api,
    ):
        hard = {
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"namespace": space, "name": "team"},
            "spec": {"hard": {"requests.cpu": "24"}},
        }  # fmt: skip
        create(field.api, [hard])
        with Stream(api, space, seed=seed, rate=3, sizes=(1, 12), shape=_without_pods):
            end = time.monotonic() + seconds
            kill = time.monotonic() + kill_every
            while time.monotonic() < end:
                for one in field.groups(space):
                    name, said = one["metadata"]["name"], _said(one, "Enqueued")
                    if said == ("True", "Admitted"):
                        admitted.add(name)
                        if draw.random() < 0.2:
                            field.delete(f"{GROUPS}/namespaces/{space}/podgroups/{name}")
                    elif said == ("False", "QuotaExceeded"):
                        waited.add(name)
                if time.monotonic() >= kill:
                    kill += kill_every * draw.uniform(0.5, 1.5)
                    leader = field.leader()
                    for replica in replicas:
                        if replica.identity == leader:
                            replica.kill()
                time.sleep(0.2)  # between two looks
        assert auditor.writes()
    return {"admitted": len(admitted), "waited": len(waited)}


def _without_pods(draw: random.Random, space: str, name: str, size: int, _: float) -> list[dict[str, Any]]:
    return [group(space, name, size, minResources={"cpu": f"{size * draw.randint(100, 1000)}m"})]


def _said(document: dict[str, Any], kind: str) -> tuple[str, str]:
    conditions = (document.get("status") or {}).get("conditions") or ()
    return next(((one["status"], one["reason"]) for one in conditions if one["type"] == kind), ("", ""))
