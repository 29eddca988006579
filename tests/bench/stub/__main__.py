"""What a scheduler can do when the API server costs it nothing: `python -m tests.bench.stub [ROW ...] [--json FILE]`.

The server is a stub (tests/e2e/test_stub.py holds it to the real one's wire format): it makes gangs of 20 by itself,
answers binds at once, and sends the events of a pod's whole life. Each row has a stub and a scheduler of its own.

    stream    gangs come at 1,700 pods a second: the limits are of this row
    most      so many pods wait at any time that the scheduler is never without work: how many binds a second are they?

each for kbatch and, as `kube-scheduler stream` and so on with plain pods, for kube-scheduler. The status is 1 where a
limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import sys
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.localcluster.programs import ensure_programs
from tests.bench.live.contestants import KBATCH, KUBE_SCHEDULER, Contestant, Running, used_by
from tests.bench.live.load import NAMESPACE
from tests.bench.stopping import end_when_asked
from tests.bench.stub.server import Stub, serving

NODES = 5000
GANG = 20
RATE = 1700.0
"""Pods a second of the row `stream`."""
WAITING = 4000
"""Pods that always wait in the row `most`."""
WARM_SECONDS = 8.0
"""What happens before is not measured: lists, the first cycles, and until as many pods end as come."""
SECONDS = 30.0
START_SECONDS, LIFE_SECONDS = 0.5, 5.0
"""From a bind until the pod runs, and from then until it is gone."""
PATIENCE = 60.0

LEAST_PART = 0.99
"""Of the stream's rate must be bound in a second: its pods come in gangs, and the measured time cuts two of them."""
MOST_CPU_MS = 0.55
MOST_WIRE_SECONDS = 0.2
GOAL = 2500.0

QUEUED = "kbatch_scheduler_bind_queue_seconds"

CONTESTANTS = {
    "kbatch": KBATCH,
    "kube-scheduler": replace(
        KUBE_SCHEDULER, command=(*KUBE_SCHEDULER.command, "--kube-api-content-type=application/json")
    ),
}


@dataclass
class Figure:
    """One row. Seconds, but for CPU: milliseconds for each pod bound."""

    scheduler: str
    row: str
    nodes: int
    rate: float | None
    """Pods made in a second; None: so many that some always wait."""
    seconds: float = 0.0
    bound: int = 0
    binds_per_second: float = 0.0
    slowest_second: int = 0
    """Binds in the worst whole second of the measured time."""
    cpu_ms: float = 0.0
    stub_cpu_ms: float = 0.0
    wire_p99: float | None = None
    """From the decision until a bind is sent: 99 of 100 take at most so long (the bound of a bucket)."""
    wait_p50: float = 0.0
    wait_p99: float = 0.0
    """From making a pod to its bind, of all of the row, as the stub sees it."""
    waiting: int = 0
    """Pods that waited at the end."""
    bound_again: int = 0
    overfull: int = 0
    resident_mib: float = 0.0
    load: float = 0.0
    """The machine's load average when the row began."""

    def json(self) -> dict[str, Any]:
        """As one line of JSON says it."""
        return {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(self).items()}


async def measure(scheduler: str, row: str, nodes: int, rate: float, logs: Path) -> Figure:
    """One row: a stub, a scheduler, a load."""
    contestant = CONTESTANTS[scheduler]
    figure = Figure(scheduler, row, nodes, rate if row == "stream" else None, load=round(os.getloadavg()[0], 2))
    with serving(lambda line: print(line, flush=True)) as stub:
        async with Client(load_credentials(str(stub.kubeconfig)), user_agent="bench") as client:
            await client.request("POST", "/stub/nodes", body={"Count": nodes}, timeout_seconds=60)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            words = {
                "kubeconfig": str(stub.kubeconfig), "folder": str(stub.kubeconfig.parent), "port": str(port),
                "programs": str(ensure_programs(print).bin),
            }  # fmt: skip
            with Running(contestant, words, logs / f"{scheduler}-{row}.log") as running:
                running.start()
                await loaded(client, load_of(contestant, rate if row == "stream" else 0.0), running)
                await asyncio.sleep(WARM_SECONDS)
                await between(figure, client, running, stub, port if contestant is KBATCH else None)
                running.check()
    return figure


def load_of(contestant: Contestant, rate: float) -> dict[str, Any]:
    """What the stub is asked to make."""
    return {
        "Row": "row", "Namespace": NAMESPACE, "SchedulerName": contestant.scheduler_name,
        "Gang": GANG if contestant.group_path else 0, "Pods": 10_000_000, "Rate": rate, "Waiting": WAITING,
        "StartSeconds": START_SECONDS, "LifeSeconds": LIFE_SECONDS,
    }  # fmt: skip


async def loaded(client: Client, load: dict[str, Any], running: Running) -> None:
    """Let a few pods through first: then the scheduler is ready."""
    await client.request("POST", "/stub/load", body={**load, "Row": "first", "Pods": GANG, "Rate": 0.0})
    deadline = time.monotonic() + PATIENCE
    while (await figures(client))["Bound"] < GANG:
        running.check()
        if time.monotonic() > deadline:
            raise RuntimeError("the scheduler binds nothing")
        await asyncio.sleep(0.1)
    await client.request("POST", "/stub/load", body=load)


async def figures(client: Client) -> dict[str, Any]:
    """What the stub has seen."""
    answer: dict[str, Any] = json.loads(await client.request("GET", "/stub/figures", timeout_seconds=60))
    return answer


async def between(figure: Figure, client: Client, running: Running, stub: Stub, port: int | None) -> None:
    """Measure for a while, and fill the figure in."""
    own, server, first = running.use(), used_by(stub.pid), await figures(client)
    queued = await asyncio.to_thread(buckets, port) if port else {}
    began = time.monotonic()
    await asyncio.sleep(SECONDS)
    last, now, figure.seconds = await figures(client), running.use(), time.monotonic() - began
    figure.bound = last["Bound"] - first["Bound"]
    pods = max(1, figure.bound)
    figure.binds_per_second = figure.bound / figure.seconds
    whole = last["BySecond"][len(first["BySecond"]) : -1]
    figure.slowest_second = min(whole, default=0)
    figure.cpu_ms = (now.cpu - own.cpu) / pods * 1000
    figure.stub_cpu_ms = (used_by(stub.pid).cpu - server.cpu) / pods * 1000
    figure.wait_p50, figure.wait_p99, figure.waiting = last["WaitP50"], last["WaitP99"], last["Waiting"]
    figure.bound_again, figure.overfull = last["BoundAgain"], last["Overfull"]
    figure.resident_mib = now.resident / 2**20
    if port:
        after = await asyncio.to_thread(buckets, port)
        figure.wire_p99 = at_most({bound: count - queued.get(bound, 0.0) for bound, count in after.items()}, 0.99)


def buckets(port: int) -> dict[float, float]:
    """The cumulative counts of the histogram by the bounds of its buckets."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{QUEUED}_bucket{{le="([^"]+)"}} (\S+)$', text, re.MULTILINE)
    return {float(bound): float(count) for bound, count in found}


def at_most(counts: dict[float, float], part: float) -> float | None:
    """The least bound that so large a part does not exceed; None where nothing was counted."""
    total = max(counts.values(), default=0.0)
    return min((bound for bound, count in counts.items() if count >= part * total), default=None) if total else None


def misses(figure: Figure) -> list[str]:
    """What the row should have reached and did not."""
    found: list[str] = []
    if figure.bound_again or figure.overfull:
        found.append(f"{figure.bound_again} pods were to be bound again, {figure.overfull} binds above a node's room")
    if figure.scheduler != "kbatch":
        return []  # a peer is held to nothing
    if figure.rate is not None:
        if figure.binds_per_second < LEAST_PART * figure.rate:
            found.append(f"{figure.binds_per_second:.0f} binds/s (limit {LEAST_PART * figure.rate:.0f})")
        if figure.cpu_ms > MOST_CPU_MS and figure.rate >= RATE:  # a slower stream has more cycles for each pod
            found.append(f"{figure.cpu_ms:.2f} ms of CPU for each pod (limit {MOST_CPU_MS})")
        if figure.wire_p99 is None or figure.wire_p99 > MOST_WIRE_SECONDS:
            found.append(f"p99 from decision to wire {figure.wire_p99} s (limit {MOST_WIRE_SECONDS})")
    return found


ROWS = [f"{scheduler} {row}" for row in ("stream", "most") for scheduler in CONTESTANTS]


async def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stub", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], help="which; all by default")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rate", type=float, default=RATE, help="pods a second of the row stream")
    parser.add_argument("--json", type=Path, help="write one JSON line for each row to this file")
    parser.add_argument("--logs", type=Path, help="folder for the schedulers' logs")
    chosen = parser.parse_args()
    lines: list[str] = []
    missed = False
    with tempfile.TemporaryDirectory(prefix="kbatch-bench-") as scratch:
        logs = chosen.logs or Path(scratch)
        logs.mkdir(parents=True, exist_ok=True)
        for name in chosen.rows or ROWS:
            scheduler, _, row = name.partition(" ")
            figure = await measure(scheduler, row, chosen.nodes, chosen.rate, logs)
            rounded = {
                key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(figure).items()
            }
            lines.append(json.dumps(rounded))
            print(lines[-1], flush=True)
            for miss in misses(figure):
                missed = True
                print(f"MISS {name}: {miss}", flush=True)
    if chosen.json:
        chosen.json.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return 1 if missed else 0


if __name__ == "__main__":
    end_when_asked()
    sys.exit(asyncio.run(main()))
