"""Work for a scheduler under test: gangs, made at once or as a stream with a seed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from kbatch.localcluster.api import Api
from kbatch.localcluster.errors import ApiError
from tests import varied
from tests.varied import Document, path_of

GROUPS = "/apis/scheduling.incubator.k8s.io/v1alpha1"
Shape = Callable[[random.Random, str, str, int, float], list[Document]]
"""What makes a group's documents of a draw, its namespace, name, size and duration."""

_AGAIN = frozenset({0, 408, 429, 500, 502, 503, 504})
"""Statuses (0: no answer) after which the same request is sent again: the server was away, not against it."""


def group(namespace: str, name: str, minimum: int, **spec: Any) -> Document:
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"minMember": minimum, **spec},
    }


def pod(
    namespace: str, name: str, group_name: str, *, cpu: str = "1", duration: float | None = None, **spec: Any
) -> Document:
    """A member of a group; it succeeds after `duration` seconds, or runs for ever."""
    annotations = {"scheduling.k8s.io/group-name": group_name}
    if duration is not None:
        annotations["simulate.kbatch.dev/duration"] = f"{duration:g}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "kube-batch",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}],
            **spec,
        },
    }


def gang(
    namespace: str, name: str, size: int, *, cpu: str = "1", duration: float | None = None, **spec: Any
) -> list[Document]:
    """A group and all its pods, every one of which it needs."""
    return [
        group(namespace, name, size, **spec),
        *(pod(namespace, f"{name}-{index}", name, cpu=cpu, duration=duration) for index in range(size)),
    ]


def elastic(
    namespace: str,
    name: str,
    size: int,
    minimum: int,
    *,
    priority: str = "",
    duration: float | None = None,
    **spec: Any,
) -> list[Document]:
    """A group that needs only some of its pods, with a priority class of both; its pods have the label `group`."""
    class_ = {"priorityClassName": priority} if priority else {}
    documents = [group(namespace, name, minimum, **class_, **spec)]
    for index in range(size):
        one = pod(namespace, f"{name}-{index}", name, duration=duration, **class_)
        one["metadata"]["labels"] = {"group": name}
        documents.append(one)
    return documents


def backlog(namespace: str, gangs: int, size: int, prefix: str = "g", **more: Any) -> list[Document]:
    """Gangs whose pods are created before their groups: all can be placed at the same moment."""
    documents = [one for index in range(gangs) for one in gang(namespace, f"{prefix}{index:03}", size, **more)]
    return sorted(documents, key=lambda one: one["kind"] != "Pod")


def persist(ask: Callable[[], Any], seconds: float = 90.0) -> Any:
    """The answer to a request, sent again while the server is away."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except ApiError as error:
            if error.status not in _AGAIN or time.monotonic() > deadline:
                raise
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.3)


def create(api: Api, documents: Iterable[Document], *, parallel: int = 8) -> None:
    """Create documents, whatever happens to the server meanwhile. Those that are there already are left alone.

    Those that own others come first, and the others then say their uids.
    """
    documents = list(documents)
    owners = varied.owners_of(documents)
    _post(api, owners, parallel)
    if owners:
        documents = varied.with_owners(
            documents,
            lambda one: str(persist(lambda: api.get(f"{path_of(one)}/{one['metadata']['name']}"))["metadata"]["uid"]),
        )
    _post(api, documents, parallel)


def _post(api: Api, documents: Iterable[Document], parallel: int) -> None:
    by_path: dict[str, list[Document]] = {}
    for document in documents:
        by_path.setdefault(path_of(document), []).append(document)
    for path, bodies in by_path.items():
        persist(lambda: api.post_all(path, bodies, parallel=parallel))  # noqa: B023  (called at once)


class Stream:
    """Gangs of random sizes at random times, in a thread, while the context is open. Equal seeds give equal gangs.

    Args:
        api: a client of its own.
        rate: gangs a second, about.
        sizes: least and most pods of a gang.
        duration: least and most seconds that a gang's pods run.
        shape: what makes each group; by default a gang, with `spec`.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        seed: int,
        rate: float,
        sizes: tuple[int, int] = (1, 20),
        duration: tuple[float, float] = (1.0, 5.0),
        prefix: str = "s",
        shape: Shape | None = None,
        **spec: Any,
    ) -> None:
        self.pods: list[str] = []
        """Names of all pods made so far."""
        self._api = api
        self._namespace = namespace
        self._draw = random.Random(seed)
        self._rate = rate
        self._sizes = sizes
        self._duration = duration
        self._prefix = prefix
        self._shape = shape or (
            lambda _, namespace, name, size, seconds: gang(namespace, name, size, duration=seconds, **spec)
        )
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=120)
        if self._failure is not None:
            raise AssertionError("the load could not be made") from self._failure

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.wait(self._draw.expovariate(self._rate)):
                size, seconds = self._draw.randint(*self._sizes), self._draw.uniform(*self._duration)
                name = f"{self._prefix}{number:05}"
                number += 1
                documents = self._shape(self._draw, self._namespace, name, size, round(seconds, 1))
                create(self._api, documents, parallel=4)
                self.pods += [one["metadata"]["name"] for one in documents if one["kind"] == "Pod"]
        except Exception as error:  # noqa: BLE001 - shown when the context ends
            self._failure = error
