"""What the API server refused this process to do, each for a time: pods that could not be evicted, nodes that a pod
could not be bound to. No object says it; whoever carries decisions out tells the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kbatch.times import SECOND

LONGEST: Final = 3600 * SECOND
"""A refusal lasts no longer. One that seems to was dated by a clock that was wrong, and ends at once."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal.

    Attributes:
        uid: of the pod.
        until: the instant at which it ends, in microseconds since the epoch; None: with the pod.
        why: the text of the refusal, for people.
    """

    uid: str
    until: int | None
    why: str = ""


class Refusals:
    """The refusals in force: of evictions by pod, of binds by pod and node."""

    def __init__(self) -> None:
        self._evictions: dict[str, Refusal] = {}
        self._binds: dict[str, dict[str, Refusal]] = {}

    @property
    def evictions(self) -> Mapping[str, Refusal]:
        """Pods that cannot be evicted."""
        return self._evictions

    @property
    def binds(self) -> Mapping[str, Mapping[str, Refusal]]:
        """By pod the nodes that it cannot be bound to."""
        return self._binds

    def add_eviction(self, pod: str, refusal: Refusal) -> None:
        """The pod could not be evicted."""
        self._evictions[pod] = refusal

    def add_bind(self, pod: str, node: str, refusal: Refusal) -> None:
        """The pod could not be bound to the node."""
        self._binds.setdefault(pod, {})[node] = refusal

    def nodes(self, pod: str) -> frozenset[str]:
        """The nodes that the pod cannot be bound to."""
        return frozenset(self._binds[pod]) if pod in self._binds else frozenset()

    def settle(self, pod: str, uid: str, *, placed: bool) -> None:
        """The pod is there with this uid: what was said of another one of its name, or of binding it, is over."""
        if not (self._evictions or self._binds):
            return
        if pod in self._evictions and self._evictions[pod].uid != uid:
            del self._evictions[pod]
        nodes = self._binds.get(pod)
        if nodes is not None and (placed or any(refusal.uid != uid for refusal in nodes.values())):
            del self._binds[pod]

    def drop(self, pod: str) -> None:
        """The pod is gone."""
        self._evictions.pop(pod, None)
        self._binds.pop(pod, None)

    def lapse(self, now: int) -> tuple[bool, list[str]]:
        """Forget what has ended: whether any eviction is possible again, and the pods with a node more to go to."""
        if not (self._evictions or self._binds):
            return False, []
        victims = [pod for pod, refusal in self._evictions.items() if _over(refusal, now)]
        for pod in victims:
            del self._evictions[pod]
        freed: list[str] = []
        for pod, nodes in list(self._binds.items()):
            left = {node: refusal for node, refusal in nodes.items() if not _over(refusal, now)}
            if len(left) < len(nodes):
                freed.append(pod)
                self._binds[pod] = left
                if not left:
                    del self._binds[pod]
        return bool(victims), freed

    def ends(self) -> Iterator[int]:
        """The instants at which they end."""
        for refusal in self._evictions.values():
            if refusal.until is not None:
                yield refusal.until
        for nodes in self._binds.values():
            for refusal in nodes.values():
                if refusal.until is not None:
                    yield refusal.until


def _over(refusal: Refusal, now: int) -> bool:
    return refusal.until is not None and not now < refusal.until <= now + LONGEST
