"""What a cycle costs where much waits and little changes: a full cluster, a deep queue, one change in each cycle.

    python -m tests.bench.waiting [--cycles N] [--seconds N] [--arrivals] [--affinity] [--policy NAME] [--json FILE]
                                  [ROW ...]

Every cycle one running pod ends (with `--arrivals` one group comes as well), and the cycle is timed from the snapshot
to its outcome, in seconds of this process on the processor. What it decides is carried out at once: binds are assumed
and confirmed, victims go before the next cycle. Ends with status 1 where a limit is missed.

Before that the cluster comes to rest: nothing happens to it, a second apart, until several cycles in succession have
decided nothing. The first of these make room for whoever has a right to it, and one cycle without a decision is not
the end of that: what it says of the groups is written, and the next one may decide otherwise.

What waits is in `tests.bench.waiting_load`. A row in which nobody waits for the capability of a queue any more, or
nobody for a quota, has lost its variety, and misses, as does one that has not come to rest. Of the deepest row nine in
ten wait as clusters with delayed pod creation have them: as PodGroups whose pods are yet to be made.

With `--affinity` the second set waits, with inter-pod affinity. With `--policy` the same waits under another
configuration; under those that plan starts, all groups say how long they run, and with `topology` nodes have places in
a network and three in five shapes ask to stand close together. Neither has limits: the figures are for reading.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kbatch.api.configuration import DEFAULT_TEXT, parse
from kbatch.api.reasons import QueueCapabilityExceeded, QuotaExceeded
from kbatch.engine import (
    CycleState,
    Memo,
    NullObserver,
    Policy,
    Transaction,
    Verdict,
    build_policy,
    cycle,
    take_snapshot,
)
from kbatch.times import SECOND
from tests.bench import topology
from tests.bench.engine import LONGEST_SLICE, NOW, keep
from tests.bench.policies import backfilling, example
from tests.bench.waiting_load import Load, Row, World

SETTLED: Final = 5
"""After so many cycles in succession that decided nothing the cluster is at rest, and cycles are timed."""
WARM_UP: Final = 200
"""So many cycles at most that takes; a row that has not come to rest by then is not measured as it should be."""
VARIETY: Final = QueueCapabilityExceeded.code, QuotaExceeded.code
"""In each row somebody waits for these reasons at the end."""

ROWS: Final = (
    Row("thousand", 40, 1280, 1000, 20, 4, 0.0, 0.005, 0.010, 300),
    Row("ten-thousand", 1000, 20_000, 10_000, 200, 50, 0.0, 0.020, 0.040, 200),
    Row("hundred-thousand", 10_000, 100_000, 100_000, 1000, 50, 0.9, 0.100, None, 60, 3072),
)

DEFAULT: Final = "default"
PLANNING: Final = "easy", "conservative"
POLICIES: Final = (DEFAULT, "no-enqueue", "allocate", *PLANNING, "flow", "topology")


@dataclass(frozen=True, slots=True)
class Figure:
    """What one row gave; seconds of the processor, and MiB.

    Attributes:
        binds, evictions: those of the timed cycles.
        rest: how many cycles went before these.
        slice, slice_met: the longest time between two steps of a timed cycle, and whether it is within the limit.
        reasons: how many groups waited for which reason at the end.
        limited: the row is held to the limits of its cycles; `met` is also of what every row must be.
    """

    name: str
    arrivals: bool
    affinity: bool
    policy: str
    waiting: int
    pods: int
    cycles: int
    first: float
    mean: float
    p50: float
    p99: float
    slice: float
    slice_met: bool
    memory: float
    binds: int
    evictions: int
    rest: int
    reasons: dict[str, int]
    limited: bool
    met: bool


def policy_of(name: str) -> Policy:
    """A configuration by its name."""
    if name == "topology":
        return topology.policy()
    text = DEFAULT_TEXT
    if name == "flow":
        text = example("flow")
    elif name in PLANNING:
        text = backfilling(text, name)
    elif name != DEFAULT:
        actions = {"no-enqueue": "reclaim, allocate, backfill, preempt", "allocate": "allocate, backfill"}[name]
        text = text.replace("enqueue, reclaim, allocate, backfill, preempt", actions)
    return build_policy(parse(text, name))


def run(
    row: Row, *, arrivals: bool, affinity: bool, cycles: int, policy: str = DEFAULT, seconds: float = float("inf")
) -> Figure:
    """One row: so many cycles, or as many as begin within so many seconds of the processor."""
    world = World(row, Load(affinity=affinity, topology=policy == "topology", expected=policy in PLANNING))
    configuration = policy_of(policy)
    memo, state = Memo(), CycleState()
    times: list[float] = []
    longest = 0.0
    first = 0.0
    quiet = 0
    binds = evictions = 0
    gc.collect()
    gc.freeze()
    gc.disable()
    at, rest = -1, 0
    until = time.process_time() + seconds
    for number in range(WARM_UP + cycles):
        if at >= 0 or quiet == SETTLED or number == WARM_UP:
            at += 1
            rest = rest or number
        if at == cycles or (times and time.process_time() > until):
            break
        if at < 0 and time.process_time() > until:
            at, rest = 0, WARM_UP
        if at >= 0:
            world.end_one()
            if arrivals:
                world.arrive()
        transactions: list[Transaction] = []
        verdicts: list[Verdict] = []
        began = last = time.process_time()
        now = NOW + number * SECOND
        steps = cycle(take_snapshot(world.model, now, state), configuration, memo, NullObserver())
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                memo, state = end.value.memo, end.value.state
                break
            moment = time.process_time()
            if at >= 0:
                longest = max(longest, moment - last)
            last = moment
            if isinstance(step, Transaction):
                transactions.append(step)
            elif isinstance(step, Verdict):
                verdicts.append(step)
        ended = time.process_time()
        if at >= 0:
            longest = max(longest, ended - last)
            times.append(ended - began)
        elif number == 0:
            first = ended - began
        made = world.carry_out(
            transactions, verdicts, datetime.fromtimestamp(now // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        )
        quiet = 0 if transactions else quiet + 1
        if at >= 0:
            binds, evictions = binds + made[0], evictions + made[1]
    gc.enable()
    gc.unfreeze()
    times.sort()
    mean, p99 = sum(times) / len(times), times[min(len(times) - 1, int(len(times) * 0.99))]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    reasons = world.reasons()
    limited, slice_met = policy == DEFAULT and not affinity, longest <= LONGEST_SLICE
    met = not limited or (
        rest < WARM_UP and all(reasons.get(code) for code in VARIETY) and slice_met and mean <= row.mean
        and (row.p99 is None or p99 <= row.p99) and (row.memory is None or memory <= row.memory)
    )  # fmt: skip
    return Figure(
        row.name, arrivals, affinity, policy, row.waiting, world.pods, len(times), first, mean, times[len(times) // 2],
        p99, longest, slice_met, memory, binds, evictions, rest, reasons, limited, met,
    )  # fmt: skip


def shown(figure: Figure, row: Row) -> str:
    """A figure in two lines."""
    verdict = ("ok  " if figure.met else "MISS") if figure.limited else "    "
    reasons = ", ".join(f"{code} {count}" for code, count in figure.reasons.items())
    return (
        f"{verdict} {figure.name:18} waiting {figure.waiting:7} ({figure.pods} pods)"
        f"  first {figure.first:7.3f} s  mean {figure.mean * 1e3:8.2f} ms  p50 {figure.p50 * 1e3:8.2f}"
        f"  p99 {figure.p99 * 1e3:8.2f}  longest slice {figure.slice * 1e3:6.2f}"
        f"{'' if figure.slice_met else ' (above 20)'}  {figure.memory:6.0f} MiB"
        f"  {figure.binds} binds {figure.evictions} evictions in {figure.cycles} cycles,"
        f" {'at rest after' if figure.rest < WARM_UP else 'not at rest after'} {figure.rest}"
        f"  (mean <= {row.mean * 1e3:g} ms)\n     {reasons}"
    )


def main() -> int:
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write one JSON line per figure to this file")
    parser.add_argument("--cycles", type=int, help="how many cycles are timed; by default each row's own number")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no cycle after so many seconds")
    parser.add_argument("--arrivals", action="store_true", help="one group arrives in each cycle")
    parser.add_argument("--affinity", action="store_true", help="the second set: two thirds have inter-pod affinity")
    parser.add_argument("--policy", choices=POLICIES, default=DEFAULT, help="under which configuration")
    parser.add_argument("names", nargs="*", choices=[[], *names], help="which rows; all by default")
    chosen = parser.parse_args()
    figures = []
    for row in ROWS:
        if chosen.names and row.name not in chosen.names:
            continue
        figure = run(
            row, arrivals=chosen.arrivals, affinity=chosen.affinity, cycles=chosen.cycles or row.cycles,
            policy=chosen.policy, seconds=chosen.seconds,
        )  # fmt: skip
        figures.append(figure)
        print(shown(figure, row), flush=True)
    return keep(figures, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
