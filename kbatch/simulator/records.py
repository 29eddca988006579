"""What the simulation remembers: the history of a pod, and when objects count as created."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kbatch.api.objects import AnyObject, Node, Pod, Queue
from kbatch.simulator.names import timestamp
from kbatch.simulator.pods import Owner, group_of
from kbatch.times import MILLISECOND

EVICTED: Final = "Evicted"


@dataclass(eq=False, slots=True)
class PodRecord:
    """A pod and its history, times in microseconds after the start.

    Attributes:
        base: the name that the names of its replacements are made of.
        here: it exists; an evicted pod that is gone does not, and is remembered.
        finished: when it ended, for whatever reason.
        lost: its node was deleted under it.
        queue: the queue that it was bound in.
    """

    pod: Pod
    arrival: int
    owner: Owner | None
    base: str
    here: bool = True
    bound: int | None = None
    finished: int | None = None
    evicted: bool = False
    lost: bool = False
    queue: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def group(self) -> str:
        """`namespace/name` of the PodGroup that it names; empty for none."""
        return group_of(self.pod)

    @property
    def ended(self) -> bool:
        """It uses nothing any more."""
        return not self.here or self.pod.status.phase in {"Succeeded", "Failed"}

    @property
    def failed(self) -> bool:
        """It has failed by itself."""
        return self.pod.status.phase == "Failed"

    @property
    def phase(self) -> str:
        """Pending, Running, Succeeded or Failed; Evicted from its eviction on."""
        if self.evicted:
            return EVICTED
        return "Failed" if self.lost else self.pod.status.phase

    @property
    def node(self) -> str | None:
        """Where it is, or was when it ended by itself; an evicted pod leaves its node when it is gone."""
        return None if self.evicted and not self.here else self.pod.spec.node_name or None


def creation_stamps(now: int, objects: Sequence[AnyObject]) -> list[str]:
    """When each of these counts as created: at `now`, yet in this order.

    Everything in kbatch that is ordered by creation falls back on names. So times are made to differ, by a millisecond,
    only where the order of creation is not that of the names, and lie before `now` by as much.
    """
    offsets: list[int] = []
    last: dict[type[AnyObject] | None, tuple[int, str]] = {}
    for obj in objects:
        domain = type(obj) if isinstance(obj, Queue | Node) else None
        offset, before = last.get(domain, (0, ""))
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        offset += key < before
        last[domain] = offset, key
        offsets.append(offset)
    latest = max(offsets, default=0)
    return [timestamp(now - (latest - offset) * MILLISECOND) for offset in offsets]
