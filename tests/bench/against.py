"""Is the engine slower than it was? Its benchmark at another revision and here, in turns.

    python -m tests.bench.against [--rounds N] REVISION [NAME ...]

The other revision is checked out beside this one for as long as it takes, and measured by its own `tests.bench.engine`,
so that a benchmark that has changed its names for things still runs. Each row runs in a process of its own, once there,
once here, and so on: what slows the machine down meanwhile slows both. Printed is the least of each figure, in seconds
of the processor, and the median of the ratios of each pair; rows that the other revision does not have are left out.
Ends with status 1 where that ratio is above 1.1 and the figure here more than 5 ms above the other, or where a figure
here misses its limit.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from tests.bench.engine import ROWS

HERE: Final = Path(__file__).parents[2]
SLOWER: Final = 1.10
NOISE: Final = 0.005
ROW_SECONDS: Final = 600.0
_ALONE: Final = """
import runpy, sys
tree, here = sys.argv[1:3]
sys.argv[:] = ["engine", *sys.argv[3:]]
sys.path[:] = [tree, *(each for each in sys.path if each not in ("", tree, here))]
runpy.run_module("tests.bench.engine", run_name="__main__", alter_sys=True)
"""
"""Runs a tree's benchmark with nothing of this one on the path: a folder without `__init__.py` there would give way."""


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """A worktree of the revision, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kbatch-against-") as folder:
        path = Path(folder) / "tree"
        git = ["git", "-C", str(HERE), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(path), revision], check=True)
        try:
            yield path
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], check=True)


def figures(tree: Path, row: str) -> dict[str, tuple[float, float]]:
    """What one row yields in one tree: name to value and limit; empty where the tree has no such row."""
    with tempfile.NamedTemporaryFile(prefix="kbatch-against-", suffix=".jsonl") as file:
        command = [sys.executable, "-c", _ALONE, str(tree), str(HERE), row, "--json", file.name]
        subprocess.run(command, cwd=tree, check=False, timeout=ROW_SECONDS, capture_output=True)
        lines = [json.loads(line) for line in Path(file.name).read_text("utf-8").splitlines()]
    return {line["name"]: (line["value"], line["limit"]) for line in lines}


def compare(tree: Path, row: str, rounds: int) -> tuple[int, list[str]]:
    """Run one row in turns and print its figures: how many were compared, and the names of those that are too slow."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    limits: dict[str, float] = {}
    for _ in range(rounds):
        before, after = figures(tree, row), figures(HERE, row)
        if not after:
            print(f"FAIL {row}", flush=True)
            return 0, [row]
        for name, (value, limit) in after.items():
            if name in before:
                pairs.setdefault(name, []).append((before[name][0], value))
                limits[name] = limit
    slow: list[str] = []
    for name, found in pairs.items():
        then, now = (min(each) for each in zip(*found, strict=True))
        ratio = median(value / max(other, 1e-9) for other, value in found)
        worse = ratio > SLOWER and now > then + NOISE
        if worse or now > limits[name]:
            slow.append(name)
        sign = "SLOW" if worse else "MISS" if now > limits[name] else "ok  "
        print(f"{sign} {name:20} {then:9.4f} -> {now:9.4f}  {ratio:5.2f}", flush=True)
    return len(pairs), slow


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.against", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often each row runs in each tree")
    parser.add_argument("revision", help="of git: what to compare with")
    parser.add_argument("names", nargs="*", choices=[[], *ROWS], help="which rows; all by default")
    chosen = parser.parse_args()
    with checked_out(chosen.revision) as tree:
        found = [compare(tree, name, chosen.rounds) for name in chosen.names or ROWS]
    slow = [each for _, names in found for each in names]
    if not slow and not any(compared for compared, _ in found):
        print(f"\n{chosen.revision} gave no figure that could be compared")
        return 1
    print(f"\ntoo slow: {', '.join(slow)}" if slow else "\nnothing is slower")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
