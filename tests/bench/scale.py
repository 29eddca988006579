"""What a large cluster costs the scheduler before it decides anything: 100,000 pods on 10,000 nodes.

    python -m tests.bench.scale [--pods N] [--nodes N] [--json FILE]

A source in memory answers lists and watches with the very bytes that an API server would send; everything behind it is
the scheduler's own: decoder, informers, cache, loop, engine. Nobody binds. The status is 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry

from kbatch.api.configuration import DEFAULT
from kbatch.engine import Report, Transaction, build_policy
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import NODES, PODGROUPS, PODS, QUEUES
from kbatch.metrics import SchedulerMetrics, WatchMetrics
from kbatch.model.cluster import ClusterModel
from kbatch.process import memory
from kbatch.process.feed import Feed
from operators.scheduler.cache import Cache
from operators.scheduler.loop import Scheduler
from operators.scheduler.process import KINDS
from tests.bench.engine import Figure, keep, tell

GANG = 100
WAITING = 1000
"""Pods that fit nowhere: what an idle scheduler has before its eyes."""
EVENTS = 20_000
IDLE_SECONDS = 10.0

_POD = """{"metadata":{"name":"%(name)s","namespace":"ns","uid":"6a0e8fd2-0000-4000-8000-%(number)012d",\
"resourceVersion":"%(version)d","creationTimestamp":"2026-01-01T00:00:00Z",\
"labels":{"app.kubernetes.io/name":"train","job":"%(group)s"},\
"annotations":{"scheduling.k8s.io/group-name":"%(group)s"},\
"managedFields":[{"manager":"kubectl","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z",\
"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:scheduling.k8s.io/group-name":{}},\
"f:labels":{".":{},"f:job":{}}},"f:spec":{"f:containers":{"k:{\\"name\\":\\"main\\"}":{".":{},"f:image":{},\
"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},\
"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},\
"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}]},\
"spec":{"volumes":[{"name":"kube-api-access-x7k2p","projected":{"sources":[{"serviceAccountToken":\
{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt",\
"path":"ca.crt"}]}}],"defaultMode":420}}],"containers":[{"name":"main","image":"registry.example/train:1.2",\
"command":["train","--epochs=10"],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],\
"resources":{"requests":{"cpu":"%(cpu)s","memory":"2Gi"}},"volumeMounts":[{"name":"kube-api-access-x7k2p",\
"readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],\
"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],\
"restartPolicy":"Never","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default",\
"nodeName":"%(node)s","securityContext":{},"schedulerName":"kube-batch","tolerations":[{"key":\
"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},{"key":\
"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,\
"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},"status":{"phase":"%(phase)s","qosClass":\
"Burstable","podIP":"10.0.0.1","startTime":"2026-01-01T00:00:0%(second)dZ","conditions":[{"type":"PodScheduled",\
"status":"True","lastTransitionTime":"2026-01-01T00:00:01Z"},{"type":"Ready","status":"True",\
"lastTransitionTime":"2026-01-01T00:00:02Z"}]}}"""
_NODE = """{"metadata":{"name":"n%(number)05d","uid":"n%(number)d","resourceVersion":"%(version)d",\
"creationTimestamp":"2026-01-01T00:00:00Z","labels":{"kubernetes.io/hostname":"n%(number)05d",\
"kubernetes.io/arch":"amd64","topology.kubernetes.io/zone":"z%(zone)d"}},"spec":{},"status":{"allocatable":\
{"cpu":"32","memory":"256Gi","pods":"110","ephemeral-storage":"1Ti"},"conditions":[{"type":"Ready","status":"True",\
"lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"""
_GROUP = """{"metadata":{"name":"%(name)s","namespace":"ns","uid":"%(name)s","resourceVersion":"1","generation":1,\
"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"minMember":100,"queue":"q%(queue)d"},"status":{"phase":"Running",\
"conditions":[{"type":"Enqueued","status":"True","reason":"Enqueued","message":"","observedGeneration":1,\
"lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Scheduled","status":"%(scheduled)s","reason":"Scheduled",\
"message":"","observedGeneration":1,"lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Unschedulable",\
"status":"False","reason":"Scheduled","message":"","observedGeneration":1,\
"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"""
_QUEUE = """{"metadata":{"name":"q%(number)d","uid":"q%(number)d","resourceVersion":"1"},"spec":{"weight":1}}"""


class Source:
    """An `Api` that lists a cluster, and streams what is put into `arriving`."""

    def __init__(self, pods: int, nodes: int) -> None:
        self.arriving: asyncio.Queue[list[bytes]] = asyncio.Queue()
        self._pods, self._nodes = pods, nodes
        self._sizes = {PODS.path(): pods, NODES.path(): nodes, PODGROUPS.path(): pods // GANG, QUEUES.path(): 4}

    def pod(self, number: int, version: int, *, second: int = 1, phase: str = "Running") -> str:
        """One pod as the server would write it; the last ones wait and ask for more than any node has."""
        waits = number >= self._pods - WAITING
        group = f"g{number // GANG:05}"
        return _POD % {
            "name": f"{group}-{number % GANG}", "group": group, "number": number, "version": version, "second": second,
            "node": "" if waits else f"n{number % self._nodes:05}", "phase": "Pending" if waits else phase,
            "cpu": "33" if waits else "1",
        }  # fmt: skip

    def _item(self, path: str, number: int) -> str:
        if path == PODS.path():
            return self.pod(number, number + 1)
        if path == NODES.path():
            return _NODE % {"number": number, "version": number + 1, "zone": number % 3}
        if path == PODGROUPS.path():
            scheduled = number * GANG < self._pods - WAITING
            return _GROUP % {"name": f"g{number:05}", "queue": number % 4, "scheduled": scheduled}
        return _QUEUE % {"number": number}

    async def request(self, method: str, path: str, *, params: Mapping[str, str] | None = None, **_: object) -> bytes:
        """One page of a list."""
        asked = params or {}
        begin = int(asked.get("continue", "0"))
        end = min(self._sizes.get(path, 0), begin + int(asked.get("limit", "500")))
        more = str(end) if end < self._sizes.get(path, 0) else ""
        items = ",".join(self._item(path, number) for number in range(begin, end))
        return f'{{"metadata":{{"resourceVersion":"1000000","continue":"{more}"}},"items":[{items}]}}'.encode()

    def stream(
        self, path: str, *, params: Mapping[str, str] | None = None, silence: float
    ) -> AbstractAsyncContextManager[AsyncIterator[list[bytes]]]:
        """A watch: silent, but for pods."""
        return self._stream(path)

    @asynccontextmanager
    async def _stream(self, path: str) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        yield self._lines(path)

    async def _lines(self, path: str) -> AsyncIterator[list[bytes]]:
        while path == PODS.path():
            yield await self.arriving.get()
        await asyncio.Event().wait()


class Idle:
    """Hands that must have nothing to do."""

    def submit(self, transaction: Transaction) -> bool:
        """Nothing here fits anywhere."""
        raise AssertionError(f"decided on {transaction.group}")

    def crowded(self) -> bool:
        """Never."""
        return False

    async def relieved(self) -> None:
        """Nothing waits."""

    def paused_until(self) -> None:
        """Nothing had to wait."""


def resident() -> float:
    """MiB that this process holds now."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def measure(pods: int, nodes: int) -> list[Figure]:
    """Start, rest, take events."""
    what = f"{pods:,} pods on {nodes:,} nodes"
    memory.set_up()
    source, registry = Source(pods, nodes), CollectorRegistry()
    cache = Cache(ClusterModel())
    feed = Feed([Informer(source, kind) for kind in KINDS], cache.receive, WatchMetrics(registry))
    verdicts: list[Report] = []
    policy = build_policy(DEFAULT)

    def report(found: Report) -> tuple[None, ...]:
        verdicts.append(found)
        return ()

    scheduler = Scheduler(cache, lambda: policy, Idle(), report, metrics=SchedulerMetrics(registry))
    began = time.process_time()
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        feeding = group.create_task(feed.run())
        await feed.synced.wait()
        await cache.caught_up()
        memory.settle()
        deciding = group.create_task(scheduler.run(stopping))
        while not scheduler.cycles:  # noqa: ASYNC110  (a look at a condition)
            await asyncio.sleep(0.01)
        started = time.process_time() - began
        assert len(cache.model.tasks) == pods
        assert len(verdicts[0].verdicts) >= WAITING // GANG
        await asyncio.sleep(2.0)  # what the first cycle has left behind
        began, cycles = time.process_time(), scheduler.cycles
        await asyncio.sleep(IDLE_SECONDS)
        idle = (time.process_time() - began) / IDLE_SECONDS
        assert scheduler.cycles > cycles
        stopping.set()
        await deciding
        per_event = await _events(source, cache, pods, 2_000_000, second=5)
        per_end = await _events(source, cache, pods, 3_000_000, phase="Succeeded")
        held = resident()
        feeding.cancel()
    return [
        Figure("scale-start", f"{what}: start to the end of the first cycle", started, 20.0, pods=pods, nodes=nodes),
        Figure("scale-memory", f"{what}: resident", held, 1536.0, "MiB", pods=pods, nodes=nodes),
        Figure("scale-idle", f"{what}: a second without events", idle, 0.02, pods=pods, nodes=nodes),
        Figure("scale-event", f"{what}: a pod event, decoded and taken", per_event, 30.0, "µs", pods=pods, nodes=nodes),
        Figure("scale-end", f"{what}: a pod's end, decoded and taken", per_end, 30.0, "µs", pods=pods, nodes=nodes),
    ]  # fmt: skip


async def _events(
    source: Source, cache: Cache, pods: int, version: int, *, second: int = 1, phase: str = "Running"
) -> float:
    """Microseconds of CPU for each change of a running pod, from the watch's bytes to the model."""
    spread = max(1, (pods - WAITING) // EVENTS)
    lines = [
        b'{"type":"MODIFIED","object":'
        + source.pod(number * spread, version + number, second=second, phase=phase).encode()
        + b"}"
        for number in range(min(EVENTS, pods - WAITING))
    ]
    before = cache.model.generation
    began = time.process_time()
    for at in range(0, len(lines), 20):  # about what arrives together under load
        source.arriving.put_nowait(lines[at : at + 20])
    while cache.model.generation < before + len(lines):  # noqa: ASYNC110  (the model has no event to wait for)
        await asyncio.sleep(0)
    return (time.process_time() - began) / len(lines) * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale")
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--json", type=Path, help="write one JSON line per figure to this file")
    chosen = parser.parse_args()
    figures = asyncio.run(measure(chosen.pods, chosen.nodes))
    for figure in figures:
        tell(figure)
    return keep(figures, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
