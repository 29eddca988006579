"""How long deserved shares take: prints a table, one row per kind of cluster, and ends with 1 where a limit is missed.

    python -m tests.bench.shares [NAME ...]

One division of three dimensions between 200 queues, by the number of distinct sets of nodes that a queue's work may use
(queues that ask for three sets each may use any of hundreds of unions): the median and the worst of several, in
milliseconds of this process on the processor.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb

from kbatch.model.division import Parts, divide
from kbatch.model.shares import Claim
from kbatch.resources import Resources

QUEUES = 200
ROUNDS = 7
FEW_SETS, FEW_MS, MANY_MS = 16, 20.0, 300.0


@dataclass(frozen=True)
class Row:
    """A kind of cluster.

    Attributes:
        name: of the row.
        sets: distinct sets of node classes; each is drawn by `draw` from the number of classes.
        classes: node classes.
        demands: distinct sets that one queue asks for.
        draw: the sets, by number.
    """

    name: str
    sets: int
    classes: int
    demands: int
    draw: Callable[[random.Random, int, int], int]

    @property
    def limit_ms(self) -> float:
        """What one division may take."""
        return FEW_MS if comb(self.sets, self.demands) <= FEW_SETS else MANY_MS


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
        {"cpu": dice.randint(1, 64) * 10**5, "memory": dice.randint(1, 64) * 2**36, "gpu": dice.randint(0, 512)}
        for _ in range(row.classes)
    ]
    totals = {name: sum(each[name] for each in capacities) for name in capacities[0]}
    claims: list[Claim] = []
    parts: list[Parts] = []
    for at in range(QUEUES):
        claims.append(Claim(f"q{at:03}", dice.choice((1, 1, 2, 3, 10)), {}, oldest_waiting=(at, "g")))
        part: dict[int, Resources] = {}
        for _ in range(row.demands):
            reach = sets[at % row.sets] if row.demands == 1 else dice.choice(sets)
            part[reach] = {
                name: int(dice.random() * 4 * total / QUEUES / row.demands) for name, total in totals.items()
            }
        parts.append(part)
    return capacities, claims, parts


def measure(row: Row) -> Iterator[float]:
    """Milliseconds of each of several divisions."""
    for seed in range(ROUNDS):
        arguments = case(row, seed)
        gc.collect()
        start = time.process_time()
        divide(*arguments)
        yield (time.process_time() - start) * 1000


def main(names: list[str]) -> int:
    """Measure the rows that are named, or all; 1 where one takes longer than it may."""
    missed = 0
    print(f"{'division between 200 queues':34}{'median ms':>10}{'worst ms':>10}{'limit ms':>10}")
    for row in ROWS:
        if names and row.name not in names:
            continue
        found = list(measure(row))
        late = statistics.median(found) > row.limit_ms
        missed += late
        print(
            f"{row.name:34}{statistics.median(found):10.1f}{max(found):10.1f}{row.limit_ms:10.0f}"
            f"{'  too slow' if late else ''}"
        )
    return min(1, missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
