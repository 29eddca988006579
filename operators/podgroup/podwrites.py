"""Writes for pods: how many at a time, and which of them the watch has not shown yet.

What was sent and not yet seen is remembered for a moment, so that nothing is sent twice. A process that starts anew
remembers nothing, and need not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Container, Coroutine, Sequence
from enum import Enum, auto
from typing import Any, Final

from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError
from kbatch.kube.kinds import PODS, split_key
from kbatch.kube.writes import json_patch
from operators.podgroup import FIELD_MANAGER

PARALLEL: Final = 32
"""Writes for pods on the wire at one time, of all groups together."""
UNSEEN_SECONDS: Final = 10.0
"""For so long it is expected that the watch will show what was sent."""


class Sent(Enum):
    """What was asked of the API server for a pod."""

    CREATE = auto()
    DELETE = auto()
    CHANGE = auto()


class PodWrites:
    """Sends what is written for pods, each `namespace/name`, and remembers it until it is seen."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent: dict[str, tuple[Sent, float]] = {}  # the longest sent first
        self._wire = asyncio.Semaphore(PARALLEL)

    def __len__(self) -> int:
        """Pods for which something was sent that is not seen yet."""
        return len(self._sent)

    def heard(self, pod: str, *, gone: bool) -> bool:
        """The watch told of a pod: what was sent for it has had its effect; whether anything was."""
        sent = self._sent.get(pod)
        if sent is None or not (gone or sent[0] is not Sent.DELETE):
            return False
        del self._sent[pod]
        return True

    def unseen(self, pod: str) -> Sent | None:
        """What was sent for the pod and may still have to show."""
        sent = self._sent.get(pod)
        return None if sent is None or sent[1] < self._clock() else sent[0]

    def forget(self, pod: str) -> None:
        """Nothing that was sent for the pod will show."""
        self._sent.pop(pod, None)

    async def send(
        self, pod: str, what: Sent, send: Callable[[], Awaitable[object]], *, over: Container[int] = ()
    ) -> ApiError | None:
        """Send something for a pod; statuses in `over` mean that there is nothing left to do, and are handed back.

        Raises:
            KubeError: it was not taken; it may be sent again at once.
        """
        self._remember(pod, what)
        try:
            async with self._wire:
                await send()
        except ApiError as error:
            if error.status not in over:
                self.forget(pod)
                raise
            if what is Sent.DELETE and error.status == 409:  # another pod of that name
                self.forget(pod)
            return error
        except BaseException:
            self.forget(pod)
            raise
        return None

    def _remember(self, pod: str, what: Sent) -> None:
        now = self._clock()
        self._sent.pop(pod, None)
        while self._sent:
            oldest = next(iter(self._sent))
            if self._sent[oldest][1] >= now:
                break
            del self._sent[oldest]  # nobody asks for it any more: a pod that was gone before
        self._sent[pod] = what, now + UNSEEN_SECONDS


async def remove_entry(
    api: Api, writes: PodWrites, pod: str, uid: str, place: str, value: str, *, key: str = ""
) -> None:
    """Take an entry out of a list of a pod, at a JSON pointer, if it is (or has, as `key`) this value still.

    Raises:
        KubeError: it was not taken.
    """
    namespace, name = split_key(pod)
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": place + key, "value": value},
        {"op": "remove", "path": place},
    ]

    def remove() -> Awaitable[object]:
        return json_patch(api, PODS, namespace=namespace, name=name, operations=operations, field_manager=FIELD_MANAGER)

    await writes.send(pod, Sent.CHANGE, remove, over=(404, 409, 422))


async def all_of(changes: Sequence[Coroutine[Any, Any, object]]) -> int:
    """Make all changes side by side; how many.

    Raises:
        KubeError: one of them failed; the others were made all the same.
    """
    if not changes:
        return 0
    results = await asyncio.gather(*changes, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return len(changes)
