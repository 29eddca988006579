"""What is free on nodes while a session decides, and the window through which plugins see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kbatch.api.placement import Placement
from kbatch.model.nodes import Column, Ids, Mask, NodeTable, exact_sum
from kbatch.model.tasks import TaskClass

Index = npt.NDArray[np.intp]


class NodeResources:
    """Working columns over the rows of a `NodeTable`.

    Attributes:
        idle: allocatable less what stands on the node, terminating pods included. A pod binds where it fits this.
        future: idle, plus what is being released, less what is nominated: also a binding pod must fit this, so that
            nobody takes what others are waiting for.
        releasing: what terminating pods give back.
        log: rows in the order in which they changed; whoever keeps answers per row reads on from where it was.
        causes: for each entry of the log the id of the class of which a pod was bound there, -1 for any other change.
    """

    def __init__(self, table: NodeTable, given: Mapping[str, Column] | None = None) -> None:
        """The table's nodes as they are; with `given`, as though nothing stood on them and each had this."""
        self.table = table
        self.log: list[int] = []
        self.causes: list[int] = []
        idle = table.idle if given is None else given
        self.idle: dict[str, Column] = {name: column.copy() for name, column in idle.items()}
        self.releasing: dict[str, Column] = {
            name: table.releasing[name].copy() if given is None else np.zeros(len(column), np.int64)
            for name, column in idle.items()
        }
        self.future: dict[str, Column] = {name: column + self.releasing[name] for name, column in idle.items()}
        self._free: dict[str, int] = {}
        """By dimension what there is of `future` on all rows together, as far as somebody has asked; kept current."""
        self._awaits = -1, False

    def ensure(self, cls: TaskClass) -> None:
        """Make columns for what the class asks for and no node has."""
        for name, _ in cls.needs:
            if name not in self.idle:
                for columns in (self.idle, self.releasing, self.future):
                    columns[name] = np.zeros(len(self.table), np.int64)

    def free(self, name: str) -> int:
        """What there is of a dimension on all rows together, once what terminates is gone; 0 where nothing has any."""
        found = self._free.get(name)
        if found is None:
            column = self.future.get(name)
            found = self._free[name] = exact_sum(np.maximum(column, 0)) if column is not None else 0
        return found

    def _move(self, name: str, row: int, change: int) -> None:
        """So much more of a dimension is free on a row, now or once what terminates is gone; less, if below 0."""
        column = self.future[name]
        before: int = column.item(row)
        now = column[row] = before + change
        free = self._free.get(name)
        if free is not None:
            self._free[name] = free + max(0, now) - max(0, before)

    @property
    def awaits_any(self) -> bool:
        """Whether anything is being released; else what is idle is all that there will be."""
        moment = len(self.log)
        if self._awaits[0] != moment:
            self._awaits = moment, any(column.any() for column in self.releasing.values())
        return self._awaits[1]

    def allocate(self, cls: TaskClass, row: int, sign: int = 1) -> None:
        """A pod comes onto a row (1), or not after all (-1)."""
        for name, amount in cls.needs:
            idle = self.idle[name]
            idle[row] = idle.item(row) - sign * amount
            self._move(name, row, -sign * amount)
        self.log.append(row)
        self.causes.append(cls.id if sign > 0 else -1)

    def allocate_all(self, cls: TaskClass, rows: Sequence[int]) -> None:
        """A pod of the class comes onto each of these rows; several onto one that is named several times."""
        index = np.array(rows, np.intp)
        for name, amount in cls.needs:
            np.subtract.at(self.idle[name], index, amount)
            np.subtract.at(self.future[name], index, amount)
            self._free.pop(name, None)
        self.log.extend(rows)
        self.causes.extend([cls.id] * len(rows))

    def pipeline(self, cls: TaskClass, row: int, sign: int = 1) -> None:
        """A pod waits for a row (1), or no longer (-1)."""
        for name, amount in cls.needs:
            self._move(name, row, -sign * amount)
        self.log.append(row)
        self.causes.append(-1)

    def release(self, cls: TaskClass, row: int, sign: int = 1) -> None:
        """A pod begins to leave a row (1), or stays after all (-1)."""
        if not self.table.open[row]:
            return  # nothing is placed there, and what stands there may be more than a column counts
        for name, amount in cls.needs:
            self.releasing[name][row] += sign * amount
            self._move(name, row, sign * amount)
        self.log.append(row)
        self.causes.append(-1)

    def keep(self, rows: Index, amounts: Mapping[str, Column], sign: int = 1) -> None:
        """So much of each of these rows, all different, is kept for somebody (1), or no longer (-1)."""
        for name, column in amounts.items():
            future, free = self.future[name], self._free.get(name)
            before = future[rows]
            now = future[rows] = before - sign * column
            if free is not None:
                self._free[name] = free + exact_sum(np.maximum(now, 0)) - exact_sum(np.maximum(before, 0))
        self.log.extend(rows.tolist())
        self.causes.extend([-1] * len(rows))

    def expect_no_more(self, cls: TaskClass, row: int) -> None:
        """A pod that terminates on a row is stuck there: what it would give back is not counted on."""
        for name, amount in cls.needs:
            if name in self.table.releasing:
                self.releasing[name][row] -= amount
                self._move(name, row, -amount)
        self.log.append(row)
        self.causes.append(-1)


class Rows:
    """Some rows of the table, as they are now or would be with more pods of one class on them.

    `index` are the row numbers; the same row may stand there several times, with different numbers of further pods.
    Every method answers with one element for each element of `index`. `later` says that the pod would wait there until
    what is terminating on the node is gone; else it would bind now, beside it. `placement` is what the pod's queue asks
    for, None where it leaves that to the configuration.

    For plugins with `own_nodes`: `opened` are the rows on which the pod's job has pods already, None where it has none;
    `coming` is how many of its like pods would come to a row that is not, 1 or more.
    """

    def __init__(
        self,
        room: NodeResources,
        index: Index,
        cls: TaskClass,
        extra: Column | None = None,
        *,
        whole: bool = False,
        later: bool = False,
        placement: Placement | None = None,
        opened: Mask | None = None,
        coming: Column | int = 1,
    ) -> None:
        self.room = room
        self.later = later
        self.placement = placement
        self.opened = opened
        self.coming = coming
        self.table = room.table
        self.index = index
        self._at: Index | slice = slice(None) if whole else index
        self._needs = dict(cls.needs)
        self._extra = extra

    def __len__(self) -> int:
        return len(self.index)

    def allocatable(self, name: str) -> Column:
        """What the nodes offer of a dimension (`pods` is one); 0 where they have none of it."""
        column = self.table.allocatable.get(name)
        return column[self._at] if column is not None else np.zeros(len(self.index), np.int64)

    def free(self, name: str) -> Column:
        """Allocatable less what stands there and what is nominated there; may be below zero."""
        future = self.room.future.get(name)
        if future is None:
            return np.zeros(len(self.index), np.int64)
        free: Column = future[self._at] - self.room.releasing[name][self._at]
        if self._extra is not None and name in self._needs:
            free -= self._extra * self._needs[name]
        return free

    def labels(self, key: str) -> tuple[Ids, list[str]]:
        """A node label as indexes into the list of its values, -1 where the node has none."""
        ids, values = self.table.labels(key)
        return ids[self._at], values

    def taint_set(self) -> Ids:
        """Index of the nodes' taints in `table.taint_sets`."""
        return self.table.taint_set[self._at]
