from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kbatch.localcluster import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

# Says when it is ready, and then waits; with "stubborn" it takes no notice of SIGTERM.
WAIT = """
import signal, sys
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
signal.pause()
"""


def start(*arguments: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", WAIT, *arguments], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()
    return process


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = start(f"--data-dir={tmp_path}/cluster/etcd")
    yield process
    process.kill()
    process.communicate()


def test_a_process_is_alive_until_its_last_thread_has_gone() -> None:
    lasting = """
import ctypes, os, sys, threading
threading.Thread(target=sys.stdin.read).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit: of this thread alone
"""
    with subprocess.Popen([sys.executable, "-c", lasting], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        stat = Path(f"/proc/{process.pid}/stat")
        assert processes.wait_until(lambda: ") Z " in stat.read_text(), 10)
        assert processes.alive(process.pid)
        process.stdin.close()
        assert processes.wait_until(lambda: not processes.alive(process.pid), 10)


def test_a_zombie_is_not_alive(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.alive(sleeper.pid)
    sleeper.kill()
    # Nobody has waited for it yet: the kernel keeps its entry.
    assert processes.wait_until(lambda: not processes.alive(sleeper.pid), 10)
    assert os.path.exists(f"/proc/{sleeper.pid}")  # noqa: PTH110


def test_processes_of_a_cluster_are_found_by_program_and_folder(
    sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    program = os.path.basename(sys.executable)  # noqa: PTH119
    assert processes.working_on(tmp_path / "cluster", {program}) == {sleeper.pid: program}
    assert processes.working_on(tmp_path / "clust", {program}) == {}
    assert processes.working_on(tmp_path / "cluster", {"etcd"}) == {}


def test_end_is_gentle_first_and_firm_then() -> None:
    stubborn, willing = start("stubborn"), start()
    begin = time.monotonic()
    processes.end([stubborn.pid, willing.pid], grace=0.3)
    assert 0.3 <= time.monotonic() - begin < 5
    assert willing.wait() == -15
    assert stubborn.wait() == -9
    for process in (stubborn, willing):
        process.communicate()


def test_ending_what_is_gone_is_no_error() -> None:
    process = start()
    process.kill()
    process.communicate()
    processes.end([process.pid], grace=1)
