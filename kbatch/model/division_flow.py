"""A part of a division in which flows tell what can be served: for any number of sets of classes.

`division.py` says how a part is divided. Levels are fractions; amounts in a flow are scaled to integers by the
denominator of the level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from kbatch.model.flow import SINK, SOURCE, Network, bits

Demand = dict[int, int]
"""What is asked of one dimension, by the set of node classes that may serve it: bit k stands for class k."""
_FIRST_CLASS: Final = SINK + 1
"""The node of class 0 in a network; the others follow."""


@dataclass(slots=True)
class FlowPart:
    """Queues that are raised together, and the classes that are theirs to fill; see `division.Part`.

    Attributes:
        wants: by member (its place in the claims), the most that it can get; in the order of the claims.
        weights: by member; others may be there too.
        demands: by member, what it asks of these classes.
        room: by class.
        free: by member, what it gets besides, from classes that are not full.
        taken: what those who are fixed take of these classes, by the classes that may serve it.
        amount: what the members get together, `free` included.
        spread: by member, how what it got flowed the last time that was tried: a start, good or not, for the next time.
    """

    wants: dict[int, int]
    weights: Mapping[int, int]
    demands: dict[int, Demand]
    room: dict[int, int]
    free: dict[int, int] = field(default_factory=dict)
    taken: Demand = field(default_factory=dict)
    amount: int = 0
    spread: dict[int, Demand] = field(default_factory=dict)
    _several: dict[int, int] | None = None
    _raised: tuple[Fraction, dict[int, int]] | None = None

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

    def wanted(self) -> dict[int, int]:
        """By member, the most that it can get."""
        return self.wants

    def most(self) -> int:
        """The most that the members can get together."""
        return Flow(self, self.wants).push()

    def level(self) -> Fraction:
        """The amount for each unit of weight at which the members, none above what it wants, get all together."""
        rest, wants, weights = self.amount, self.wants, self.weights
        unmet = list(wants)
        while True:
            weight = sum([weights[at] for at in unmet])
            still = [at for at in unmet if wants[at] * weight > rest * weights[at]]
            if len(still) == len(unmet):
                return Fraction(rest, weight)
            rest -= sum([wants[at] for at in unmet]) - sum([wants[at] for at in still])
            unmet = still

    def raised(self, level: Fraction) -> dict[int, tuple[int, int]]:
        """What members are raised to: whole units, and what is over, in parts by the denominator of the level."""
        return {at: divmod(amount, level.denominator) for at, amount in self._asked(level).items()}

    def _asked(self, level: Fraction) -> dict[int, int]:
        """What members are raised to, in parts by the denominator; kept, for it is asked for twice."""
        if self._raised is None or self._raised[0] != level:
            top, scale, weights = level.numerator, level.denominator, self.weights
            self._raised = level, {at: min(want * scale, weights[at] * top) for at, want in self.wants.items()}
        return self._raised[1]

    def split(self, level: Fraction) -> tuple[FlowPart, FlowPart] | None:
        """The two parts of a minimum cut, the one with the full classes first; None where all can be raised so far."""
        asked, scale = self._asked(level), level.denominator
        flow = Flow(self, asked, scale)
        flowed = flow.push()
        self.spread = flow.spread()
        return self._split(asked, scale, flow.reached()) if flowed < self.amount * scale else None

    def serves(self, amounts: Mapping[int, int]) -> bool:
        """Whether amounts for all members, together `amount`, can flow."""
        return Flow(self, amounts).push() == self.amount

    def flow(self, amounts: Mapping[int, int]) -> Flow:
        """Amounts for all members, that flow."""
        flow = Flow(self, amounts)
        flow.push()
        return flow

    def _split(self, asked: Mapping[int, int], scale: int, classes: int) -> tuple[FlowPart, FlowPart]:
        """Along a minimum cut: the members that ask for more than they can get outside of some classes; and the rest.

        Args:
            asked: what the members are raised to.
            scale: everything else counts so many times.
            classes: those on the source's side of the cut, as bits; the first of the parts fills them.
        """
        first = FlowPart({}, self.weights, {}, {at: self.room[at] for at in bits(classes)})
        second = FlowPart({}, self.weights, {}, {at: left for at, left in self.room.items() if not classes >> at & 1})
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


class Flow:
    """How amounts for the members of a part flow to its classes.

    A member that gets all it asks for, or asks for one set alone, adds to what its sets have to serve. What any other
    gets is spread over its sets as it flowed the time before, at first in proportion to what it asks of each. The sets,
    those of the fewest classes first, fill their classes. Only what a set cannot place so goes through a network, in
    which it may move to other classes, and what members get from set to set where they do not get all they ask for.
    """

    def __init__(self, part: FlowPart, amounts: Mapping[int, int], scale: int = 1) -> None:
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
