"""How long deserved shares take: prints a table, one row per kind of cluster, and ends with 1 where a limit is missed.

    python -m tests.bench.shares [--json FILE] [NAME ...]

One division of three dimensions between 200 queues, by the number of distinct sets of nodes that work may use, however
many of them one queue asks for, and whatever the weights, capabilities and sizes: the median and the worst of several,
in milliseconds of this process on the processor; and the longest of the pieces in which it is done.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kbatch.model.division import Parts, dividing
from kbatch.model.shares import Claim
from kbatch.resources import Resources
from tests.bench.engine import Figure

QUEUES = 200
ROUNDS = 7
FEW_SETS, FEW_MS, MANY_MS, PIECE_MS = 16, 20.0, 300.0, 20.0


@dataclass(frozen=True)
class Row:
    """A kind of cluster.

    Attributes:
        name: of the row.
        sets: distinct sets of node classes; each is drawn by `draw` from the number of classes.
        classes: node classes.
        demands: distinct sets that one queue asks for.
        draw: the sets, by number.
        weights: what a queue's weight is drawn from.
        nodes: how many times larger than usual the classes are: usual is up to 4 TiB of memory each.
        alike: whether all queues ask for as much and nobody has waited longer.
        capped: whether every second queue has a capability, of an equal part of the cluster.
        mostly_one: whether only every tenth queue asks for more than one set.
    """

    name: str
    sets: int
    classes: int
    demands: int
    draw: Callable[[random.Random, int, int], int]
    weights: Sequence[int] = (1, 1, 2, 3, 10)
    nodes: int = 1
    alike: bool = False
    capped: bool = False
    mostly_one: bool = False

    @property
    def limit_ms(self) -> float:
        """What one division may take."""
        return FEW_MS if self.sets <= FEW_SETS else MANY_MS


def _mixed(dice: random.Random, classes: int, _at: int) -> int:
    """Half of the classes, any."""
    return sum(1 << at for at in range(classes) if dice.random() < 0.5) or 1


def _rare(dice: random.Random, classes: int, _at: int) -> int:
    """One to three of the classes."""
    return sum(1 << at for at in dice.sample(range(classes), min(classes, dice.randint(1, 3))))


def _pool(_dice: random.Random, _classes: int, at: int) -> int:
    """Each set a class."""
    return 1 << at


def _nested(_dice: random.Random, classes: int, at: int) -> int:
    """Each set within the next: as many levels as there are sets."""
    return (1 << (1 + at % classes)) - 1


def _window(_dice: random.Random, classes: int, at: int) -> int:
    """Each set overlaps its neighbours."""
    return sum(1 << ((at + each) % classes) for each in range(3))


ROWS = (
    Row("all may use all", 1, 1, 1, _mixed),
    Row("two pools", 2, 2, 1, _nested),
    Row("two pools, each queue in both", 2, 2, 2, _pool),
    Row("16 sets of half the nodes", 16, 32, 1, _mixed),
    Row("16 rare sets", 16, 16, 1, _rare),
    Row("16 nested sets", 16, 16, 1, _nested),
    Row("16 sets, three for a queue", 16, 16, 3, _rare),
    Row("16 nested, three for a queue", 16, 16, 3, _nested),
    Row("16 sets, five for a queue", 16, 16, 5, _rare),
    Row("16 of half, three for a queue", 16, 32, 3, _mixed),
    Row("16 sets, three, all alike", 16, 16, 3, _rare, weights=(1,), alike=True),
    Row("16 sets, three, capabilities", 16, 16, 3, _rare, capped=True),
    Row("16 sets, three, weights to 1000", 16, 16, 3, _rare, weights=range(1, 1001)),
    Row("16 sets, three, large nodes", 16, 16, 3, _rare, nodes=100),
    Row("16 sets, all for some queues", 16, 16, 16, _rare, mostly_one=True),
    Row("200 sets of half the nodes", 200, 64, 1, _mixed),
    Row("200 rare sets", 200, 64, 1, _rare),
    Row("200 nested sets", 200, 200, 1, _nested),
    Row("200 overlapping sets", 200, 200, 1, _window),
    Row("200 rare sets, three for a queue", 200, 64, 3, _rare),
)


def case(row: Row, seed: int) -> tuple[list[Resources], list[Claim], list[Parts]]:
    """A cluster with twice the demand that it has room for; queue by queue more or less."""
    dice = random.Random(seed)
    sets = [row.draw(dice, row.classes, at) for at in range(row.sets)]
    capacities = [
        {
            "cpu": dice.randint(1, 64) * 10**5 * row.nodes,
            "memory": dice.randint(1, 64) * 2**36 * row.nodes,
            "gpu": dice.randint(0, 512) * row.nodes,
        }
        for _ in range(row.classes)
    ]
    totals = {name: sum(each[name] for each in capacities) for name in capacities[0]}
    claims: list[Claim] = []
    parts: list[Parts] = []
    for at in range(QUEUES):
        claim = Claim(f"q{at:03}", dice.choice(row.weights), {}, oldest_waiting=None if row.alike else (at, "g"))
        several = 1 if row.mostly_one and at % 10 else row.demands
        part: dict[int, Resources] = {}
        for place in range(several):
            reach = sets[place] if several == row.sets else sets[at % row.sets] if several == 1 else dice.choice(sets)
            part[reach] = {
                name: int((0.5 if row.alike else dice.random()) * 4 * total / QUEUES / several)
                for name, total in totals.items()
            }
        if row.capped and at % 2:
            claim = replace(claim, capability={name: total // QUEUES for name, total in totals.items()})
        claims.append(claim)
        parts.append(part)
    return capacities, claims, parts


def measure(row: Row) -> Iterator[tuple[float, float]]:
    """Milliseconds of each of several divisions, and of the longest piece of each."""
    for seed in range(ROUNDS):
        steps = dividing(*case(row, seed))
        gc.collect()
        start = last = time.process_time()
        piece = 0.0
        for _ in steps:
            now = time.process_time()
            piece, last = max(piece, now - last), now
        end = time.process_time()
        yield (end - start) * 1000, max(piece, end - last) * 1000


def figures(row: Row) -> list[Figure]:
    """What one row takes, and what its pieces take: medians."""
    whole, pieces = zip(*measure(row), strict=True)
    found = statistics.median(whole), statistics.median(pieces)
    print(
        f"{row.name:34}{found[0]:10.1f}{max(whole):10.1f}{row.limit_ms:10.0f}{found[1]:10.1f}"
        f"{'  too slow' if found[0] > row.limit_ms or found[1] > PIECE_MS else ''}",
        flush=True,
    )
    return [
        Figure("shares", f"{row.name}: a division between {QUEUES} queues", found[0], row.limit_ms, "ms"),
        Figure("shares-piece", f"{row.name}: its longest piece", found[1], PIECE_MS, "ms"),
    ]


def main() -> int:
    """Measure the rows that are named, or all; 1 where one takes longer than it may."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shares")
    parser.add_argument("--json", type=Path, help="write one JSON line per figure to this file")
    parser.add_argument("names", nargs="*", choices=[[], *(row.name for row in ROWS)], help="rows; all by default")
    chosen = parser.parse_args()
    print(f"{'division between 200 queues':34}{'median ms':>10}{'worst ms':>10}{'limit ms':>10}{'piece ms':>10}")
    found = [figure for row in ROWS if not chosen.names or row.name in chosen.names for figure in figures(row)]
    if chosen.json is not None:
        lines = [json.dumps({**asdict(figure), "met": figure.met}) + "\n" for figure in found]
        chosen.json.write_text("".join(lines), "utf-8")
    return 0 if all(figure.met for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
