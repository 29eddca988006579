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

Whether amounts can flow, and the cut, is told by a flow; where there are few sets of classes and many queues ask for
several of them, by looking at all unions of sets at once (`unions.py`), which is faster.

Levels are fractions; all amounts are scaled to integers by the denominator of the level. Queues that share all their
classes are divided between by `shares.fill`; elsewhere each gets the whole units of its fraction, and the last units go
one each, in the same order, as far as they can flow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from kbatch.model.flow import SINK, SOURCE, Network, bits
from kbatch.model.shares import Claim, fill, last_unit_key
from kbatch.model.unions import Unions, unions_of
from kbatch.resources import Resources

Parts = Mapping[int, Resources]
"""Demands by the set of node classes that may serve them: bit k stands for class k."""
Demand = dict[int, int]
"""The same of one dimension."""
SEVERAL: Final = 8
"""From how many members on that ask of several sets the unions of the sets are looked at."""
_UNITS_AT_ONCE: Final = 32
"""How many last units are tried in one piece, each on its own way."""
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
    steps = dividing(capacities, claims, parts)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            deserved: dict[str, Resources] = end.value
            return deserved


def dividing(
    capacities: Sequence[Mapping[str, int]], claims: Sequence[Claim], parts: Sequence[Parts]
) -> Generator[None, None, dict[str, Resources]]:
    """The same in pieces: it stops before each flow."""
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
            division = _Division(dimension, claims)
            for each in division.parts(room, demands):
                yield from division.settle(each)
            for claim, grant in zip(claims, division.granted, strict=True):
                deserved[claim.name][dimension] = grant
    return deserved


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
        spread: by member, how what it got flowed the last time that was tried: a start, good or not, for the next time.
    """

    wants: dict[int, int]
    demands: dict[int, Demand]
    room: dict[int, int]
    free: dict[int, int] = field(default_factory=dict)
    taken: Demand = field(default_factory=dict)
    amount: int = 0
    spread: dict[int, Demand] = field(default_factory=dict)
    _several: dict[int, int] | None = None
    _unions: Unions | None = None
    _known: bool = False

    @property
    def several(self) -> dict[int, int]:
        """The members that ask of several sets, or get anything besides, with the sum of what they ask here."""
        found = self._several
        if found is None:
            found = self._several = {
                at: sum(demand.values()) for at, demand in self.demands.items() if len(demand) != 1 or self.free.get(at)
            }
        return found

    @property
    def plain(self) -> bool:
        """Whether all members ask for the same classes and nothing else, so that only their sum is bounded."""
        reaches = {tuple(demand) for demand in self.demands.values()}
        return len(reaches) == 1 and len(next(iter(reaches))) == 1 and not any(self.free.values())

    def short(self, amounts: Mapping[int, int], scale: int) -> tuple[int, int] | None:
        """How much of amounts for the members cannot flow, and the classes on the source's side of a minimum cut.

        Everything of the part counts `scale` times, the amounts once. None where only a flow can tell.
        """
        unions = self.unions
        return None if unions is None else unions.worst([amounts[at] for at in self.wants], scale)

    @property
    def unions(self) -> Unions | None:
        """The unions of the sets, where looking at them is faster than a flow: a flow is fast with one set each."""
        if not self._known:
            self._known = True
            if len(self.several) >= SEVERAL:
                free = [self.free.get(at, 0) for at in self.wants]
                self._unions = unions_of(self.room, self.taken, [self.demands[at] for at in self.wants], free)
        return self._unions

    def split(self, asked: Mapping[int, int], scale: int, classes: int) -> tuple[_Part, _Part]:
        """Along a minimum cut: the members that ask for more than they can get outside of some classes; and the rest.

        Args:
            asked: what the members are raised to.
            scale: everything else counts so many times.
            classes: those on the source's side of the cut, as bits; the first of the parts fills them.
        """
        first = _Part({}, {}, {at: self.room[at] for at in bits(classes)})
        second = _Part({}, {}, {at: left for at, left in self.room.items() if not classes >> at & 1})
        for reach, amount in self.taken.items():
            outside = reach & ~classes
            where, key = (second.taken, outside) if outside else (first.taken, reach)
            where[key] = where.get(key, 0) + amount
        left_of = {reach: reach & ~classes for demand in self.demands.values() for reach in demand}
        touched = {reach for reach, left in left_of.items() if left != reach}
        for at, want in self.wants.items():
            demand, flowed, free = self.demands[at], self.spread.get(at), self.free.get(at, 0)
            least = free
            for reach, amount in demand.items():
                if left_of[reach]:
                    least += amount
            if asked[at] <= least * scale:
                part = second
                if not touched.isdisjoint(demand):
                    demand = _without(demand, left_of)
                    flowed = flowed and _without(flowed, left_of)
            else:
                part = first
                kept = {}
                for reach, amount in demand.items():
                    left = left_of[reach]
                    if left:
                        free += amount
                        second.taken[left] = second.taken.get(left, 0) + amount
                    else:
                        kept[reach] = amount
                demand = kept
                flowed = flowed and {reach: flowed[reach] for reach in kept}
            part.demands[at] = demand
            if flowed:
                part.spread[at] = flowed
            if free:
                part.free[at] = free
            part.wants[at] = min(want, free + sum(demand.values()))
        first.amount = sum(first.room.values()) - sum(first.taken.values()) + sum(first.free.values())
        second.amount = self.amount - first.amount
        return first, second


def _without(demand: Demand, outside: Mapping[int, int]) -> Demand:
    """A demand of what is left of its sets."""
    found: Demand = {}
    for reach, amount in demand.items():
        left = outside[reach]
        if left:
            found[left] = found.get(left, 0) + amount
    return found


class _Division:
    """The division of one dimension."""

    def __init__(self, dimension: str, claims: Sequence[Claim]) -> None:
        self.granted = [0] * len(claims)
        self._dimension = dimension
        self._claims = claims

    def parts(self, room: Mapping[int, int], demands: Sequence[Demand]) -> list[_Part]:
        """What is divided by itself: claims with no class in common with others."""
        wants = [
            claim.within(self._dimension, sum(demand.values()))
            for claim, demand in zip(self._claims, demands, strict=True)
        ]
        found: list[_Part] = []
        for reach, queues in _apart([each if want else {} for each, want in zip(demands, wants, strict=True)]):
            members = sorted(queues)
            part = _Part({at: wants[at] for at in members}, {at: demands[at] for at in members}, {})
            part.room = {at: room[at] for at in bits(reach)}
            found.append(part)
        return found

    def settle(self, part: _Part) -> Iterator[None]:
        """Divide what a part can get between its members; stops before each flow."""
        if part.plain:
            part.amount = min(sum(part.room.values()), sum(part.wants.values()))
        else:
            yield
            few = part.unions is not None and part.unions.few
            lack = part.short(part.wants, 1) if few else None
            if lack is not None:
                part.amount = sum(part.wants.values()) - lack[0]
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
                todo += yield from self._raise(part)

    def _raise(self, part: _Part) -> Generator[None, None, Sequence[_Part]]:
        """Raise a part to its level, or split it where that cannot flow."""
        yield
        level = self._level(part)
        top, scale = level.numerator, level.denominator
        asked = {at: min(want * scale, self._claims[at].weight * top) for at, want in part.wants.items()}
        lack = part.short(asked, scale)
        if lack is None:
            flow = _Flow(part, asked, scale)
            flowed = flow.push()
            part.spread = flow.spread()
            lack = part.amount * scale - flowed, flow.reached()
        short, classes = lack
        if short:
            return part.split(asked, scale, classes)
        yield from self._round(part, asked, scale)
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

    def _round(self, part: _Part, asked: Mapping[int, int], scale: int) -> Iterator[None]:
        """Whole units of what each member gets, then the last units, one each, as far as they can flow."""
        granted = {at: amount // scale for at, amount in asked.items()}
        rest = part.amount - sum(granted.values())
        if rest:
            order = sorted(
                (at for at, amount in asked.items() if amount % scale),
                key=lambda at: last_unit_key(self._claims[at], self._dimension, granted[at], asked[at] % scale),
            )
            first = {at: granted[at] + 1 for at in order[:rest]}
            yield
            lack = part.short(granted | first, 1)
            if (_Flow(part, granted | first).push() == part.amount) if lack is None else not lack[0]:
                self._grant(granted | first)
                return
            yield
            flow = _Flow(part, granted)
            flow.push()
            for place, at in enumerate(order):
                if not rest:
                    break
                if place % _UNITS_AT_ONCE == 0:
                    yield
                if flow.push_one(at):
                    granted[at] += 1
                    rest -= 1
        self._grant(granted)

    def _grant(self, amounts: Mapping[int, int]) -> None:
        for at, amount in amounts.items():
            self.granted[at] = amount


class _Flow:
    """How amounts for the members of a part flow to its classes.

    A member that gets all it asks for, or asks for one set alone, adds to what its sets have to serve. What any other
    gets is spread over its sets as it flowed the time before, at first in proportion to what it asks of each. The sets,
    those of the fewest classes first, fill their classes. Only what a set cannot place so goes through a network, in
    which it may move to other classes, and what members get from set to set where they do not get all they ask for.
    """

    def __init__(self, part: _Part, amounts: Mapping[int, int], scale: int = 1) -> None:
        """Everything of the part counts `scale` times, the amounts once."""
        self._part = part
        self._amounts = amounts
        self._scale = scale
        self._room = {at: amount * scale for at, amount in part.room.items()}
        self._open = sum([1 << at for at, amount in self._room.items() if amount])
        self._spread: dict[int, Demand] = {}
        self._network: Network | None = None
        loads: Demand = {reach: amount * scale for reach, amount in part.taken.items()}
        several, demands, frees, like = part.several, part.demands, part.free, part.spread
        for at, amount in amounts.items():
            demand = demands[at]
            whole = several.get(at)
            if whole is None:
                (reach,) = demand
                loads[reach] = loads.get(reach, 0) + amount
                continue
            rest = amount - frees.get(at, 0) * scale
            if rest == whole * scale:
                for reach, asked in demand.items():
                    loads[reach] = loads.get(reach, 0) + asked * scale
                continue
            shares = self._spread[at] = _in_proportion(max(0, rest), like.get(at) or demand, demand, scale)
            for reach, share in shares.items():
                loads[reach] = loads.get(reach, 0) + share
        self._order = sorted(loads, key=lambda reach: (reach.bit_count(), reach))
        self._placed: list[tuple[int, int, int]] = []
        self._stuck = {reach: left for reach in self._order if (left := self._place(reach, loads[reach]))}

    def _place(self, reach: int, amount: int) -> int:
        """Let a set fill the classes that have room, the lowest first; what it cannot place."""
        room = self._room
        while amount and (ways := reach & self._open):
            at = (ways & -ways).bit_length() - 1
            some = min(room[at], amount)
            room[at] -= some
            amount -= some
            self._placed.append((reach, at, some))
            if not room[at]:
                self._open ^= 1 << at
        return amount

    def _made(self) -> Network:
        """The network of what flows so far, made when it is first needed."""
        network = self._network
        if network is not None:
            return network
        part, scale = self._part, self._scale
        first = _FIRST_CLASS + max(part.room, default=0) + 1
        self._set_node = {reach: first + at for at, reach in enumerate(self._order)}
        self._member_node = {at: first + len(self._order) + place for place, at in enumerate(self._spread)}
        network = self._network = Network(first + len(self._order) + len(self._spread))
        for at, left in self._room.items():
            network.join(_FIRST_CLASS + at, SINK, left)
        for reach, node in self._set_node.items():
            network.open(node, reach << _FIRST_CLASS)
        for reach, at, amount in self._placed:
            network.join(_FIRST_CLASS + at, self._set_node[reach], amount)
        for at, shares in self._spread.items():
            node, demand = self._member_node[at], part.demands[at]
            for reach, share in shares.items():
                network.join(node, self._set_node[reach], demand[reach] * scale - share)
                network.join(self._set_node[reach], node, share)
        for reach, amount in self._stuck.items():
            network.join(SOURCE, self._set_node[reach], amount)
        return network

    def push(self) -> int:
        """Let as much flow as can; how much of the members' amounts that is."""
        total = sum(self._amounts.values())
        if self._stuck:
            total += self._made().push() - sum(self._stuck.values())
        return total

    def spread(self) -> dict[int, Demand]:
        """How what the members get flows to their sets, for those of several sets that do not get all."""
        network = self._network
        if network is None:
            return self._spread
        found: dict[int, Demand] = {}
        for at, shares in self._spread.items():
            node = self._member_node[at]
            found[at] = {reach: network.left(self._set_node[reach], node) for reach in shares}
        return found

    def push_one(self, at: int) -> bool:
        """One unit more for a member that does not get all it asks for, if it can flow."""
        if self._amounts[at] < self._part.free.get(at, 0) * self._scale:
            return True
        network = self._made()
        if at in self._spread:
            return network.push_one(self._member_node[at])
        (reach,) = self._part.demands[at]
        return network.push_one(self._set_node[reach])

    def reached(self) -> int:
        """After `push`, the classes on the source's side of a minimum cut, as bits."""
        if not self._stuck:
            return 0
        side = self._made().reached >> _FIRST_CLASS
        return sum(1 << each for each in self._part.room if side >> each & 1)


def _in_proportion(amount: int, like: Demand, demand: Demand, scale: int) -> Demand:
    """An amount below `scale` times a demand, spread over its sets in the proportions of another, as far as it goes."""
    whole = sum(like.values())
    if not whole or not amount:
        whole, like = 1, {}
    shares: Demand = {}
    rest = amount
    for reach, asked in demand.items():
        share = amount * like.get(reach, 0) // whole
        if share > asked * scale:
            share = asked * scale
        shares[reach] = share
        rest -= share
    if rest:
        for reach, asked in demand.items():
            more = min(rest, asked * scale - shares[reach])
            shares[reach] += more
            rest -= more
            if not rest:
                break
    return shares
