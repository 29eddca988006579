"""Ten minutes of arrivals and completions, after as long to warm up: does any process grow? `make soak`.

    python -m tests.bench.soak [--minutes N] [--warm-up MINUTES] [--rate PODS] [--json FILE]

kbatch is installed by its chart on a control plane of its own, with fake nodes, and its four processes run as the chart
says. Gangs arrive at a steady rate in all three ways (plain pods, Jobs that wait, roles whose pods the operator makes),
run for some seconds, end and are deleted: the cluster holds about as much at the end as at the beginning. No two plain
pods and no two templates are alike (`tests.varied`).

The verdict, for each process: the warm-up is left out, because what is bounded fills then (caches, remembered Events,
what the garbage collector has not come to yet). What is bounded by a number fills after as many pods or groups, what is
bounded by a time after that time. The rest is cut into equal pieces, and a line is fitted through the pieces' mean
resident memory: one sample says little, as memory goes in saws. The slope must not lie above the limit by more than
twice its standard error; and where that error is larger than half the limit, and the slope not below the limit by twice
of it, the run says nothing, and is missed too. The status is 1 where a process missed, was
restarted, or where gangs were left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from kbatch.api.objects import Pod
from kbatch.kube import kinds
from kbatch.kube.client import MERGE, Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.errors import ApiError, NoAnswerError
from kbatch.kube.informer import Informer
from kbatch.localcluster.up import down, status, up
from kbatch.model.events import Delete, Upsert
from tests import varied
from tests.bench.live.load import LABEL, NAMESPACE
from tests.bench.stopping import end_when_asked
from tests.varied import Document, path_of

API = "scheduling.incubator.k8s.io/v1alpha1"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = 100
SIZES = (1, 4, 8, 16, 32)
MINUTES = 10.0
WARM_UP = 10.0
"""Minutes that are left out before these: so long Events are remembered."""
PIECES = 20
SLOPE_LIMIT = 6.0
"""MiB an hour. At ten pods a second that is 170 bytes of each pod, or two kilobytes of each group, that came and went:
less than any object that might have been kept."""
SAMPLE_SECONDS = 1.0
AT_ONCE = 50
"""Gangs that are there at one time, at most: on a machine that cannot carry the rate, arrivals wait."""
PATIENCE = 60.0
"""Within so many seconds more than it runs a gang is whole: nothing waits for room."""


@dataclass(frozen=True, slots=True)
class Growth:
    """How one process's resident memory went after the warm-up: MiB, and MiB an hour."""

    name: str
    minutes: float
    start: float
    """Mean of the very first piece of the run, warm-up included."""
    first: float
    last: float
    peak: float
    slope: float
    error: float
    """Standard error of the slope."""

    @property
    def met(self) -> bool:
        """Whether it did not grow, as far as the run can tell, and the run can tell.

        A process that gives memory back at once has a line that fits badly, and surely did not grow.
        """
        low, high = self.slope - 2 * self.error, self.slope + 2 * self.error
        return high <= SLOPE_LIMIT or (low <= SLOPE_LIMIT and self.error <= SLOPE_LIMIT / 2)


@dataclass(frozen=True, slots=True)
class Load:
    """What the run was: gangs that came, those that were not whole a minute after they should be, restarts."""

    gangs: int
    pods: int
    left: int
    restarted: tuple[str, ...]

    @property
    def met(self) -> bool:
        """Whether the load was carried."""
        return not self.left and not self.restarted


def fitted(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Slope of the line through the points by least squares, and the slope's standard error."""
    count = len(times)
    middle, level = sum(times) / count, sum(values) / count
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - level) for at, value in zip(times, values, strict=True)) / spread
    rest = sum((value - level - slope * (at - middle)) ** 2 for at, value in zip(times, values, strict=True))
    return slope, (rest / max(1, count - 2) / spread) ** 0.5


def pieces(samples: Sequence[tuple[float, float]], count: int) -> list[tuple[float, float]]:
    """Mean time and mean value of so many equal stretches of time; those without a sample are left out."""
    begin, end = samples[0][0], samples[-1][0]
    found: list[list[tuple[float, float]]] = [[] for _ in range(count)]
    for at, value in samples:
        found[min(count - 1, int((at - begin) / max(1e-9, end - begin) * count))].append((at, value))
    return [(sum(at for at, _ in one) / len(one), sum(value for _, value in one) / len(one)) for one in found if one]


def growth(name: str, samples: Sequence[tuple[float, float]], warm_up: float = WARM_UP) -> Growth:
    """What became of a process's memory; samples are seconds and MiB, the warm-up (minutes) among them."""
    begin = samples[0][0] + warm_up * 60
    looked_at = [one for one in samples if one[0] >= begin]
    points = pieces(looked_at, PIECES)
    slope, error = fitted([at / 3600 for at, _ in points], [value for _, value in points])
    return Growth(
        name, (samples[-1][0] - begin) / 60, pieces(samples, PIECES)[0][1], points[0][1], points[-1][1],
        max(value for _, value in looked_at), slope, error,
    )  # fmt: skip


# --- the load ---------------------------------------------------------------------------------------------------------


def plain(draw: random.Random, name: str, size: int, seconds: int) -> list[Document]:
    """A group, and pods that somebody makes and that end by themselves."""
    return varied.group(draw, NAMESPACE, name, size, seconds, nodes=NODES, labels={LABEL: name})


def job(draw: random.Random, name: str, size: int, seconds: int) -> list[Document]:
    """A Job that waits suspended until the group that is made for it is in queue."""
    body = {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kbatch.dev/queue": "default"}},
        "spec": {"completions": size, "parallelism": size, "template": _template(draw, name, size, seconds)},
    }  # fmt: skip
    return [body]


def roles(draw: random.Random, name: str, size: int, seconds: int) -> list[Document]:
    """A group whose pods the operator makes."""
    role = {"name": "w", "minMember": size, "template": _template(draw, name, size, seconds)}
    meta = {"name": name, "namespace": NAMESPACE}
    return [{"apiVersion": API, "kind": "PodGroup", "metadata": meta, "spec": {"subGroups": [role]}}]


WAYS = (plain, job, roles)


def _template(draw: random.Random, name: str, size: int, seconds: int) -> Document:
    return varied.template(draw, name, size, seconds, nodes=NODES, labels={LABEL: name})


class Observer:
    """One watch of all pods: which of each gang have a node, and which exist."""

    def __init__(self, client: Client) -> None:
        self._informer = Informer(client, kinds.PODS, namespace=NAMESPACE)
        self._changed = asyncio.Condition()
        self.bound: dict[str, set[str]] = {}
        self.there: dict[str, set[str]] = {}
        self._gang: dict[str, str] = {}

    async def run(self) -> None:
        async for batch in self._informer:
            for event in batch.events:
                if isinstance(event, Upsert) and isinstance(event.obj, Pod):
                    name = event.obj.metadata.name
                    gang = self._gang[name] = (event.obj.metadata.labels or {}).get(LABEL, "")
                    self.there.setdefault(gang, set()).add(name)
                    if event.obj.spec.node_name:
                        self.bound.setdefault(gang, set()).add(name)
                elif isinstance(event, Delete) and event.name in self._gang:
                    self.there.get(self._gang.pop(event.name), set()).discard(event.name)
            async with self._changed:
                self._changed.notify_all()

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it came to hold in so many seconds."""
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return False
        return True

    def forget(self, gang: str) -> None:
        self.bound.pop(gang, None)
        self.there.pop(gang, None)


async def live(client: Client, seen: Observer, name: str, size: int, seconds: int, made: Sequence[Document]) -> bool:
    """One gang from its creation to its end; whether it was whole in time. Its pods have ended when it is deleted."""
    owners = varied.owners_of(made)
    uids = {one["metadata"]["name"]: await _create(client, one) for one in owners}
    others = varied.with_owners(made, lambda one: uids[one["metadata"]["name"]])
    for one in others:
        await _create(client, one)
    whole = await seen.until(lambda: len(seen.bound.get(name, ())) >= size, PATIENCE + seconds)
    await asyncio.sleep(seconds + 2)
    await _delete_all(client, (one for one in others if one["kind"] in {"PodGroup", "Job"}))
    for pod in sorted(seen.there.get(name, ())):
        await _delete(client, f"{PODS}/{pod}")
    # As long as it takes: what the control plane is slow to take away is there, and counts among those at one time.
    while not await seen.until(lambda: not seen.there.get(name), PATIENCE):
        print(f"{name}: {len(seen.there.get(name, ()))} of {size} pods still there", flush=True)
    await _delete_all(client, (one for one in made if one["kind"] not in {"PodGroup", "Job", "Pod"}))
    seen.forget(name)
    return whole


async def _create(client: Client, body: Document) -> str:
    """Make an object; its uid."""
    path, name = path_of(body), body["metadata"]["name"]
    while True:
        try:
            return _uid(await client.request("POST", path, body=body))
        except NoAnswerError:
            continue  # a machine that is busy with other things
        except ApiError as error:
            if error.status != 409:
                raise
        return _uid(await client.request("GET", f"{path}/{name}"))


def _uid(answer: bytes) -> str:
    return str(json.loads(answer)["metadata"]["uid"])


async def _delete_all(client: Client, made: Iterable[Document]) -> None:
    for one in made:
        await _delete(client, f"{path_of(one)}/{one['metadata']['name']}")


async def _prepare(client: Client) -> None:
    """The namespace, what the load refers to, and the marks of the nodes."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    for one in (space, *varied.fixtures()):
        await client.request("POST", path_of(one), body=one)
    for number in range(NODES):
        path = f"/api/v1/nodes/node-{number}"
        await client.request("PATCH", path, body=varied.marks(number), content_type=MERGE)


async def _delete(client: Client, path: str) -> None:
    try:
        await client.request("DELETE", path, body={"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    except ApiError as error:
        if error.status != 404:
            raise
    except NoAnswerError:
        await _delete(client, path)


def resident(pid: int) -> float:
    """MiB of a process that are in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def pids_of(name: str) -> dict[str, int | None]:
    """The processes of a cluster; None for one that is being restarted."""
    return {component: one.pid for component, one in status(name)[1].processes.items()}


async def soak(name: str, kubeconfig: str, minutes: float, warm_up: float, rate: float) -> tuple[Load, list[Growth]]:
    """Run the load against an installed kbatch; what became of each process's memory."""
    draw = random.Random(11)
    pids = pids_of(name)
    samples: dict[str, list[tuple[float, float]]] = {component: [] for component in pids}
    gangs = pods = left = 0
    credentials = load_credentials(kubeconfig)
    async with Client(credentials, user_agent="soak", connections=32) as client, AsyncExitStack() as watching:
        await _prepare(client)
        seen = Observer(client)
        watch = asyncio.create_task(seen.run())
        watching.callback(watch.cancel)

        room = asyncio.Semaphore(AT_ONCE)

        async def one(gang: str, size: int, seconds: int, made: Sequence[Document]) -> None:
            nonlocal left
            try:
                left += not await live(client, seen, gang, size, seconds, made)
            finally:
                room.release()

        async with asyncio.TaskGroup() as tasks:
            began = looked = time.monotonic()
            _sample(pids, samples, 0.0)
            while (now := time.monotonic()) - began < (warm_up + minutes) * 60:
                if watch.done():
                    watch.result()
                await room.acquire()
                size = draw.choice(SIZES)
                gangs, pods = gangs + 1, pods + size
                gang, seconds = f"soak-{gangs}", draw.randint(2, 8)
                tasks.create_task(one(gang, size, seconds, WAYS[gangs % len(WAYS)](draw, gang, size, seconds)))
                if now - looked >= SAMPLE_SECONDS:
                    looked = now
                    _sample(pids, samples, now - began)
                await asyncio.sleep(size / rate)
    restarted = tuple(component for component, pid in pids_of(name).items() if pid != pids[component])
    return Load(gangs, pods, left, restarted), [
        growth(component, found, warm_up) for component, found in samples.items()
    ]


def _sample(pids: Mapping[str, int | None], samples: dict[str, list[tuple[float, float]]], now: float) -> None:
    for component, pid in pids.items():
        if pid is not None and Path(f"/proc/{pid}").exists():
            samples[component].append((now, resident(pid)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after the warm-up")
    parser.add_argument("--warm-up", type=float, default=WARM_UP, metavar="MINUTES")
    # Half of what the scheduler writes in `Scheduled` Events a second: above that it is their queue that would grow.
    parser.add_argument("--rate", type=float, default=10.0, help="pods that arrive in a second")
    parser.add_argument("--json", type=Path, help="write one JSON line per process to this file")
    chosen = parser.parse_args()
    name = f"soak-{os.getpid()}"
    try:
        report = up(name, nodes=NODES, control_plane_only=False, progress=lambda line: print(line, flush=True))
        load, found = asyncio.run(soak(name, report.kubeconfig, chosen.minutes, chosen.warm_up, chosen.rate))
    finally:
        down(name)
    print(f"{load.gangs} gangs, {load.pods} pods, {load.left} gangs left, restarted: {list(load.restarted)}")
    print(
        f"limit {SLOPE_LIMIT:g} MiB/h (twice the standard error allowed), after {chosen.warm_up:g} minutes to warm up"
    )
    for one in found:
        print(
            f"{'ok  ' if one.met else 'MISS'} {one.name}: {one.slope:+.2f} ± {one.error:.2f} MiB/h over "
            f"{one.minutes:.1f} minutes; {one.start:.1f} MiB at first, {one.first:.1f} after the warm-up, "
            f"{one.last:.1f} at the end"
        )
    if chosen.json is not None:
        lines = [json.dumps({**asdict(one), "met": one.met, **asdict(load)}) + "\n" for one in found]
        chosen.json.write_text("".join(lines), "utf-8")
    return 0 if load.met and all(one.met for one in found) else 1


if __name__ == "__main__":
    end_when_asked()
    sys.exit(main())
