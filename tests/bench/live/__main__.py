"""Binds on a real API server: `python -m tests.bench.live [--pods N] [--only TEXT] [--peer FILE] [--json FILE]`.

Everything in one run, on a control plane of its own; the method is in docs/benchmarks.md. The status is 1 where a limit
is missed.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from kbatch.kube.client import Client
from kbatch.kube.credentials import load_credentials
from kbatch.process import turns
from tests.bench.live.contestants import KBATCH, KUBE_SCHEDULER, Contestant
from tests.bench.live.differing import differing
from tests.bench.live.limits import Check, judge
from tests.bench.live.load import BINDS, Shape
from tests.bench.live.memory import keep_in_memory
from tests.bench.live.mixed import mixed
from tests.bench.live.plane import plane
from tests.bench.live.prepare import prepare
from tests.bench.live.report import keep, table_row
from tests.bench.live.rows import Bench, Figure, against_the_ceiling
from tests.bench.stopping import end_when_asked


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
    """All rows that are wanted: those with a backlog first, each load between two bare loops; then what comes live."""
    pods = chosen.pods
    gangs = Shape(pods, pods // 20)
    for nodes in chosen.nodes:
        both = [_block(bench, chosen, contestants, nodes, shape) for shape in shapes(pods)]
        blocks = [[row for row in block if row.mode == "backlog"] for block in both]
        blocks.append([row for block in both for row in block if row.mode == "live"])
        blocks.append(_extra(bench, chosen, nodes, gangs))
        bench.plane.ensure_nodes(nodes)
        done: list[Figure] = []
        for block in filter(None, blocks):
            for _ in range(TIMES):
                if not done:
                    done.append(await bench.bare_loop(pods))
                    yield done[-1]
                for row in block:
                    done.append(await row.attempt(bench))
                    yield done[-1]
                done.append(await bench.bare_loop(pods))
                yield done[-1]
        if nodes == chosen.nodes[-1] and chosen.standing and _wanted(chosen, f"kbatch standing {nodes} nodes"):
            # The last of all rows: what stands here goes with the control plane.
            standing = await bench.standing(min(chosen.standing, 32 * nodes - pods))
            beside = len(standing.bound)
            for _ in range(TIMES):
                yield await bench.bare_loop(pods, beside=beside)
                yield await bench.attempt(bench.backlog(KBATCH, gangs, beside=beside), KBATCH, gangs.name, "standing")


TIMES = 3
"""Every row runs so often, each scheduler's next to the others' and between two loops; the median counts."""


class Row(NamedTuple):
    """A row to be measured: whose, of which shape and mode, and what runs it."""

    contestant: Contestant
    shape: str
    mode: str
    run: Callable[[], Awaitable[Figure]]

    async def attempt(self, bench: Bench) -> Figure:
        """Run it; where it fails, a figure that says why."""
        return await bench.attempt(self.run(), self.contestant, self.shape, self.mode)


def shapes(pods: int) -> list[Shape]:
    """Plain pods, then gangs of 20, gangs of a twentieth, one gang, gangs of one."""
    return [Shape(pods)] + [Shape(pods, gangs) for gangs in (pods // 20, 20, 1, pods)]


def _wanted(chosen: argparse.Namespace, row: str) -> bool:
    return not chosen.only or any(part in row for part in chosen.only)


def _block(
    bench: Bench, chosen: argparse.Namespace, contestants: list[Contestant], nodes: int, shape: Shape
) -> list[Row]:
    """The rows of one shape: each scheduler next to the others."""
    block: list[Row] = []
    for contestant in contestants:
        if shape.gangs and not contestant.group_path:
            continue
        for mode, run in (("backlog", bench.backlog), ("live", bench.live)):
            if _wanted(chosen, f"{contestant.name} {shape.name} {mode} {nodes} nodes"):
                block.append(Row(contestant, shape.name, mode, functools.partial(run, contestant, shape)))
    return block


def _extra(bench: Bench, chosen: argparse.Namespace, nodes: int, gangs: Shape) -> list[Row]:
    """Rows that kbatch alone has, with the fewest nodes only."""
    if nodes != chosen.nodes[0]:
        return []
    block: list[Row] = []
    if _wanted(chosen, f"kbatch steady {nodes} nodes"):
        block.append(
            Row(KBATCH, gangs.name, "steady", lambda: bench.live(KBATCH, gangs, rate=bench.sustainable(gangs)))
        )
    if _wanted(chosen, f"kbatch differing {nodes} nodes"):
        block.append(Row(KBATCH, "pods that all differ", "backlog", lambda: differing(bench, chosen.pods)))
    if _wanted(chosen, f"kbatch mixed {nodes} nodes"):
        block.append(Row(KBATCH, "mixed trace", "mixed", lambda: mixed(bench, chosen.pods)))
    return block


async def main() -> int:
    chosen = arguments()
    contestants = [KUBE_SCHEDULER, KBATCH, *(Contestant.read(path) for path in chosen.peer)]
    figures: list[Figure] = []
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="kbatch-bench-") as scratch, plane(Path(scratch)) as made:
            prepare(made, contestants)
            logs = chosen.logs or Path(scratch)
            logs.mkdir(parents=True, exist_ok=True)
            credentials = load_credentials(str(made.cluster.kubeconfig))
            async with Client(credentials, user_agent="bench", connections=BINDS) as client:
                async for figure in rows(Bench(made, client, logs), chosen, contestants):
                    figures.append(figure)
                    against_the_ceiling(figures)  # the loop after it is still to come
                    print(table_row(figure), flush=True)
    finally:
        checks = tell(figures, chosen)
    print(f"{len(figures)} rows in {(time.monotonic() - began) / 60:.1f} minutes")
    return 0 if figures and all(check.met for check in checks) else 1


def tell(figures: list[Figure], chosen: argparse.Namespace) -> list[Check]:
    """Print and keep what there is, also where the run was cut short."""
    against_the_ceiling(figures)
    for figure in figures:
        print(json.dumps(figure.json()))
    for figure in figures:
        print(table_row(figure))
    if chosen.json is not None:
        chosen.json.write_text("".join(json.dumps(figure.json()) + "\n" for figure in figures), "utf-8")
    checks = judge(figures)
    for check in checks:
        print(check.line)
    if chosen.keep and figures:
        keep(figures, checks)
    return checks


if __name__ == "__main__":
    end_when_asked()
    keep_in_memory()
    sys.exit(turns.run(main()))  # as kbatch's own processes
