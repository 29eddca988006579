"""The backlog: the groups that wait to come in queue, as columns that last from cycle to cycle.

What such a group asks for changes only when the group does; whether it may come in depends besides on a few sums. So a
group has a row here until it changes, comes in queue or goes, and in a cycle in which neither happens nobody looks at
it: `kbatch.engine.admission` compares the columns with the sums, for all rows at once. A row also says how its group
stood when that was last told, so that only what has changed is told again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from kbatch.api.reasons import Reason
from kbatch.engine.carryover.by_age import Age, ByAge
from kbatch.engine.carryover.giving import Freed, Giving, Levels
from kbatch.engine.carryover.standing import Code
from kbatch.engine.state.jobs import JobState
from kbatch.model.jobs import Job
from kbatch.model.journal import Journal
from kbatch.model.quota import Ask
from kbatch.resources import Resources
from kbatch.times import SECOND

Index = npt.NDArray[np.intp]
_T = TypeVar("_T", bound=Hashable)
_D = TypeVar("_D", bound=np.generic)

MOST: Final = 1 << 62
"""As much as a column holds; whoever asks for more asks for more than there is."""
OLDEST: Final = 30 * SECOND
"""Numbers in reasons are told again, if anything has changed, before they are older than this."""
ROUND: Final = 27 * SECOND
"""In so long a time all of them are told again, evenly, where cycles are many: no single one has much to tell."""
FIRST: Final = 64
_FEW: Final = 100
"""How many come before a group is looked up one by one for so many; for more it is counted in all lines at once."""
_PARTS: Final = 10
"""About so many cycles it takes at most to tell all of them again where cycles are few, that a single one is not late
for it."""
_APART: Final = SECOND
"""How far apart these cycles are where nothing else happens; the last of them is in time."""


_TRIED: Final = (Code.UNFIT, Code.HOPELESS)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a group asks of the quotas of its namespace. Equal where `content` is."""

    namespace: str
    content: Hashable
    ask: Ask = field(compare=False)


class Entry(msgspec.Struct, eq=False):
    """What a group asks for while it waits to come in queue. Nobody changes it.

    Attributes:
        job: the group.
        least: what must be there for it to come in queue. kept: what is kept for it then.
        fixed: why it cannot come in queue as it is, whatever changes around it; None: no such reason.
        gated: why it waits besides, if it is in the queue or not.
        giving, asks: what the sums that it depends on are sorted by.
        shape: what decides whether the emptied nodes would hold it.
        triable: whether that can be tried. tried: whether it counts as tried where there is no room.
        strict: whether its pods must stand together: room in sum says little then.
        choosing: what is asked for depends on which of its pods the nodes could hold.
        stated: it says its minResources itself. attempts: how often it was sent back.
        limit: what decides, besides sums, whether plugins let it in; None: they let in all.
        due: when room is to gather for it. back: until when it stays out (microseconds; 0: it need not).
    """

    job: Job
    least: Resources
    kept: Resources
    fixed: Reason | None
    gated: Reason | None
    giving: Giving
    asks: tuple[str, ...]
    shape: Hashable
    triable: bool
    tried: bool
    strict: bool
    choosing: bool
    stated: bool
    attempts: int
    limit: Hashable
    due: int
    back: int

    @property
    def age(self) -> Age:
        """First come, first served."""
        return self.job.created, self.job.key


class Registry(Generic[_T]):
    """Numbers for things that rows share, as long as any row has them.

    Attributes:
        version: another one whenever a thing gets a number or loses it.
    """

    def __init__(self) -> None:
        self.version = 0
        self.numbers: dict[_T, int] = {}
        self._things: list[_T | None] = []
        self._users: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        """One more than the largest number."""
        return len(self._things)

    def __iter__(self) -> Iterator[_T | None]:
        """The things by their numbers; None for a number that is free."""
        return iter(self._things)

    def take(self, thing: _T) -> int:
        """The number of a thing that one more row has."""
        number = self.numbers.get(thing)
        if number is None:
            self.version += 1
            if self._free:
                number = self._free.pop()
                self._things[number] = thing
            else:
                number = len(self._things)
                self._things.append(thing)
                self._users.append(0)
            self.numbers[thing] = number
        self._users[number] += 1
        return number

    def get(self, number: int) -> _T | None:
        """What has the number; None where nothing does."""
        return self._things[number]

    def thing(self, number: int) -> _T:
        """What has the number; raises KeyError where nothing does."""
        thing = self._things[number]
        if thing is None:
            raise KeyError(number)
        return thing

    def drop(self, number: int) -> bool:
        """One row has it no more; whether nobody has it now."""
        self._users[number] -= 1
        if self._users[number]:
            return False
        self.version += 1
        thing = self._things[number]
        if thing is not None:
            del self.numbers[thing]
        self._things[number] = None
        self._free.append(number)
        return True


@dataclass(frozen=True, slots=True)
class _Shared:
    """Numbers of what all rows of one kind have; `limit`: -1 where there is none."""

    queue: int
    giving: int
    ask: int
    shape: int
    limit: int


class Contents(NamedTuple):
    """What stands in some rows, in their order; not to be changed. The fields are as those of `Backlog`."""

    least: Mapping[str, npt.NDArray[np.int64]]
    queue: Index
    namespace: Index
    giving: Index
    shape: Index
    strict: npt.NDArray[np.bool_]
    fixed: npt.NDArray[np.bool_]
    triable: npt.NDArray[np.bool_]
    stated: npt.NDArray[np.bool_]


class Backlog:
    """The rows. Changed by one cycle at a time; `position` and `capacity` are those of the cycle that left it.

    Attributes:
        changes: of the model whose groups these are. position: what of it has been taken in.
        capacity: the model's `capacity_generation` that `hopeless`, `unfit` and `place` hold for.
        awake: keys of the live groups that have no row. resting: of those the ones in queue to which nothing happens.
        stamp: moves with each cycle that takes it over; one that broke off leaves nothing to go on from.
        changed: the instant of the last cycle in which anything had changed. generation: the model's then.
        paced: until which instant so many were told again as `ROUND` says.
        levels: what the groups of queues could give up, by queue. freed: what that is for each of `givings`.
        namespaces, quotas: what rows share. kinds: all that the sums decide by, but for quotas and `back`, and whom a
            group stands behind (`admission.in_vain`): of two rows of one kind they say the same.
        queues, givings, asks, shapes, limits: what kinds share.
        least: by dimension what rows ask for.
        queue, namespace, giving, ask, quota, shape, limit, kind: numbers of what rows share; of quotas -1 where nobody
            has asked yet what the group asks of them, of limits where there is none.
        created, due, back, told: instants.
        priority: of their groups.
        standing: what was last told of them. triable, strict, stated: as of their entries.
        hopeless, unfit: by shape 1 where it is known to be so, 0 where it is not, -1 where nobody has asked.
        place: by shape the number of the rows of nodes to which it is confined; 0 where it is to none, -1 where nobody
            has asked. places: these rows as bits, in the order of their numbers, which begin with 1.
    """

    def __init__(self, changes: Journal[str]) -> None:
        self.changes = changes
        self.position = 0
        self.capacity = -1
        self.awake: tuple[str, ...] = ()
        self.resting: dict[str, JobState] = {}
        self.stamp = 0
        self.changed = 0
        self.generation = -1
        self.paced = 0
        self.levels: dict[str, Levels] = {}
        self.freed = Freed()
        self.row: dict[str, int] = {}
        self.queues: Registry[str] = Registry()
        self.namespaces: Registry[str] = Registry()
        self.givings: Registry[Giving] = Registry()
        self.asks: Registry[tuple[str, tuple[str, ...]]] = Registry()
        self.quotas: Registry[Asked] = Registry()
        self.shapes: Registry[Hashable] = Registry()
        self.limits: Registry[Hashable] = Registry()
        self.kinds: Registry[Hashable] = Registry()
        self.limit: Index = np.full(FIRST, -1, np.intp)
        self.least: dict[str, npt.NDArray[np.int64]] = {}
        self._entries: list[Entry | None] = []
        self._ages: list[Age] = []
        """Of each row."""
        self._free: list[int] = []
        self._rows: Index | None = None
        self._contents: Contents | None = None
        self._by_age: dict[int, ByAge] = {}
        """By queue."""
        self._live = np.zeros(FIRST, np.bool_)
        self.queue, self.namespace, self.giving, self.ask, self.quota, self.shape, self.kind = (
            np.zeros(FIRST, np.intp) for _ in range(7)
        )  # fmt: skip
        self.created, self.due, self.back, self.told = (np.zeros(FIRST, np.int64) for _ in range(4))
        self.priority = np.zeros(FIRST, np.int64)
        self.standing = np.zeros(FIRST, np.int8)
        self.triable, self.strict, self.stated, self.fixed = (np.zeros(FIRST, np.bool_) for _ in range(4))
        self.hopeless, self.unfit = (np.full(FIRST, -1, np.int8) for _ in range(2))
        self.place = np.full(FIRST, -1, np.int32)
        self.places: list[bytes] = []
        self._number_of_place: dict[bytes, int] = {}
        self._over = np.full(FIRST, -1, np.int8)
        self._marks: dict[str, object] = {}
        self._shared: list[_Shared | None] = []
        """By kind."""

    def __len__(self) -> int:
        return len(self.row)

    def __contains__(self, key: object) -> bool:
        return key in self.row

    @property
    def rows(self) -> Index:
        """The rows in use."""
        if self._rows is None:
            self._rows = np.flatnonzero(self._live)
        return self._rows

    def contents(self, rows: Index) -> Contents:
        """What stands in some rows. Of all of them, `rows`, it is kept until one comes or goes."""
        if rows is not self._rows:
            return self._gather(rows)
        if self._contents is None:
            self._contents = self._gather(rows)
        return self._contents

    def _gather(self, rows: Index) -> Contents:
        return Contents(
            {name: column[rows] for name, column in self.least.items()},
            self.queue[rows], self.namespace[rows], self.giving[rows], self.shape[rows],
            self.strict[rows], self.fixed[rows], self.triable[rows], self.stated[rows],
        )  # fmt: skip

    @property
    def size(self) -> int:
        """One more than the largest row, or more."""
        return len(self._live)

    def living(self, rows: Index) -> Index:
        """Those of the rows that are in use."""
        return rows[self._live[rows]]

    def lives(self, row: int) -> bool:
        """Whether the row is in use."""
        return bool(self._live[row])

    def entry(self, row: int) -> Entry:
        """What stands in a row; raises KeyError where nothing does."""
        entry = self._entries[row]
        if entry is None:
            raise KeyError(row)
        return entry

    def add(self, entry: Entry) -> int:
        """Give a group a row; nothing was told of it yet."""
        self.remove(entry.job.key)
        row = self._free.pop() if self._free else len(self._entries)
        if row == len(self._entries):
            self._entries.append(None)
            self._ages.append(entry.age)
            if row == len(self._live):
                self._grow()
        self._entries[row] = entry
        self._ages[row] = entry.age
        self.row[entry.job.key] = row
        self._live[row] = True
        self._rows = self._contents = None
        for name, amount in entry.least.items():
            column = self.least.get(name)
            if column is None:
                column = self.least[name] = np.zeros(len(self._live), np.int64)
            column[row] = min(amount, MOST)
        self.namespace[row] = self.namespaces.take(entry.job.namespace)
        self.quota[row] = -1
        kind, shared = self._take_kind(entry)
        self.kind[row], self.queue[row], self.giving[row] = kind, shared.queue, shared.giving
        self.ask[row], self.shape[row], self.limit[row] = shared.ask, shared.shape, shared.limit
        self.created[row], self.told[row] = entry.job.created, 0
        line = self._by_age.get(shared.queue)
        if line is None:
            line = self._by_age[shared.queue] = ByAge()
        line.add(self._ages[row], row)
        self.due[row], self.back[row] = min(entry.due, MOST), min(entry.back, MOST)
        self.priority[row] = max(-MOST, min(MOST, entry.job.priority))
        self.standing[row] = Code.UNKNOWN
        self.triable[row], self.strict[row], self.stated[row] = entry.triable, entry.strict, entry.stated
        self.fixed[row] = entry.fixed is not None
        return row

    def _take_kind(self, entry: Entry) -> tuple[int, _Shared]:
        """The kind of one more row."""
        wishes = entry.job.wants_whole_nodes, entry.job.lifetime
        says = entry.strict, entry.fixed is not None, entry.triable, entry.stated, *wishes
        least = tuple(entry.least.items())
        kind = self.kinds.take((entry.job.queue, entry.giving, entry.asks, entry.shape, entry.limit, says, least))
        if kind == len(self._shared):
            self._shared.append(None)
        shared = self._shared[kind]
        if shared is None:
            shared = self._shared[kind] = _Shared(
                self.queues.take(entry.job.queue), self.givings.take(entry.giving),
                self.asks.take((entry.job.queue, entry.asks)), self.shapes.take(entry.shape),
                self.limits.take(entry.limit) if entry.limit is not None else -1,
            )  # fmt: skip
            if shared.shape >= len(self.hopeless):
                self.hopeless, self.unfit = (_longer(column, -1) for column in (self.hopeless, self.unfit))
                self.place = _longer(self.place, -1)
        return kind, shared

    def _drop_kind(self, kind: int) -> None:
        """One row less is of a kind."""
        shared = self._shared[kind]
        if not self.kinds.drop(kind) or shared is None:
            return
        self._shared[kind] = None
        if self.queues.drop(shared.queue):
            del self._by_age[shared.queue]
        self.givings.drop(shared.giving)
        self.asks.drop(shared.ask)
        if shared.limit >= 0:
            self.limits.drop(shared.limit)
        if self.shapes.drop(shared.shape):
            self.hopeless[shared.shape] = self.unfit[shared.shape] = self.place[shared.shape] = -1

    def remove(self, key: str) -> bool:
        """The group has no row any more; whether it had one."""
        row = self.row.pop(key, None)
        if row is None:
            return False
        entry = self.entry(row)
        for name in entry.least:
            self.least[name][row] = 0
        self._by_age[self.queue.item(row)].remove(self._ages[row])
        self.namespaces.drop(self.namespace.item(row))
        quota = self.quota.item(row)
        if quota >= 0 and self.quotas.drop(quota) and quota < len(self._over):
            self._over[quota] = -1
        self._drop_kind(self.kind.item(row))
        self._entries[row] = None
        self._live[row] = False
        self._rows = self._contents = None
        self._free.append(row)
        return True

    def over_quota(self, mark: Callable[[str], object]) -> npt.NDArray[np.int8]:
        """By number in `quotas` 1 where that passes a quota, 0 where not, -1 where that is to be found out: nobody has,
        or the `mark` of its namespace, which is all besides that it depends on, is another one than it was then.
        """
        if len(self._over) < len(self.quotas):
            more = np.full(len(self.quotas) - len(self._over), -1, np.int8)
            self._over = np.concatenate([self._over, more])
        marks = {name: mark(name) for name in self.namespaces if name is not None}
        others = {name for name, now in marks.items() if self._marks.get(name) != now}
        if others:
            for number, asked in enumerate(self.quotas):
                if asked is not None and asked.namespace in others:
                    self._over[number] = -1
        self._marks = marks
        return self._over

    # --- what is told -------------------------------------------------------------------------------------------------

    def to_tell(self, rows: Index, standings: npt.NDArray[np.int8], now: int, anew: Collection[str] = ()) -> Index:
        """Take over how the groups in these rows stand now. The rows of which that is to be told: it is another thing
        than before, or its numbers may be old, or the group is one of `anew`, by their keys.
        """
        changed = standings != self.standing[rows]
        if anew:
            changed |= np.isin(rows, [self.row[key] for key in anew if key in self.row])
        self.standing[rows] = standings
        told = self.told[rows]
        stale = np.flatnonzero(~changed & (told < self.changed))
        count = self._due_again(told[stale], now)
        if count < len(stale):
            stale = stale[_first_told(told[stale], count)]
        changed[stale] = True
        found: Index = rows[changed]
        self.told[found] = now
        return found

    def _due_again(self, told: npt.NDArray[np.int64], now: int) -> int:
        """Of how many of these, told at these instants, the numbers are to be told again now: as many as go evenly, but
        never fewer than must be for the last of them to be told in time.
        """
        if not len(told):
            self.paced = now
            return 0
        most = _at_once(len(self))
        even, rest = divmod(max(0, now - self.paced) * len(self), ROUND)
        self.paced = now if even > most else now - rest // len(self)
        left = np.clip((told + OLDEST - now) // _APART, 0, OLDEST // _APART)  # so many cycles come in time after this
        by = np.cumsum(np.bincount(left))
        needed = int((by - most * np.arange(len(by))).max())
        return min(most, max(even, needed))

    def tells_again(self, now: int) -> int | None:
        """The instant, later than now, by which numbers are told again that are old; None: none are.

        Where one cycle does not tell all of them, it is so much earlier that the last of several does so in time.
        """
        told = self.told[self.rows]
        old = told[told < self.changed]
        if not len(old):
            return None
        parts = -(-len(old) // _at_once(len(told)))
        return max(int(old.min()) + OLDEST - (parts - 1) * _APART, now + _APART)

    def by_age(self, queue: int) -> Index:
        """The rows of the groups of a queue, by its number, the oldest first, and of equal age by their keys."""
        return np.array(self._by_age[queue].rows(), np.intp)

    def ranked(self, rows: Index) -> Index:
        """The rows by their priority, the highest first; those of one priority as they stand."""
        return rows[np.argsort(-self.priority[rows], kind="stable")]

    def order(self, row: int, *, ranks: bool) -> tuple[int, int, str]:
        """Where the group in this row stands in its queue: see `kbatch.engine.actions.places`."""
        created, key = self._ages[row]
        return -int(self.priority[row]) if ranks else 0, created, key

    def ahead(self, row: int, *, ranks: bool = False) -> int:
        """How many groups of its queue come before the one in this row: older ones, and of equal age by their keys;
        with `ranks` those of higher priority, and such ones of the same.
        """
        return self._before(int(self.queue[row]), self._ages[row], int(self.priority[row]) if ranks else None)

    def all_ahead(self, rows: Index, *, ranks: bool = False) -> list[int]:
        """`ahead` of each of the rows."""
        if len(rows) <= _FEW:
            return [self.ahead(row, ranks=ranks) for row in rows.tolist()]
        place = np.zeros(self.size, np.intp)
        for queue in np.unique(self.queue[rows]).tolist():
            line = self.ranked(self.by_age(queue)) if ranks else self.by_age(queue)
            place[line] = np.arange(len(line))
        found: list[int] = place[rows].tolist()
        return found

    def before(self, job: Job, *, ranks: bool = False) -> int:
        """How many groups of its queue that have rows come before one that has none."""
        number = self.queues.numbers.get(job.queue)
        age = job.created, job.key
        return 0 if number is None else self._before(number, age, job.priority if ranks else None)

    def _before(self, queue: int, age: tuple[int, str], priority: int | None) -> int:
        older = self._by_age[queue].before(age)
        if priority is None:
            return older
        theirs = self.priority[self.by_age(queue)]
        return int(np.count_nonzero(theirs > priority) + np.count_nonzero(theirs[:older] == priority))

    def number_of_place(self, key: bytes) -> int:
        """The number of some rows of nodes, given as bits: what `place` holds for groups that are confined to them."""
        number = self._number_of_place.get(key)
        if number is None:
            self.places.append(key)
            number = self._number_of_place[key] = len(self.places)
        return number

    def capacity_changed(self, generation: int) -> list[str]:
        """The emptied nodes are other ones than before: nothing is known of who fits them. Returns the keys of the
        groups that have no row any more, as what they ask for depends on that.
        """
        self.capacity = generation
        self.hopeless[:] = -1
        self.unfit[:] = -1
        self.place[:] = -1
        self.places.clear()
        self._number_of_place.clear()
        # Who keeps to domains may stand as before for another reason: too far apart, or too large even if not.
        self.standing[self.strict & np.isin(self.standing, _TRIED)] = Code.UNKNOWN
        entries = [self.entry(row) for row in self.rows.tolist()]
        gone = [entry.job.key for entry in entries if entry.choosing]
        for key in gone:
            self.remove(key)
        return gone

    def in_order(self, rows: Index) -> list[int]:
        """The rows, the oldest groups first."""
        numbers: list[int] = rows.tolist()
        numbers.sort(key=self._ages.__getitem__)
        return numbers

    def keys(self) -> Iterable[str]:
        """The keys of the groups that have rows."""
        return self.row.keys()

    def _grow(self) -> None:
        for name, column in self.least.items():
            self.least[name] = _longer(column, 0)
        self._live = _longer(self._live, 0)
        self.limit = _longer(self.limit, -1)
        self.queue, self.namespace, self.giving, self.ask, self.quota, self.shape, self.kind = (
            _longer(column, 0)
            for column in (self.queue, self.namespace, self.giving, self.ask, self.quota, self.shape, self.kind)
        )
        self.created, self.due, self.back, self.told = (
            _longer(column, 0) for column in (self.created, self.due, self.back, self.told)
        )
        self.priority = _longer(self.priority, 0)
        self.standing = _longer(self.standing, 0)
        self.triable, self.strict, self.stated, self.fixed = (
            _longer(column, 0) for column in (self.triable, self.strict, self.stated, self.fixed)
        )


def _first_told(told: npt.NDArray[np.int64], count: int) -> Index:
    """The places of so many of these that were told first, fewer than all; of those told at one instant the first
    places, which `np.argpartition` does not say, and for which it takes longer.
    """
    if not count:
        return np.zeros(0, np.intp)
    last = np.partition(told, count - 1)[count - 1]
    before = np.flatnonzero(told < last)
    at_last = np.flatnonzero(told == last)[: count - len(before)]
    return np.concatenate([before, at_last])


def _at_once(rows: int) -> int:
    """Of how many of so many groups a cycle tells the numbers again."""
    return max(FIRST, rows // _PARTS)


def _longer(column: npt.NDArray[_D], fill: int) -> npt.NDArray[_D]:
    """A column of twice the length."""
    more: npt.NDArray[_D] = np.full(len(column), fill, column.dtype)
    return np.concatenate([column, more])
