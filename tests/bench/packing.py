"""How much of a GPU cluster's GPUs each way of placing allocates: the study in `docs/packing.md`.

    python -m tests.bench.packing [--seeds N] [--write]

For each seed a cluster and its pods (`tests.bench.gpu_cluster`), placed once by each of the configurations and by a
plain best fit that knows nothing of the engine. With `--write` the tables go into the page. The status is 1 where the
shipped packing configuration allocates less than plain best fit for any seed.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from kbatch.api.configuration import DEFAULT_TEXT, parse
from kbatch.api.objects import (
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    Queue,
    ResourceRequirements,
)
from kbatch.engine import Memo, NullObserver, Transaction, build_policy, cycle, take_snapshot
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Upsert
from kbatch.times import SECOND
from tests.bench.gpu_cluster import GPU, Machine, Shape, machines, pods

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "packing.md"
SHIPPED: Final = (ROOT / "examples" / "configurations" / "packing.yaml").read_text("utf-8")
SEEDS: Final = 10
SCENES: Final = {"usual": 0.0, "more cpu": 0.1}
"""By the marks on the page how much more cpu the pods of one GPU ask for."""
_ACTIONS: Final = 'actions: "allocate"'
_STAMP: Final = "2026-01-01T00:00:00Z"
_NOW: Final = 1_767_225_660 * SECOND


@dataclass(frozen=True, slots=True)
class Placed:
    """What came of one run: for each pod its node, or None; in the order of pods."""

    nodes: tuple[str | None, ...]

    def gpus(self, arrivals: Sequence[Shape]) -> int:
        """The GPUs that are allocated."""
        return sum(shape.gpus for shape, node in zip(arrivals, self.nodes, strict=True) if node is not None)

    def left(self, arrivals: Sequence[Shape]) -> dict[int, int]:
        """How many pods were not placed, by their number of GPUs."""
        found: dict[int, int] = {}
        for shape, node in zip(arrivals, self.nodes, strict=True):
            if node is None:
                found[shape.gpus] = found.get(shape.gpus, 0) + 1
        return dict(sorted(found.items()))

    def opened(self) -> int:
        """How many nodes hold any pod."""
        return len({node for node in self.nodes if node is not None})


Found: TypeAlias = "dict[str, list[tuple[Placed, list[Shape]]]]"
"""By way its runs: what was placed, of which pods."""


def plain_best_fit(nodes: Sequence[Machine], arrivals: Sequence[Shape]) -> Placed:
    """Each pod goes where the least is left: the sum over cpu, memory and GPUs of what is free, in parts of the largest
    node; of equals to the first.
    """
    free = np.array([(node.shape.cpu, node.shape.memory, node.shape.gpus) for node in nodes], np.float64)
    largest = free.max(axis=0)
    found: list[str | None] = []
    for shape in arrivals:
        left = free - np.array((shape.cpu, shape.memory, shape.gpus), np.float64)
        cost = np.where((left >= 0).all(axis=1), (left / largest).sum(axis=1), np.inf)
        at = int(cost.argmin())
        found.append(nodes[at].name if np.isfinite(cost[at]) else None)
        if np.isfinite(cost[at]):
            free[at] = left[at]
    return Placed(tuple(found))


def by_engine(text: str, nodes: Sequence[Machine], arrivals: Sequence[Shape]) -> Placed:
    """The pods as the engine places them in one cycle, first come, first served; nobody is evicted."""
    policy = build_policy(parse(re.sub(r"(?m)^actions:.*$", _ACTIONS, text), "study"))
    model = ClusterModel()
    model.apply(Upsert(Queue(metadata=Metadata(name="default"))))
    for node in nodes:
        model.apply(Upsert(_node(node)))
    for at, shape in enumerate(arrivals):
        model.apply(Upsert(_pod(at, shape)))
    found: dict[str, str] = {}
    for step in cycle(take_snapshot(model, _NOW), policy, Memo(), NullObserver()):
        if isinstance(step, Transaction):
            found.update({bind.pod: bind.node for bind in step.binds})
    return Placed(tuple(found.get(f"default/{_name(at)}") for at in range(len(arrivals))))


def _node(machine: Machine) -> Node:
    return Node(metadata=Metadata(name=machine.name), status=NodeStatus(allocatable=_amounts(machine.shape)))


def _amounts(shape: Shape) -> dict[str, str | int | float]:
    gpus = {GPU: shape.gpus} if shape.gpus else {}
    return {"cpu": f"{shape.cpu}m", "memory": f"{shape.memory}Mi", **gpus}


def _name(at: int) -> str:
    return f"p{at:05d}"


def _pod(at: int, shape: Shape) -> Pod:
    asks = _amounts(shape)
    return Pod(
        metadata=Metadata(name=_name(at), namespace="default", uid=_name(at), creation_timestamp=_STAMP),
        spec=PodSpec(
            scheduler_name="kube-batch",
            containers=(Container(name="main", resources=ResourceRequirements(requests=asks)),),
        ),
        status=PodStatus(phase="Pending"),
    )


def least_lost() -> str:
    """The shipped packing configuration with lostopportunity in the place of binpack."""
    return SHIPPED.replace("binpack", "lostopportunity")


def requested_only() -> str:
    """Most requested of cpu and memory alone, as kube-batch has it: GPUs do not count."""
    weights = "leastrequested.weight: 0, balancedresource.weight: 0, mostrequested.weight: 1"
    return DEFAULT_TEXT.replace(
        "  - name: nodeorder\n",
        f"  - name: nodeorder\n    arguments: {{{weights}}}\n",
    )


WAYS: Final[Mapping[str, Callable[[Sequence[Machine], Sequence[Shape]], Placed]]] = {
    "default (spreads)": lambda nodes, arrivals: by_engine(DEFAULT_TEXT, nodes, arrivals),
    "most requested": lambda nodes, arrivals: by_engine(requested_only(), nodes, arrivals),
    "plain best fit": plain_best_fit,
    "LeastLost": lambda nodes, arrivals: by_engine(least_lost(), nodes, arrivals),
    "packing": lambda nodes, arrivals: by_engine(SHIPPED, nodes, arrivals),
}


def study(seeds: Sequence[int], more_cpu: float = 0.0) -> Found:
    """Each way's runs, in the order of seeds."""
    nodes = machines()
    found: Found = {name: [] for name in WAYS}
    for seed in seeds:
        arrivals = pods(seed, nodes, more_cpu=more_cpu)
        for name, place in WAYS.items():
            found[name].append((place(nodes, arrivals), arrivals))
            print(f"seed {seed}: {name} {_percent(found[name][-1]):.2f} %", file=sys.stderr, flush=True)
    return found


def _percent(run: tuple[Placed, list[Shape]]) -> float:
    placed, arrivals = run
    return 100 * placed.gpus(arrivals) / sum(node.shape.gpus for node in machines())


def table(found: Found) -> str:
    """The figures as Markdown: one row for each way."""
    lines = [
        "| way | GPUs allocated: mean | least | most | pods left, by their GPUs (mean) | nodes in use (mean) |",
        "|---|---|---|---|---|---|",
    ]
    for name, runs in found.items():
        parts = [_percent(run) for run in runs]
        left: dict[int, int] = {}
        for placed, arrivals in runs:
            for gpus, count in placed.left(arrivals).items():
                left[gpus] = left.get(gpus, 0) + count
        told = ", ".join(f"{count / len(runs):.1f} of {gpus}" for gpus, count in sorted(left.items())) or "none"
        opened = statistics.mean(placed.opened() for placed, _ in runs)
        figures = " | ".join(f"{figure:.2f} %" for figure in (statistics.mean(parts), min(parts), max(parts)))
        lines.append(f"| {name} | {figures} | {told} | {opened:.0f} |")
    return "\n".join(lines)


def by_seed(found: Found) -> str:
    """GPUs allocated in per cent: one row for each seed."""
    lines = ["| seed | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    for seed, runs in enumerate(zip(*found.values(), strict=True)):
        lines.append(f"| {seed} | " + " | ".join(f"{_percent(run):.2f}" for run in runs) + " |")
    return "\n".join(lines)


def written(page: str, mark: str, found: Found) -> str:
    """The page with these figures behind a mark."""
    figures = f"{table(found)}\n\nGPUs allocated, in per cent, seed by seed:\n\n{by_seed(found)}"
    return re.sub(
        rf"<!-- {mark} -->.*?<!-- end -->",
        lambda _: f"<!-- {mark} -->\n\n{figures}\n\n<!-- end -->",
        page,
        flags=re.DOTALL,
    )


def main() -> int:
    """Run the study; the status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    missed = False
    for mark, more_cpu in SCENES.items():
        found = study(range(arguments.seeds), more_cpu)
        print(f"{mark}\n{table(found)}")
        if arguments.write:
            PAGE.write_text(written(PAGE.read_text("utf-8"), mark, found), "utf-8")
        pairs = zip(found["packing"], found["plain best fit"], strict=True)
        short = [seed for seed, (packing, plain) in enumerate(pairs) if _percent(packing) < _percent(plain)]
        if short:
            missed = True
            print(f"MISS: less than plain best fit for the seeds {short}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
