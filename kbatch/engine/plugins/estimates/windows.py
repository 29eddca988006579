"""What was seen last of each kind of thing: so many numbers of each, of so many kinds. Nobody changes it in place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

LENGTH: Final = 100
"""So many numbers are kept of a kind: with them nine of ten are told from all."""
KINDS: Final = 1000
"""Of so many kinds; those go first of which nothing was seen for the longest time."""
MOST: Final = 10**9
"""The largest number that is kept."""
UNIT: Final = 1000
"""Ratios and levels are in thousandths."""

Numbers = tuple[int, ...]


class Windows:
    """The last numbers by kind, on top of those of before, which stay as they are."""

    def __init__(self, before: dict[str, Numbers]) -> None:
        self._before = before
        self._after: dict[str, Numbers] | None = None

    def __getitem__(self, kind: str) -> Numbers:
        return self.all.get(kind, ())

    @property
    def all(self) -> dict[str, Numbers]:
        """By kind, that which was seen last at the end."""
        return self._before if self._after is None else self._after

    def add(self, kinds: Iterable[str], number: int) -> None:
        """Something was seen that is of all of these kinds."""
        if self._after is None:
            self._after = dict(self._before)
        number = max(0, min(MOST, number))
        for kind in kinds:
            self._after[kind] = (*self._after.pop(kind, ())[1 - LENGTH :], number)
        while len(self._after) > KINDS:
            del self._after[next(iter(self._after))]

    def best(self, kinds: Sequence[str], least: int) -> Numbers:
        """Of the first of these kinds of which so many were seen; else of the last one, however few."""
        for kind in kinds:
            found = self[kind]
            if len(found) >= least:
                return found
        return self[kinds[-1]]


def quantile(numbers: Sequence[int], level: int) -> int:
    """The least number that one more of their kind is not above with a chance of `level` thousandths, as far as they
    tell. Where they are too few to tell: a quarter more than the largest.
    """
    ordered = sorted(numbers)
    at = -(-level * (len(ordered) + 1) // UNIT) - 1
    return ordered[max(0, at)] if at < len(ordered) else ordered[-1] * 5 // 4
