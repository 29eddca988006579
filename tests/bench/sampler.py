"""Where a Python program spends its processor time, from samples of its stack: little in the way, C code included.

    python -m tests.bench.sampler FILE PROGRAM ARGUMENTS...

Every four milliseconds of CPU the stack is noted; at the end FILE gets two tables, of the lines that were at work and
of the functions that were on the stack. A profiler that counts calls makes small functions look expensive; this one
does not.
With `KBATCH_BENCH_WRAP="python -m tests.bench.sampler FILE"` the live benchmark runs the schedulers under it.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

EVERY: Final = 0.004
"""Seconds of CPU between two samples; many kernels count no finer."""

ROWS: Final = 70


class Sampler:
    """Notes stacks while the program runs."""

    def __init__(self) -> None:
        self.samples = 0
        self._own: Counter[tuple[str, str, int]] = Counter()
        self._within: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        """Begin; the program must not use SIGPROF itself."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.siginterrupt(signal.SIGPROF, False)
        signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)

    def stop(self) -> None:
        """End."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        if frame is None:
            return
        self.samples += 1
        self._own[_short(frame.f_code.co_filename), frame.f_code.co_name, frame.f_lineno] += 1
        seen: set[tuple[str, str]] = set()
        walking: FrameType | None = frame
        while walking is not None:
            seen.add((walking.f_code.co_filename, walking.f_code.co_name))
            walking = walking.f_back
        self._within.update(seen)

    def report(self) -> str:
        """Both tables, in percent of the samples."""
        total = max(1, self.samples)
        lines = [f"{self.samples} samples, {EVERY * 1000:g} ms of CPU each", "", "at work (line)"]
        own = self._own.most_common(ROWS)
        lines += [f"{count / total:7.1%}  {file}:{line} {name}" for (file, name, line), count in own]
        lines += ["", "on the stack (function)"]
        within = self._within.most_common(ROWS)
        lines += [f"{count / total:7.1%}  {_short(file)} {name}" for (file, name), count in within]
        return "\n".join(lines) + "\n"


def _short(path: str) -> str:
    return "/".join(Path(path).parts[-3:])


def main(arguments: list[str]) -> None:
    """Run the program under the sampler, with its own arguments."""
    if len(arguments) < 2:
        sys.exit("python -m tests.bench.sampler FILE PROGRAM ARGUMENTS...")
    kept, sys.argv = Path(arguments[0]), arguments[1:]
    sampler = Sampler()
    leave = os._exit  # kbatch's processes end with it

    def end(status: int) -> NoReturn:
        sampler.stop()
        kept.write_text(sampler.report(), "utf-8")
        leave(status)

    os._exit = end
    sampler.start()
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        sampler.stop()
        kept.write_text(sampler.report(), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
