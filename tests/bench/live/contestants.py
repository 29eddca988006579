"""Schedulers that are measured: how each is started, and how its pods and groups look.

A peer is one JSON file, for whoever has its binary (`--peer FILE`, see docs/benchmarks.md); the two that are always at
hand are written down in the same form here. In every text `$name` is replaced: kubeconfig, folder (a scratch folder of
this run), bin (of kbatch's own console scripts), programs (of the control plane), namespace, group, size, port.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Self

from kbatch.api.configuration import DEFAULT_TEXT


@dataclass(frozen=True, slots=True)
class Contestant:
    """One scheduler.

    Attributes:
        command: starts it; it must stay in the foreground and end on SIGTERM.
        scheduler_name: what pods write into `spec.schedulerName`.
        crds: a folder or file of manifests that it needs, applied once before anything is measured.
        files: written into the scratch folder before it starts, by name.
        group_path: where the object of a gang is created; empty for a scheduler without gangs.
        group: that object.
        metadata: merged into the metadata of a gang's pods.
        beside: commands of other processes that its users run too; their CPU is counted apart.
    """

    name: str
    command: tuple[str, ...]
    scheduler_name: str
    crds: str = ""
    files: dict[str, str] = field(default_factory=dict)
    group_path: str = ""
    group: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    beside: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def read(cls, path: Path) -> Contestant:
        """A peer's file."""
        content = json.loads(path.read_text("utf-8"))
        beside = tuple(tuple(command) for command in content.get("beside", ()))
        return cls(**{**content, "command": tuple(content["command"]), "beside": beside})


KBATCH = Contestant(
    name="kbatch",
    command=(
        "$bin/kbatch-scheduler", "--kubeconfig=$kubeconfig", "--scheduler-conf=$folder/scheduler.yaml",
        "--lease-namespace=default", "--health-port=0", "--metrics-port=$port", "--log-level=warning",
    ),
    scheduler_name="kube-batch",
    crds="crds",
    files={"scheduler.yaml": DEFAULT_TEXT},
    group_path="/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/$namespace/podgroups",
    group={
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "$group", "namespace": "$namespace"},
        "spec": {"minMember": "$size"},
    },
    metadata={"annotations": {"scheduling.k8s.io/group-name": "$group"}},
)  # fmt: skip

KUBE_SCHEDULER = Contestant(
    name="kube-scheduler",
    command=(
        "$programs/kube-scheduler", "--kubeconfig=$kubeconfig", "--leader-elect=false", "--secure-port=0",
        "--kube-api-qps=100000", "--kube-api-burst=100000",
    ),
    scheduler_name="default-scheduler",
)  # fmt: skip


def filled(value: Any, words: dict[str, str]) -> Any:
    """The value with every `$word` in its texts replaced; a text that is nothing but a number becomes one."""
    if isinstance(value, dict):
        return {key: filled(inner, words) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [filled(inner, words) for inner in value]
    if isinstance(value, str) and "$" in value:
        text = Template(value).safe_substitute(words)
        return int(text) if value == "$size" else text
    return value


@dataclass(frozen=True, slots=True)
class Use:
    """What a contestant has used so far: seconds of CPU, resident bytes now, and the CPU of what runs beside it."""

    cpu: float
    resident: int
    beside: float = 0.0


_TICK = os.sysconf("SC_CLK_TCK")


def used_by(pid: int) -> Use:
    """What a process has used; zeros once it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return Use(0.0, 0)
    return Use((int(stat[11]) + int(stat[12])) / _TICK, int(stat[21]) * os.sysconf("SC_PAGE_SIZE"))


class Running:
    """A contestant's processes: what runs beside the scheduler starts with the context, all end with it."""

    def __init__(self, contestant: Contestant, words: dict[str, str], log: Path) -> None:
        self.contestant = contestant
        self.started = 0.0
        """When the scheduler's own process was started."""
        self._words = words | {"bin": str(Path(sys.executable).parent)}
        self._log = log
        self._scheduler: subprocess.Popen[bytes] | None = None
        self._beside: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as failed:
            failed.callback(self._end)
            for command in self.contestant.beside:
                self._beside.append(self._started(filled(command, self._words)))
            failed.pop_all()
        return self

    def start(self) -> None:
        """Start the scheduler."""
        for name, text in self.contestant.files.items():
            (Path(self._words["folder"]) / name).write_text(text, "utf-8")
        self.started = time.time()
        wrap = os.environ.get("KBATCH_BENCH_WRAP", "").split()
        self._scheduler = self._started([*wrap, *filled(self.contestant.command, self._words)])

    def _started(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [*self._beside, *([self._scheduler] if self._scheduler is not None else [])]

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def use(self) -> Use:
        """What it has used."""
        own = used_by(self._scheduler.pid) if self._scheduler is not None else Use(0.0, 0)
        return Use(own.cpu, own.resident, sum(used_by(process.pid).cpu for process in self._beside))

    def check(self) -> None:
        """Raises RuntimeError, with their last words, if one of its processes has ended by itself."""
        for process in self._processes:
            if process.poll() is not None:
                words = self._log.read_text("utf-8", "replace")[-2000:]
                raise RuntimeError(f"{self.contestant.name} ended with {process.returncode}: {words}")
