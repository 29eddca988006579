# ruff: noqa: D102 -- every `message` is what `Reason.message` says
"""Why a group waits: the catalogue of reasons, their precedence, and the messages that users read.

A reason is a small frozen dataclass that carries numbers, never text made elsewhere. Its `code` stands as the
condition's reason, its `message` as the condition's message: what was asked, what is there, and what would help.
A waiting group has exactly one reason, the one of the lowest `rank` (`most_specific`): the nearest to something that
somebody can act on. Amounts are in kbatch's units (milli-cores of cpu, base units of everything else).

Plugins from elsewhere subclass `Reason` with a code of the form `<plugin>/<Code>`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from kbatch.resources import format_quantity

_CODE: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?/)?[A-Z][A-Za-z0-9]{0,127}", re.ASCII)
_MOST_TEXT: Final = 512
_MOST_KINDS: Final = 8
_OF_ROOM: Final = ("insufficient ", "too many pods")
"""How the words for nodes begin (`kbatch.api.node_reasons`) that more room would change."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Base of all reasons. `code` names it in conditions; a smaller `rank` takes precedence over a larger one."""

    code: ClassVar[str]
    rank: ClassVar[int] = 165
    """Other people's reasons stand just before the catch-all NotEnoughResources, unless they say otherwise."""
    lacks_capacity: ClassVar[bool] = False
    """Whether more or emptier nodes are what would help: only then do pods say Unschedulable to an autoscaler."""

    def __init_subclass__(cls) -> None:
        """Refuse a code that could not stand in a condition.

        Raises:
            TypeError: the code is not of the form `Code` or `plugin/Code`.
        """
        code = getattr(cls, "code", None)
        if code is not None and _CODE.fullmatch(code) is None:
            raise TypeError(f"{cls.__name__}.code {code!r} is not of the form Code or plugin/Code")

    @property
    @abstractmethod
    def message(self) -> str:
        """One line for people: the numbers, and what would help."""
        raise NotImplementedError


def most_specific(reasons: Iterable[Reason | None]) -> Reason | None:
    """The reason that takes precedence, the first of equals; None where there is none."""
    return min((reason for reason in reasons if reason is not None), key=lambda reason: reason.rank, default=None)


# --- what a manifest names and is not there ---------------------------------------------------------------------------


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
        return f"Queue {self.queue} does not exist; create it, or name another in spec.queue"


@dataclass(frozen=True, slots=True)
class QueueClosed(Reason):
    """The group's queue takes nothing new."""

    code: ClassVar[str] = "QueueClosed"
    rank: ClassVar[int] = 30
    queue: str

    @property
    def message(self) -> str:
        return f"Queue {self.queue} is Closed; set its spec.state to Open, or name another in spec.queue"


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
class JobSuspended(Reason):
    """The Jobs that would make the group's pods are suspended by their users."""

    code: ClassVar[str] = "JobSuspended"
    rank: ClassVar[int] = 45
    job: str

    @property
    def message(self) -> str:
        return f"Job {self.job} is suspended by its user, and so keeps no place; set its spec.suspend to false"


# --- what the group itself lacks, and the limits that were set for it -------------------------------------------------


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
            f"asks for {_amount(self.resource, self.asked)}, over the capability of Queue {self.queue}: "
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
            f"asks for {_amount(self.resource, self.asked)}, over ResourceQuota {self.quota}: "
            f"{_budget(self.resource, self.reserved, self.used, self.hard)}; "
            f"{_limit_help(self.asked, self.hard, 'quota', 'groups or pods of the namespace')}"
        )


# --- lack of room -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NotEnoughResources(Reason):
    """The group's minimum does not fit the nodes as they are.

    `needed` pods must be placed together, `placeable` is the most that could be; `resource` is the dimension that is
    short, by `missing` over the whole minimum (empty where room is not what lacks). `fitting` of `nodes` nodes take
    one more pod; the others are counted by `nodes_by_reason`: pairs of a short text (`kbatch.api.node_reasons`) and a
    number of nodes.
    """

    code: ClassVar[str] = "NotEnoughResources"
    rank: ClassVar[int] = 170
    lacks_capacity: ClassVar[bool] = True
    needed: int
    placeable: int
    resource: str = ""
    missing: int = 0
    nodes: int = 0
    fitting: int = 0
    nodes_by_reason: tuple[tuple[str, int], ...] = ()
    role: str = ""

    @property
    def message(self) -> str:
        return "; ".join(
            [_placeable(self, "can be placed"), *_shortage(self), _node_histogram(self), _capacity_help(self)]
        )


@dataclass(frozen=True, slots=True)
class ClusterTooSmall(NotEnoughResources):
    """NotEnoughResources of a group that would not fit even were the cluster empty of kbatch's own pods."""

    rank: ClassVar[int] = 80

    @property
    def message(self) -> str:
        return "; ".join(
            [
                _placeable(self, "would fit the cluster even without kbatch's other pods"),
                *_shortage(self),
                ("beside them " if self.placeable else "") + _node_histogram(self),
                _demand_help(self),
            ]
        )


@dataclass(frozen=True, slots=True)
class GangExceedsReclaimableShare(Reason):
    """The minimum fits the cluster, but would take the queue past what it deserves, and nothing less would help.

    In `resource`: the minimum asks for `asked`, the queue holds `allocated`, deserves `deserved`, and `idle` is free.
    """

    code: ClassVar[str] = "GangExceedsReclaimableShare"
    rank: ClassVar[int] = 90
    queue: str
    resource: str
    asked: int
    allocated: int
    deserved: int
    idle: int

    @property
    def message(self) -> str:
        return (
            f"asks for {_amount(self.resource, self.asked)}, more than Queue {self.queue} may reclaim: it holds "
            f"{_amount(self.resource, self.allocated)} of a deserved {_amount(self.resource, self.deserved)}, and "
            f"{_amount(self.resource, self.idle)} is idle; raise the queue's weight, lower minMember, or wait for idle "
            f"room"
        )


@dataclass(frozen=True, slots=True)
class TopologyUnsatisfied(Reason):
    """There is room, but not close enough together: at most `placeable` of `needed` pods within `max_hops`."""

    code: ClassVar[str] = "TopologyUnsatisfied"
    rank: ClassVar[int] = 100
    needed: int
    placeable: int
    max_hops: int
    role: str = ""

    @property
    def message(self) -> str:
        of_role = f" of role {self.role}" if self.role else ""
        return (
            f"{self.placeable} of {self.needed} pods{of_role} fit within {self.max_hops} hops of one another; raise "
            f"topology.maxHops, set its mode to Preferred, or free nodes close together"
        )


@dataclass(frozen=True, slots=True)
class WaitingInQueue(Reason):
    """Pending: its minResources are not to be had yet, in `resource`; `ahead` groups of its queue come before it."""

    code: ClassVar[str] = "WaitingInQueue"
    rank: ClassVar[int] = 110
    lacks_capacity: ClassVar[bool] = True
    queue: str
    resource: str
    asked: int
    available: int
    reserved: int
    ahead: int

    @property
    def message(self) -> str:
        return (
            f"waits in Queue {self.queue} behind {_count(self.ahead, 'group')}: asks for "
            f"{_amount(self.resource, self.asked)}, {_amount(self.resource, self.available)} is to be had "
            f"({_amount(self.resource, self.reserved)} reserved for groups that are in queue); it goes on when "
            f"{_amount(self.resource, max(0, self.asked - self.available))} more comes free"
        )


@dataclass(frozen=True, slots=True)
class QueueOverused(Reason):
    """The queue already has its share in `resource`, and others that are below theirs come first."""

    code: ClassVar[str] = "QueueOverused"
    rank: ClassVar[int] = 120
    queue: str
    resource: str
    allocated: int
    deserved: int

    @property
    def message(self) -> str:
        return (
            f"Queue {self.queue} holds {_amount(self.resource, self.allocated)} of a deserved "
            f"{_amount(self.resource, self.deserved)}; it gets more when other queues leave room, when its own pods "
            f"end, or with a larger weight"
        )


# --- what passes by itself --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reserved(Reason):
    """The room that the group could use is kept for another one that waits longer or stands before it."""

    code: ClassVar[str] = "Reserved"
    rank: ClassVar[int] = 130
    holder: str
    resource: str
    amount: int

    @property
    def message(self) -> str:
        return (
            f"{_amount(self.resource, self.amount)} of the room is reserved for PodGroup {self.holder}, which comes "
            f"first; it goes on when that one runs, or when more comes free"
        )


@dataclass(frozen=True, slots=True)
class VictimsTerminating(Reason):
    """Room was made for the group by evicting `victims` pods, which have not ended yet."""

    code: ClassVar[str] = "VictimsTerminating"
    rank: ClassVar[int] = 140
    victims: int
    nodes: int

    @property
    def message(self) -> str:
        return f"waits for {_count(self.victims, 'pod')} on {_count(self.nodes, 'node')} to end, to take their room"


@dataclass(frozen=True, slots=True)
class BindFailed(Reason):
    """A member was placed, but the API server did not take the binding. It is tried again by itself."""

    code: ClassVar[str] = "BindFailed"
    rank: ClassVar[int] = 150
    pod: str
    node: str
    failures: int
    why: str

    @property
    def message(self) -> str:
        return (
            f"binding pod {self.pod} to node {self.node} failed ({_count(self.failures, 'failure')}): "
            f"{self.why[:_MOST_TEXT]}; it is tried again"
        )


@dataclass(frozen=True, slots=True)
class Gated(Reason):
    """`gated` of the pods that are needed have scheduling gates that others must lift."""

    code: ClassVar[str] = "Gated"
    rank: ClassVar[int] = 160
    gated: int
    needed: int
    gates: tuple[str, ...]

    @property
    def message(self) -> str:
        names = ", ".join(self.gates[:_MOST_KINDS])
        return (
            f"{_count(self.gated, 'pod')} of {self.needed} needed are held by scheduling gates ({names}); "
            f"they count once whoever set the gates removes them"
        )


GROUP_REASONS: Final[tuple[type[Reason], ...]] = (
    PodGroupNotFound,
    QueueNotFound,
    QueueClosed,
    PriorityClassNotFound,
    JobSuspended,
    NotEnoughTasks,
    QueueCapabilityExceeded,
    QuotaExceeded,
    ClusterTooSmall,
    GangExceedsReclaimableShare,
    TopologyUnsatisfied,
    WaitingInQueue,
    QueueOverused,
    Reserved,
    VictimsTerminating,
    BindFailed,
    Gated,
    NotEnoughResources,
)
"""What may stand on a waiting group, in order of precedence."""


# --- words ------------------------------------------------------------------------------------------------------------


def _amount(resource: str, amount: int) -> str:
    return f"{_figure(resource, amount)} {resource}"


def _figure(resource: str, amount: int) -> str:
    """`500m` also for a quota's `requests.cpu`, which counts in the units of cpu."""
    return format_quantity(resource.removeprefix("requests.").removeprefix("limits."), amount)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _budget(resource: str, reserved: int, used: int, hard: int) -> str:
    return f"{_figure(resource, used)} used and {_figure(resource, reserved)} reserved of {_figure(resource, hard)}"


def _limit_help(asked: int, hard: int, limit: str, others: str) -> str:
    if asked > hard:
        return f"it can never fit: raise the {limit} or ask for less"
    return f"wait for other {others} to end, or raise the {limit}"


def _placeable(reason: NotEnoughResources, words: str) -> str:
    of_role = f" of role {reason.role}" if reason.role else ""
    return f"{reason.placeable} of {reason.needed} pods{of_role} {words}"


def _shortage(reason: NotEnoughResources) -> list[str]:
    return [f"short of {_amount(reason.resource, reason.missing)}"] if reason.resource else []


def _node_histogram(reason: NotEnoughResources) -> str:
    """`0/12 nodes fit: 7 insufficient cpu, 5 taint dedicated`: the most frequent first, then by name; bounded."""
    ranked = sorted(reason.nodes_by_reason, key=lambda pair: (-pair[1], pair[0]))
    parts = [f"{count} {short}" for short, count in ranked[:_MOST_KINDS]]
    if rest := sum(count for _, count in ranked[_MOST_KINDS:]):
        parts.append(f"{rest} for other reasons")
    listed = f": {', '.join(parts)}" if parts else ""
    return f"{reason.fitting}/{reason.nodes} nodes fit{listed}"


def _capacity_help(reason: NotEnoughResources) -> str:
    if not reason.nodes:
        return "add nodes"
    if reason.resource:
        return f"free {_amount(reason.resource, reason.missing)} or add nodes"
    return "free or add nodes that take these pods"


def _demand_help(reason: NotEnoughResources) -> str:
    if not reason.nodes:
        return "add nodes"
    kinds = [short for short, _ in reason.nodes_by_reason]
    if reason.resource or not kinds or any(short.startswith(_OF_ROOM) for short in kinds):
        return "add larger or more nodes, or lower minMember or the pods' requests"
    return f"add nodes that take these pods, or change what keeps them off: {', '.join(sorted(kinds)[:_MOST_KINDS])}"
