"""Fair shares where not every queue may use every node: weighted max-min under constraints, in exact integers.

A capacity is held in *node classes*. Each queue has demands, each for a set of classes that may serve it. What queues
get must flow from classes to demands, and is filled up progressively: all queues rise together, each in proportion to
its weight, until some cannot rise any more because the classes that they may use are full; they are fixed, and the
others go on ("constrained max-min fairness": A. Ghodsi, M. Zaharia, S. Shenker, I. Stoica, "Choosy: max-min fair
sharing for datacenter jobs with constraints", EuroSys 2013).

What queues can get together is a polymatroid, so the order in which they are fixed need not be followed step by step.
A part of the queues is raised to the one level at which it gets all it can get together. If that cannot flow, a minimum
cut tells which of them, by themselves, would get more than they can: the part falls into those and the rest, each with
its own capacity, and both are settled in the same way (the decomposition algorithm: S. Fujishige, "Lexicographically
optimal base of a polymatroid with respect to a weight vector", Mathematics of Operations Research 5, 1980).

Levels are fractions; all amounts are scaled to integers by the denominator of the level. Queues that share all their
classes are divided between by `shares.fill`; elsewhere each gets the whole units of its fraction, and the last units go
one each, in the same order, as far as they can flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NamedTuple

from kbatch.model.flow import SINK, SOURCE, Network, bits
from kbatch.model.shares import Claim, fill, last_unit_key
from kbatch.resources import Resources

Parts = Mapping[int, Resources]
"""Demands by the set of node classes that may serve them: bit k stands for class k."""
Demand = dict[int, int]
"""The same of one dimension."""
_FIRST_CLASS: Final = SINK + 1
"""The node of class 0 in a network; the others follow."""


def divide(
    capacities: Sequence[Mapping[str, int]], claims: Sequence[Claim], parts: Sequence[Parts]
) -> dict[str, Resources]:
    """The deserved share of each queue, by name.

    Where every demand may use all classes that any may use, this is `shares.water_fill` over these classes. Capacity of
    classes that no demand may use belongs to nobody; a dimension of which no demand may use any stands in no answer, as
    if it were not there.

    Args:
        capacities: of each node class.
        claims: what the queues bring, names distinct; their `request` is not read.
        parts: for each claim its demands, what it holds included.
    """
    deserved: dict[str, Resources] = {claim.name: {} for claim in claims}
    dimensions = dict.fromkeys(name for capacity in capacities for name in capacity)
    for dimension in dimensions:
        room = {at: amount for at, each in enumerate(capacities) if (amount := each.get(dimension, 0)) > 0}
        there = sum(1 << at for at in room)
        demands: list[Demand] = []
        for part in parts:
            demand: Demand = {}
            for reach, amounts in part.items():
                amount = amounts.get(dimension, 0)
                if amount > 0 and reach & there:
                    demand[reach & there] = demand.get(reach & there, 0) + amount
            demands.append(demand)
        if any(demands):
            for claim, grant in zip(claims, _divide(dimension, room, claims, demands), strict=True):
                deserved[claim.name][dimension] = grant
    return deserved


def _divide(dimension: str, room: dict[int, int], claims: Sequence[Claim], demands: Sequence[Demand]) -> list[int]:
    """One dimension: the grant of each claim, in their order."""
    wants = [claim.within(dimension, sum(demand.values())) for claim, demand in zip(claims, demands, strict=True)]
    division = _Division(dimension, claims)
    for reach, found in _apart([each if want else {} for each, want in zip(demands, wants, strict=True)]):
        members = sorted(found)
        part = _Part({at: wants[at] for at in members}, {at: demands[at] for at in members}, {})
        part.room = {at: room[at] for at in bits(reach)}
        division.settle(part)
    return division.granted


def _apart(demands: Sequence[Demand]) -> list[tuple[int, list[int]]]:
    """The claims in parts that have no class in common, each with its classes."""
    found: list[tuple[int, list[int]]] = []
    for at, demand in enumerate(demands):
        reach, members, others = 0, [at], []
        for each in demand:
            reach |= each
        if not reach:
            continue
        for classes, queues in found:
            if classes & reach:
                reach, members = reach | classes, queues + members
            else:
                others.append((classes, queues))
        found = [*others, (reach, members)]
    return found


@dataclass(slots=True)
class _Part:
    """Queues that are raised together, and the classes that are theirs to fill.

    Attributes:
        wants: by member (its place in the claims), the most that it can get; in the order of the claims.
        demands: by member, what it asks of these classes.
        room: by class.
        free: by member, what it gets besides, from classes that are not full.
        taken: what those who are fixed take of these classes, by the classes that may serve it.
        amount: what the members get together, `free` included.
        nodes: of its networks, once one was made.
    """

    wants: dict[int, int]
    demands: dict[int, Demand]
    room: dict[int, int]
    free: dict[int, int] = field(default_factory=dict)
    taken: Demand = field(default_factory=dict)
    amount: int = 0
    nodes: _Nodes | None = None

    @property
    def plain(self) -> bool:
        """Whether all members ask for the same classes and nothing else, so that only their sum is bounded."""
        reaches = {tuple(demand) for demand in self.demands.values()}
        return len(reaches) == 1 and len(next(iter(reaches))) == 1 and not any(self.free.values())

    def split(self, reached: set[int], classes: int) -> tuple[_Part, _Part]:
        """The members that ask for more than they can get by themselves, with the classes they fill; and the rest."""
        first = _Part({}, {}, {at: self.room[at] for at in bits(classes)})
        second = _Part({}, {}, {at: left for at, left in self.room.items() if not classes >> at & 1})
        for reach, amount in self.taken.items():
            outside = reach & ~classes
            where, key = (second.taken, outside) if outside else (first.taken, reach)
            where[key] = where.get(key, 0) + amount
        for at, want in self.wants.items():
            part = first if at in reached else second
            demand = part.demands[at] = {}
            free = self.free.get(at, 0)
            for reach, amount in self.demands[at].items():
                outside = reach & ~classes
                if part is second:
                    if outside:
                        demand[outside] = demand.get(outside, 0) + amount
                elif outside:
                    free += amount
                    second.taken[outside] = second.taken.get(outside, 0) + amount
                else:
                    demand[reach] = amount
            part.free[at] = free
            part.wants[at] = min(want, free + sum(demand.values()))
        first.amount = sum(first.room.values()) - sum(first.taken.values()) + sum(first.free.values())
        second.amount = self.amount - first.amount
        return first, second


class _Division:
    """The division of one dimension."""

    def __init__(self, dimension: str, claims: Sequence[Claim]) -> None:
        self.granted = [0] * len(claims)
        self._dimension = dimension
        self._claims = claims

    def settle(self, part: _Part) -> None:
        """Divide what a part can get between its members."""
        if part.plain:
            part.amount = min(sum(part.room.values()), sum(part.wants.values()))
        else:
            part.amount = _Flow(part, part.wants).push()
        todo = [part]
        while todo:
            part = todo.pop()
            if part.amount == sum(part.wants.values()):
                self._grant(part.wants)
            elif part.plain:
                claims = [self._claims[at] for at in part.wants]
                amounts = fill(self._dimension, part.amount, claims, list(part.wants.values()))
                self._grant(dict(zip(part.wants, amounts, strict=True)))
            else:
                todo += self._raise(part)

    def _raise(self, part: _Part) -> Sequence[_Part]:
        """Raise a part to its level, or split it where that cannot flow."""
        level = self._level(part)
        top, scale = level.numerator, level.denominator
        asked = {at: min(want * scale, self._claims[at].weight * top) for at, want in part.wants.items()}
        flow = _Flow(part, asked, scale)
        if flow.push() < part.amount * scale:
            return part.split(*flow.reached())
        self._round(part, asked, scale)
        return ()

    def _level(self, part: _Part) -> Fraction:
        """The amount for each unit of weight at which the members, none above what it wants, get all together."""
        rest, wants = part.amount, part.wants
        unmet = list(wants)
        while True:
            weight = sum([self._claims[at].weight for at in unmet])
            still = [at for at in unmet if wants[at] * weight > rest * self._claims[at].weight]
            if len(still) == len(unmet):
                return Fraction(rest, weight)
            rest -= sum([wants[at] for at in unmet]) - sum([wants[at] for at in still])
            unmet = still

    def _round(self, part: _Part, asked: Mapping[int, int], scale: int) -> None:
        """Whole units of what each member gets, then the last units, one each, as far as they can flow."""
        granted = {at: amount // scale for at, amount in asked.items()}
        rest = part.amount - sum(granted.values())
        if rest:
            flow = _Flow(part, granted)
            flow.push()
            order = sorted(
                (at for at, amount in asked.items() if amount % scale),
                key=lambda at: last_unit_key(self._claims[at], self._dimension, granted[at], asked[at] % scale),
            )
            for at in order:
                if rest and flow.push_one(at):
                    granted[at] += 1
                    rest -= 1
        self._grant(granted)

    def _grant(self, amounts: Mapping[int, int]) -> None:
        for at, amount in amounts.items():
            self.granted[at] = amount


class _Nodes(NamedTuple):
    """What stands for what in the networks of a part.

    Attributes:
        size: how many nodes there are.
        reach: the node of each set of classes that is asked for.
        entry: for each member the node at which its amount enters: that of the set where it asks for one, else its own.
        several: the members with nodes of their own.
    """

    size: int
    reach: dict[int, int]
    entry: dict[int, int]
    several: list[int]


def _nodes(part: _Part) -> _Nodes:
    """Numbers for all of a part: its classes first."""
    count = _FIRST_CLASS + max(part.room, default=0) + 1
    reach = {}
    for demand in (part.taken, *part.demands.values()):
        for each in demand:
            if each not in reach:
                reach[each] = count
                count += 1
    entry: dict[int, int] = {}
    several: list[int] = []
    for at, demand in part.demands.items():
        if len(demand) == 1 and not part.free.get(at):
            entry[at] = reach[next(iter(demand))]
        else:
            entry[at] = count
            several.append(at)
            count += 1
    return _Nodes(count, reach, entry, several)


class _Flow:
    """How amounts for the members of a part flow to its classes."""

    def __init__(self, part: _Part, amounts: Mapping[int, int], scale: int = 1) -> None:
        """Everything of the part counts `scale` times, the amounts once. What others take flows from the start."""
        self._part = part
        nodes = part.nodes
        if nodes is None:
            nodes = part.nodes = _nodes(part)
        self._entry = nodes.entry
        network = self._network = Network(nodes.size)
        plenty = (sum(part.room.values()) + 1) * scale
        for each, amount in part.room.items():
            network.join(_FIRST_CLASS + each, SINK, amount * scale)
        for reach, node in nodes.reach.items():
            network.join_all(node, reach << _FIRST_CLASS, plenty)
        for at in nodes.several:
            node = nodes.entry[at]
            for reach, amount in part.demands[at].items():
                network.join(node, nodes.reach[reach], amount * scale)
            if part.free.get(at):
                network.join(node, SINK, part.free[at] * scale)
        if part.taken:
            for reach, amount in part.taken.items():
                network.join(SOURCE, nodes.reach[reach], amount * scale)
            network.push()
        supply: dict[int, int] = {}
        for at, amount in amounts.items():
            node = nodes.entry[at]
            supply[node] = supply.get(node, 0) + amount
        for node, amount in supply.items():
            network.join(SOURCE, node, amount)

    def push(self) -> int:
        """Let as much flow as can; how much of the members' amounts that is."""
        return self._network.push()

    def push_one(self, at: int) -> bool:
        """One unit more for a member, if it can flow."""
        return self._network.push_one(self._entry[at])

    def reached(self) -> tuple[set[int], int]:
        """After `push`, the members and the classes (as bits) on the source's side of a minimum cut."""
        side = self._network.reached
        members = {at for at, entry in self._entry.items() if side >> entry & 1}
        return members, sum(1 << each for each in self._part.room if side >> (_FIRST_CLASS + each) & 1)
