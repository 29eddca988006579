"""How the cost of a cycle grows with nodes, pods and the size of gangs: points as JSON lines, and a picture of them.

python -m tests.bench.growth [--json FILE] [--picture FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from kbatch.api.configuration import DEFAULT
from kbatch.engine import build_policy
from tests.bench.engine import build, decide, gangs


@dataclass(frozen=True, slots=True)
class Point:
    """One cycle that places `pods` pods in gangs of `gang` on `nodes` empty nodes; seconds, the median of its runs."""

    series: str
    nodes: int
    pods: int
    gang: int
    seconds: float
    longest_slice: float


SERIES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "nodes": tuple((nodes, 3000, 100) for nodes in (100, 300, 1000, 3000, 10_000)),
    "pods": tuple((5000, pods, 100) for pods in (300, 1000, 3000, 10_000, 30_000)),
    "gang size": tuple((5000, 3000, gang) for gang in (1, 3, 10, 30, 100, 300, 1000, 3000)),
}
RUNS = 3


def measure() -> Iterator[Point]:
    """All points, series after series."""
    policy = build_policy(DEFAULT)
    for series, shapes in SERIES.items():
        for nodes, pods, gang in shapes:
            results = []
            for _ in range(RUNS):
                model, _ = build(gangs(pods // gang, gang, nodes))
                result = decide(model, policy)
                assert result.binds == pods, f"{series}: {result.binds} of {pods} pods bound"
                results.append(result)
            seconds, longest = (median(getattr(each, name) for each in results) for name in ("seconds", "slice"))
            yield Point(series, nodes, pods, gang, round(seconds, 6), round(longest, 6))


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
    }
    figure, panels = plt.subplots(1, len(SERIES), figsize=(12, 3.6), sharey=True, layout="constrained")
    for panel, series in zip(panels, SERIES, strict=True):
        of_series = [point for point in points if point.series == series]
        across = [{"nodes": each.nodes, "pods": each.pods, "gang size": each.gang}[series] for each in of_series]
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
    chosen = parser.parse_args(arguments)
    points: list[Point] = []
    for point in measure():
        points.append(point)
        shape = f"{point.nodes:6} nodes  {point.pods:6} pods  gangs of {point.gang:4}"
        print(f"{point.series:9}  {shape}  {point.seconds:8.4f} s", flush=True)
    if chosen.json is not None:
        chosen.json.write_text("".join(json.dumps(asdict(point)) + "\n" for point in points), "utf-8")
    if chosen.picture is not None:
        draw(points, chosen.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
