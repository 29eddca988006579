"""Runs the layers of checks and tests, cheapest first, each held to its time budget.

    python -m tools.layers [LAYER...]

A layer that fails ends the run after the layers of the same price had their say; a layer that passes but takes longer
than its budget fails too, since a suite that nobody waits for is a suite that nobody runs. Budgets are for warm caches:
what is built once (the local control plane's programs, the tests' bytecode) is built before the clock starts. Where the
machine is slower just now than it can be (`tools.speed`), they are longer by as much.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tools.speed import Speed

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Hundreds of processes are started by the tests: what is compiled anew by each of them is half of what they take."""
BIN = ROOT / ".venv" / "bin"
PYTHON = str(BIN / "python")


@dataclass(frozen=True, slots=True)
class Layer:
    """A named list of commands. `budget` in seconds; None: not held to any. `prepare` runs before the clock."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    budget: float | None
    prepare: tuple[str, ...] | None = None
    second_try: bool = False
    """Whether what failed is run once more, and a test that passes then is reported, but does not fail the layer."""


def pytest(*arguments: str) -> tuple[str, ...]:
    """A pytest command that reports slow tests and why any was skipped."""
    return (PYTHON, "-m", "pytest", "-q", "--durations=5", "--durations-min=2", *arguments)


E2E = "tests/e2e"
SCENARIOS = f"{E2E}/scenarios"
INSTALLED = "(metrics or installed) and not long"
SHORT = "not chaos and not long and not metrics and not installed and not tenant"
"""The long forms have targets of their own in the Makefile."""
COMPILED = ("bash", "-c", f"'{PYTHON}' -m pytest -q --collect-only -p no:cacheprovider tests >/dev/null || true")
"""Compiles the tests, with pytest's own assertions in them, and all that they import. What is wrong, the layer says."""
PROGRAMS = (PYTHON, "-m", "kbatch.localcluster.programs")

LAYERS = (
    Layer(
        "lint",
        (
            (str(BIN / "ruff"), "check", "-q", "."),
            (str(BIN / "ruff"), "format", "-q", "--check", "."),
            (str(BIN / "mypy"), "--no-error-summary"),
            (str(BIN / "lint-imports"), "--no-cache"),
        ),
        None,
    ),
    Layer(
        "unit",
        (pytest("-n", "3", "--dist", "worksteal", "-m", "not many", "tests/unit", "tests/property"),),
        120,
        COMPILED,
    ),
    # The first 20,000 states of what `make explore` walks through (docs/exploration.md).
    Layer("explore", ((PYTHON, "-m", "tests.explore", "--states", "20000", "--cap", "700"),), 120),
    # Tests that look at thousands of cases each, or render the chart dozens of times.
    Layer("many", (pytest("-n", "2", "--dist", "worksteal", "-m", "many", "tests/unit", "tests/property"),), 180),
    # Tests of one file share a control plane; much of their time is waiting, so three files at once suit two cores.
    Layer(
        "control-plane",
        (pytest("-n", "3", "--dist", "loadfile", "-m", f"not faults and {SHORT}", E2E),),
        300,
        PROGRAMS,
        True,
    ),
    Layer("faults", (pytest("-n", "2", "--dist", "loadfile", "-m", f"faults and {SHORT}", E2E),), 210, PROGRAMS, True),
    # One installation, and one attack after the other: what each does to the neighbour must be its own doing.
    Layer(
        "tenant",
        (
            pytest("-m", "tenant and not long", f"{E2E}/tenant"),
            pytest("-m", "tenant and not long", f"{E2E}/test_tenancy.py"),
        ),
        180,
        PROGRAMS,
        True,
    ),
    Layer(
        "metrics",
        (pytest("-n", "2", "--dist", "loadfile", "-m", INSTALLED, E2E, f"--ignore={SCENARIOS}"),),
        180,
        PROGRAMS,
        True,
    ),
    # What the installed product does over minutes: placement, objects, planned starts, flow. Most of it is waiting.
    Layer(
        "scenarios",
        (pytest("-n", "2", "--dist", "loadfile", "-m", INSTALLED, SCENARIOS),),
        180,
        PROGRAMS,
        True,
    ),
)


def tried_again(layer: Layer, command: tuple[str, ...]) -> bool:
    """Whether the tests that failed pass by themselves (docs/decisions/0006-second-try.md)."""
    if not layer.second_try:
        return False
    print(f"=== {layer.name}: a second try for what failed above; what passes now is UNSTABLE", flush=True)
    alone = tuple(word for word in command if word not in ("-n", "2", "3", "--dist", "loadfile"))
    return not subprocess.run(
        (*alone, "--last-failed", "--last-failed-no-failures=none"), cwd=ROOT, env=ENVIRONMENT, check=False
    ).returncode


def run(layer: Layer) -> bool:
    """Whether every command of the layer succeeded within its budget."""
    print(f"\n=== {layer.name}", flush=True)
    if layer.prepare is not None and subprocess.run(layer.prepare, cwd=ROOT, env=ENVIRONMENT, check=False).returncode:
        print(f"=== {layer.name}: not run, its programs could not be built", flush=True)
        return False
    start = time.monotonic()
    with Speed() as speed:
        failed = [
            command
            for command in layer.commands
            if subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=False).returncode
        ]
        took = time.monotonic() - start
    failed = [command for command in failed if not tried_again(layer, command)]
    for command in failed:
        print(f"=== {layer.name}: failed: {' '.join(command)}", flush=True)
    budget = layer.budget and layer.budget * float(os.environ.get("KBATCH_BUDGET_FACTOR", "1")) * speed.factor
    slow = f" (this machine takes {speed.factor:.2f} times as long just now)" if budget and speed.factor > 1 else ""
    print(f"=== {layer.name}: {took:.0f} s" + (f" of {budget:.0f} s" if budget else "") + slow, flush=True)
    if budget and took > budget:
        print(f"=== {layer.name}: over its budget", flush=True)
        return False
    return not failed


def main(names: list[str]) -> int:
    """Run the named layers, or all; the exit status."""
    known = {layer.name: layer for layer in LAYERS}
    for name in names:
        if name not in known:
            print(f"no layer {name!r}; there are: {', '.join(known)}", file=sys.stderr)
            return 2
    chosen = [known[name] for name in names] if names else list(LAYERS)
    failed = [layer.name for layer in chosen if not run(layer)]
    print(f"\n{'failed: ' + ', '.join(failed) if failed else 'all layers passed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
