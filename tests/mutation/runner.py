"""Makes one mutant at a time in a copy of the repository, and runs the tests that must notice it.

The narrowest tests run first, and each stage ends at its first failure. A stage that fails counts only if it passes
without the mutant, which is tried once for each stage. Why this is our own and no library: those that are well kept
(mutmut, cosmic-ray) make every small change of an operator by themselves, thousands of them. They take no list of
errors that somebody thought of, which is what is asked here.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutation.catalogue import Stage, stages_of
from tests.mutation.mutant import ROOT, Mutant

_LEFT_OUT: Final = shutil.ignore_patterns(
    ".git", ".venv", ".hypothesis", ".mypy_cache", ".ruff_cache", ".pytest_cache", "__pycache__", "node_modules"
)
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class BrokenError(Exception):
    """Nothing can be said: the tests fail without any mutant, or a mutant cannot even be imported."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a mutant: the test that noticed it (empty: none did), and how long that took."""

    mutant: Mutant
    killed_by: str
    seconds: float


class Runner:
    """Runs mutants in copies of the repository, one for each worker, that are gone in the end.

    Only the first `stages` of each mutant's tests are run; None: all.
    """

    def __init__(self, workers: int, stages: int | None = None) -> None:
        self._workers = workers
        self._stages = stages
        self._copies: queue.Queue[_Copy] = queue.Queue()
        self._lock = threading.Lock()
        self._passing: dict[Stage, bool] = {}

    def run(self, mutants: Sequence[Mutant]) -> Iterator[Result]:
        """The results, in the order in which they are found.

        Raises:
            BrokenError: the tests fail without a mutant, or one of them cannot be imported.
        """
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kbatch-mutants-")))
            for number in range(self._workers):
                self._copies.put(stack.enter_context(closing(_Copy(folder / str(number)))))
            pool = stack.enter_context(ThreadPoolExecutor(self._workers))
            try:
                for done in as_completed([pool.submit(self._one, mutant) for mutant in mutants]):
                    yield done.result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _one(self, mutant: Mutant) -> Result:
        copy = self._copies.get()
        begin = time.monotonic()
        try:
            for stage in stages_of(mutant)[: self._stages]:
                with _made(copy.folder, mutant):
                    failed = copy.failing(stage)
                if failed:
                    if not self._passes(copy, stage):
                        raise BrokenError(f"the tests fail without any mutant: {' '.join(stage)}")
                    return Result(mutant, failed, time.monotonic() - begin)
            return Result(mutant, "", time.monotonic() - begin)
        finally:
            self._copies.put(copy)

    def _passes(self, copy: _Copy, stage: Stage) -> bool:
        """Whether the tests pass without a mutant."""
        with self._lock:
            if stage not in self._passing:
                self._passing[stage] = not copy.failing(stage)
            return self._passing[stage]


@contextmanager
def _made(copy: Path, mutant: Mutant) -> Iterator[None]:
    """Make the error in the copy, and mend it afterwards.

    The file's time tells Python which compiled form belongs to it: that of the mutant is another than the original's.
    """
    file = copy / mutant.file
    before, times = file.read_bytes(), file.stat()
    file.write_text(mutant.applied(before.decode()))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 60 * 10**9))
    try:
        yield
    finally:
        file.write_bytes(before)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


class _Copy:
    """A copy of the repository, and the process that runs tests in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT, folder, ignore=_LEFT_OUT)
        # Compiled forms are kept in the copy, or most of the time would go into making them again.
        without = {"KBATCH_EXPLORE", "PYTHONDONTWRITEBYTECODE"}
        environment = {name: value for name, value in os.environ.items() if name not in without}
        command = [sys.executable, "-m", "tests.mutation.serving"]
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def failing(self, stage: Stage) -> str:
        """The first test of a stage that fails in the copy as it is; empty: none does.

        Raises:
            BrokenError: the tests could not be run.
        """
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        asked.write(json.dumps(["-x", "-q", "-p", "no:cacheprovider", *stage]) + "\n")
        asked.flush()
        line = answered.readline()
        if not line:
            raise BrokenError("the process that runs the tests has ended")
        code, text = json.loads(line)
        if code == 0:
            return ""
        if code in (-signal.SIGXCPU, -signal.SIGKILL):
            return "never ends"
        found = _FAILED.search(text)
        if code == 1 and found is not None:
            return found[1]
        if code < 0 or "MemoryError" in text:
            return "runs out of memory"
        raise BrokenError(f"pytest ended with {code} in {' '.join(stage)}:\n{text[-3000:]}")
