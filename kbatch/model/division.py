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

Whether amounts can flow, and the cut, is told by a flow (`division_flow.py`); where there are few sets of classes and
many queues ask for several of them, by looking at all unions of sets at once (`division_columns.py`), which is faster.

Levels are fractions; all amounts are scaled to integers by the denominator of the level. Queues that share all their
classes are divided between by `shares.fill`; elsewhere each gets the whole units of its fraction, and the last units go
one each, in the same order, as far as they can flow.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, Protocol

from kbatch.model.division_columns import columns_of
from kbatch.model.division_flow import Demand, Flow, FlowPart
from kbatch.model.flow import bits
from kbatch.model.shares import Claim, fill
from kbatch.resources import Resources

Parts = Mapping[int, Resources]
"""Demands by the set of node classes that may serve them: bit k stands for class k."""
SEVERAL: Final = 24
"""From how many members on that ask of several sets the unions of the sets are looked at: fewer flow faster."""
_UNITS_AT_ONCE: Final = 32
"""How many last units are tried in one piece, each on its own way."""


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
    asked = [(at, reach, amounts) for at, part in enumerate(parts) for reach, amounts in part.items()]
    for dimension in dimensions:
        room = {at: amount for at, each in enumerate(capacities) if (amount := each.get(dimension, 0)) > 0}
        there = sum(1 << at for at in room)
        demands: list[Demand] = [{} for _ in claims]
        for at, reach, amounts in asked:
            served = reach & there
            if served and dimension in amounts and (amount := amounts[dimension]) > 0:
                demand = demands[at]
                demand[served] = demand[served] + amount if served in demand else amount
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


class Part(Protocol):
    """Queues that are raised together, and the classes that are theirs to fill.

    Members are told by their places in the claims.

    Attributes:
        amount: what the members get together, what they get from elsewhere included.
    """

    amount: int

    @property
    def plain(self) -> bool:
        """Whether all members ask for the same classes and nothing else, so that only their sum is bounded."""
        ...

    def wanted(self) -> dict[int, int]:
        """By member, in the order of the claims, the most that it can get."""
        ...

    def most(self) -> int:
        """The most that the members can get together."""
        ...

    def level(self) -> Fraction:
        """The amount for each unit of weight at which the members, none above what it wants, get all together."""
        ...

    def raised(self, level: Fraction) -> dict[int, tuple[int, int]]:
        """What members are raised to: whole units, and what is over, in parts by the denominator of the level."""
        ...

    def split(self, level: Fraction) -> tuple[Part, Part] | None:
        """The two parts of a minimum cut, the one with the full classes first; None where all can be raised so far.

        In the first are the members that would be raised to more than they can get outside of the full classes.
        """
        ...

    def serves(self, amounts: Mapping[int, int]) -> bool:
        """Whether amounts for all members, together `amount`, can flow."""
        ...

    def flow(self, amounts: Mapping[int, int]) -> Flow:
        """Amounts for all members, that can flow."""
        ...


class _Division:
    """The division of one dimension."""

    def __init__(self, dimension: str, claims: Sequence[Claim]) -> None:
        self.granted = [0] * len(claims)
        self._dimension = dimension
        self._claims = claims

    def parts(self, room: Mapping[int, int], demands: Sequence[Demand]) -> list[FlowPart]:
        """What is divided by itself: claims with no class in common with others."""
        wants = [
            claim.within(self._dimension, sum(demand.values()))
            for claim, demand in zip(self._claims, demands, strict=True)
        ]
        weights = {at: claim.weight for at, claim in enumerate(self._claims)}
        found: list[FlowPart] = []
        for reach, queues in _apart([each if want else {} for each, want in zip(demands, wants, strict=True)]):
            members = sorted(queues)
            part = FlowPart({at: wants[at] for at in members}, weights, {at: demands[at] for at in members}, {})
            part.room = {at: room[at] for at in bits(reach)}
            found.append(part)
        return found

    def settle(self, whole: FlowPart) -> Iterator[None]:
        """Divide what a part can get between its members; stops before each flow."""
        part: Part = _faster(whole)
        if part.plain:
            part.amount = min(sum(whole.room.values()), sum(whole.wants.values()))
        else:
            yield
            part.amount = part.most()
        todo = [part]
        while todo:
            part = todo.pop()
            wants = part.wanted()
            if part.amount == sum(wants.values()):
                self._grant(wants)
            elif part.plain:
                claims = [self._claims[at] for at in wants]
                amounts = fill(self._dimension, part.amount, claims, list(wants.values()))
                self._grant(dict(zip(wants, amounts, strict=True)))
            else:
                yield
                level = part.level()
                split = part.split(level)
                if split is None:
                    yield from self._round(part, part.raised(level))
                else:
                    todo += [_faster(each) for each in split]

    def _round(self, part: Part, raised: Mapping[int, tuple[int, int]]) -> Iterator[None]:
        """Whole units of what each member gets, then the last units, one each, as far as they can flow."""
        granted = {at: whole for at, (whole, _) in raised.items()}
        rest = part.amount - sum(granted.values())
        if rest:
            order = sorted(
                (at for at, (_, over) in raised.items() if over),
                key=lambda at: self._claims[at].last_unit_key(self._dimension, *raised[at]),
            )
            first = {at: granted[at] + 1 for at in order[:rest]}
            yield
            if part.serves(granted | first):
                self._grant(granted | first)
                return
            yield
            flow = part.flow(granted)
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


def _faster(part: Part) -> Part:
    """A part in columns, if many members ask for several of few sets: a flow is fast with one set each."""
    if isinstance(part, FlowPart) and len(part.several) >= SEVERAL:
        return columns_of(part) or part
    return part
