"""Usage: amounts of resources as one number, in millionths of the worth of a core."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Final

from kbatch.resources import CPU, MEMORY, MILLION

_UNITS: Final = {CPU: 1000, MEMORY: 1 << 30}
"""What weights are per: a core, a GiB, one of anything else."""
_NOTHING: Final[Mapping[str, int]] = {}


class Measure:
    """How much amounts are, for one capacity of the cluster.

    By the weighted sum, or (`dominant`) by the largest part of the cluster in any resource that has a weight, which is
    multiplied by what the cluster is worth by the sum: so both are of one scale. Always rounded down.

    Attributes:
        capacity: what the whole cluster is.
        names: of the resources that count.
    """

    def __init__(self, weights: Mapping[str, Decimal], capacity: Mapping[str, int], *, dominant: bool) -> None:
        terms = {
            name: Fraction(weight) * MILLION / _UNITS.get(name, 1) for name, weight in sorted(weights.items()) if weight
        }
        self._scale = lcm(*(term.denominator for term in terms.values()))
        self._factors = {name: term.numerator * (self._scale // term.denominator) for name, term in terms.items()}
        self.names = tuple(self._factors)
        self.capacity = sum(capacity.get(name, 0) * factor for name, factor in self._factors.items()) // self._scale
        self._wholes = {name: capacity.get(name, 0) or 1 for name in terms} if dominant else None

    def of(
        self, held: Mapping[str, int], more: Mapping[str, int] = _NOTHING, besides: Mapping[str, int] = _NOTHING
    ) -> int:
        """How much these are together."""
        if self._wholes is None:  # asked for several times for each decision
            found = 0
            for name, factor in self._factors.items():
                found += (held.get(name, 0) + more.get(name, 0) + besides.get(name, 0)) * factor
            return found // self._scale
        return max(
            (held.get(name, 0) + more.get(name, 0) + besides.get(name, 0)) * self.capacity // whole
            for name, whole in self._wholes.items()
        )

    def most(self, held: Mapping[str, int], request: Mapping[str, int], limit: int) -> int | None:
        """How many times a request may be added to what is held, for no more than `limit`; None: any number of times,
        as it counts for nothing.
        """
        if self._wholes is None:
            each = has = 0
            for name, factor in self._factors.items():
                each += request.get(name, 0) * factor
                has += held.get(name, 0) * factor
            if not each:
                return None
            return max(0, ((limit + 1) * self._scale - 1 - has) // each)
        asked = [name for name in self._wholes if request.get(name, 0)]
        if not asked or not self.capacity:
            return None
        if self.of(held) > limit:
            return 0
        return max(
            0,
            min(
                (((limit + 1) * self._wholes[name] - 1) // self.capacity - held.get(name, 0)) // request[name]
                for name in asked
            ),
        )
