"""Nodes: what each holds, kept per event in plain integers, and all of them as columns for the engine.

Rows of the table stand in the order of names, so "the first of equals" is "the first by name". An event changes one
`NodeRecord` (dictionaries: cheaper than single cells of numpy arrays); a snapshot carries the changed records over into
the columns, so it costs what changed. Arrays in a table are never written while a snapshot reads them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kbatch.api.objects import Node, Taint
from kbatch.model.selections import Selection
from kbatch.model.tasks import Task
from kbatch.resources import LIMIT, PODS, Resources, parse_resources

Column = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

IMAGE_SIZES: Final = ("image sizes",)
"""Where in the `static_cache` stands which node has which images."""

DEFAULT_PODS = 110
"""Places on a node that does not say how many it has: the kubelet's own default."""


_ROWS_AT_ONCE: Final = 1000
"""So many rows take a millisecond or two."""
_SELECTIONS: Final = 100
"""For so many selections a node remembers whether it admits them."""


@dataclass(eq=False, slots=True)
class NodeRecord:
    """One node and what stands on it. A record without `node` waits for its Node object.

    Attributes:
        used: requests of every pod on it that is not terminal, with `pods`; also foreign and terminating ones.
        releasing: the part of `used` whose pods are terminating.
        foreign: the part of `used` that belongs to other schedulers' pods and stays, with `pods`: what is terminating
            comes free for this scheduler's pods. What is stuck does not, whose pods these are.
        stuck: the keys of the terminating pods that should be gone since long: nobody knows when they go.
        astray: the part of `tasks` that could not come here now: since they came, labels or taints changed. Pods of
            other schedulers are left out.
        closed_by: keys of unreadable pods on it; while there is one, nothing is placed here.
        overfull: `used` is beyond 2^53 in some dimension: more than columns count exactly. Nothing is placed here.
    """

    name: str
    node: Node | None = None
    allocatable: Resources = field(default_factory=dict)
    used: Resources = field(default_factory=dict)
    releasing: Resources = field(default_factory=dict)
    foreign: Resources = field(default_factory=dict)
    stuck: set[str] = field(default_factory=set)
    tasks: dict[str, Task] = field(default_factory=dict)
    astray: dict[str, Task] = field(default_factory=dict)
    closed_by: set[str] = field(default_factory=set)
    overfull: bool = False
    _admits: dict[int, bool] = field(default_factory=dict)

    def count(self, task: Task, sign: int) -> None:
        """Add (1) or take away (-1) what a task uses here."""
        needs = task.cls.needs
        _accumulate(self.used, needs, sign)
        if task.terminating:
            _accumulate(self.releasing, needs, sign)
        if (not task.job and not task.terminating) or (self.stuck and task.key in self.stuck):
            _accumulate(self.foreign, needs, sign)
        if sign > 0:
            self.put(task)
            for name, _ in needs:
                if self.used[name] > LIMIT:
                    self.overfull = True
        else:
            self.tasks.pop(task.key, None)
            self.astray.pop(task.key, None)
            self.stuck.discard(task.key)
            if self.overfull:
                self.overfull = any(amount > LIMIT for amount in self.used.values())

    def give_up(self, task: Task) -> None:
        """The room of a terminating pod is expected no more."""
        self.stuck.add(task.key)
        _accumulate(self.foreign, task.cls.needs, 1)

    @property
    def closed(self) -> bool:
        """Whether nothing is placed here, because not all that stands here can be counted."""
        return self.overfull or bool(self.closed_by)

    def put(self, task: Task) -> None:
        """Take over a task, or another state of it that uses the same."""
        self.tasks[task.key] = task
        if task.job and not self._admitted(task.cls.selection):
            self.astray[task.key] = task

    def look_again(self) -> None:
        """The node itself changed: some tasks may have gone astray, others no longer."""
        self._admits.clear()
        self.astray = {}
        for task in self.tasks.values():
            self.put(task)

    def _admitted(self, selection: Selection) -> bool:
        """Whether labels and taints allow it; nothing is known against a node that is not known."""
        found = self._admits.get(selection.id)
        if found is None:
            if len(self._admits) > _SELECTIONS:
                self._admits.clear()
            found = self._admits[selection.id] = self.node is None or selection.admits(self.node)
        return found

    @property
    def ready(self) -> bool:
        """Whether its conditions allow pods at all: Ready, and its network is there."""
        if self.node is None:
            return False
        for condition in self.node.status.conditions or ():
            if condition.type == "Ready" and condition.status != "True":
                return False
            if condition.type == "NetworkUnavailable" and condition.status == "True":
                return False
        return True

    @property
    def schedulable(self) -> bool:
        """Whether its room counts as capacity: ready, not cordoned, and all that stands on it is known."""
        return self.node is not None and not self.node.spec.unschedulable and not self.closed and self.ready

    def capacity(self) -> Resources:
        """What it offers to the pods of this scheduler: allocatable less what others use; nothing if unschedulable."""
        if not self.schedulable:
            return {}
        return {name: max(0, amount - self.foreign.get(name, 0)) for name, amount in self.allocatable.items()}


def read_allocatable(node: Node) -> Resources:
    """The allocatable amounts of a node, `pods` included.

    Raises:
        QuantityError: one of them cannot be read.
    """
    raw = node.status.allocatable if node.status.allocatable is not None else node.status.capacity
    amounts = parse_resources(raw or {})
    amounts.setdefault(PODS, DEFAULT_PODS)
    return amounts


def _accumulate(vector: Resources, needs: Iterable[tuple[str, int]], sign: int) -> None:
    """Add or take away; a dimension of which nothing is left goes, or every one that ever was in use would stay."""
    for name, amount in needs:
        left = vector.get(name, 0) + sign * amount
        if left:
            vector[name] = left
        else:
            vector.pop(name, None)


def _columns(
    records: Sequence[NodeRecord], names: Sequence[str]
) -> Generator[None, None, dict[str, tuple[Column, Column, Column, Column]]]:
    """By dimension what the records have allocatable, used, releasing and in use by others; in pieces."""
    empty = np.zeros(len(records), np.int64)
    found = {name: (empty.copy(), empty.copy(), empty.copy(), empty.copy()) for name in names}
    for start in range(0, len(records), _ROWS_AT_ONCE):
        part = records[start : start + _ROWS_AT_ONCE]
        here = slice(start, start + len(part))
        vectors = (
            [record.allocatable for record in part],
            [record.used for record in part],
            [record.releasing for record in part],
            [record.foreign for record in part],
        )
        there = [at for at, each in enumerate(vectors) if any(each)]  # on most nodes nothing is being released
        for name in names:
            for at in there:
                found[name][at][here] = _cells(vectors[at], name)
            yield
    return found


def _cells(vectors: Sequence[Resources], name: str) -> list[int]:
    """One amount of some records for a column. Only rows that are closed hold more than 2^53 of anything."""
    amounts = [vector.get(name, 0) for vector in vectors]
    if max(amounts, default=0) > LIMIT:
        amounts = [min(amount, LIMIT) for amount in amounts]
    return amounts


_FEW_ROWS: Final = 1 << 10
"""The sum of fewer amounts than this of up to 2^53 each is within int64."""


def exact_sum(column: Column) -> int:
    """The sum of a column of amounts of up to 2^53 each, however many: one in int64 could wrap."""
    if len(column) < _FEW_ROWS:
        return int(np.add.reduce(column))  # as `sum` does, which takes twice as long to begin
    return (int(np.add.reduce(column >> 32)) << 32) + int(np.add.reduce(column & 0xFFFFFFFF))


class NodeTable:
    """All nodes as columns; row i is the i-th node by name.

    Attributes:
        names: of the rows; `row` is its inverse.
        allocatable, idle, releasing: an int64 column for each dimension. `idle` is allocatable less used and may be
            below zero; a dimension that some node lacks stands there as 0. `pods` is a dimension like the others.
        capacity: allocatable less foreign use, 0 on rows that are not schedulable. total: the sum of each column of it.
        capacity_moves: grows when either changes.
        open: rows whose every pod is known, and whose sums are within 2^53; the columns of others stop there.
        ready, cordoned: of the node's own conditions and spec.
        taint_set: for each row the index of its taints in `taint_sets`.
        static_generation: moves when anything but use changed on any node: what depends on labels, taints, conditions
            and images alone may be kept in `static_cache` until then (the cache is emptied by the move).
        images_used: the names of the images, with tags, by which something there was worked out. Those of other images
            may change without a move.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.row: dict[str, int] = {}
        self.records: list[NodeRecord] = []
        self.allocatable: dict[str, Column] = {}
        self.idle: dict[str, Column] = {}
        self.releasing: dict[str, Column] = {}
        self.capacity: dict[str, Column] = {}
        self.total: Resources = {}
        self.capacity_moves = 0
        self.open: Mask = np.zeros(0, np.bool_)
        self.ready: Mask = np.zeros(0, np.bool_)
        self.cordoned: Mask = np.zeros(0, np.bool_)
        self.taint_set: Ids = np.zeros(0, np.int32)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self.static_generation = 0
        self.static_cache: dict[Any, Any] = {}
        self.images_used: set[str] = set()

    def __len__(self) -> int:
        return len(self.names)

    def node(self, row: int) -> Node:
        """The Node object of a row."""
        node = self.records[row].node
        if node is None:  # rows are made of records that have one
            raise LookupError(self.names[row])
        return node

    def labels(self, key: str) -> tuple[Ids, list[str]]:
        """A label as integers: for each row the index of its value in the list, -1 where the node has no such label."""
        # Beside what is worked out of it, which refers to these ids, and gone with that: pods name any labels at all.
        found: tuple[Ids, list[str]] | None = self.static_cache.get(("labels", key))
        if found is None:
            ids = np.full(len(self.names), -1, np.int32)
            values: list[str] = []
            index: dict[str, int] = {}
            for row, record in enumerate(self.records):
                labels = record.node.metadata.labels if record.node is not None else None
                value = labels.get(key) if labels else None
                if value is not None:
                    at = index.get(value)
                    if at is None:
                        at = index[value] = len(values)
                        values.append(value)
                    ids[row] = at
            found = self.static_cache["labels", key] = (ids, values)
        return found

    # --- kept up to date by the ClusterModel --------------------------------------------------------------------------

    def matters(self, images: AbstractSet[str]) -> bool:
        """Whether anything was worked out by one of these images, which have changed on a node.

        Where not, what is kept stays right, but for what later answers are found in.
        """
        if not images.isdisjoint(self.images_used):
            return True
        self.static_cache.pop(IMAGE_SIZES, None)
        return False

    def rebuilding(self, records: Mapping[str, NodeRecord]) -> Iterator[None]:
        """Take over all records that have a Node, after nodes came, went or changed in themselves.

        In pieces of a few milliseconds; nothing is changed before the last of them.
        """
        names = sorted(name for name, record in records.items() if record.node is not None)
        found = [records[name] for name in names]
        ready: list[bool] = []
        cordoned: list[bool] = []
        taint_set: list[int] = []
        taint_index: dict[tuple[Taint, ...], int] = {(): 0}
        dimensions: set[str] = set()
        for at, record in enumerate(found, start=1):
            ready.append(record.ready)
            cordoned.append(record.node is not None and record.node.spec.unschedulable)
            taints = (record.node.spec.taints or ()) if record.node is not None else ()
            taint_set.append(taint_index.setdefault(taints, len(taint_index)))
            dimensions.update(record.allocatable)
            if not at % _ROWS_AT_ONCE:
                yield
        masks = np.array([not record.closed for record in found], np.bool_), np.array(ready, np.bool_)
        usable = masks[0] & masks[1] & ~np.array(cordoned, np.bool_)
        filled = yield from _columns(found, sorted(dimensions))
        self.names, self.records = names, found
        self.row = {name: row for row, name in enumerate(names)}
        self.open, self.ready = masks
        self.cordoned = np.array(cordoned, np.bool_)
        self.taint_set, self.taint_sets = np.array(taint_set, np.int32), list(taint_index)
        self.static_cache = {}
        self.images_used = set()
        self.static_generation += 1
        self.allocatable = {name: columns[0] for name, columns in filled.items()}
        self.idle = {name: columns[0] - columns[1] for name, columns in filled.items()}
        self.releasing = {name: columns[2] for name, columns in filled.items()}
        self.capacity = {
            name: np.where(usable, np.maximum(columns[0] - columns[3], 0), 0) for name, columns in filled.items()
        }
        self.total = {name: exact_sum(column) for name, column in self.capacity.items()}
        self.capacity_moves += 1

    def update(self, records: Iterable[NodeRecord]) -> None:
        """Take over what these records hold now; their nodes themselves did not change."""
        rows = [self.row[record.name] for record in records if record.name in self.row]
        if not rows:
            return
        index = np.array(sorted(rows), np.intp)
        picked = [self.records[row] for row in index]
        schedulable = [record.schedulable for record in picked]
        for name, idle in self.idle.items():
            used = np.array(_cells([record.used for record in picked], name), np.int64)
            foreign = np.array(_cells([record.foreign for record in picked], name), np.int64)
            allocatable = self.allocatable[name][index]
            idle[index] = allocatable - used
            self.releasing[name][index] = _cells([record.releasing for record in picked], name)
            capacity = np.where(schedulable, np.maximum(allocatable - foreign, 0), 0)
            before = self.capacity[name][index]
            if not np.array_equal(capacity, before):  # only what others use changes it
                self.total[name] += sum(capacity.tolist()) - sum(before.tolist())
                self.capacity[name][index] = capacity
                self.capacity_moves += 1
        self.open[index] = [not record.closed for record in picked]
