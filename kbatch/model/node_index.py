"""All nodes: what stands on each, the columns that the engine reads, and the capacity that they make together.

An event marks the records that it changed; `refreshing` carries only these over into columns and capacity.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Final

from kbatch.api.objects import Node
from kbatch.model.images import changed_images
from kbatch.model.journal import Journal
from kbatch.model.nodes import NodeRecord, NodeTable, read_allocatable
from kbatch.model.tasks import Task
from kbatch.resources import PODS, Resources
from kbatch.times import SECOND

_AT_ONCE: Final = 256
"""So many changed records take a millisecond or two."""
STUCK_AFTER: Final = 30 * SECOND
"""So long after its grace a pod that terminates is stuck: `Policy.nomination_grace` is as long."""
_FORGOTTEN: Final = 1000
"""So many classes are forgotten at least before what was kept of them is let go."""


class NodeIndex:
    """The nodes of a cluster, also such as are only named by pods. Changed by the `ClusterModel` alone.

    Attributes:
        records: by name. table: those that have a Node, as columns; up to date after `refreshing`.
        astray: of the records those with tasks that have gone astray.
        changes: the names of the nodes whose use changed.
    """

    def __init__(self) -> None:
        self.records: dict[str, NodeRecord] = {}
        self.table = NodeTable()
        self.astray: dict[str, NodeRecord] = {}
        self.changes: Final[Journal[str]] = Journal(alive=self.records)
        self._dirty: dict[str, NodeRecord] = {}
        self._leaving: list[tuple[int, str, str]] = []
        """A heap of when terminating pods should be gone, by their names, and their nodes'."""
        self._rebuild = True
        self._any_closed = False
        self._forgotten = 0

    def capacity(self) -> Resources:
        """What schedulable nodes hold, less what foreign pods use; `pods` left out. As of the last `refreshing`."""
        return {name: amount for name, amount in self.table.total.items() if amount > 0 and name != PODS}

    def upsert(self, node: Node) -> bool:
        """Take over what the Node says. Whether anything changed that decisions read.

        Raises:
            QuantityError: its allocatable amounts cannot be read.
        """
        allocatable = read_allocatable(node)
        record = self._record(node.metadata.name)
        old = record.node
        same = old is not None and _content(old) == _content(node) and record.allocatable == allocatable
        if same and old is not None and old.status.images != node.status.images:
            same = not self.table.matters(changed_images(old, node))
        record.node, record.allocatable = node, allocatable
        if not same:
            self._look_again(record)
            self._changed(record)
        return not same

    def remove(self, name: str) -> bool:
        """The Node object is gone. Whether it was known."""
        record = self.records.get(name)
        if record is None or record.node is None:
            return False
        record.node, record.allocatable = None, {}
        self._look_again(record)
        self._changed(record)
        self._drop_if_empty(record)
        return True

    def swap(self, old: Task | None, new: Task | None) -> bool:
        """Count `new` where `old` was counted: the same pod before and after, None where it is not there.

        Whether a node has closed or opened by that: its sums came beyond 2^53, or within it again.
        """
        was = old if old is not None and old.node and not old.terminal else None
        now = new if new is not None and new.node and not new.terminal else None
        if was is not None and now is not None and was.node == now.node and was.cls is now.cls:
            record = self.records[now.node]
            if was.terminating is now.terminating and bool(was.job) is bool(now.job):
                record.put(now)
                if was.release_at != now.release_at:
                    self._expect(now)
                if not now.job:
                    self.changes.note(record.name)  # no group says that it is another one
                return False
            before = record.overfull
            record.count(was, -1)
            record.count(now, 1)
            self._expect(now)
            self._counted(record)
            return self._flipped(record, before)
        flipped = False
        if was is not None:
            record = self.records[was.node]
            before = record.overfull
            record.count(was, -1)
            self._counted(record)
            flipped = self._flipped(record, before)
            self._drop_if_empty(record)
        if now is not None:
            record = self._record(now.node)
            before = record.overfull
            record.count(now, 1)
            self._expect(now)
            self._counted(record)
            flipped = self._flipped(record, before) or flipped
        return flipped

    def _expect(self, task: Task) -> None:
        """If the pod terminates, see to it that it is found when it should be gone."""
        if task.terminating and task.release_at is not None:
            heapq.heappush(self._leaving, (task.release_at + STUCK_AFTER, task.key, task.node))

    @property
    def next_stuck(self) -> int | None:
        """When, at the earliest, the next pod is stuck."""
        return self._leaving[0][0] if self._leaving else None

    def lapse(self, now: int) -> bool:
        """Expect no more the room of pods that should be gone since long; whether there are new ones."""
        found = False
        while self._leaving and self._leaving[0][0] <= now:
            at, key, node = heapq.heappop(self._leaving)
            record = self.records.get(node)
            task = record.tasks.get(key) if record is not None else None
            if record is None or task is None or not task.terminating or key in record.stuck:
                continue
            if task.release_at is not None and task.release_at + STUCK_AFTER == at:
                record.give_up(task)
                self._counted(record)
                found = True
        return found

    def stuck(self, task: Task) -> bool:
        """Whether it terminates, and its room is expected no more."""
        record = self.records.get(task.node) if task.terminating else None
        return record is not None and task.key in record.stuck

    def _flipped(self, record: NodeRecord, before: bool) -> bool:
        """Whether the node has closed or opened; what is kept of nodes by themselves is then made anew."""
        if record.overfull is before:
            return False
        self._changed(record)
        return True

    def close(self, name: str, pod_key: str) -> None:
        """An unreadable pod stands there: nothing may be placed beside it."""
        record = self._record(name)
        record.closed_by.add(pod_key)
        self._any_closed = True
        self._changed(record)

    def reopen(self, pod_key: str) -> bool:
        """The pod can be read again, or is gone: nodes that it closed open. Whether there were any."""
        if not self._any_closed:
            return False
        closed = [record for record in self.records.values() if pod_key in record.closed_by]
        for record in closed:
            record.closed_by.discard(pod_key)
            self._changed(record)
            self._drop_if_empty(record)
        return bool(closed)

    def static_changed(self) -> None:
        """Something besides the nodes changed that is kept with what depends on nodes alone."""
        self._rebuild = True

    def classes_changed(self, known: int, forgotten: int) -> None:
        """So many classes of tasks, and selections, are known, and so many were forgotten so far.

        What is kept of forgotten ones with the nodes goes when it is the larger part: all of it, for nothing there says
        which class it is of. What is still asked for is worked out again.
        """
        if forgotten - self._forgotten > _FORGOTTEN + known:
            self._forgotten = forgotten
            self.table.static_cache = {}

    @property
    def stale(self) -> bool:
        """Whether columns or capacity are out of date."""
        return self._rebuild or bool(self._dirty)

    def refreshing(self) -> Iterator[None]:
        """Bring columns and capacity up to date, in pieces; what is not done when it is left off is done next time."""
        if self._rebuild:
            self._dirty = {}  # all are read
            yield from self.table.rebuilding(self.records)
            self._rebuild = False
            self._any_closed = any(record.closed_by for record in self.records.values())
        while self._dirty:
            part = dict(islice(self._dirty.items(), _AT_ONCE))
            self.table.update(part.values())
            for name in part:
                del self._dirty[name]
            yield

    def _record(self, name: str) -> NodeRecord:
        record = self.records.get(name)
        if record is None:
            record = self.records[name] = NodeRecord(name)
        return record

    def _drop_if_empty(self, record: NodeRecord) -> None:
        if record.node is None and not record.tasks and not record.closed_by:
            self.records.pop(record.name, None)

    def _counted(self, record: NodeRecord) -> None:
        """Something of its use changed."""
        self._dirty[record.name] = record
        self.changes.note(record.name)
        if record.astray:
            self.astray[record.name] = record
        elif self.astray:
            self.astray.pop(record.name, None)

    def _look_again(self, record: NodeRecord) -> None:
        record.look_again()
        self._counted(record)

    def _changed(self, record: NodeRecord) -> None:
        """Something but the use of a node changed."""
        self._rebuild = True
        self._dirty[record.name] = record


def _content(node: Node) -> tuple[object, ...]:
    """All of a node that decisions read but its images, and nothing that beats like a heart."""
    facts = tuple((condition.type, condition.status) for condition in node.status.conditions or ())
    return node.metadata.labels, node.spec, facts, node.status.declared_features
