"""A day with more work than there is room for: is the cluster full, and does nobody wait for too long?

    python -m tests.bench.full [--seed N] [--ways NAME ...] [--json FILE]

The jobs of `tests/data/days/full.yaml` come first to a scheduler that starts them as they come and lets nobody pass,
and then to the engine under one configuration and another. Of each is told how much of the cluster jobs held while jobs
came, at least 90 %; what of that was useful, since the jobs ran to their end (what an evicted job had done before does
not count), without a limit; and the longest wait, at most three times that of the first: to the first start, and in
all, since a job that is evicted waits again. The status is 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.bench.engine import keep
from tests.bench.policies import WAYS, figures, made

FIRST: Final = "first come, first served"
JUDGED: Final = "default, EASY", "flow, EASY"
LEAST_USE: Final = 0.9
MOST_WAIT: Final = 3.0


@dataclass(frozen=True, slots=True)
class Figure:
    """What one way came to; `longest` in seconds, `times` over that of first come, first served; `in_all` likewise, of
    the longest wait that also counts waits after evictions.
    """

    name: str
    used: float
    useful: float
    mean_wait: float
    longest: float
    times: float
    in_all: float
    evictions: int
    seconds: float
    met: bool


def measure(way: str, seed: int, longest: float | None) -> Figure:
    """One way; `longest` is the longest wait of the first."""
    day = made("full")(seed)
    began = time.process_time()
    found = figures(day, WAYS[way](day), time.process_time() - began)
    times = found.max_wait / longest if longest is not None else 1.0
    in_all = found.max_total_wait / longest if longest is not None else 1.0
    day = made("full")(seed)  # anew: a run writes to its jobs
    used = max(WAYS[way](replace(day, until=day.span)).utilisation().values())
    met = way == FIRST or (used >= LEAST_USE and max(times, in_all) <= MOST_WAIT)
    return Figure(
        way, used, found.useful, found.mean_wait, found.max_wait, times, in_all, found.evictions, found.seconds, met
    )


def main() -> int:
    """Run the ways; 1 where one misses a limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(JUDGED))
    parser.add_argument("--json", type=Path, help="write one JSON line per way to this file")
    chosen = parser.parse_args()
    found: list[Figure] = []
    for way in (FIRST, *chosen.ways):
        figure = measure(way, chosen.seed, found[0].longest if found else None)
        found.append(figure)
        print(
            f"{'ok  ' if figure.met else 'MISS'} {way:26} used {figure.used:.1%} (>= {LEAST_USE:.0%}), useful"
            f" {figure.useful:.1%}  mean wait {figure.mean_wait / 60:.0f} min"
            f"  longest {figure.longest / 60:.0f} min, {figure.times:.2f} times, {figure.in_all:.2f} in all"
            f" (<= {MOST_WAIT:g})"
            f"  {figure.evictions} evicted pods  {figure.seconds:.0f} s",
            flush=True,
        )
    return keep(found, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
