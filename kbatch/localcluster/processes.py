"""Processes of this machine as /proc shows them: which belong to a cluster, and how to end those and no others."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence


def alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie, which only waits for its parent to look, does not.

    Of a process that was killed the first thread is a zombie at once; its sockets are closed when the last one has
    gone, which takes a while where there is a gigabyte of memory to give back.
    """
    return _state(pid) not in {None, "Z", "X"} or _threads(pid) > 1


def _threads(pid: int) -> int:
    """Return how many threads of a process are left."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0


def start_time(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot; with the pid it names one process for good."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def arguments(pid: int) -> list[str]:
    """Return a process's command line, [] if it is gone or not ours to see."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode("utf-8", "surrogateescape") for part in raw.split(b"\0") if part]


def working_on(folder: Path, programs: Collection[str]) -> dict[int, str]:
    """Return the live processes of these programs that name a path in this folder in an argument, with their program.

    A program is the name of a file, or a Python module run with -m. Every part of a cluster has such an argument (its
    data, certificates, kubeconfig), so that even one whose pid was never written down is found. The programs are
    matched too: somebody who reads a log there is not part of it.
    """
    marker = f"{folder}/"
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        pid, command = int(entry.name), arguments(int(entry.name))
        program = _program(command)
        if program in programs and any(marker in argument for argument in command[1:]) and alive(pid):
            found[pid] = program
    return found


def end(pids: Iterable[int], *, grace: float = 0.0) -> None:
    """End processes: SIGTERM first if they get a grace (seconds), then SIGKILL; return when all are gone."""
    left = {pid for pid in pids if alive(pid)}
    if grace > 0:
        _signal(left, signal.SIGTERM)
        wait_until(lambda: not any(map(alive, left)), grace)
        left = {pid for pid in left if alive(pid)}
    _signal(left, signal.SIGKILL)
    if not wait_until(lambda: not any(map(alive, left)), 10.0):
        stuck = sorted(pid for pid in left if alive(pid))
        raise TimeoutError(f"processes {stuck} survive SIGKILL")


def detach(command: Sequence[str | Path], log: Path) -> int:
    """Start a program that outlives us, in a session of its own, its output appended to a file; return its pid."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    # Nobody will wait for it here; an object that is collected before its process has ended would warn of that.
    process.returncode = 0
    return process.pid


def wait_until(condition: Callable[[], bool], timeout: float, *, every: float = 0.02) -> bool:
    """Poll until the condition holds; False once `timeout` seconds have passed without that."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every)
    return True


def _program(command: list[str]) -> str:
    if "-m" in command[:3]:
        return next(iter(command[command.index("-m") + 1 :]), "")
    return Path(command[0]).name if command else ""


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _state(pid: int) -> str | None:
    fields = _stat(pid)
    return fields[0] if fields else None


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat that follow the command, which may itself contain spaces and brackets."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
