"""How the cost of a cycle grows with nodes, pods, the size of gangs, and what waits: JSON lines, and a picture of them.

    python -m tests.bench.growth [--json FILE] [--picture FILE] [SERIES ...]

Without names all series are measured; of others the points in the file stay as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from kbatch.api.configuration import DEFAULT
from kbatch.engine import build_policy
from tests.bench.engine import build, decide, gangs
from tests.bench.waiting import run
from tests.bench.waiting_load import Row


@dataclass(frozen=True, slots=True)
class Point:
    """One cycle that places `pods` pods in gangs of `gang` on `nodes` empty nodes; seconds, the median of its runs.

    Where groups wait (`waiting`, of `pods` pods): one of the cycles of `tests.bench.waiting`, in each of which one pod
    of a full cluster ends; seconds of the processor, their mean.
    """

    series: str
    nodes: int
    pods: int
    gang: int
    seconds: float
    longest_slice: float
    waiting: int = 0


SERIES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "nodes": tuple((nodes, 3000, 100) for nodes in (100, 300, 1000, 3000, 10_000)),
    "pods": tuple((5000, pods, 100) for pods in (300, 1000, 3000, 10_000, 30_000)),
    "gang size": tuple((5000, 3000, gang) for gang in (1, 3, 10, 30, 100, 300, 1000, 3000)),
}
RUNS = 3

FULL = Row("growth", 40, 1280, 0, 20, 4, 0.0, mean=0.0, p99=None, cycles=100)
"""The cluster in which groups wait: that of the row `thousand`."""
WAITING = (100, 300, 1000, 3000, 10_000)
DEEP = "waiting groups"


def measure(names: Collection[str]) -> Iterator[Point]:
    """All points of these series, one after the other."""
    policy = build_policy(DEFAULT)
    for series, shapes in SERIES.items():
        if series not in names:
            continue
        for nodes, pods, gang in shapes:
            results = []
            for _ in range(RUNS):
                model, _ = build(gangs(pods // gang, gang, nodes))
                result = decide(model, policy)
                assert result.binds == pods, f"{series}: {result.binds} of {pods} pods bound"
                results.append(result)
            seconds, longest = (median(getattr(each, name) for each in results) for name in ("seconds", "slice"))
            yield Point(series, nodes, pods, gang, round(seconds, 6), round(longest, 6))
    for waiting in WAITING if DEEP in names else ():
        row = replace(FULL, waiting=waiting)
        found = run(row, arrivals=False, affinity=False, cycles=row.cycles)
        yield Point(
            DEEP, row.nodes, found.pods, 0, round(found.mean, 6), round(found.slice, 6), waiting
        )  # fmt: skip


def draw(points: list[Point], path: Path) -> None:
    """One panel for each series, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "kbatch"
    from matplotlib import pyplot as plt

    captions = {
        "nodes": ("nodes", "3,000 pods in gangs of 100"),
        "pods": ("pods", "gangs of 100 on 5,000 nodes"),
        "gang size": ("pods of a gang", "3,000 pods on 5,000 nodes"),
        DEEP: (DEEP, "40 full nodes, one pod ends"),
    }
    figure, panels = plt.subplots(1, len(captions), figsize=(15, 3.6), sharey=True, layout="constrained")
    for panel, series in zip(panels, captions, strict=True):
        of_series = [point for point in points if point.series == series]
        across = [
            {"nodes": each.nodes, "pods": each.pods, "gang size": each.gang, DEEP: each.waiting}[series]
            for each in of_series
        ]
        panel.loglog(across, [each.seconds for each in of_series], "o-", color="tab:blue", label="cycle")
        slices = [(x, each.longest_slice) for x, each in zip(across, of_series, strict=True) if each.longest_slice > 0]
        panel.loglog(*zip(*slices, strict=True), "s--", color="tab:orange", label="longest slice") if slices else None
        label, caption = captions[series]
        panel.set_xlabel(label)
        panel.set_title(caption, fontsize=10)
        panel.grid(visible=True, which="both", alpha=0.25)
    panels[0].set_ylabel("seconds")
    panels[0].legend()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(arguments: list[str]) -> int:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth")
    parser.add_argument("--json", type=Path, help="write one JSON line for each point to this file")
    parser.add_argument("--picture", type=Path, help="draw the points into this file")
    parser.add_argument("series", nargs="*", choices=[[], *SERIES, DEEP], help="which; all by default")
    chosen = parser.parse_args(arguments)
    names = chosen.series or [*SERIES, DEEP]
    points: list[Point] = []
    if chosen.json is not None and chosen.json.exists():
        known = (Point(**json.loads(line)) for line in chosen.json.read_text("utf-8").splitlines())
        points += [point for point in known if point.series not in names]
    for point in measure(names):
        points.append(point)
        waiting = f"{point.waiting} groups wait" if point.waiting else f"gangs of {point.gang:4}"
        shape = f"{point.nodes:6} nodes  {point.pods:6} pods  {waiting}"
        print(f"{point.series:14}  {shape}  {point.seconds:8.4f} s", flush=True)
    if chosen.json is not None:
        chosen.json.write_text("".join(json.dumps(asdict(point)) + "\n" for point in points), "utf-8")
    if chosen.picture is not None:
        draw(points, chosen.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
