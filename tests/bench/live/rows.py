"""The rows of the benchmark: each measures one scheduler with one load and gives one figure."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kbatch.kube.client import Client
from tests.bench.live.contestants import KBATCH, Contestant, Running, Use
from tests.bench.live.load import (
    NAMESPACE,
    STANDING,
    Creation,
    Seen,
    Shape,
    bare_loop,
    clear,
    create,
    create_all,
    creations,
    observing,
    pod_of,
    sweep,
    until,
)
from tests.bench.live.plane import Plane, requests_so_far

PATIENCE = 120.0
"""Seconds for which a row waits for its binds."""

QUIET = 0.05
"""Seconds of CPU in a second below which a process counts as idle."""

NOBODY = Contestant("bare loop", (), "nobody")

Load = Callable[[str], Awaitable[Iterable[Creation]]]
"""By a row's name: all that has to be made, in order."""


@dataclass
class Figure:
    """One row's result. Times in seconds, memory in MiB; None where a row does not have it."""

    row: str
    scheduler: str
    shape: str
    mode: str
    """backlog: everything was made before the scheduler started; live: made while it runs; steady: at a fixed rate."""
    nodes: int
    pods: int
    bound: int = 0
    binds_per_second: float | None = None
    """From the first bind to the last."""
    ceiling: float | None = None
    """Binds per second of the neighbouring bare loops: the mean of the last one before the row and the first after."""
    efficiency: float | None = None
    """Binds per second over the ceiling's."""
    wait_p50: float | None = None
    """From sending a pod's creation until it is seen with a node."""
    wait_p99: float | None = None
    first_bind: float | None = None
    """Backlog: after the start of the scheduler's process. Live: after the answer to the last pod's creation."""
    cpu_per_1000: float | None = None
    """Seconds of the scheduler's CPU per 1,000 binds, from its first bind (live: from the first creation) on."""
    cpu_start: float | None = None
    """Backlog: seconds of CPU before the first bind, the start of the process and its lists included."""
    cpu_beside: float | None = None
    """The same of the processes that run beside the scheduler, if any do."""
    cpu_servers: float | None = None
    """The same of the control plane and the fake kubelets."""
    resident: float | None = None
    made_per_second: float | None = None
    requests: dict[str, int] = field(default_factory=dict)
    load: float = 0.0
    """The machine's load average when the row began: above the number of CPUs, others were at work."""
    note: str = ""
    failed: str = ""
    """Why the row has no figures."""

    @property
    def gangs(self) -> int | None:
        """How many gangs the load has; None where it is another one."""
        gangs, _, size = self.shape.partition(" x ")
        return int(gangs) if size else None

    def json(self) -> dict[str, Any]:
        return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(self).items()}


def percentile(values: Sequence[float], part: float) -> float | None:
    """The smallest value that at least this part of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None


def _fill(figure: Figure, seen: Seen) -> None:
    times = sorted(seen.bound.values())
    figure.bound = len(times)
    if len(times) > 1:
        # The first pod seen is where the clock starts, so it is not one of those bound in that time.
        figure.binds_per_second = (len(times) - 1) / max(1e-6, times[-1] - times[0])
    waits = [at - seen.sent[name] for name, at in seen.bound.items() if name in seen.sent]
    if figure.mode in {"live", "steady"}:
        figure.wait_p50, figure.wait_p99 = percentile(waits, 0.5), percentile(waits, 0.99)
        if figure.gangs == 1 and times and seen.made:  # else binding begins while pods are still made
            figure.first_bind = times[0] - max(seen.made.values())
    if seen.made:
        figure.made_per_second = len(seen.made) / max(1e-6, max(seen.made.values()) - min(seen.sent.values()))


def against_the_ceiling(figures: Sequence[Figure]) -> None:
    """Give each row the bare loops that ran next to it, and its efficiency.

    A machine and an API server are not the same after ten minutes as at the start; next to each other they are.
    """
    for index, figure in enumerate(figures):
        if figure.scheduler == NOBODY.name:
            figure.ceiling, figure.efficiency = figure.binds_per_second, 1.0
            continue
        before = _first_loop(reversed(figures[:index]), figure.nodes)
        after = _first_loop(figures[index + 1 :], figure.nodes)
        rates = [rate for rate in (before, after) if rate]
        figure.ceiling = sum(rates) / len(rates) if rates else None
        figure.efficiency = None
        if figure.ceiling and figure.binds_per_second and figure.mode in EFFICIENT_MODES:
            figure.efficiency = figure.binds_per_second / figure.ceiling


EFFICIENT_MODES = frozenset({"backlog", "live", "standing"})
"""Modes whose rate is the scheduler's: in the others it is that of what arrives."""


def _first_loop(figures: Iterable[Figure], nodes: int) -> float | None:
    rates = (one.binds_per_second for one in figures if one.scheduler == NOBODY.name and one.nodes == nodes)
    return next(rates, None)


class Bench:
    """Runs rows on one control plane, one after the other."""

    def __init__(self, plane: Plane, client: Client, logs: Path) -> None:
        self.plane = plane
        self.client = client
        self.logs = logs
        self.ceiling: float | None = None
        """Binds per second of the last bare loop."""
        self._reached: dict[str, float] = {}
        """By shape: pods that a scheduler bound in a second, in the fastest live row."""
        self._count = 0

    def _figure(self, scheduler: str, shape: Shape, mode: str) -> Figure:
        self._count += 1
        load = float(Path("/proc/loadavg").read_text("ascii").split()[0])
        return Figure(f"row{self._count}", scheduler, shape.name, mode, self.plane.nodes, shape.pods, load=load)

    async def attempt(self, row: Awaitable[Figure], contestant: Contestant, shape: str, mode: str) -> Figure:
        """A row; where it fails, a figure that says why, and the way is clear for the next."""
        try:
            return await row
        except Exception as error:  # noqa: BLE001 - one row that fails must not take the others' figures with it
            figure = Figure(f"row{self._count}", contestant.name, shape, mode, self.plane.nodes, 0)
            figure.failed = f"{type(error).__name__}: {error}"
            await sweep(self.client, contestant)
            return figure

    async def bare_loop(self, pods: int, *, beside: int = 0) -> Figure:
        """The bare loop: what the rows next to it are measured against; `beside` so many pods that run already."""
        shape = Shape(pods)
        figure = self._figure(NOBODY.name, shape, "backlog")
        async with observing(self.client, figure.row) as seen:
            await create_all(self.client, seen, creations(figure.row, shape, NOBODY))
            await until(lambda: len(seen.uids) == pods, 30)
            before = await requests_so_far(self.client)
            began, servers = time.process_time(), self.plane.cpu()
            await bare_loop(self.client, seen, self.plane.nodes)
            await until(lambda: len(seen.bound) == pods, 30)
            figure.cpu_per_1000 = (time.process_time() - began) / pods * 1000
            figure.cpu_servers = (self.plane.cpu() - servers) / pods * 1000
            figure.note = "CPU is that of loop and observer together" + (f"; beside {beside} pods" if beside else "")
            figure.requests = dict(await requests_so_far(self.client) - before)
            _fill(figure, seen)
            await sweep(self.client, NOBODY, seen)
        self.ceiling = figure.binds_per_second
        return figure

    async def backlog(
        self, contestant: Contestant, shape: Shape, *, beside: int = 0, load: Load | None = None
    ) -> Figure:
        """Everything is made first; then the scheduler starts.

        Args:
            beside: so many pods run already.
            load: what is made, of as many pods as the shape says; by default gangs of the shape.
        """
        figure = self._figure(contestant.name, shape, "standing" if beside else "backlog")
        figure.note = f"{beside} pods run already" if beside else ""
        async with observing(self.client, figure.row) as seen:
            with self._running(contestant) as running:
                made = creations(figure.row, shape, contestant) if load is None else await load(figure.row)
                await create_all(self.client, seen, made)
                await until(lambda: len(seen.uids) == shape.pods, 30)
                await self._quiet(running)
                before = await requests_so_far(self.client)
                running.start()
                await until(lambda: bool(seen.bound), PATIENCE, running.check)
                first, servers = running.use(), self.plane.cpu()
                await until(lambda: len(seen.bound) == shape.pods, PATIENCE, running.check)
                await self._used(figure, running, first, servers, seen)
                figure.cpu_start = first.cpu
                figure.first_bind = min(seen.bound.values(), default=math.nan) - running.started
                figure.requests = dict(await requests_so_far(self.client) - before)
            _fill(figure, seen)
            await sweep(self.client, contestant, seen)
        return figure

    async def live(self, contestant: Contestant, shape: Shape, *, rate: float | None = None) -> Figure:
        """The scheduler runs; everything is made as fast as the server takes it, or at a rate of pods a second."""
        figure = self._figure(contestant.name, shape, "live" if rate is None else "steady")
        async with observing(self.client, figure.row) as seen:
            with self._running(contestant) as running:
                await self._quiet(running)
                running.start()
                await self._ready(figure.row, contestant, running)
                before, first, servers = await requests_so_far(self.client), running.use(), self.plane.cpu()
                everything = creations(figure.row, shape, contestant)
                if rate is None:
                    await create_all(self.client, seen, everything)
                else:
                    await _at_rate(self.client, seen, everything, rate)
                    figure.note = f"{rate:.0f} pods/s"
                await until(lambda: len(seen.bound) == shape.pods, PATIENCE, running.check)
                await self._used(figure, running, first, servers, seen)
                figure.requests = dict(await requests_so_far(self.client) - before)
            _fill(figure, seen)
            if rate is None and figure.binds_per_second:
                self._reached[shape.name] = max(self._reached.get(shape.name, 0.0), figure.binds_per_second)
            await sweep(self.client, contestant, seen)
        return figure

    def sustainable(self, shape: Shape) -> float:
        """Pods a second that the server can take, bind and run for long: three quarters of what a live row reached.

        Without such a row, 0.3 of the ceiling: making a pod and running it costs a server twice what its bind does.
        """
        reached = self._reached.get(shape.name)
        return 0.75 * reached if reached else 0.3 * (self.ceiling or 0.0)

    def _running(self, contestant: Contestant) -> Running:
        return Running(contestant, self.plane.words, self.logs / f"{contestant.name}.log")

    async def _quiet(self, running: Running) -> None:
        """Wait, for a while, until what runs beside the scheduler has started and has nothing to do any more."""
        if not running.contestant.beside:
            return
        for _ in range(20):
            before = running.use().beside
            await asyncio.sleep(1.0)
            if running.use().beside - before < QUIET:
                return

    async def _ready(self, row: str, contestant: Contestant, running: Running) -> None:
        """Wait until a first pod of its own is bound: the one sign of readiness that all schedulers share."""
        async with observing(self.client, f"{row}-probe") as probe:
            body = pod_of(f"{row}-probe", f"{row}-probe", contestant)
            await create(self.client, probe, f"/api/v1/namespaces/{NAMESPACE}/pods", body)
            if not await until(lambda: bool(probe.bound), 60, running.check):
                raise RuntimeError(f"{contestant.name} binds nothing")
            await clear(self.client, f"/api/v1/namespaces/{NAMESPACE}/pods", probe.uids)
            await until(lambda: probe.gone >= len(probe.uids), 60)

    async def _used(self, figure: Figure, running: Running, since: Use, servers: float, seen: Seen) -> None:
        now, thousands = running.use(), max(1, len(seen.bound)) / 1000
        figure.cpu_per_1000 = (now.cpu - since.cpu) / thousands
        figure.cpu_servers = (self.plane.cpu() - servers) / thousands
        if running.contestant.beside:
            figure.cpu_beside = (now.beside - since.beside) / thousands
        figure.resident = now.resident / 2**20
        await asyncio.sleep(1.0)  # what trails behind the last bind (statuses, Events) counts among the requests

    async def standing(self, pods: int) -> Seen:
        """Pods that run already, bound by the bare loop."""
        async with observing(self.client, STANDING) as seen:
            await create_all(self.client, seen, creations(STANDING, Shape(pods), KBATCH_LIKE))
            await until(lambda: len(seen.uids) == pods, 60)
            await bare_loop(self.client, seen, self.plane.nodes)
            await until(lambda: len(seen.bound) == pods, 60)
        return seen


KBATCH_LIKE = Contestant(STANDING, (), KBATCH.scheduler_name)


async def _at_rate(client: Client, seen: Seen, everything: Any, rate: float) -> None:
    """Make the objects so that `rate` pods a second come, whatever the server's answers take."""
    began, pods = time.monotonic(), 0
    todo: list[Creation] = list(everything)
    async with asyncio.TaskGroup() as group:
        for path, body in todo:
            wait = began + pods / rate - time.monotonic()
            if wait > 0.002:
                await asyncio.sleep(wait)
            group.create_task(create(client, seen, path, body))
            pods += body["kind"] == "Pod"
