"""What could be taken from the groups of queues at most, by node: kept current group by group.

No votes are asked for it. Groups of which the same is certain beforehand (`Holder`) are added up together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from kbatch.engine.carryover.by_group import ByGroup
from kbatch.engine.placement.kept_counts import ChangedRows, KeptCounts, RoomChanges
from kbatch.engine.plugin import Holder
from kbatch.engine.state.node_resources import NodeResources
from kbatch.model.jobs import Job, QueueRecord
from kbatch.model.nodes import Column, NodeTable
from kbatch.resources import PODS

_Needs: TypeAlias = tuple[tuple[str, int], ...]
_Place: TypeAlias = tuple[int, _Needs]
"""A row, and what a pod on it needs."""

_Key: TypeAlias = tuple[frozenset[Holder], str]
"""Kinds of groups, and the queue if there is just one."""

_FIRST: Final = 16
_FEW: Final = 16
"""Fewer pods are counted one by one."""


class _Group(NamedTuple):
    """What a group holds that could be taken from it: pods of it, on open rows; and by dimension what its units come
    to, each amount once.
    """

    holder: Holder
    places: tuple[_Place, ...]
    units: frozenset[tuple[str, int]]


class Held:
    """What some groups hold, in the dimensions of nodes: on each of the first `count` rows, which differ, so much."""

    def __init__(self) -> None:
        self.count = 0
        self._rows = np.zeros(_FIRST, np.intp)
        self._amounts: dict[str, Column] = {}
        self._place: dict[int, int] = {}

    def add(self, places: Collection[_Place], sign: int) -> None:
        """Count these pods (1), or no longer (-1)."""
        if len(places) == 1:
            self._add_one(*next(iter(places)), sign)
            return
        alike: dict[int, tuple[_Needs, list[int]]] = {}  # by the identity of what they ask for: that of their class
        for row, needs in places:
            found = alike.get(id(needs))
            if found is None:
                found = alike[id(needs)] = needs, []
            found[1].append(self._at(row))
        for needs, rows in alike.values():
            for name, amount in needs:
                column = self._amounts.get(name)
                if column is None:
                    column = self._amounts[name] = np.zeros(len(self._rows), np.int64)
                if len(rows) < _FEW:
                    for at in rows:
                        column[at] += sign * amount
                else:
                    np.add.at(column, rows, np.int64(sign * amount))
        if sign < 0:
            for row in sorted({row for row, _ in places}):
                if not self._amounts[PODS][self._place[row]]:
                    self._drop(row, self._place[row])

    def _add_one(self, row: int, needs: _Needs, sign: int) -> None:
        """`add`, for one pod."""
        at, amounts = self._at(row), self._amounts
        for name, amount in needs:
            more = sign * amount
            column = amounts.get(name)
            if column is None:
                column = amounts[name] = np.zeros(len(self._rows), np.int64)
            column[at] += more
        if sign < 0 and not amounts[PODS][at]:
            self._drop(row, at)

    def _at(self, row: int) -> int:
        """The place of a row, a new one if it has none."""
        at = self._place.get(row)
        if at is None:
            at = self._place[row] = self.count
            if at == len(self._rows):
                self._grow()
            self._rows[at] = row
            self.count += 1
        return at

    def add_to(self, columns: Mapping[str, Column], sign: int) -> None:
        """Add it to columns over all rows (1), or take it off (-1); other dimensions are left out."""
        rows = self._rows[: self.count]
        for name, column in columns.items():
            amounts = self._amounts.get(name)
            if amounts is not None:
                column[rows] += sign * amounts[: self.count]

    @property
    def names(self) -> Collection[str]:
        """The dimensions."""
        return self._amounts.keys()

    def _drop(self, row: int, at: int) -> None:
        """No pod is left on a row: the last one takes its place."""
        self.count -= 1
        last = int(self._rows[self.count])
        del self._place[row]
        if last != row:
            self._rows[at] = last
            self._place[last] = at
        for column in self._amounts.values():
            column[at] = column[self.count]
            column[self.count] = 0

    def _grow(self) -> None:
        self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._amounts = {
            name: np.concatenate([column, np.zeros_like(column)]) for name, column in self._amounts.items()
        }  # fmt: skip


class QueueHoldings:
    """What the groups of one queue hold that could be taken from them, the pods' nodes willing; by what is known of
    the groups.
    """

    def __init__(self, record: QueueRecord, table: NodeTable) -> None:
        self.record = record
        self.held: dict[Holder, Held] = {}
        self._units: dict[tuple[Holder, str], dict[int, int]] = {}
        """By kind of groups and dimension how many of them have a unit that comes to so much."""
        self._table = table
        self._generation = -1
        self._groups: ByGroup[_Group | None] = ByGroup()

    @property
    def current(self) -> bool:
        """Whether it is what the groups hold now."""
        return self._generation == self.record.generation

    def units(self, name: str, holders: Collection[Holder]) -> set[int]:
        """What units, pods and groups that may go as wholes, of groups of these kinds come to in this dimension."""
        found: set[int] = set()
        for holder in self.held:
            if holder in holders:
                found.update(self._units.get((holder, name), ()))
        return found

    def following(self, sums: Collection[_Sum]) -> Iterator[int]:
        """Bring it up to date, and these sums in which it counts; group by group, of each how many pods it was."""
        self._generation = -1  # should anything raise
        for old, new in self._groups.follow(self.record, self._of):
            for group, sign in ((old, -1), (new, 1)):
                if group is not None:
                    self._count(group, sign, sums)
            yield sum(len(group.places) for group in (old, new) if group is not None)
        self._generation = self.record.generation

    def _count(self, group: _Group, sign: int, sums: Iterable[_Sum]) -> None:
        held = self.held.get(group.holder)
        if held is None:
            held = self.held[group.holder] = Held()
        held.add(group.places, sign)
        if not held.count:
            del self.held[group.holder]
        for name, amount in group.units:
            kind = group.holder, name
            units = self._units.get(kind)
            if units is None:
                units = self._units[kind] = {}
            count = units.get(amount, 0) + sign
            if count:
                units[amount] = count
                continue
            del units[amount]
            if not units:
                del self._units[kind]
        for each in sums:
            if group.holder in each.holders:
                each.count(group.places, sign)

    def _of(self, job: Job) -> _Group | None:
        if not job.holding or not could_give(job):
            return None
        row_of, open_ = self._table.row, self._table.open
        places: list[_Place] = []
        units: set[tuple[str, int]] = set()
        whole: dict[str, int] = {}
        for task in job.tasks.values():
            if not task.holds:
                continue
            needs = task.cls.needs
            units.update(needs)
            for name, amount in needs:
                whole[name] = whole.get(name, 0) + amount
            row = row_of.get(task.node, -1)
            if row >= 0 and open_[row]:  # nothing is placed on a row that is not open
                places.append((row, needs))
        if _may_go_whole(job):
            units.update(whole.items())
        return _Group(Holder(*job.kind), tuple(places), frozenset(units)) if places else None


class _Sum:
    """What is held in some queues by groups of some kinds, on all rows.

    Attributes:
        holders: the kinds. queues: the queues by name. columns: by dimension. changed: the rows that change.
        reachable: what would be free beside it.
    """

    def __init__(self, holders: frozenset[Holder], rows: int) -> None:
        self.holders = holders
        self.queues: dict[str, QueueHoldings] = {}
        self.columns: dict[str, Column] = {}
        self.changed = ChangedRows()
        self.reachable = KeptCounts(self.columns, self.changed, rows)
        self._rows = rows

    def join(self, queue: QueueHoldings) -> None:
        """Count a queue too."""
        self.queues[queue.record.name] = queue
        self._add(queue, 1)

    def leave(self, name: str) -> None:
        """Count a queue no longer."""
        self._add(self.queues.pop(name), -1)

    def count(self, places: Collection[_Place], sign: int) -> None:
        """Count these pods (1), or no longer (-1)."""
        for row, needs in places:
            for name, amount in needs:
                self._column(name)[row] += sign * amount
        self.changed.note([row for row, _ in places])

    def _add(self, queue: QueueHoldings, sign: int) -> None:
        for holder, held in queue.held.items():
            if holder in self.holders:
                for name in held.names:
                    self._column(name)
                held.add_to(self.columns, sign)
                self.changed.forget()

    def _column(self, name: str) -> Column:
        column = self.columns.get(name)
        if column is None:
            column = self.columns[name] = np.zeros(self._rows, np.int64)
        return column


class Holdings:
    """What the groups of all queues hold. Goes from cycle to cycle; whoever asks gets what is now."""

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._nodes = -1
        self._queues: dict[str, QueueHoldings] = {}
        self._sums: dict[_Key, _Sum] = {}
        self._asked: set[_Key] = set()
        self._room: RoomChanges | None = None
        self._any: dict[str, tuple[QueueRecord, int, bool]] = {}

    def any_group(self, record: QueueRecord, says: Callable[[Job], bool]) -> bool:
        """Whether this is said of any group that holds something in the queue. They are asked again only when one of
        them has changed, so the answer must depend on the group alone, and be of the same question each time.
        """
        known = self._any.get(record.name)
        if known is not None and known[0] is record and known[1] == record.generation:
            return known[2]
        found = any(map(says, record.holders.values()))
        self._any[record.name] = record, record.generation, found
        return found

    def following(self, record: QueueRecord, table: NodeTable) -> Iterator[int]:
        """Bring those of a queue up to date, for `of`; group by group, of each how many pods it was."""
        found = self._queue(record, table)
        if not found.current:
            yield from found.following([each for each in self._sums.values() if record.name in each.queues])

    def nothing(self, record: QueueRecord, table: NodeTable) -> QueueHoldings:
        """Those of a queue of which nothing that it holds could be taken: what that is need not be known."""
        return QueueHoldings(record, table)

    def of(self, record: QueueRecord, table: NodeTable) -> QueueHoldings:
        """Those of a queue."""
        for _ in self.following(record, table):
            pass
        return self._queues[record.name]

    def _queue(self, record: QueueRecord, table: NodeTable) -> QueueHoldings:
        self._of_nodes(table)
        found = self._queues.get(record.name)
        if found is not None and found.record is not record:
            self._forget(record.name)
            found = None
        if found is None:
            found = self._queues[record.name] = QueueHoldings(record, table)
        return found

    def _of_nodes(self, table: NodeTable) -> None:
        """Begin anew where the nodes are others than they were."""
        if self._table is not table or self._nodes != table.static_generation:
            self._queues, self._sums, self._room = {}, {}, None
            self._table, self._nodes = table, table.static_generation

    def reachable(self, holders: frozenset[Holder], queues: Sequence[QueueHoldings], room: NodeResources) -> KeptCounts:
        """What would be free, were all gone that groups of these kinds hold in these queues, as `of` has just said."""
        self._of_nodes(room.table)
        wanted = {queue.record.name: queue for queue in queues} if holders else {}
        key = holders, next(iter(wanted)) if len(wanted) == 1 else ""
        self._asked.add(key)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = _Sum(holders, len(room.table))
        for name in found.queues.keys() - wanted.keys():
            found.leave(name)
        for name in wanted.keys() - found.queues.keys():
            found.join(wanted[name])
        if self._room is None:
            self._room = RoomChanges(room)
        self._room.follow(room)
        found.reachable.follow(self._room)
        return found.reachable

    def free(self, room: NodeResources) -> KeptCounts:
        """What is free, with nobody gone."""
        return self.reachable(frozenset(), (), room)

    def keep(self, queues: Collection[str]) -> Holdings:
        """Forget queues that are gone, and what nobody has asked about since this was last called."""
        for name in self._queues.keys() - set(queues):
            self._forget(name)
        for name in self._any.keys() - set(queues):
            del self._any[name]
        self._sums = {key: found for key, found in self._sums.items() if key in self._asked}
        for found in self._sums.values():
            found.reachable.keep()
        self._asked = set()
        if not self._sums:  # else the nodes of the last cycle in which anybody asked would stay
            self._room = None
            if not self._queues:
                self._table = None
        return self

    def _forget(self, name: str) -> None:
        del self._queues[name]
        for each in self._sums.values():
            if name in each.queues:
                each.leave(name)


def could_give(job: Job) -> bool:
    """Whether a group that holds something may be left with less, now or later in a cycle: a gang that does not go as a
    whole needs more pods than its minimum for that, some of which may be placed yet.
    """
    if job.disruption == "Never":
        return False
    return bool(job.roles) or not job.in_parts or job.holding + job.succeeded + len(job.waiting) > job.minimum


def _may_go_whole(job: Job) -> bool:
    """Whether it is a gang that may go as a whole: it says so, or its lifetime may end."""
    return job.gang and not job.in_parts
