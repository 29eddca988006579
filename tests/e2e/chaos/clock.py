"""A wall clock that a test can move, for a process that it starts; the process itself knows nothing of it."""

from __future__ import annotations

import os
import struct
from pathlib import Path

HOUR = 3600.0


class Clock:
    """What one process takes for the time of day: the machine's, moved by some seconds.

    Args:
        path: the file that holds the seconds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(struct.pack("d", 0.0))

    def move(self, seconds: float) -> None:
        """Be ahead of the machine's clock by so much from now on; behind, if negative."""
        with self._path.open("r+b") as file:
            file.write(struct.pack("d", seconds))

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to have this clock."""
        folders = [str(Path(__file__).with_name("moved_clock")), os.environ.get("PYTHONPATH", "")]
        return {"KBATCH_TEST_CLOCK": str(self._path), "PYTHONPATH": os.pathsep.join(filter(None, folders))}
