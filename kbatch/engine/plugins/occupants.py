"""Which pods stand on which nodes, by class: kept from cycle to cycle, and brought up to date from what changed.

What plugins count of these pods (by domain, by port) follows them: a *follower* is told of each difference, so that the
end of one pod costs what that pod moves, and not a look at all the others.

A session takes a follower out while it decides, because it moves the counters too, and gives it back in the state of
the snapshot. One that is not given back is made anew by the next who asks: so sessions that end early, or run beside
one another, cannot spoil it.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping
from typing import Final, Protocol, TypeAlias, TypeVar

from kbatch.model.cluster import ClusterModel
from kbatch.model.nodes import NodeRecord, NodeTable
from kbatch.model.tasks import TaskClass

Rows: TypeAlias = dict[TaskClass, dict[int, int]]
"""By class the rows on which its pods stand, each with their number."""

STANDING: Final = 0
"""The pods that stay."""
LEAVING: Final = 1
"""Those that are terminating."""
FOREIGN: Final = 2
"""Of those that stay, the ones of other schedulers."""

_PODS_AT_ONCE: Final = 5000
"""To look at so many takes a millisecond or two."""

_KEY: Final = "occupants"

_Counts: TypeAlias = dict[TaskClass, int]
_Seen: TypeAlias = tuple[_Counts, _Counts, _Counts]

_NONE: Final[_Counts] = {}
_NOBODY: Final[_Seen] = (_NONE, _NONE, _NONE)


class Follower(Protocol):
    """Something counted of the pods on nodes."""

    def moved(self, part: int, cls: TaskClass, row: int, amount: int) -> None:
        """So many pods more (or less) of a class stand on a row; `part` says which of the pods are meant."""
        ...


_F = TypeVar("_F", bound=Follower)


class Occupants:
    """The pods on the nodes of a table, in three parts: `STANDING`, `LEAVING`, `FOREIGN`.

    Attributes:
        parts: the rows of each part. Read only; they follow the model.
        version: moves with every difference.
    """

    def __init__(self, model: ClusterModel, table: NodeTable) -> None:
        self.parts: tuple[Rows, Rows, Rows] = ({}, {}, {})
        self.version = 0
        self._journal = model.node_changes
        self._table = table
        self._position: int | None = None
        self._seen: list[_Seen] = [_NOBODY] * len(table)
        self._followers: dict[Hashable, Follower] = {}

    def catching_up(self) -> Generator[None, None, None]:
        """Take over what changed since the last time, in pieces."""
        position = self._journal.position
        names = None if self._position is None else self._journal.since(self._position)
        if names is None:
            self._position = None  # until all have been looked at
            rows = list(range(len(self._table)))
        else:
            index = self._table.row
            rows = [index[name] for name in dict.fromkeys(names) if name in index]
        work = 0
        for row in rows:
            record = self._table.records[row]
            self._look(row, record)
            work += 1 + len(record.tasks)
            if work > _PODS_AT_ONCE:
                work = 0
                yield
        self._position = position

    def take(self, name: Hashable, kind: type[_F]) -> _F | None:
        """Take out a follower, for the session to move; None where none was left here."""
        found = self._followers.pop(name, None)
        return found if isinstance(found, kind) else None

    def give_back(self, name: Hashable, follower: Follower, version: int) -> None:
        """Put a follower back that counts what stood here at this version."""
        if version == self.version:
            self._followers[name] = follower

    def _look(self, row: int, record: NodeRecord) -> None:
        was, now = self._seen[row], _seen(record)
        self._seen[row] = now
        for part, (before, after) in enumerate(zip(was, now, strict=True)):
            if before != after:
                for cls in {**before, **after}:
                    amount = after.get(cls, 0) - before.get(cls, 0)
                    if amount:
                        self._move(part, cls, row, amount)

    def _move(self, part: int, cls: TaskClass, row: int, amount: int) -> None:
        self.version += 1
        by_class = self.parts[part]
        rows = by_class.setdefault(cls, {})
        count = rows.get(row, 0) + amount
        if count:
            rows[row] = count
        else:
            del rows[row]
            if not rows:
                del by_class[cls]
        for follower in self._followers.values():
            follower.moved(part, cls, row, amount)


def occupants_of(model: ClusterModel, table: NodeTable) -> Generator[None, None, Occupants]:
    """The pods on the nodes, as the model has them now. In pieces."""
    found: Occupants | None = table.static_cache.get(_KEY)
    if found is None:
        found = Occupants(model, table)
        yield from found.catching_up()
        table.static_cache[_KEY] = found
    else:
        yield from found.catching_up()
    return found


def _seen(record: NodeRecord) -> _Seen:
    standing: _Counts = {}
    leaving: _Counts = {}
    foreign: _Counts = {}
    for task in record.tasks.values():
        cls = task.cls
        if task.terminating:
            leaving[cls] = leaving.get(cls, 0) + 1
        else:
            standing[cls] = standing.get(cls, 0) + 1
            if not task.job:
                foreign[cls] = foreign.get(cls, 0) + 1
    return standing, leaving or _NONE, foreign or _NONE


def of_part(occupants: Occupants, part: int | None) -> Mapping[TaskClass, Mapping[int, int]]:
    """The rows of a part; None stands for no pods at all."""
    return occupants.parts[part] if part is not None else {}
