"""What `kbatch simulate --trace` costs: 100,000 jobs on 1,000 nodes, with EASY and with conservative backfilling.

    python -m tests.bench.traces [--seed N] [--jobs N] [--keep FOLDER] [--json FILE] [ROW ...]

The trace is made from a seed, in the Standard Workload Format: jobs of 4 processors on average (most of one, a few of
hundreds), run times over four orders of magnitude, estimates one to five times as long in round numbers, an offered
load of 0.9. They come in waves, so that jobs wait: rows `easy` and `conservative` with 50 waiting at the least on
average, rows `easy-deep` and `conservative-deep` with about 1,000.

The whole command is measured, from its start to its end: seconds of its process on the processor, and its resident
memory at the peak. Ends with status 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kbatch.simulator.traces.generation import ROUND_ESTIMATES
from tests.bench.engine import keep
from tests.bench.simulate import MEASURED

NODES: Final = 1000
JOBS: Final = 100_000
LOAD: Final = 0.9
SIZES: Final = ((1, 0.581), (2, 0.14), (4, 0.12), (8, 0.09), (16, 0.05), (32, 0.0125), (64, 0.004), (128, 0.0015))
"""Processors of a job, and how often; what is left to 1 asks for 256."""


@dataclass(frozen=True, slots=True)
class Row:
    """How to run it, and what must come of it; how far the load swings to and fro, and in how many seconds."""

    backfill: str
    swing: float
    period: float
    limit: float | None
    queue: float
    """The least mean queue length at which the row counts."""


ROWS: Final = {
    "easy": Row("easy", 0.52, 86_400, 60.0, 50),
    "conservative": Row("conservative", 0.52, 86_400, 180.0, 50),
    "easy-deep": Row("easy", 0.7, 7 * 86_400, None, 800),
    "conservative-deep": Row("conservative", 0.7, 7 * 86_400, None, 800),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """What one run gave; `memory` in MiB, `queue` is the mean number of jobs that wait."""

    row: str
    jobs: int
    processors: float
    queue: float
    seconds: float
    memory: float
    instants: int
    utilisation: float
    mean_wait: float
    slowdown: float
    met: bool


def lines(jobs: int, seed: int, swing: float, period: float, nodes: int = NODES) -> Iterator[str]:
    """The trace, line by line."""
    chance = random.Random(seed)
    sizes, weights = zip(*SIZES, (256, 1 - sum(part for _, part in SIZES)), strict=True)
    drawn = [(size, _run(chance)) for size in chance.choices(sizes, weights, k=jobs)]
    # Sizes and times as they happened to come out are stretched so that the load is what it should be.
    span = sum(size * run for size, run in drawn) / (LOAD * nodes)
    instants = sorted(_arrival(chance, span, swing, period) for _ in drawn)
    for number, ((size, run), submit) in enumerate(zip(drawn, instants, strict=True), start=1):
        asked = run * chance.uniform(1, 5)
        estimate = next((each for each in ROUND_ESTIMATES if each >= asked), math.ceil(asked))
        queue = 1 + (size > 4) + (size > 32)
        yield f"{number} {submit:.2f} -1 {run} {size} -1 -1 {size} {estimate} -1 1 1 1 -1 {queue} -1 -1 -1\n"


def _run(chance: random.Random) -> int:
    """A run time in seconds, at most two days."""
    return max(5, min(172_800, round(chance.lognormvariate(7.0, 1.6))))


def _arrival(chance: random.Random, span: float, swing: float, period: float) -> float:
    """An instant in the span, denser where the wave is high."""
    while True:
        instant = chance.uniform(0, span)
        if chance.uniform(0, 1 + swing) <= 1 + swing * math.sin(2 * math.pi * instant / period):
            return instant


def run(name: str, jobs: int, seed: int, folder: Path) -> Figure:
    """One run of the command."""
    row = ROWS[name]
    path, output = folder / f"{name}.swf", folder / f"{name}.json"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(lines(jobs, seed, row.swing, row.period))
    command = [sys.executable, "-P", "-c", MEASURED, "simulate", "--trace", str(path), "--format", "swf"]
    command += ["--nodes", str(NODES), "--backfill", row.backfill, "-o", "json"]
    with output.open("wb") as file:
        used = subprocess.run(command, check=True, stdout=file, stderr=subprocess.PIPE).stderr.splitlines()[-1]
    seconds, memory = json.loads(used)
    found = json.loads(output.read_bytes())
    summary, ran = found["summary"], list(found["jobs"].values())
    span = max(job["finish"] for job in ran) - min(job["submit"] for job in ran)
    queue = summary["mean_wait"] * len(ran) / span
    met = (row.limit is None or seconds <= row.limit) and (jobs != JOBS or queue >= row.queue)
    return Figure(
        name, len(ran), sum(len(job["nodes"]) for job in ran) / len(ran), round(queue, 1), seconds, memory / 1024,
        summary["cycles"], summary["utilisation"]["cpu"], summary["mean_wait"], summary["mean_bounded_slowdown"], met,
    )  # fmt: skip


def main() -> int:
    """Run the rows; 1 where one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="leave traces and outputs there")
    parser.add_argument("--json", type=Path, help="write one JSON line per figure to this file")
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], help="which; all by default")
    arguments = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory(prefix="kbatch-bench-") as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in arguments.rows or ROWS:
            figure = run(name, arguments.jobs, arguments.seed, folder)
            figures.append(figure)
            limit = ROWS[name].limit
            print(
                f"{'ok  ' if figure.met else 'MISS'} {name:18} {figure.jobs} jobs of {figure.processors:.2f} processors"
                f" {figure.queue:6.1f} wait on average  {figure.seconds:7.2f} s  {figure.memory:5.0f} MiB"
                f"  {figure.instants} instants, utilisation {figure.utilisation:.1%},"
                f" mean wait {figure.mean_wait:.0f} s, slowdown {figure.slowdown:.1f}"
                + (f"  (<= {limit:g} s)" if limit else ""),
                flush=True,
            )
    return keep(figures, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
