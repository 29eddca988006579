"""A division that is often asked for again with the same demands: what came out is kept, and what it depended on.

What queues hold, and whose groups wait longest, changes all the time and matters only where a last unit is in question.
So these questions are noted, with the answers: where they would be answered alike, the same division would come out.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from kbatch.model.division import dividing
from kbatch.model.shares import Claim
from kbatch.resources import Resources

_Tie = tuple[int, str, int, int, tuple[object, ...]]
"""What a claim was asked, by its place: the dimension, what it was granted so far, its fraction; and what it said."""


@dataclass(frozen=True, slots=True)
class _NotingClaim(Claim):
    """A claim that notes what it is asked about last units. `at` is its place."""

    at: int = 0
    asked: list[_Tie] = field(default_factory=list)

    def last_unit_key(self, dimension: str, granted: int, fraction: int) -> tuple[object, ...]:
        """As for any claim."""
        found = Claim.last_unit_key(self, dimension, granted, fraction)
        self.asked.append((self.at, dimension, granted, fraction, found))
        return found


class LastDivision:
    """The last division that was made."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] | None = None
        self._asked: list[_Tie] = []
        self._found: dict[str, Resources] = {}

    def dividing(
        self, capacities: Sequence[dict[str, int]], claims: Sequence[Claim], demands: Sequence[dict[int, Resources]]
    ) -> Generator[None, None, dict[str, Resources]]:
        """As `division.dividing`, or at once where the last one would come out again. Nobody may change the arguments
        afterwards, nor the answer.
        """
        of = capacities, [(claim.name, claim.weight, claim.capability) for claim in claims], demands
        if self._of != of or not self._answers(claims):
            self._of = None
            asked: list[_Tie] = []
            noting = [
                _NotingClaim(
                    claim.name, claim.weight, claim.request, claim.capability, claim.holds, claim.oldest_waiting,
                    at, asked,
                )
                for at, claim in enumerate(claims)
            ]  # fmt: skip
            self._found = yield from dividing(capacities, noting, demands)
            self._of, self._asked = of, asked
        return self._found

    def _answers(self, claims: Sequence[Claim]) -> bool:
        """Whether these claims answer all questions as those did."""
        return all(
            claims[at].last_unit_key(dimension, granted, fraction) == answer
            for at, dimension, granted, fraction, answer in self._asked
        )
