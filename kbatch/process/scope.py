"""The namespaces that an installation looks after: what other namespaces hold is none of its business, but its room is.

Where all are meant, nothing is looked at and nothing costs anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from kbatch.api.objects import Job, Pod, PodGroup, ResourceQuota
from kbatch.kube.informer import Batch
from kbatch.model.events import Event, Upsert

_OURS: Final = (PodGroup, Job, ResourceQuota)


class Scope:
    """Tells what is within.

    Args:
        namespaces: names with commas, as on the command line; empty: all.
        scheduler_name: of the pods that are ours where they are within.
    """

    def __init__(self, namespaces: str, scheduler_name: str) -> None:
        self._namespaces = frozenset(name.strip() for name in namespaces.split(",") if name.strip())
        self._scheduler_name = scheduler_name

    def holds(self, namespace: str) -> bool:
        """Whether a namespace is looked after."""
        return not self._namespaces or namespace in self._namespaces

    def over(self, receive: Callable[[Batch], None]) -> Callable[[Batch], None]:
        """A receiver that hears of what is within as it is, and of the rest what others need to know.

        PodGroups, Jobs and ResourceQuotas of other namespaces are not there; pods there are some other scheduler's: one
        with a node takes its room.
        """
        if not self._namespaces:
            return receive

        def narrowed(batch: Batch) -> None:
            receive(dataclasses.replace(batch, events=tuple(self._seen(batch.events))))

        return narrowed

    def _seen(self, events: tuple[Event, ...]) -> Iterator[Event]:
        for event in events:
            if not isinstance(event, Upsert):
                if event.kind not in _OURS or self.holds(event.namespace):
                    yield event
            elif not isinstance(event.obj, (Pod, *_OURS)) or self.holds(event.obj.metadata.namespace):
                yield event
            elif isinstance(event.obj, Pod):
                pod = event.obj
                if pod.spec.scheduler_name == self._scheduler_name:
                    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduler_name=""))
                yield Upsert(pod)
