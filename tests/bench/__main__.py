"""The benchmarks: `make bench`.

    python -m tests.bench [--quick] [engine] [waiting] [shares] [topology] [scale] [churn] [simulate] [traces]
                          [stream] [full] [wasted] [stub] [live] [crowded] [installed] [gang]

Without names all run: the engine alone; the engine where much waits and little changes; the division into shares;
groups that stand close together; what a large cluster costs the scheduler before it decides anything; what is kept of
pods that are gone; the simulator on thousands of jobs; traces of a hundred thousand; a stream of jobs of one pod; a day
of more work than there is room for; evictions that nobody had anything of; binds on a server that costs nothing; binds
on a real API server, against a bare loop and other schedulers; small groups of the product as installed, where much
waits; the product as installed, against a bare loop; a large gang in a busy cluster (docs/benchmarks.md has the
method).

Every row of the engine, and of what waits, runs in a process of its own: its memory is its own. Figures are kept as
JSON lines in `docs/benchmarks`, those of the engine with a table of them against their limits and a picture of how the
cost grows. The status is 1 where a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from tests.bench.engine import ROWS
from tests.bench.topology import ROWS as CLOSE


class Part(Protocol):
    """Runs one part, and gives the names of what was missed or failed. `quick`: smaller, and nothing is kept."""

    def __call__(self, *, quick: bool) -> list[str]: ...


KEPT = Path(__file__).parents[2] / "docs" / "benchmarks"
ROW_SECONDS = 600.0
LONG_SECONDS = 1800.0
"""For the deepest of those in which much waits, and where a control plane is started and filled."""
WAITING: Final = tuple(
    (name, *more) for name in ("thousand", "ten-thousand", "hundred-thousand") for more in ((), ("--arrivals",))
)  # fmt: skip
"""The rows of `tests.bench.waiting`; the deepest takes several minutes."""
AFFINE: Final = ("thousand", "--affinity")
"""Of the second set, with inter-pod affinity: without limits."""
CROWDED: Final = (("--groups", "1000"), ("--groups", "10000", "--without-pods", "0.9"))


def run_row(module: str, arguments: Sequence[str], folder: Path, patience: float = ROW_SECONDS) -> list[dict[str, Any]]:
    """The figures of one row of a benchmark, run as a process of its own; none if it did not end as it should."""
    row = " ".join(arguments)
    path = folder / f"{row}.jsonl"
    command = [sys.executable, "-m", module, *arguments, "--json", str(path)]
    with subprocess.Popen(command) as process:
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            print(f"MISS {row}: not done after {patience:.0f} s", flush=True)
            process.terminate()  # one that has a control plane takes it down
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def machine() -> str:
    """What the figures were measured on, in one line."""
    name = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists():
        lines = about.read_text("utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{os.cpu_count()} CPUs ({name}), Python {platform.python_version()}, {platform.system()}"


def table(figures: list[dict[str, Any]]) -> str:
    """The figures as a page of Markdown."""
    lines = [
        "# What the engine takes",
        "",
        f"Measured on {machine()}, by `make bench`: the time inside one cycle,",
        "with the default configuration and all five actions.",
        "",
        "| work | figure | limit |",
        "|---|--:|--:|",
    ]
    for figure in figures:
        value = f"{figure['value']:.3g} {figure['unit']}"
        limit = f"{figure['limit']:g} {figure['unit']}"
        lines.append(f"| {figure['what']} | {value if figure['met'] else f'**{value}**'} | {limit} |")
    lines += [
        "",
        "![How the cost of a cycle grows with nodes, pods, the size of gangs and what waits](engine-growth.svg)",
        "",
    ]
    return "\n".join(lines)


def topology_table(figures: list[dict[str, Any]]) -> str:
    """Each row without topology and with it, beside one another, as a page of Markdown."""
    lines = [
        "# What topology costs",
        "",
        f"Measured on {machine()}, by `make bench`: the time inside one cycle. Each row of",
        "[the engine](engine.md) once as it is and once with the plugin on (four levels of labels, sixteen nodes in a",
        "rack), where four groups of five ask to stand close together; then rows of its own, which have no plain one.",
        "",
        "| work | plain | limit | with topology | limit |",
        "|---|--:|--:|--:|--:|",
    ]

    def cells(figure: dict[str, Any] | None) -> str:
        if figure is None:
            return "| |"
        value = f"{figure['value']:.3g} {figure['unit']}"
        return f"{value if figure['met'] else f'**{value}**'} | {figure['limit']:g} {figure['unit']} |"

    by_name = {figure["name"]: figure for figure in figures}
    for name, figure in by_name.items():
        if not name.endswith("-topology"):
            close = by_name.get(f"{name}-topology")
            plain = cells(figure) if close is not None else cells(None)
            lines.append(f"| {figure['what']} | {plain} {cells(close if close is not None else figure)}")
    return "\n".join([*lines, ""])


def engine(*, quick: bool) -> list[str]:
    """Run the engine's rows, keep what they say; the names of what was missed or failed."""
    figures: list[dict[str, Any]] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kbatch-bench-") as folder:
        for name in ROWS:
            found = run_row("tests.bench.engine", [name], Path(folder))
            figures += found
            if not found:
                failed.append(name)
    print()
    for figure in figures:
        print(json.dumps(figure))
    missed = [figure["name"] for figure in figures if not figure["met"]] + failed
    if not quick:
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / "engine.jsonl").write_text("".join(json.dumps(figure) + "\n" for figure in figures), "utf-8")
        (KEPT / "engine.md").write_text(table(figures), "utf-8")
        growth = [sys.executable, "-m", "tests.bench.growth"]
        growth += ["--json", str(KEPT / "engine-growth.jsonl"), "--picture", str(KEPT / "engine-growth.svg")]
        if subprocess.run(growth, check=False).returncode:
            missed.append("growth")
    return missed


def rows(part: str, chosen: Sequence[Sequence[str]], *, quick: bool) -> list[str]:
    """Run rows of the benchmark of that name, each in a process of its own, keep what they say; those that missed."""
    figures: list[dict[str, Any]] = []
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kbatch-bench-") as folder:
        for row in chosen:
            found = run_row(f"tests.bench.{part}", row, Path(folder), LONG_SECONDS)
            figures += found
            if not found or not all(figure["met"] for figure in found):
                missed.append(" ".join((part, *row)))
    if not quick:
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{part}.jsonl").write_text("".join(json.dumps(figure) + "\n" for figure in figures), "utf-8")
    return missed


def waiting(*, quick: bool) -> list[str]:
    """Cycles of a full cluster in which much waits."""
    return rows("waiting", WAITING[:2] if quick else (*WAITING, AFFINE), quick=quick)


def topology(*, quick: bool) -> list[str]:
    """What it costs to place groups close together: each row in a process of its own."""
    figures: list[dict[str, Any]] = []
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kbatch-bench-") as folder:
        for name in ["gangs"] if quick else CLOSE:
            found = run_row("tests.bench.topology", [name], Path(folder))
            figures += found
            missed += [figure["name"] for figure in found if not figure["met"]] or ([] if found else [name])
    if not quick:
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / "topology.jsonl").write_text("".join(json.dumps(figure) + "\n" for figure in figures), "utf-8")
        (KEPT / "topology.md").write_text(topology_table(figures), "utf-8")
    return missed


def as_one(module: str, *, full: Sequence[str] = (), small: Sequence[str] = (), keeps: bool = True) -> Part:
    """A benchmark that runs all its rows by itself, with these arguments, `small` ones in the quick run. `keeps`: it is
    told where to keep its figures.
    """
    name = module.rpartition(".")[2]

    def part(*, quick: bool) -> list[str]:
        command = [sys.executable, "-m", f"tests.bench.{module}", *(small if quick else full)]
        if keeps and not quick:
            KEPT.mkdir(parents=True, exist_ok=True)
            command += ["--json", str(KEPT / f"{name}.jsonl")]
        return [name] if subprocess.run(command, check=False).returncode else []

    return part


def crowded(*, quick: bool) -> list[str]:
    """Small groups of the product as installed, where much waits."""
    return rows("crowded", [("--groups", "100", "--seconds", "20")] if quick else CROWDED, quick=quick)


PARTS: Final[Mapping[str, Part]] = {
    "engine": engine,
    "waiting": waiting,
    "shares": as_one("shares"),
    "topology": topology,
    "scale": as_one("scale"),
    "churn": as_one("churn", small=["--pods", "40000"]),
    "simulate": as_one("simulate", small=["200"]),
    "traces": as_one("traces", small=["--jobs", "5000", "easy", "conservative"]),
    "stream": as_one("stream", small=["--seconds", "3"]),
    "full": as_one("full", small=["--ways", "default, EASY"]),
    "wasted": as_one("wasted", full=["--evictions", "5000"], small=["--evictions", "500", "--ways", "default"]),
    "stub": as_one("stub", small=["kbatch stream", "--nodes", "500", "--rate", "200"]),
    "live": as_one("live", full=["--keep"], small=["--pods", "1000", "--nodes", "200", "--standing", "0"], keeps=False),
    "crowded": crowded,
    "installed": as_one("live.installed", small=["--pods", "500", "--nodes", "100", "--rounds", "1"]),
    "gang": as_one("live.gang", small=["--nodes", "100", "--standing", "1000", "--pods", "500", "--gangs", "5"]),
}


def main(arguments: list[str]) -> int:
    """Run the parts that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="The benchmarks.")
    parser.add_argument("--quick", action="store_true", help="smaller, without pictures, and nothing is kept")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="which; all by default")
    chosen = parser.parse_args(arguments)
    missed = [name for part in chosen.parts or PARTS for name in PARTS[part](quick=chosen.quick)]
    print(f"\nmissed or failed: {', '.join(missed)}" if missed else "\nall limits are met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
