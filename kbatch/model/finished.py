"""Which members of a group's roles have ended well, as its status keeps them: numbers as ranges, `0-3,7`.

They are not run again when their pods are gone, and count as those do that still exist.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final

from kbatch.api.objects import FinishedRole
from kbatch.model.peers import member_name

MOST_CHARACTERS: Final = 65_536
"""Of one role's ranges. What is beyond is not kept: such members run again if their pods go before the group ends."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Numbers as ranges in order that do not touch one another, first and last of each."""

    pairs: tuple[tuple[int, int], ...] = ()

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.pairs, (number, _LARGEST)) - 1
        return at >= 0 and number <= self.pairs[at][1]

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.pairs)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, last + 1) for first, last in self.pairs)

    def below(self, number: int) -> int:
        """How many of them are less than this."""
        return sum(min(last, number - 1) - first + 1 for first, last in self.pairs if first < number)

    def plus(self, numbers: Iterable[int]) -> Ranges:
        """These and those."""
        new = [number for number in numbers if number not in self]
        if not new:
            return self
        return _joined([*self.pairs, *((number, number) for number in set(new))])

    def text(self) -> str:
        """As it is written, the lowest first, in no more than `MOST_CHARACTERS`."""
        parts: list[str] = []
        left = MOST_CHARACTERS
        for first, last in self.pairs:
            part = str(first) if first == last else f"{first}-{last}"
            left -= len(part) + 1
            if left < 0:
                break
            parts.append(part)
        return ",".join(parts)


_LARGEST: Final = 2**63
NONE: Final = Ranges()


@lru_cache(maxsize=256)  # read at every change of its group; nearly each group has texts of its own, which may be long
def parse(text: str) -> Ranges:
    """The numbers that a text says; what cannot be read of it says nothing."""
    pairs: list[tuple[int, int]] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if _is_number(first) and _is_number(last) and int(first) <= int(last):
            pairs.append((int(first), int(last)))
    return _joined(pairs)


def _is_number(text: str) -> bool:
    """Whether it can be a member's number; Python refuses to read one of thousands of digits."""
    return text.isdecimal() and len(text) < 10


def _joined(pairs: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(pairs):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return Ranges(tuple(joined))


def finished_of(standing: Sequence[FinishedRole] | None) -> dict[str, Ranges]:
    """By role what a status says."""
    return {role.name: parse(role.indexes) for role in standing or ()}


def number_of(name: str, group: str, role: str) -> int | None:
    """The number of the member of that name; None: it is no name of a member of this role."""
    prefix = member_name(group, role, 0)[:-1]
    number = name[len(prefix) :]
    return int(number) if name.startswith(prefix) and _is_number(number) else None


def without_pods(finished: Mapping[str, Ranges], group: str, succeeded: Collection[tuple[str, str]]) -> dict[str, int]:
    """By role how many that have ended well have no pod any more. `succeeded`: role and name of those that have one."""
    gone = {role: len(ranges) for role, ranges in finished.items()}
    for role, name in succeeded:
        if role in gone:
            number = number_of(name, group, role)
            gone[role] -= number is not None and number in finished[role]
    return {role: count for role, count in gone.items() if count}
