# ruff: noqa: D102 -- every `message` is what `Reason.message` says
"""Reasons that lie in what the group itself lacks, and in the limits that were set for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kbatch.api.reasons.base import Reason, amount, figure


@dataclass(frozen=True, slots=True)
class NotEnoughTasks(Reason):
    """Fewer pods exist than the group, or one of its roles, needs. 0 of 0: neither pods, templates nor minResources."""

    code: ClassVar[str] = "NotEnoughTasks"
    rank: ClassVar[int] = 50
    created: int
    needed: int
    role: str = ""

    @property
    def message(self) -> str:
        of_role = f" of role {self.role}" if self.role else ""
        return (
            f"{self.created} of {self.needed} pods{of_role} exist; create {max(0, self.needed - self.created)} more, "
            f"or lower minMember"
        )


@dataclass(frozen=True, slots=True)
class QueueCapabilityExceeded(Reason):
    """The group would take its queue over its hard cap in `resource`."""

    code: ClassVar[str] = "QueueCapabilityExceeded"
    rank: ClassVar[int] = 60
    queue: str
    resource: str
    asked: int
    reserved: int
    used: int
    hard: int

    @property
    def message(self) -> str:
        return (
            f"asks for {amount(self.resource, self.asked)}, over the capability of Queue {self.queue}: "
            f"{_budget(self.resource, self.reserved, self.used, self.hard)}; "
            f"{_limit_help(self.asked, self.hard, 'capability', 'groups of the queue')}"
        )


@dataclass(frozen=True, slots=True)
class QuotaExceeded(Reason):
    """The group would take its namespace over a ResourceQuota in `resource`, a quota's name such as `requests.cpu`.

    Amounts are in the units of the resource without its prefix: `requests.cpu` in milli-cores.
    """

    code: ClassVar[str] = "QuotaExceeded"
    rank: ClassVar[int] = 70
    quota: str
    resource: str
    asked: int
    reserved: int
    used: int
    hard: int

    @property
    def message(self) -> str:
        return (
            f"asks for {amount(self.resource, self.asked)}, over ResourceQuota {self.quota}: "
            f"{_budget(self.resource, self.reserved, self.used, self.hard)}; "
            f"{_limit_help(self.asked, self.hard, 'quota', 'groups or pods of the namespace')}"
        )


def _budget(resource: str, reserved: int, used: int, hard: int) -> str:
    return f"{figure(resource, used)} used and {figure(resource, reserved)} reserved of {figure(resource, hard)}"


def _limit_help(asked: int, hard: int, limit: str, others: str) -> str:
    if asked > hard:
        return f"it can never fit: raise the {limit} or ask for less"
    return f"wait for other {others} to end, or raise the {limit}"
