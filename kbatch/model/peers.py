"""The names of a role's members, which are their host names too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload


def member_name(group: str, role: str, index: int) -> str:
    """The name of a pod that is made from a role's template."""
    return f"{group}-{role}-{index}"


@dataclass(frozen=True, slots=True, repr=False)
class Peers(Sequence[str]):
    """The members of a role by their numbers, each name made when it is asked for: a role may be as large as it likes.

    Attributes:
        numbers: of the members, in order.
    """

    group: str
    role: str
    numbers: range

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Peers: ...
    def __getitem__(self, at: int | slice) -> str | Peers:
        if isinstance(at, slice):
            return Peers(self.group, self.role, self.numbers[at])
        return member_name(self.group, self.role, self.numbers[at])

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return (member_name(self.group, self.role, number) for number in self.numbers)

    def __repr__(self) -> str:
        return repr(tuple(self))
