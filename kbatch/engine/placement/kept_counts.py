"""What is free on nodes, or would be with some groups gone, and how many pods of a class that holds.

It lasts from cycle to cycle and is worked out again only on the rows on which something has changed, so that to ask
again costs as much as has changed since, however many nodes there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kbatch.engine.placement.capacity import fitting_on
from kbatch.engine.state.node_resources import NodeResources
from kbatch.model.nodes import Column, Mask
from kbatch.model.tasks import TaskClass

_MOST: Final = 1 << 12
"""So many changed rows are remembered; who has not asked since then works out all rows."""
_PART: Final = 16
"""Where more than one row in so many has changed, all are worked out: in columns that takes less time."""
_FEW: Final = 16
"""So few are worked out one by one in any case."""
_CELLS: Final = 1 << 23
"""So many numbers of pods, one for each class and row, are kept for one set of groups: 32 MiB."""
_VALUES: Final = 64
"""So many different amounts are told apart; with more of them a column is as quickly looked at."""
ENDLESS: Final = 1 << 30
"""More pods than any node takes."""

_Needs: TypeAlias = tuple[tuple[str, int], ...]
Counts: TypeAlias = npt.NDArray[np.int32]
"""A number of pods for each row."""


class ChangedRows:
    """Rows in the order in which they changed, for readers that come back."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._dropped = 0

    @property
    def position(self) -> int:
        """Where a reader that has seen everything stands."""
        return self._dropped + len(self._rows)

    def note(self, rows: Collection[int]) -> None:
        """These have changed."""
        self._rows.extend(rows)
        if len(self._rows) > _MOST:
            self._dropped += len(self._rows)
            self._rows.clear()

    def forget(self) -> None:
        """Whatever row may have changed."""
        self._dropped += len(self._rows) + 1
        self._rows.clear()

    def since(self, position: int) -> list[int] | None:
        """The rows that changed since that position; None where that is not known any more."""
        at = position - self._dropped
        return self._rows[at:] if at >= 0 else None


class RoomChanges:
    """On which rows a session's room is another than it was when this was last asked, in this cycle or in another.

    Attributes:
        room: the room of the session that asked last. rows: those that changed.
    """

    def __init__(self, room: NodeResources) -> None:
        self.room = room
        self.rows = ChangedRows()
        self._cursor = len(room.log)

    def follow(self, room: NodeResources) -> None:
        """Take in what has changed since."""
        if self._cursor < len(self.room.log):
            self.rows.note(self.room.log[self._cursor :])
        if room is not self.room:
            self._compare(self.room.future, room.future)
            self.room = room
        self._cursor = len(room.log)

    def _compare(self, before: Mapping[str, Column], now: Mapping[str, Column]) -> None:
        for name, column in now.items():
            old = before.get(name)
            if old is not None:
                self.rows.note((column != old).nonzero()[0].tolist())
            elif column.any():
                self.rows.forget()
        if any(before[name].any() for name in before.keys() - now.keys()):
            self.rows.forget()


@dataclass(slots=True)
class _Fit:
    """How many pods with these needs each row would hold, up to `most`, and what that comes to; as of `position`.

    `asked`: somebody has asked since the last cycle.
    """

    needs: _Needs
    allowed: Mask
    most: int
    fitting: Counts
    sum: int
    position: int
    asked: bool = True


class Amounts:
    """Of how many rows, all of them `allowed`, so much is free of one dimension; kept as rows change.

    Attributes:
        rows: their number, by the amount. sum: what is free on them together; less than nothing counts as nothing.
        asked: somebody has asked since the last cycle.
    """

    def __init__(self, column: Column, allowed: Mask) -> None:
        self.allowed = allowed
        values, numbers = np.unique(column[allowed], return_counts=True)
        self.rows: dict[int, int] = dict(zip(values.tolist(), numbers.tolist(), strict=True))
        self.sum = sum(amount * number for amount, number in self.rows.items() if amount > 0)
        self.asked = True

    @property
    def many(self) -> bool:
        """Whether they are too many for anybody to look at each."""
        return len(self.rows) > _VALUES

    def move(self, before: int, now: int) -> None:
        """One row has changed."""
        self._count(before, -1)
        self._count(now, 1)

    def _count(self, amount: int, sign: int) -> None:
        number = self.rows.get(amount, 0) + sign
        if number:
            self.rows[amount] = number
        else:
            del self.rows[amount]
        self.sum += sign * max(0, amount)


class KeptCounts:
    """What would be free with the pods of some groups gone, or of none. `held` is by dimension what they hold on each
    row, and `held_rows` says where that changes; both are kept by whoever made them.
    """

    def __init__(self, held: Mapping[str, Column], held_rows: ChangedRows, rows: int) -> None:
        self._held = held
        self._held_rows = held_rows
        self._size = rows
        self._free: dict[str, Column] = {}
        self._room: NodeResources | None = None
        self._room_at = self._held_at = -1
        self._changed = ChangedRows()
        self._fits: dict[tuple[int, int, str], _Fit] = {}
        self._amounts: dict[str, dict[int, Amounts]] = {}
        """By dimension, and by the identity of the mask of the rows, which they hold."""

    def follow(self, changes: RoomChanges) -> None:
        """Bring it up to date with the room, and with what the groups hold."""
        rows = changes.rows.since(self._room_at)
        of_groups = self._held_rows.since(self._held_at)
        self._room = changes.room
        self._room_at, self._held_at = changes.rows.position, self._held_rows.position
        moved = {*rows, *of_groups} if rows is not None and of_groups is not None else None
        if moved is None or self._many(moved):
            self._free.clear()
            self._amounts.clear()
            self._changed.forget()
            return
        if not moved:
            return
        others: set[int] = set()
        for name, free in self._free.items():
            future, held = self._room.future.get(name), self._held.get(name)
            amounts = self._amounts.get(name, {}).values()
            for row in moved:
                now: int = future.item(row) if future is not None else 0
                if held is not None:
                    now += held.item(row)
                before: int = free.item(row)
                if now != before:
                    free[row] = now
                    others.add(row)
                    for each in amounts:
                        if each.allowed[row]:
                            each.move(before, now)
        self._changed.note(sorted(others))

    def _many(self, rows: Sized) -> bool:
        return len(rows) > max(_FEW, self._size // _PART)

    def free(self, classes: Iterable[TaskClass]) -> Mapping[str, Column]:
        """What would be free of what the classes ask for; not to be changed, and others after the next `follow`."""
        return {name: self._column(name) for cls in classes for name, _ in cls.needs}

    def amounts(self, name: str, allowed: Mask) -> Amounts | None:
        """What would be free of one dimension on the rows `allowed`; not to be changed. None: of too many amounts."""
        by_mask = self._amounts.get(name)
        if by_mask is None:
            by_mask = self._amounts[name] = {}
        found = by_mask.get(id(allowed))
        if found is None:
            found = by_mask[id(allowed)] = Amounts(self._column(name), allowed)
        found.asked = True
        return None if found.many else found

    def fitting(self, cls: TaskClass, allowed: Mask, most: int) -> tuple[Counts, int]:
        """How many pods of the class, up to `most`, each of the rows `allowed` would hold, were no others placed; and
        what that comes to. Not to be changed.
        """
        found = self._fit((cls.id, most, ""), cls.needs, allowed)
        return found.fitting, found.sum

    def fitting_in(self, cls: TaskClass, name: str, allowed: Mask, most: int) -> int:
        """What that would come to, were there enough of all dimensions but this one."""
        needs = tuple([each for each in cls.needs if each[0] == name])
        return self._fit((cls.id, most, name), needs, allowed).sum

    def keep(self) -> None:
        """Forget the classes that nobody has asked about since this was last called."""
        self._fits = {key: fit for key, fit in self._fits.items() if fit.asked}
        for fit in self._fits.values():
            fit.asked = False
        self._amounts = {
            name: {key: each for key, each in by_mask.items() if each.asked} for name, by_mask in self._amounts.items()
        }
        for by_mask in self._amounts.values():
            for each in by_mask.values():
                each.asked = False

    def _fit(self, key: tuple[int, int, str], needs: _Needs, allowed: Mask) -> _Fit:
        found = self._fits.get(key)
        rows = self._changed.since(found.position) if found is not None else None
        if found is None or rows is None or self._many(rows) or found.needs != needs or found.allowed is not allowed:
            column = self._count(needs, allowed, key[1])
            found = _Fit(needs, allowed, key[1], column, int(column.sum()), self._changed.position)
            if len(self._fits) * self._size < _CELLS:
                self._fits[key] = found
        elif rows:
            self._count_again(found, set(rows))
            found.position = self._changed.position
        found.asked = True
        return found

    def _column(self, name: str) -> Column:
        found = self._free.get(name)
        if found is None:
            future = self._room.future.get(name) if self._room is not None else None
            held = self._held.get(name)
            found = np.zeros(self._size, np.int64) if future is None else future.copy()
            if held is not None:
                found += held
            self._free[name] = found
        return found

    def _count(self, needs: _Needs, allowed: Mask, most: int) -> Counts:
        free = {name: self._column(name) for name, _ in needs}
        return fitting_on(needs, allowed, free, most).astype(np.int32)

    def _count_again(self, fit: _Fit, rows: Iterable[int]) -> None:
        needs = [(self._column(name), amount) for name, amount in fit.needs]
        for row in rows:
            if not fit.allowed[row]:
                continue
            now = fit.most
            for column, amount in needs:
                fitting: int = column.item(row) // amount
                now = min(now, fitting)
            now = max(0, now)
            before: int = fit.fitting.item(row)
            if now != before:
                fit.sum += now - before
                fit.fitting[row] = now
