"""Fair shares: how a capacity divides between queues, and how large a holding is. Integers and fractions only.

Each dimension divides by itself, so what one queue leaves of memory goes to those that ask for memory, whatever they
ask of cpu. The scheduler decides by these numbers and the queue operator reports them: both call the same function on
the same model, so they always agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from kbatch.resources import Resources


@dataclass(frozen=True, slots=True)
class Claim:
    """What one queue brings to the division.

    Attributes:
        name: of the queue; the last resort of every tie.
        weight: how much of a contended dimension it is worth beside the others; below 1 it gets nothing.
        request: what it holds and asks for, by dimension.
        capability: the most it may have; a dimension that is not named has no such limit. None: no limit at all.
        holds: what it has now; decides who gets the last indivisible units.
        oldest_waiting: its oldest waiting group, by its creation (any unit), then its name; None: none waits.
    """

    name: str
    weight: int
    request: Resources
    capability: Resources | None = None
    holds: Resources = field(default_factory=dict)
    oldest_waiting: tuple[int, str] | None = None

    def within(self, dimension: str, amount: int) -> int:
        """What it can be granted of an amount that it asks for: within its capability; nothing without a weight."""
        if self.weight < 1:
            return 0
        return min(amount, self.capability.get(dimension, amount)) if self.capability is not None else amount

    def last_unit_key(self, dimension: str, granted: int, fraction: int) -> tuple[object, ...]:
        """Who gets one of the last units: smaller first. `fraction` is what the queue is short of, in any one scale.

        Nothing else in a division reads `holds` and `oldest_waiting`.
        """
        waits, holds = self.oldest_waiting, self.holds.get(dimension, 0)
        return (-fraction, holds <= granted, holds <= 0, waits is None, waits or (0, ""), self.name)


def water_fill(capacity: Mapping[str, int], claims: Sequence[Claim]) -> dict[str, Resources]:
    """The deserved share of each queue, by name; claims must have distinct names.

    In each dimension, rounds: every queue that is not yet satisfied gets floor(rest * weight / sum of their weights),
    at most up to its request and its capability. When a round gives nothing, fewer units are left than queues; they go
    one each, to the largest fraction first, then to a queue that already holds some (more than it was granted so far
    before any: what it has of the last units it keeps, or they would be taken to and fro), then to the one whose group
    waits longest, then by name.

    Every dimension with capacity and demand stands in every answer, with 0 where a queue asks for none of it. The
    others stand in none: they are not scarce, or not there, and nobody is above or below a share of them.
    """
    deserved: dict[str, Resources] = {claim.name: {} for claim in claims}
    for dimension, amount in capacity.items():
        if amount > 0 and any(claim.request.get(dimension, 0) > 0 for claim in claims):
            wants = [claim.within(dimension, claim.request.get(dimension, 0)) for claim in claims]
            for claim, grant in zip(claims, fill(dimension, amount, claims, wants), strict=True):
                deserved[claim.name][dimension] = grant
    return deserved


def fill(dimension: str, amount: int, claims: Sequence[Claim], wants: Sequence[int]) -> list[int]:
    """One dimension: the grant of each claim, in their order, none above what it wants (`Claim.within`)."""
    granted = [0] * len(claims)
    unmet = [index for index, want in enumerate(wants) if want > 0]
    weights = [claim.weight for claim in claims]
    rest = amount
    while unmet and rest:
        weight_sum = sum([weights[index] for index in unmet])
        given = 0
        still: list[int] = []
        for index in unmet:
            part = rest * weights[index] // weight_sum
            missing = wants[index] - granted[index]
            if part < missing:
                still.append(index)
            else:
                part = missing
            granted[index] += part
            given += part
        if not given:
            # rest * weight < weight_sum for each, so rest < len(unmet): one unit each is enough.
            unmet.sort(key=lambda index: claims[index].last_unit_key(dimension, granted[index], rest * weights[index]))
            for index in unmet[:rest]:
                granted[index] += 1
            break
        unmet = still
        rest -= given
    return granted


def dominant_share(amounts: Mapping[str, int], total: Mapping[str, int]) -> Fraction:
    """`dominant_part` as a fraction."""
    return Fraction(*dominant_part(amounts, total))


def dominant_part(amounts: Mapping[str, int], total: Mapping[str, int]) -> tuple[int, int]:
    """The largest amount/total over the dimensions of `total`, these two as they are; 0 and 1 where none is held.

    A dimension that `total` does not name is ignored. One whose total is 0 counts as having one unit, so that holding
    some of what one deserves nothing of ranks above everything else, and more of it above less.
    """
    top, bottom = 0, 1  # compared by cross products: building a Fraction per dimension costs ten times as much
    for dimension, whole in total.items():
        amount = amounts.get(dimension, 0)
        if amount > 0 and amount * bottom > top * (whole or 1):
            top, bottom = amount, whole or 1
    return top, bottom
