"""A GPU cluster like the public ones, and the pods that come to it, made from a seed.

The nodes are those of Alibaba's openb trace in number and kind (1,213 with 2, 4 or 8 GPUs of six models; see "Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023), the pods ask
for amounts as they are common there. 13 % ask for no GPU, most for one, three hundred for 4 or 8; together they ask for
98 % of the GPUs, and they come in random order. All stay.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

GIB: Final = 1024
GPU: Final = "nvidia.com/gpu"
DEMAND: Final = 0.98
WITHOUT: Final = 0.13


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a node, what it offers, of a pod, what it asks for: milli-cores, MiB, GPUs."""

    cpu: int
    memory: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Machine:
    """A node."""

    name: str
    model: str
    shape: Shape


_MODELS: Final = (
    ("g2", 549, Shape(96_000, 384 * GIB, 8)),
    ("g3", 39, Shape(128_000, 768 * GIB, 8)),
    ("v100m32", 26, Shape(96_000, 384 * GIB, 8)),
    ("v100m16", 49, Shape(64_000, 256 * GIB, 4)),
    ("p100", 132, Shape(64_000, 256 * GIB, 2)),
    ("t4", 418, Shape(96_000, 384 * GIB, 2)),
)
_ONE: Final = (
    ((12_198, 48_128), 30), ((12_741, 47_104), 18), ((8_560, 30_517), 10), ((3_372, 5_600), 3), ((4_280, 22_888), 4),
    ((17_120, 32_768), 12), ((12_840, 24_576), 6), ((8_774, 33_792), 3), ((16_264, 80_896), 8), ((10_496, 41_560), 3),
    ((20_017, 64_512), 6), ((25_894, 93_184), 4),
)  # fmt: skip
"""What pods of one GPU ask for besides (milli-cores, MiB), and how often."""
_NONE: Final = (
    ((32_000, 49_152), 40), ((8_000, 30_517), 25), ((12_500, 57_344), 15), ((16_000, 31_250), 10),
    ((32_000, 62_500), 10),
)  # fmt: skip
"""The same for pods without GPU."""
_LARGE: Final = ((Shape(32_200, 132_096, 4), 270), (Shape(64_200, 263_168, 8), 30), (Shape(6_000, 65_536, 2), 150))
"""The pods of several GPUs, and how many there are in the whole cluster."""


def machines(part: float = 1.0) -> list[Machine]:
    """The nodes, or so large a part of each model's."""
    return [
        Machine(f"{model}-{at:04d}", model, shape)
        for model, count, shape in _MODELS
        for at in range(max(1, round(count * part)))
    ]


def pods(seed: int, nodes: Sequence[Machine], part: float = 1.0, *, more_cpu: float = 0.0) -> list[Shape]:
    """The pods that come to these nodes, in the order in which they come; equal seeds give equal pods.

    Those of one GPU ask for so much `more_cpu` than usual, 0.1 being a tenth.
    """
    rng = random.Random(seed)
    found = [shape for shape, count in _LARGE for _ in range(round(count * part))]
    wanted = int(DEMAND * sum(node.shape.gpus for node in nodes)) - sum(shape.gpus for shape in found)
    found += [Shape(round(cpu * (1 + more_cpu)), memory, 1) for cpu, memory in _drawn(rng, _ONE, wanted)]
    found += [Shape(cpu, memory, 0) for cpu, memory in _drawn(rng, _NONE, round(len(found) * WITHOUT / (1 - WITHOUT)))]
    rng.shuffle(found)
    return found


def _drawn(rng: random.Random, choices: Sequence[tuple[tuple[int, int], int]], count: int) -> list[tuple[int, int]]:
    return rng.choices([what for what, _ in choices], [weight for _, weight in choices], k=count)
