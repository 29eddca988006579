# ruff: noqa: D102 -- every `message` is what `Reason.message` says
"""Reasons that lie in what the group itself lacks, and in the limits that were set for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kbatch.api.names import SUB_GROUP_LABEL
from kbatch.api.reasons.base import MOST_TEXT, Reason, amount, count, figure
from kbatch.resources import MILLION, decimal_of


@dataclass(frozen=True, slots=True)
class NotEnoughTasks(Reason):
    """Fewer pods exist than the group, or one of its roles, needs. 0 of 0: neither pods, templates nor minResources.

    So many of its pods are `strays`: they name a role that the group does not declare, `stray` the first of these, or
    no role (""). `coming`: of those that lack, so many are to be made by templates or Jobs.
    `lower`: the fields that ask for so many. `stalled`: no more can be made from the group's templates; its
    condition Stalled says why. `beyond`: so many more exist, which do not count, as their role has maxMember without
    them. `most`: its roles may have no more than so many in all, which is not enough; 0: they may.
    """

    code: ClassVar[str] = "NotEnoughTasks"
    rank: ClassVar[int] = 50
    created: int
    needed: int
    role: str = ""
    strays: int = 0
    stray: str = ""
    coming: int = 0
    lower: str = "minMember"
    stalled: bool = False
    beyond: int = 0
    most: int = 0

    @property
    def message(self) -> str:
        of_role = f" of role {self.role}" if self.role else ""
        no_role = f"a role that the group does not declare ({self.stray[:MOST_TEXT]})" if self.stray else "no role"
        name = "names" if self.strays == 1 else "name"
        strays = f" ({count(self.strays, 'pod')} of the group {name} {no_role} in the label {SUB_GROUP_LABEL})"
        coming = f", and {self.coming} more {'is' if self.coming == 1 else 'are'} to be made"
        are = "is" if self.beyond == 1 else "are"
        beyond = f", {self.beyond} more {are} beyond maxMember of {'its' if self.beyond == 1 else 'their'} role"
        others = " of other roles" if self.beyond else ""
        more = f"create {max(0, self.needed - self.created - self.coming)} more{others}, or lower {self.lower}"
        if self.coming and self.created + self.coming >= self.needed:
            more = "if they are not, Events of their Job or of the group say why"
        if self.most:
            more = f"its roles may have {count(self.most, 'pod')} in all: raise maxMember, or lower {self.lower}"
        return (
            f"{self.created} of {self.needed} pods{of_role} exist{strays if self.strays else ''}"
            f"{beyond if self.beyond else ''}"
            f"{coming if self.coming and not self.stalled else ''}; "
            f"{'more cannot be made: see the condition Stalled' if self.stalled else more}"
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
    def stays(self) -> bool:
        """See `Reason`."""
        return self.asked > self.hard

    @property
    def message(self) -> str:
        return (
            f"asks for {amount(self.resource, self.asked)}, over the capability of Queue {self.queue}: "
            f"{_budget(self.resource, self.reserved, self.used, self.hard)}; "
            f"{_limit_help(self, 'capability', 'groups of the queue')}"
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
    def stays(self) -> bool:
        """See `Reason`."""
        return self.asked > self.hard

    @property
    def message(self) -> str:
        return (
            f"asks for {amount(self.resource, self.asked)}, over ResourceQuota {self.quota}: "
            f"{_budget(self.resource, self.reserved, self.used, self.hard)}; "
            f"{_limit_help(self, 'quota', 'groups or pods of the namespace')}"
        )


@dataclass(frozen=True, slots=True)
class InfiniteShareExceeded(Reason):
    """With the group, the flow of its queue's groups without a lifetime would pass what they may have.

    Amounts are in millionths of a unit of usage, such as a core: what the group asks for, what these groups' flow is
    without it, and the most that it may be: `factor` times the queue's fair share.
    """

    code: ClassVar[str] = "InfiniteShareExceeded"
    rank: ClassVar[int] = 72
    queue: str
    asked: int
    flow: int
    fair_share: int
    most: int
    factor: str

    @property
    def stays(self) -> bool:
        """See `Reason`."""
        return self.asked > self.most

    @property
    def message(self) -> str:
        if self.stays:
            help_ = "it can never start as it is: give it a lifetimeSeconds, ask for less, or raise the queue's weight"
        else:
            help_ = "wait for such groups of the queue to end and their flow to fade, or give it a lifetimeSeconds"
        return (
            f"asks for {decimal_of(self.asked)}, while groups of Queue {self.queue} without a lifetime have a flow of "
            f"{decimal_of(self.flow)} of at most {decimal_of(self.most)} ({self.factor} times the fair share of "
            f"{decimal_of(self.fair_share)}); {help_}"
        )


@dataclass(frozen=True, slots=True)
class ExcessBudgetExceeded(Reason):
    """The group has a lifetime, would take its queue's usage above the fair share, and the budget for that is used up.

    Amounts are in millionths: `asked` and `charged` of a resource-minute, `fair_share` of a unit of usage. `budget` is
    in whole resource-minutes, as the Queue says.
    """

    code: ClassVar[str] = "ExcessBudgetExceeded"
    rank: ClassVar[int] = 74
    queue: str
    asked: int
    charged: int
    budget: int
    fair_share: int

    @property
    def stays(self) -> bool:
        """See `Reason`."""
        return self.asked > self.budget * MILLION

    @property
    def message(self) -> str:
        if self.stays:
            help_ = "it starts only within the fair share as it is: give it a shorter lifetime, or raise the budget"
        else:
            help_ = "wait for other groups of the queue to end, give it a shorter lifetime, or raise the budget"
        return (
            f"would be charged {decimal_of(self.asked)} resource-minutes above the fair share of "
            f"{decimal_of(self.fair_share)}, over the excessBudget of Queue {self.queue}: "
            f"{decimal_of(self.charged)} of {self.budget} charged; {help_}"
        )


def _budget(resource: str, reserved: int, used: int, hard: int) -> str:
    return f"{figure(resource, used)} used and {figure(resource, reserved)} reserved of {figure(resource, hard)}"


def _limit_help(reason: Reason, limit: str, others: str) -> str:
    if reason.stays:
        return f"it can never fit: raise the {limit} or ask for less"
    return f"wait for other {others} to end, or raise the {limit}"
