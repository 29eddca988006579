"""What the groups of a queue could give up, summed by their priority, and kept current group by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kbatch.engine.carryover.by_group import ByGroup
from kbatch.model.jobs import Job, QueueRecord
from kbatch.resources import Resources

_NOTHING: Final[Resources] = {}


class Giving(msgspec.Struct, frozen=True):
    """Whose pods could make room for a group: of which queue, and what of the group decides that.

    Attributes:
        endless: it has no lifetime, and may take the place of those that have outlived theirs.
        foreseen: the dimensions that it asks for, where all its pods are sure to come; else nothing.
        never: too few of its pods may preempt (`preemptionPolicy`): nobody makes room for it.
    """

    queue: str
    priority: int
    endless: bool
    foreseen: tuple[str, ...]
    never: bool = False


class Share(NamedTuple):
    """What one group could give up. Nobody changes it.

    Attributes:
        priority: of the group.
        late: it has outlived its lifetime. end: when it will have, in microseconds; None: never, or it has.
        spare: its pods beyond what may not be broken. surplus: what it holds beyond its minimum and its minResources.
        held: all that it holds, if it is late. most: what could go of it at most, whichever of its pods these are.
    """

    priority: int
    late: bool = False
    end: int | None = None
    spare: Resources = _NOTHING
    surplus: Resources = _NOTHING
    held: Resources = _NOTHING
    most: Resources = _NOTHING


@dataclass(slots=True)
class Level:
    """What groups of one priority could give up.

    Attributes:
        groups: how many they are.
        spare: their pods beyond what may not be broken, of groups within their lifetime. surplus: to their equals,
            what they hold beyond their minimums and minResources.
        late_spare, late_surplus: the same of groups that have outlived their lifetime. late: all that these hold.
        most: what could go of all of them at most.
    """

    groups: int = 0
    spare: Resources = field(default_factory=dict)
    surplus: Resources = field(default_factory=dict)
    late_spare: Resources = field(default_factory=dict)
    late_surplus: Resources = field(default_factory=dict)
    late: Resources = field(default_factory=dict)
    most: Resources = field(default_factory=dict)

    def count(self, share: Share, sign: int) -> None:
        """Count a group (1), or no longer (-1)."""
        self.groups += sign
        _add(self.late_spare if share.late else self.spare, share.spare, sign)
        _add(self.late_surplus if share.late else self.surplus, share.surplus, sign)
        _add(self.late, share.held, sign)
        _add(self.most, share.most, sign)


class Levels:
    """The levels of one queue.

    Attributes:
        record: the queue.
        until: the instant (microseconds) from which a further group has outlived its lifetime; None: never.
        by_priority: in no order.
        sums: what they come to for those who ask, by what of these decides that; emptied when anything changes.
    """

    def __init__(self, record: QueueRecord) -> None:
        self.record = record
        self.until: int | None = None
        self.by_priority: dict[int, Level] = {}
        self.sums: dict[tuple[int, bool, bool], Resources] = {}
        self._generation = -1
        self._at = 0
        self._shares: ByGroup[Share] = ByGroup()

    def follow(self, now: int, share_of: Callable[[Job], Share]) -> None:
        """Bring them up to date: only groups that have changed, or have outlived their lifetime, are asked about."""
        if now < self._at:  # who has outlived its lifetime may not have yet
            self._generation, self.until = -1, None
            self._shares.clear()
            self.by_priority.clear()
        self._at = now
        if self._generation == self.record.generation and (self.until is None or now < self.until):
            return
        ends = self._generation < 0
        self._generation = -1  # should anything raise
        self.sums.clear()
        lapsed = self.until is not None and now >= self.until
        over = (lambda share: share.end is not None and now >= share.end) if lapsed else None
        for old, new in self._shares.follow(self.record, share_of, over):
            for share, sign in ((old, -1), (new, 1)):
                if share is not None:
                    self._count(share, sign)
                    ends = ends or share.end is not None
        if ends:
            self.until = min((share.end for share in self._shares if share.end is not None), default=None)
        self._generation = self.record.generation

    def _count(self, share: Share, sign: int) -> None:
        level = self.by_priority.get(share.priority)
        if level is None:
            level = self.by_priority[share.priority] = Level()
        level.count(share, sign)
        if not level.groups:
            del self.by_priority[share.priority]


class Freed:
    """What could be freed for those who ask, as rows of a table: made anew where it is another thing than it was."""

    def __init__(self) -> None:
        self._names: Sequence[str] = ()
        self._sums: list[Resources] = []
        self._table = np.zeros((0, 0), np.int64)

    def table(
        self, names: Sequence[str], sums: Sequence[Resources], row_of: Callable[[Resources], Sequence[int]]
    ) -> npt.NDArray[np.int64]:
        """A row for each of the sums, which nobody changes, with `row_of` it: in these dimensions."""
        if names != self._names or len(sums) != len(self._sums):
            self._names, self._sums = names, []
            self._table = np.zeros((len(sums), len(names)), np.int64)
        for at, amounts in enumerate(sums):
            if at >= len(self._sums):
                self._sums.append(amounts)
            elif self._sums[at] is amounts:
                continue
            self._sums[at] = amounts
            self._table[at] = row_of(amounts)
        return self._table


def _add(sums: Resources, more: Mapping[str, int], sign: int) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, 0) + sign * amount
