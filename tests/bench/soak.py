"""Twenty minutes of arrivals and completions: does any process grow? `make soak`.

    python -m tests.bench.soak [--minutes N] [--rate PODS] [--json FILE]

Scheduler and podgroup operator run as processes on a control plane of their own, with fake nodes. Gangs arrive at a
steady rate, run for some seconds, end and are deleted, so the cluster holds about as much at the end as at the
beginning. The first part is left out: caches fill, connections open. Over the rest a line is fitted through each
process's resident memory; the limit is on its slope. The status is 1 where it is missed or where gangs were left.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from tests.bench.live.contestants import KBATCH, Contestant, Running
from tests.bench.live.load import NAMESPACE, Creation, clear, create, observing, pod_of
from tests.bench.live.plane import plane
from tests.bench.live.prepare import prepare

API = "scheduling.incubator.k8s.io/v1alpha1"
GROUPS = f"/apis/{API}/namespaces/{NAMESPACE}/podgroups"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = 100
WARM_UP = 0.25
"""This part of the time is not looked at."""
SLOPE_LIMIT = 6.0
"""MiB an hour; what the allocator does by itself moves a line of a quarter of an hour by less."""

PODGROUP = Contestant(
    name="podgroup",
    command=(
        "$bin/kbatch-podgroup", "--kubeconfig=$kubeconfig", "--lease-namespace=default", "--health-port=0",
        "--metrics-port=0", "--log-level=warning",
    ),
    scheduler_name=KBATCH.scheduler_name,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Growth:
    """How one process's memory went: MiB, and MiB an hour."""

    name: str
    minutes: float
    first: float
    last: float
    peak: float
    slope: float
    noise: float
    """Standard error of the slope."""
    gangs: int
    left: int
    """Gangs that had arrived and were not whole at the end, ten seconds after the last."""

    @property
    def met(self) -> bool:
        return self.left == 0 and self.slope <= max(SLOPE_LIMIT, 2 * self.noise)


def fitted(times: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Slope of the line through the points by least squares, and the slope's standard error."""
    count = len(times)
    middle, level = sum(times) / count, sum(values) / count
    spread = sum((at - middle) ** 2 for at in times)
    slope = sum((at - middle) * (value - level) for at, value in zip(times, values, strict=True)) / spread
    rest = sum((value - level - slope * (at - middle)) ** 2 for at, value in zip(times, values, strict=True))
    return slope, (rest / max(1, count - 2) / spread) ** 0.5


async def soak(minutes: float, rate: float) -> list[Growth]:
    """Run the load; what became of each process's memory."""
    draw = random.Random(11)
    with (
        tempfile.TemporaryDirectory(prefix="kbatch-soak-") as scratch,
        plane(Path(scratch)) as made,
        ExitStack() as open_,
    ):
        prepare(made, [KBATCH])
        made.ensure_nodes(NODES)
        processes = [
            open_.enter_context(Running(one, made.words, Path(scratch) / f"{one.name}.log"))
            for one in (KBATCH, PODGROUP)
        ]
        samples: list[tuple[float, list[float]]] = []
        gangs = left = 0
        credentials = load_credentials(str(made.cluster.kubeconfig))
        async with Client(credentials, user_agent="soak", connections=32) as client, asyncio.TaskGroup() as tasks:

            async def life(name: str, size: int, seconds: int) -> None:
                nonlocal left
                async with observing(client, name) as seen:
                    for path, body in gang(name, size, seconds):
                        await create(client, seen, path, body)
                    async with asyncio.timeout(60 + seconds):
                        while len(seen.bound) < size:  # noqa: ASYNC110  (a look at a condition)
                            await asyncio.sleep(0.1)
                    left -= 1
                    await asyncio.sleep(seconds + 2)
                    await clear(client, seen, [f"{GROUPS}/{name}"])

            began = time.monotonic()
            while (now := time.monotonic() - began) < minutes * 60:
                size = draw.choice((1, 4, 8, 16, 32))
                gangs, left = gangs + 1, left + 1
                tasks.create_task(life(f"soak-{gangs}", size, draw.randint(2, 8)))
                for process in processes:
                    process.check()
                samples.append((now, [process.use().resident / 2**20 for process in processes]))
                await asyncio.sleep(size / rate)
        looked_at = [(at, values) for at, values in samples if at >= WARM_UP * minutes * 60]
        return [
            _growth(process.contestant.name, minutes, [(at, values[at_]) for at, values in looked_at], gangs, left)
            for at_, process in enumerate(processes)
        ]


def _growth(name: str, minutes: float, points: Sequence[tuple[float, float]], gangs: int, left: int) -> Growth:
    times, values = [at / 3600 for at, _ in points], [value for _, value in points]
    slope, noise = fitted(times, values)
    return Growth(name, minutes, values[0], values[-1], max(values), slope, noise, gangs, left)


def gang(name: str, size: int, seconds: int) -> list[Creation]:
    """A group and pods that end by themselves."""
    group = {
        "apiVersion": API, "kind": "PodGroup", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"minMember": size},
    }  # fmt: skip
    notes = {"simulate.kbatch.dev/duration": str(seconds)}
    pods = [pod_of(name, f"{name}-{index}", KBATCH, name, size, annotations=notes) for index in range(size)]
    return [(GROUPS, group), *((PODS, pod) for pod in pods)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.soak")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=20.0, help="pods that arrive in a second")
    parser.add_argument("--json", type=Path, help="write one JSON line per process to this file")
    chosen = parser.parse_args()
    found = [replace(one) for one in asyncio.run(soak(chosen.minutes, chosen.rate))]
    for one in found:
        print(
            f"{'ok  ' if one.met else 'MISS'} {one.name}: {one.slope:+.2f} ± {one.noise:.2f} MiB/h, "
            f"{one.first:.0f} to {one.last:.0f} MiB in {one.minutes:g} minutes, {one.gangs} gangs, {one.left} left"
        )
    if chosen.json is not None:
        lines = [json.dumps({**asdict(one), "met": one.met}) + "\n" for one in found]
        chosen.json.write_text("".join(lines), "utf-8")
    return 0 if all(one.met for one in found) else 1


if __name__ == "__main__":
    # Asked to stop, it must still end its control plane.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(main())
