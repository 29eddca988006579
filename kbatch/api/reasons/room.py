# ruff: noqa: D102 -- every `message` is what `Reason.message` says
"""Reasons that lie in room: too little of it, too far apart, or others' first."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from kbatch.api.reasons.base import MOST_KINDS, Reason, amount, count

_OF_ROOM: Final = ("insufficient ", "too many pods")
"""How the words for nodes begin (`kbatch.api.node_reasons`) that more room would change."""

_CORDONED: Final = "unschedulable"
"""What they are of cordoned nodes."""


class Protector(Enum):
    """What keeps pods from being evicted for others that may otherwise have their room. The value: its words."""

    HOURLY = "evictionsPerHour of Queue"
    BUDGET = "PodDisruptionBudget"
    RUNTIME = "minRuntimeSeconds of PodGroup"
    REFUSED = "refused eviction of Pod"


@dataclass(frozen=True, slots=True)
class Protection:
    """Pods stay that could make room: `by` what, of which object, and whether there are `others` of that kind."""

    by: Protector
    name: str
    others: bool = False

    @property
    def words(self) -> str:
        """`evictionsPerHour of Queue research and others`."""
        return f"{self.by.value} {self.name}{' and others' if self.others else ''}"


@dataclass(frozen=True, slots=True)
class NotEnoughResources(Reason):
    """The group's minimum does not fit the nodes as they are.

    `needed` pods must be placed together, `placeable` is the most that could be; `resource` is the dimension that is
    short, by `missing` over the whole minimum (empty where room is not what lacks). `fitting` of `nodes` nodes take
    one more pod; the others are counted by `nodes_by_reason`: pairs of a short text (`kbatch.api.node_reasons`) and a
    number of nodes. Where the group has roles, `role` is the first of which the minimum lacks pods, and the nodes are
    counted for one of these; `needed` and `placeable` count the pods of all roles. Of pods of several sizes the
    smallest are meant in `missing` and in the count of nodes. `protected`: what kept pods from being evicted for it.
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
    protected: tuple[Protection, ...] = ()

    @property
    def message(self) -> str:
        return "; ".join(
            [
                _placeable(self, "can be placed"),
                *_shortage(self),
                _node_histogram(self),
                *_protection(self.protected),
                _capacity_help(self),
            ]
        )


@dataclass(frozen=True, slots=True)
class ClusterTooSmall(NotEnoughResources):
    """NotEnoughResources of a group that would not fit even were the cluster empty of kbatch's own pods."""

    rank: ClassVar[int] = 80

    @property
    def stays(self) -> bool:
        """See `Reason`."""
        return True

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
class MinResourcesTooLarge(Reason):
    """NotEnoughResources of a group whose minResources say more than the whole cluster holds, whatever its pods are.

    In `resource`: they ask for `asked`, the nodes hold `held` without kbatch's own pods.
    """

    code: ClassVar[str] = "NotEnoughResources"
    rank: ClassVar[int] = 81
    lacks_capacity: ClassVar[bool] = True
    resource: str
    asked: int
    held: int
    nodes: int

    @property
    def message(self) -> str:
        return (
            f"asks for {amount(self.resource, self.asked)} in its minResources; {count(self.nodes, 'node')} would hold "
            f"{amount(self.resource, self.held)} even without kbatch's other pods; "
            f"{'add larger or more nodes, or ask for less' if self.nodes else 'add nodes'}"
        )


@dataclass(frozen=True, slots=True)
class GangExceedsReclaimableShare(Reason):
    """The minimum fits the cluster, but would take the queue past what it deserves, and nothing less would help.

    In `resource`: the minimum asks for `asked`, the queue holds `allocated`, deserves `deserved`, and `idle` is free.
    `protected`: what kept pods of its own queue from being evicted for it.
    """

    code: ClassVar[str] = "GangExceedsReclaimableShare"
    rank: ClassVar[int] = 90
    queue: str
    resource: str
    asked: int
    allocated: int
    deserved: int
    idle: int
    protected: tuple[Protection, ...] = ()

    @property
    def message(self) -> str:
        protection = "".join(f"{words}; " for words in _protection(self.protected))
        return (
            f"asks for {amount(self.resource, self.asked)}, more than Queue {self.queue} may reclaim: it holds "
            f"{amount(self.resource, self.allocated)} of a deserved {amount(self.resource, self.deserved)}, and "
            f"{amount(self.resource, self.idle)} is idle; {protection}raise the queue's weight, lower minMember, or "
            f"wait for idle room"
        )


@dataclass(frozen=True, slots=True)
class TopologyUnsatisfied(Reason):
    """There is room, but not close enough together: at most `placeable` of `needed` pods within `max_hops`.

    So many fit into the best domain, `domain` (its path, "" where there is none: the pods that run are too far apart
    already), which is one of the level `level`. Where a role is what does not fit, the pods are that `role`'s.
    `emptied`: no more would fit if the cluster were empty of this scheduler's pods. `unlabelled`: a node label that
    makes these domains, which no node carries, so that each node is a domain of its own; "" for none.
    """

    code: ClassVar[str] = "TopologyUnsatisfied"
    rank: ClassVar[int] = 100
    needed: int
    placeable: int
    max_hops: int
    role: str = ""
    domain: str = ""
    level: str = ""
    emptied: bool = False
    unlabelled: str = ""

    @property
    def message(self) -> str:
        of_role = f" of role {self.role}" if self.role else ""
        where = f", in {self.level} {self.domain}" if self.domain else ""
        always = ", even without kbatch's other pods" if self.emptied else ""
        fit = f"{self.placeable} of {self.needed} pods{of_role} fit within {self.max_hops} hops of one another"
        if self.unlabelled:
            return (
                f"{fit}{always}: no node carries the label {self.unlabelled}, so each node is its own domain; label "
                f"the nodes, raise topology.maxHops, or set its mode to Preferred"
            )
        if self.max_hops < 2:  # all on one node
            other = "lower minMember, or add larger nodes" if self.emptied else "or free more of one node"
        else:
            other = "lower minMember, or add nodes there" if self.emptied else "or free nodes close together"
        return f"{fit}{where}{always}; raise topology.maxHops, set its mode to Preferred, {other}"


def _behind(groups: int) -> str:
    return f" behind {count(groups, 'group')}" if groups else ""


@dataclass(frozen=True, slots=True)
class WaitingInQueue(Reason):
    """Pending: its minResources are not to be had yet, in `resource`; `ahead` groups of its queue come before it.

    `available` is the room less what is `reserved`: below 0 where more is reserved than there is room; where `nodes` is
    given, on so many nodes alone, which its pods may use.
    """

    code: ClassVar[str] = "WaitingInQueue"
    rank: ClassVar[int] = 110
    lacks_capacity: ClassVar[bool] = True
    queue: str
    resource: str
    asked: int
    available: int
    reserved: int
    ahead: int
    nodes: int | None = None

    @property
    def message(self) -> str:
        where = f" on the {count(self.nodes, 'node')} that its pods may use" if self.nodes is not None else ""
        reserved = f" ({amount(self.resource, self.reserved)} is reserved for groups that are in queue)"
        return (
            f"waits in Queue {self.queue}{_behind(self.ahead)}: asks for {amount(self.resource, self.asked)}, "
            f"{amount(self.resource, max(0, self.available))} is available{where}{reserved if self.reserved else ''}; "
            f"it continues when another {amount(self.resource, max(0, self.asked - self.available))} is free"
        )


@dataclass(frozen=True, slots=True)
class RoomInPieces(Reason):
    """WaitingInQueue of a group for which there is room, but no node, or too few, with enough of it: another group in
    queue that asks for the same waits for that already.
    """

    code: ClassVar[str] = "WaitingInQueue"
    rank: ClassVar[int] = 111
    lacks_capacity: ClassVar[bool] = True
    queue: str
    ahead: int

    @property
    def message(self) -> str:
        return (
            f"waits in Queue {self.queue}{_behind(self.ahead)}: too few nodes have enough room for its pods, and a "
            f"group in queue that asks for the same comes first; it continues when that has started"
        )


@dataclass(frozen=True, slots=True)
class SentBack(Reason):
    """WaitingInQueue of a group for which there is room: it was sent back `times` times, and
    each time it waits longer, `seconds` now, before it may come in queue again.
    """

    code: ClassVar[str] = "WaitingInQueue"
    rank: ClassVar[int] = 112
    queue: str
    times: int
    seconds: int

    @property
    def message(self) -> str:
        return (
            f"was sent back by Queue {self.queue} {count(self.times, 'time')}, because its minimum was not placed in "
            f"time, or was lost; it may come in queue again {self.seconds} s after the last time; raise "
            f"scheduleTimeoutSeconds if its pods take longer to be created"
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
            f"Queue {self.queue} holds {amount(self.resource, self.allocated)} of a deserved "
            f"{amount(self.resource, self.deserved)}; it gets more when other queues leave room, when its own pods "
            f"end, or with a larger weight"
        )


def _placeable(reason: NotEnoughResources, words: str) -> str:
    of_role = f", no more of role {reason.role}" if reason.role else ""
    return f"{reason.placeable} of {reason.needed} pods {words}{of_role}"


def _shortage(reason: NotEnoughResources) -> list[str]:
    return [f"short of {amount(reason.resource, reason.missing)}"] if reason.resource else []


def _node_histogram(reason: NotEnoughResources) -> str:
    """`0/12 nodes fit: 7 insufficient cpu, 5 taint dedicated`: the most frequent first, then by name; bounded."""
    ranked = sorted(reason.nodes_by_reason, key=lambda pair: (-pair[1], pair[0]))
    parts = [f"{nodes} {short}" for short, nodes in ranked[:MOST_KINDS]]
    if rest := sum(nodes for _, nodes in ranked[MOST_KINDS:]):
        parts.append(f"{rest} for other reasons")
    listed = f": {', '.join(parts)}" if parts else ""
    return f"{reason.fitting}/{reason.nodes} nodes fit{listed}"


def _protection(protected: tuple[Protection, ...]) -> list[str]:
    words = ", ".join(found.words for found in protected)
    return [f"pods that could make room are protected by {words}"] if words else []


def _capacity_help(reason: NotEnoughResources) -> str:
    if not reason.nodes:
        return "add nodes"
    if reason.resource:
        return _one_of(*_uncordon(reason), f"free {amount(reason.resource, reason.missing)} or add nodes")
    return _one_of(*_uncordon(reason), "free or add nodes that take these pods")


def _demand_help(reason: NotEnoughResources) -> str:
    if not reason.nodes:
        return "add nodes"
    kinds = sorted(short for short, _ in reason.nodes_by_reason)
    if reason.fitting or not kinds or any(short.startswith(_OF_ROOM) for short in kinds):
        return _one_of(*_uncordon(reason), "add larger or more nodes", "lower minMember or the pods' requests")
    others = ", ".join([short for short in kinds if short != _CORDONED][:MOST_KINDS])
    change = [f"change what keeps them off: {others}"] if others else []
    return _one_of(*_uncordon(reason), "add nodes that take these pods", *change)


def _uncordon(reason: NotEnoughResources) -> list[str]:
    """Whether the cordoned nodes would serve is not known; who cordoned them is asked first."""
    cordoned = sum(nodes for short, nodes in reason.nodes_by_reason if short == _CORDONED)
    return [f"uncordon {count(cordoned, 'node')}"] if cordoned else []


def _one_of(*ways: str) -> str:
    """`a`, `a, or b`, `a, b, or c`."""
    *first, last = ways
    return f"{', '.join(first)}, or {last}" if first else last
