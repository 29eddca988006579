"""Where the control planes of these benchmarks keep their data: in memory, where the machine has room for it there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
LEAST: Final = 4 * 2**30
"""Bytes that must be free. A row of 20,000 pods takes one gigabyte."""


def keep_in_memory() -> None:
    """Have the control planes that this process starts keep their data in memory; say so where they do not.

    etcd waits for the disk with each write. How long a disk takes is its own affair: with 0.2 to 12 ms, the same bare
    loop bound 380 to 1,500 pods a second within ten minutes. In memory all contestants have the same store.
    """
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= LEAST:
        os.environ["XDG_STATE_HOME"] = str(MEMORY / f"kbatch-bench-{os.getuid()}")
    else:
        print(f"etcd's data lies on disk: {MEMORY} has no {LEAST // 2**30} GiB free", flush=True)
