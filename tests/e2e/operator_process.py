"""A kbatch process on this host, started by its console script as its container would be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")


def eventually(ask: Callable[[], T | None], seconds: float, what: str | Callable[[], str]) -> T:
    """The first answer that is neither None nor False; a failure that names what was waited for otherwise."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer is not None and answer is not False:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(0.05)  # between two looks at a condition


class OperatorProcess:
    """Runs until the context ends, then is stopped and must end with status 0 (unless it was killed)."""

    def __init__(self, name: str, kubeconfig: Path, folder: Path, *flags: str) -> None:
        self.name = name
        self._log = folder / f"{name}-{time.monotonic_ns()}.log"
        self._command = [
            str(Path(sys.executable).with_name(f"kbatch-{name}")),
            "--bind-address=127.0.0.1", "--health-port=0", "--metrics-port=0", f"--kubeconfig={kubeconfig}", *flags,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        eventually(lambda: self._started() or self._dead(), 30, f"{self.name} starts\n{self.log()}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            status = self.stop()
            assert status == 0, f"{self.name} ended with {status}\n{self.log()}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> int:
        """End it as a kubelet does; its status. Ending takes it a few seconds at most."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop\n{self.log()}") from None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=15)

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def lines(self) -> list[dict[str, Any]]:
        """The log; each line is one JSON object, or the test fails."""
        return [json.loads(line) for line in self.log().splitlines()]

    def said(self, name: str) -> int:
        """A number that the process said in its log, such as `health_port`."""
        return eventually(
            lambda: next((int(line[name]) for line in self.lines() if name in line), None),
            30,
            f"{self.name} says its {name}\n{self.log()}",
        )

    def health(self, path: str = "/readyz") -> tuple[int, dict[str, str]]:
        """Status and checks of a probe; status 0 where it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.said('health_port')}{path}", timeout=5) as answer:
                return answer.status, json.load(answer)["checks"]
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["checks"]
        except OSError:
            return 0, {}

    def wait_ready(self) -> None:
        eventually(lambda: self.health()[0] == 200, 60, f"{self.name} is ready: {self.health()[1]}\n{self.log()}")

    def wait_leading(self) -> None:
        """Wait until it acts, not only stands by."""
        eventually(lambda: self.metric("kbatch_leader") == 1, 30, f"{self.name} leads\n{self.log()}")
        self.wait_ready()

    def metric(self, name: str, labels: str = "") -> float:
        """A sample of /metrics, such as `kbatch_reconciles_total` with `{result="written"}`; 0 where there is none."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.said('metrics_port')}/metrics", timeout=5) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{name}{labels} "):
                    return float(line.rpartition(" ")[2])
        return 0.0

    def _started(self) -> bool:
        return '"health_port"' in self.log()

    def _dead(self) -> bool:
        if self.alive:
            return False
        raise AssertionError(f"{self.name} ended at its start\n{self.log()}")
