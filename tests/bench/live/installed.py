"""kbatch as installed, against a bare loop: `python -m tests.bench.live.installed [--only TEXT] [--json FILE]`.

Three rounds. In each a bare loop creates and binds pods on a control plane where kbatch is not installed, and then, on
another, kbatch as its chart installs it does so with gangs: four processes, webhook, policies, the chart's accounts.
Both end when all pods run, kbatch when all groups say so as well. CPU is that of the servers and of whoever binds, with
all descendants, less what the same processes take while nothing happens. The method: docs/benchmarks.md. The status is
1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.kube.kinds import NAMESPACES, QUEUES
from kbatch.kube.writes import create as make
from kbatch.kube.writes import merge_patch
from kbatch.localcluster.cluster import Cluster
from kbatch.localcluster.up import down, up
from kbatch.process import turns
from tests.bench.live.contestants import KBATCH, Contestant
from tests.bench.live.following import Followed, following
from tests.bench.live.load import NAMESPACE, PARALLEL, Creation, Shape, create_all, creations, sweep, until
from tests.bench.live.memory import keep_in_memory
from tests.bench.live.processes import cpu, parts
from tests.bench.live.ratios import LOOP, PRODUCT, judge
from tests.bench.live.rows import NOBODY, percentile
from tests.bench.stopping import end_when_asked

ROUNDS = 3
IDLE_SECONDS = 10.0
MOST_IDLE = 0.3
"""Of what was used in all: where more than so much is taken for idle, something else was going on before."""
MOST_LOOKS = 12
SETTLED = 0.8
"""Of what was used before: where it is more than so much, it falls no more."""
AT_REST = 0.05
"""So much more than before the first run, in seconds of CPU in a second, is rest again."""
PATIENCE = 300.0
HELD = "held"
"""The queue that is closed until a backlog stands before it."""


@dataclass
class Figure:
    """One run. Seconds, and seconds of CPU."""

    who: str
    round: int
    nodes: int
    shape: str
    mode: str
    pods: int
    cpu: float = 0.0
    by: dict[str, float] = field(default_factory=dict)
    """The CPU by process."""
    idle: float = 0.0
    """Seconds of CPU in a second while nothing happened."""
    seconds: float = 0.0
    """From the first creation to the end."""
    made_per_second: float = 0.0
    binds_per_second: float = 0.0
    told_per_second: float = 0.0
    """Pods over the time from the first bind until all pods run and all groups say so."""
    wait_p99: float = 0.0
    told_after: float = 0.0
    """From the last bind until all groups say Running."""
    load: float = 0.0
    failed: str = ""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.installed")
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--nodes", type=int, nargs="*", default=[500, 3000])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", action="append", default=[], help="only rows like this: '250 x 20 live'")
    parser.add_argument("--name", default=f"installed-{os.getpid()}", help="of the local cluster")
    parser.add_argument("--json", type=Path, help="write one JSON line for each run to this file")
    return parser.parse_args()


class Meter:
    """CPU of named processes since a moment, less what they take at rest."""

    def __init__(self, pids: dict[str, int], idle: dict[str, float]) -> None:
        self._pids = pids
        self._idle = idle
        self._began = time.monotonic()
        self._before = {name: cpu(pid) for name, pid in pids.items()}

    def used(self) -> dict[str, float]:
        """Seconds by name."""
        seconds = time.monotonic() - self._began
        return {
            name: cpu(pid) - self._before[name] - self._idle.get(name, 0.0) * seconds
            for name, pid in self._pids.items()
        }


async def at_rest(cluster: Cluster, before: dict[str, float] | None) -> dict[str, float]:
    """Seconds of CPU in a second by process, while nothing happens.

    A control plane that has just started is at work for a while: so this waits until it has less to do no more. Where
    that is known from `before` the cluster's first run, it waits, as long, until a run has left nothing more to do
    (objects that are deleted, Events of a crowd that are written slowly); what it does still then counts as the next
    run's.
    """
    least: dict[str, float] | None = None
    for _ in range(MOST_LOOKS):
        meter = Meter(parts(cluster), {})
        await asyncio.sleep(IDLE_SECONDS)
        now = {name: used / IDLE_SECONDS for name, used in meter.used().items()}
        if before is not None:
            if sum(now.values()) <= sum(before.values()) + AT_REST:
                break
            continue
        settled = least is not None and sum(now.values()) > SETTLED * sum(least.values())
        if least is None or sum(now.values()) < sum(least.values()):
            least = now
        if settled:
            break
    return before or least or {}


class Run:
    """Runs of one contestant on one control plane."""

    def __init__(self, cluster: Cluster, client: Client, round_: int, nodes: int) -> None:
        self.cluster = cluster
        self.client = client
        self.round = round_
        self.nodes = nodes
        self._count = 0
        self._idle: dict[str, float] | None = None
        """What the processes take at rest, before the first run."""

    def _figure(self, who: str, shape: Shape, mode: str) -> tuple[Figure, str]:
        self._count += 1
        figure = Figure(who, self.round, self.nodes, shape.name, mode, shape.pods, load=round(os.getloadavg()[0], 1))
        return figure, f"row{self._count}"

    async def loop(self, shape: Shape, mode: str) -> Figure:
        """A process that only binds; with a backlog it begins when all is made."""
        figure, row = self._figure(LOOP, shape, mode)
        idle = self._idle = await at_rest(self.cluster, self._idle)
        command = [
            sys.executable, "-m", "tests.bench.live.loop", "--kubeconfig", str(self.cluster.kubeconfig),
            "--row", row, "--pods", str(shape.pods), "--nodes", str(self.nodes),
            *(["--hold"] if mode == "backlog" else []),
        ]  # fmt: skip
        async with following(self.client, row, groups=False) as seen:
            process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                if (await process.stdout.readline()).strip() != b"ready":
                    raise RuntimeError("the loop does not begin")
                meter, began = Meter(parts(self.cluster) | {LOOP: process.pid}, idle), time.time()
                await create_all(self.client, seen, creations(row, shape, NOBODY))
                await until(lambda: len(seen.uids) == shape.pods, PATIENCE)
                if mode == "backlog":
                    process.stdin.write(b"go\n")
                await until(lambda: len(seen.running) == shape.pods, PATIENCE)
                filled(figure, seen, shape, meter.used(), idle, began)
            finally:
                process.kill()
                await process.communicate()
            await swept(self.client, NOBODY, seen)
        return figure

    async def product(self, shape: Shape, mode: str) -> Figure:
        """kbatch's processes; a backlog waits in a closed queue, which is then opened."""
        figure, row = self._figure(PRODUCT, shape, mode)
        idle = self._idle = await at_rest(self.cluster, self._idle)
        backlog = mode == "backlog"
        if backlog:
            await merge_patch(self.client, QUEUES, name=HELD, patch={"spec": {"state": "Closed"}})
        async with following(self.client, row, groups=True) as seen:
            meter, began = Meter(parts(self.cluster), idle), time.time()
            everything = creations(row, shape, KBATCH)
            await create_all(self.client, seen, in_queue(everything, HELD) if backlog else everything)
            await until(lambda: len(seen.uids) == shape.pods, PATIENCE)
            if backlog:
                if seen.bound:
                    raise RuntimeError("a closed queue let something in")
                await merge_patch(self.client, QUEUES, name=HELD, patch={"spec": {"state": "Open"}})
            await until(lambda: len(seen.bound) == shape.pods, PATIENCE)
            await until(lambda: len(seen.running) == shape.pods and len(seen.said) == shape.gangs, PATIENCE)
            filled(figure, seen, shape, meter.used(), idle, began)
            if len(seen.said) < shape.gangs:
                figure.failed = f"{len(seen.said)} of {shape.gangs} groups say that they run"
            await swept(self.client, KBATCH, seen)
        return figure


async def swept(client: Client, contestant: Contestant, seen: Followed) -> None:
    """Delete a run's objects, and return when they are gone: the next run's idle time is measured after that.

    Raises:
        RuntimeError: they do not go.
    """
    await sweep(client, contestant, seen)
    if not await until(lambda: seen.gone >= len(seen.uids), PATIENCE):
        raise RuntimeError(f"{len(seen.uids) - seen.gone} pods do not go")


def in_queue(everything: Iterable[Creation], queue: str) -> Iterable[Creation]:
    """The same, with the groups in this queue."""
    for path, body in everything:
        if body["kind"] == "PodGroup":
            body["spec"]["queue"] = queue
        yield path, body


def filled(
    figure: Figure, seen: Followed, shape: Shape, used: dict[str, float], idle: dict[str, float], began: float
) -> None:
    """Fill in what was seen."""
    figure.seconds = time.time() - began
    figure.by = {name: round(value, 2) for name, value in used.items()}
    figure.cpu, figure.idle = sum(used.values()), sum(idle.values())
    if figure.idle * figure.seconds > MOST_IDLE * (figure.cpu + figure.idle * figure.seconds):
        figure.failed = f"{figure.idle:.2f} seconds of CPU in a second were used while nothing was to happen"
        return
    if len(seen.running) < shape.pods:
        figure.failed = f"{len(seen.bound)} of {shape.pods} pods are bound, {len(seen.running)} run"
        return
    first, last = min(seen.bound.values()), max(seen.bound.values())
    end = max([*seen.running.values(), *seen.said.values()])
    figure.binds_per_second = (shape.pods - 1) / max(1e-6, last - first)
    figure.told_per_second = (shape.pods - 1) / max(1e-6, end - first)
    figure.made_per_second = shape.pods / max(1e-6, max(seen.made.values()) - min(seen.sent.values()))
    figure.wait_p99 = percentile([at - seen.sent[name] for name, at in seen.bound.items()], 0.99) or 0.0
    figure.told_after = max(seen.said.values(), default=last) - last


async def round_of(
    chosen: argparse.Namespace, number: int, nodes: int, rows: list[tuple[Shape, str]], tell: Callable[[Figure], None]
) -> None:
    """The loop in each mode that is wanted, then the product in each row."""
    for who in (LOOP, PRODUCT):
        cluster = Cluster(chosen.name)
        try:
            await asyncio.to_thread(
                up, chosen.name, nodes=nodes, control_plane_only=who == LOOP, progress=lambda _: None,
                priority_and_fairness=True,
            )  # fmt: skip
            credentials = load_credentials(str(cluster.kubeconfig))
            async with Client(credentials, user_agent="bench", connections=PARALLEL) as client:
                run = Run(cluster, client, number, nodes)
                await make(client, NAMESPACES, {"metadata": {"name": NAMESPACE}})
                await asyncio.sleep(2.0)  # the namespace's ServiceAccount, which pods need
                if who == LOOP:
                    for mode in sorted({mode for _, mode in rows}):
                        tell(await run.loop(Shape(chosen.pods), mode))
                    continue
                await make(client, QUEUES, {"metadata": {"name": HELD}, "spec": {"state": "Closed"}})
                for shape, mode in rows:
                    tell(await run.product(shape, mode))
        finally:
            await asyncio.to_thread(down, chosen.name)


def wanted(chosen: argparse.Namespace) -> list[tuple[Shape, str]]:
    """The rows: each shape of gangs with a backlog and live."""
    shapes = [Shape(chosen.pods, gangs) for gangs in (chosen.pods // 20, 20, 1, chosen.pods)]
    both = [(shape, mode) for shape in shapes for mode in ("backlog", "live")]
    return [
        (shape, mode)
        for shape, mode in both
        if not chosen.only or any(part in f"{shape.name} {mode}" for part in chosen.only)
    ]


async def main() -> int:
    """Measure, print, judge."""
    chosen = arguments()
    figures: list[Figure] = []

    def tell(figure: Figure) -> None:
        figures.append(figure)
        print(json.dumps(as_json(figure)), flush=True)

    for nodes in chosen.nodes:
        for number in range(1, chosen.rounds + 1):
            await round_of(chosen, number, nodes, wanted(chosen), tell)
    if chosen.json:
        chosen.json.write_text("".join(json.dumps(as_json(figure)) + "\n" for figure in figures), "utf-8")
    checks = judge(figures)
    for check in checks:
        print(check.line)
    return 0 if checks and all(check.met for check in checks) else 1


def as_json(figure: Figure) -> dict[str, Any]:
    """A run as one line says it."""
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(figure).items()}


if __name__ == "__main__":
    end_when_asked()
    keep_in_memory()
    sys.exit(turns.run(main()))
