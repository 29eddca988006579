"""The neighbour's work: small gangs, one after the other, and how long each took until all of it had nodes."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from kbatch.localcluster.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kbatch.localcluster.api import Api
    from tests.e2e.scenarios.conftest import Installed

LINES: list[str] = []
"""What the run reports at its end."""
SIZE = 2
LOST_SECONDS = 60.0
"""A gang that has no nodes by then is lost."""


def percentile(samples: Sequence[float], part: float) -> float:
    """The sample that `part` of all are not above; the nearest rank."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, max(0, -int(-part * len(ordered)) - 1))]


@dataclass
class Measured:
    """What became of the gangs of a time."""

    seconds: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.seconds:
            return f"no gang, {len(self.lost)} lost"
        middle, high = (percentile(self.seconds, part) for part in (0.5, 0.99))
        return f"{len(self.seconds)} gangs, median {middle:.2f} s, p99 {high:.2f} s, {len(self.lost)} lost"


class Stream:
    """Gangs of a namespace; a watch tells when their pods have nodes.

    Args:
        installed: for kubectl, with the administrator's rights.
        api: with the rights of the neighbour.
        namespace, queue: where the gangs are made.
    """

    def __init__(self, installed: Installed, api: Api, namespace: str, queue: str) -> None:
        self._installed = installed
        self._api = api
        self._namespace = namespace
        self._queue = queue
        self._numbers = itertools.count()
        self._bound: set[str] = set()
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        columns = '{.metadata.name} {.spec.nodeName}{"\\n"}'
        self._watch = subprocess.Popen(
            [
                self._installed.kubectl, "--kubeconfig", self._installed.kubeconfig, "get", "pods", "-w",
                "-n", self._namespace, "-o", f"jsonpath={columns}",
            ],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.kill()
        self._watch.wait(timeout=10)
        self._reader.join(timeout=10)
        assert self._watch.stdout is not None
        self._watch.stdout.close()

    def gang(self) -> float:
        """Make a gang, and delete it when all of it has nodes; how many seconds that took."""
        name = f"gang-{next(self._numbers)}"
        members = [f"{name}-{index}" for index in range(SIZE)]
        begin = time.monotonic()
        self._api.post(
            f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{self._namespace}/podgroups",
            {
                "apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": name},
                "spec": {"minMember": SIZE, "queue": self._queue},
            },
        )  # fmt: skip
        for member in members:
            self._create_pod(_pod(member, name))
        with self._changed:
            whole = self._changed.wait_for(lambda: self._bound.issuperset(members), LOST_SECONDS)
        took = time.monotonic() - begin
        assert whole, f"{name} has no nodes after {took:.0f} s"
        for path in (
            f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{self._namespace}/podgroups/{name}",
            *(f"/api/v1/namespaces/{self._namespace}/pods/{member}?gracePeriodSeconds=0" for member in members),
        ):
            self._api.request("DELETE", path)
        return took

    def _create_pod(self, body: dict[str, Any]) -> None:
        """Create a pod. Where two writers count in one quota at once, the API server asks one of them to try again."""
        while True:
            try:
                self._api.post(f"/api/v1/namespaces/{self._namespace}/pods", body)
            except ApiError as error:
                if error.status != http.client.CONFLICT or "resourcequotas" not in error.message:
                    raise
            else:
                return

    @contextlib.contextmanager
    def running(self, parallel: int = 1) -> Iterator[Measured]:
        """Gangs one after the other, in so many lines, for as long as the context lasts."""
        measured, over = Measured(), threading.Event()

        def line() -> None:
            while not over.is_set():
                try:
                    measured.seconds.append(self.gang())
                except Exception as error:  # noqa: BLE001 - whatever it is, the gang is lost
                    measured.lost.append(str(error))

        with ThreadPoolExecutor(parallel) as pool:
            lines = [pool.submit(line) for _ in range(parallel)]
            try:
                yield measured
            finally:
                over.set()
                for one in lines:
                    one.result()

    def _read(self) -> None:
        assert self._watch.stdout is not None
        for text in self._watch.stdout:
            name, _, node = text.strip().partition(" ")
            if node:
                with self._changed:
                    self._bound.add(name)
                    self._changed.notify_all()


def _pod(name: str, of: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"scheduling.k8s.io/group-name": of}},
        "spec": {"schedulerName": "kube-batch", "restartPolicy": "Never", "containers": [container]},
    }  # fmt: skip
