# ruff: noqa: D102 -- every `message` is what `Reason.message` says
"""Reasons that lie in what a manifest names: it is not there, takes nothing, or is nothing that kbatch deals with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from kbatch.api.names import QUEUE_LABEL
from kbatch.api.reasons.base import Reason, count

_NAME_ANOTHER: Final = f"name another in spec.queue (of a Job or pods: their label {QUEUE_LABEL})"


@dataclass(frozen=True, slots=True)
class PodGroupNotFound(Reason):
    """Pods name a PodGroup that does not exist in their namespace."""

    code: ClassVar[str] = "PodGroupNotFound"
    rank: ClassVar[int] = 10
    group: str

    @property
    def message(self) -> str:
        return f"PodGroup {self.group} does not exist; create it, or remove the pods' group annotation"


@dataclass(frozen=True, slots=True)
class QueueNotFound(Reason):
    """The group's queue does not exist."""

    code: ClassVar[str] = "QueueNotFound"
    rank: ClassVar[int] = 20
    queue: str

    @property
    def message(self) -> str:
        return f"Queue {self.queue} does not exist; create it, or {_NAME_ANOTHER}"


@dataclass(frozen=True, slots=True)
class QueueClosed(Reason):
    """The group's queue takes nothing new."""

    code: ClassVar[str] = "QueueClosed"
    rank: ClassVar[int] = 30
    queue: str

    @property
    def message(self) -> str:
        return f"Queue {self.queue} is Closed; set its spec.state to Open, or {_NAME_ANOTHER}"


@dataclass(frozen=True, slots=True)
class QueueNotAllowed(Reason):
    """The group's queue is not open to its namespace."""

    code: ClassVar[str] = "QueueNotAllowed"
    rank: ClassVar[int] = 35
    queue: str
    namespace: str

    @property
    def message(self) -> str:
        return (
            f"Queue {self.queue} is not open to namespace {self.namespace}: its spec.namespaceSelector does not select "
            f"it; {_NAME_ANOTHER}, or ask for the namespace to be selected"
        )


@dataclass(frozen=True, slots=True)
class PriorityClassNotFound(Reason):
    """The group's PriorityClass does not exist."""

    code: ClassVar[str] = "PriorityClassNotFound"
    rank: ClassVar[int] = 40
    priority_class: str

    @property
    def message(self) -> str:
        return f"PriorityClass {self.priority_class} does not exist; create it, or change spec.priorityClassName"


@dataclass(frozen=True, slots=True)
class Suspended(Reason):
    """The group's user holds it back."""

    code: ClassVar[str] = "Suspended"
    rank: ClassVar[int] = 44

    @property
    def message(self) -> str:
        return "is suspended by its user, so nothing is reserved for it; set its spec.suspend to false"


@dataclass(frozen=True, slots=True)
class JobSuspended(Reason):
    """The Jobs that would make the group's pods are suspended by their users, or are to have no pods."""

    code: ClassVar[str] = "JobSuspended"
    rank: ClassVar[int] = 45
    job: str

    @property
    def message(self) -> str:
        return (
            f"Job {self.job} is suspended by its user, or its parallelism is 0, so nothing is reserved for it; set its "
            f"spec.suspend to false, or its spec.parallelism"
        )


@dataclass(frozen=True, slots=True)
class ResourceClaimsUnsupported(Reason):
    """`claiming` of the group's pods have resource claims, and without them it cannot reach its minimum."""

    code: ClassVar[str] = "ResourceClaimsUnsupported"
    rank: ClassVar[int] = 47
    claiming: int

    @property
    def message(self) -> str:
        has = "has" if self.claiming == 1 else "have"
        return (
            f"{count(self.claiming, 'pod')} {has} spec.resourceClaims, which kbatch does not allocate; request the "
            f"devices as extended resources, or leave such pods to another scheduler"
        )
