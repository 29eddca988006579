"""Binds on a real API server: `python -m tests.bench.live [--pods N] [--only TEXT] [--peer FILE] [--json FILE]`.

Everything in one run, on a control plane of its own; the method is in docs/benchmarks.md. The status is 1 where a limit
is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from tests.bench.live.contestants import KBATCH, KUBE_SCHEDULER, Contestant
from tests.bench.live.limits import judge
from tests.bench.live.load import PARALLEL, Shape, clear
from tests.bench.live.mixed import mixed
from tests.bench.live.plane import plane
from tests.bench.live.prepare import prepare
from tests.bench.live.report import keep, table_row
from tests.bench.live.rows import Bench, Figure, against_the_ceiling


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--nodes", type=int, nargs="*", default=[500, 3000])
    parser.add_argument("--standing", type=int, default=20_000, help="pods already running, in the row that has some")
    parser.add_argument("--peer", type=Path, action="append", default=[], help="a peer's file, see docs/benchmarks.md")
    parser.add_argument("--only", action="append", default=[], help="only rows whose description holds this text")
    parser.add_argument("--keep", action="store_true", help="keep figures, table and picture in docs/benchmarks")
    parser.add_argument("--json", type=Path, help="write one JSON line per row to this file")
    parser.add_argument("--logs", type=Path, help="folder for the schedulers' logs")
    return parser.parse_args()


async def rows(bench: Bench, chosen: argparse.Namespace, contestants: list[Contestant]) -> AsyncIterator[Figure]:
    pods, only = chosen.pods, chosen.only

    def wanted(text: str) -> bool:
        return not only or any(part in text for part in only)

    shapes = [Shape(pods)] + [Shape(pods, gangs) for gangs in (pods // 20, 20, 1, pods)]
    for nodes in chosen.nodes:
        bench.plane.ensure_nodes(nodes)
        yield await bench.ceiling(pods)
        for contestant in contestants:
            for shape in shapes:
                if shape.gangs and not contestant.group_path:
                    continue
                for mode in ("backlog", "live"):
                    if wanted(f"{contestant.name} {shape.name} {mode} {nodes} nodes"):
                        run = bench.backlog if mode == "backlog" else bench.live
                        yield await run(contestant, shape)
        yield await bench.ceiling(pods)  # the machine at the end of the rows
        gangs = Shape(pods, pods // 20)
        rate = 0.4 * bench.ceilings[nodes]
        if nodes == chosen.nodes[0] and wanted("kbatch steady"):
            yield await bench.live(KBATCH, gangs, rate=rate)
        if nodes == chosen.nodes[0] and wanted("kbatch mixed"):
            yield await mixed(bench, chosen.pods)
        if nodes == chosen.nodes[-1] and chosen.standing and wanted("kbatch standing"):
            standing = await bench.standing(min(chosen.standing, 32 * nodes - pods))
            figure = await bench.backlog(KBATCH, gangs)
            figure.mode = "standing"
            figure.note = f"{len(standing.bound)} pods run already"
            yield figure
            await clear(bench.client, standing, ())


async def main() -> int:
    chosen = arguments()
    contestants = [KUBE_SCHEDULER, KBATCH, *(Contestant.read(path) for path in chosen.peer)]
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="kbatch-bench-") as scratch, plane(Path(scratch)) as made:
        prepare(made, contestants)
        logs = chosen.logs or Path(scratch)
        logs.mkdir(parents=True, exist_ok=True)
        credentials = load_credentials(str(made.cluster.kubeconfig))
        async with Client(credentials, user_agent="bench", connections=PARALLEL) as client:
            async for figure in rows(Bench(made, client, logs), chosen, contestants):
                figures.append(figure)
                print(table_row(figure), flush=True)
    against_the_ceiling(figures)
    for figure in figures:
        print(json.dumps(figure.json()))
    if chosen.json is not None:
        chosen.json.write_text("".join(json.dumps(figure.json()) + "\n" for figure in figures), "utf-8")
    checks = judge(figures)
    for check in checks:
        print(check.line)
    if chosen.keep:
        keep(figures, checks)
    return 0 if all(check.met for check in checks) else 1


if __name__ == "__main__":
    # Asked to stop, it must still end its control plane.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(asyncio.run(main()))
