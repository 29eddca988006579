"""One replica of one of kbatch's processes, by its console script, and what can be done to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from kbatch.localcluster.processes import wait_until
from tests.e2e.chaos.clock import Clock


class Replica:
    """A process that is started again whenever it ends, as a kubelet does, until it is stopped.

    Args:
        component: `scheduler` or `podgroup`.
        identity: who it is in the election, and in the audit log.
        kubeconfig: its credentials.
        folder: where its log goes.
        clock: the wall clock that it is to have, if not the machine's.
    """

    def __init__(
        self, component: str, identity: str, kubeconfig: Path, folder: Path, *flags: str, clock: Clock | None = None
    ) -> None:
        self.identity = identity
        self.starts = 0
        self.log_file = folder / f"{component}-{identity}.log"
        self._command = [
            str(Path(sys.executable).with_name(f"kbatch-{component}")),
            "--bind-address=127.0.0.1", "--health-port=0", "--metrics-port=0",
            f"--kubeconfig={kubeconfig}", f"--identity={identity}", *flags,
        ]  # fmt: skip
        self._environment = os.environ | (clock.environment if clock is not None else {})
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name=f"keeper of {identity}", daemon=True)
        self._ended = threading.Event()

    def start(self) -> None:
        """Start it, and keep it started."""
        with self._lock:
            self._wanted = True
            self._spawn()
        if not self._thread.is_alive():
            self._thread.start()

    @property
    def pid(self) -> int:
        """The process as it is now."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether a process runs (paused or not)."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """All that it has said, of every start."""
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    def kill(self, *, again: bool = True) -> float:
        """kill -9; when, by the wall clock. With `again` it is started again."""
        with self._lock:
            self._wanted = again
            at = time.time()
            self._signal(signal.SIGKILL)
        return at

    def pause(self) -> float:
        """Stop it in the middle of whatever it does; when, by the wall clock."""
        at = time.time()
        self._signal(signal.SIGSTOP)
        return at

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> float:
        """End it as a kubelet does, for good; when that was asked for, by the wall clock."""
        with self._lock:
            self._wanted = False
            at = time.time()
            if self.alive:
                self._signal(signal.SIGTERM)
        return at

    def close(self) -> None:
        """End process and thread, whatever state they are in."""
        self.stop()
        self._ended.set()
        if self.alive:
            self._signal(signal.SIGCONT)
            if not wait_until(lambda: not self.alive, 15):
                self._signal(signal.SIGKILL)
                wait_until(lambda: not self.alive, 5)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _spawn(self) -> None:
        self.starts += 1
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def _keep(self) -> None:
        while not self._ended.wait(0.05):
            with self._lock:
                if self._wanted and not self.alive:
                    self._spawn()

    def _signal(self, number: signal.Signals) -> None:
        if self.alive:
            os.kill(self.pid, number)
