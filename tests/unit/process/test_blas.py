"""numpy starts no threads in what users run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="threads are counted in /proc")
_COUNT = """
import importlib, re, sys
importlib.import_module(sys.argv[1])
import numpy
print(re.search(r"Threads:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def threads(module: str, **variables: str) -> int:
    env = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"} | variables
    made = subprocess.run(
        [sys.executable, "-c", _COUNT, module], capture_output=True, text=True, check=True, env=env, timeout=60
    )
    return int(made.stdout)


@pytest.mark.parametrize(
    "module",
    ["kbatch.cli.main", "operators.scheduler.process", "operators.podgroup.process", "operators.queue.process"],
)
def test_numpy_starts_no_threads(module: str) -> None:
    assert threads(module) == 1


def test_who_sets_the_number_of_threads_has_them() -> None:
    assert threads("kbatch.cli.main", OPENBLAS_NUM_THREADS="2") == min(2, os.cpu_count() or 1)
