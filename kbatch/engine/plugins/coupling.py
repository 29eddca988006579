"""Pods that look at other pods: how many of which pods stand in each topology domain, followed as they come and go.

Inter-pod affinity, anti-affinity and topology spread all ask the same question: how many pods that some selector
chooses stand in the domain (zone, rack, host) of this node? An index answers it for all nodes at once from counters:

* a *target* counter counts the pods that a term of a waiting pod speaks of;
* a *carrier* counter counts the pods that carry a term themselves, for terms that bind others too (anti-affinity
  forbids its domain to those it names, whoever came first; preferred terms draw or repel).

Pods count by class, and classes are matched with terms through one label that the term demands, so that thousands of
gangs, each with a selector of its own, cost thousands of look-ups and not millions of comparisons. Placing a pod moves
a handful of counters by one.

Terminating pods do not count: whoever looks at a domain asks about the time when they are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kbatch.engine.plugins.domains import Counter
from kbatch.engine.plugins.occupants import Occupants, of_part
from kbatch.engine.plugins.terms import NamespaceLabels, Who
from kbatch.model.journal import Journal
from kbatch.model.nodes import Ids, NodeTable
from kbatch.model.tasks import ClassTable, TaskClass

_K = TypeVar("_K")
_T = TypeVar("_T")

_CLASSES_AT_ONCE: Final = 50
"""To look at so many takes a millisecond or two."""

_NO_ROWS: Final[Mapping[int, int]] = {}


@dataclass(eq=False, slots=True)
class _Watch:
    """A counter and the pods it is about. `users`: how many known classes carry its term, which has this effect."""

    who: Who
    counter: Counter
    effect: str = ""
    users: int = 0


@dataclass(frozen=True, slots=True)
class Carried:
    """A term that pods of a class carry and that matters to others.

    `effect` keeps terms that do different things apart; `weight` is what one pod counts.
    """

    effect: str
    topology_key: str
    who: Who
    weight: int = 1


@dataclass(eq=False, slots=True)
class _Met:
    """A class that the index knows: the counters that its pods move, the carriers whose terms mean them.

    `rows` says how many of its pods the session has put on a row, or taken from there.
    """

    cls: TaskClass
    rows: dict[int, int] = field(default_factory=dict)
    moves: list[tuple[Counter, int]] = field(default_factory=list)
    faces: dict[str, list[Counter]] = field(default_factory=dict)


class CouplingIndex:
    """Counters over the pods that stand, or will stand, on nodes. It follows the pods of one part of the `Occupants`.

    Args:
        table: the nodes.
        occupants, part: the pods that stand there; part None: none do.
        carried: the terms that pods of a class carry and that matter to others.
        labels_of: the labels of a namespace.
    """

    def __init__(
        self,
        table: NodeTable,
        occupants: Occupants,
        part: int | None,
        carried: Callable[[TaskClass], Iterable[Carried]],
        labels_of: NamespaceLabels,
    ) -> None:
        self._table = table
        self._standing = of_part(occupants, part)
        self._part = part
        self._carried = carried
        self._labels_of = labels_of
        self._met: dict[int, _Met] = {}
        self._touched: list[_Met] = []
        self._alike: dict[object, list[_Met]] = {}
        self._alike_by_label: dict[tuple[str, str], list[list[_Met]]] = {}
        self._targets: dict[object, _Watch] = {}
        self._targets_by_label: dict[tuple[str, str] | None, list[_Watch]] = {}
        self._carrying: dict[int, list[Carried]] = {}
        self._heard: tuple[Journal[int], int] | None = None
        """Where in the changes of the classes that speak of others all of these were known."""
        self._since: list[int] = []
        """Classes that carry terms and were met since then."""
        self._carriers: dict[tuple[str, str, Who], _Watch] = {}
        self._carriers_by_label: dict[tuple[str, str] | None, list[_Watch]] = {}

    # --- pods ---------------------------------------------------------------------------------------------------------

    def meet_all(self) -> Iterator[None]:
        """Know the classes of all pods that stand, in pieces. Once, before anything is asked."""
        for number, cls in enumerate(self._standing, start=1):
            self.meet(cls)
            if not number % _CLASSES_AT_ONCE:
                yield

    def speaking(self, table: ClassTable) -> Iterator[list[int]]:
        """Know those of the classes that speak of other pods. Others that do so are known no longer.

        In pieces; each says which ids were let go.
        """
        classes, changes = table.coupling, table.coupling_changes
        heard, position = self._heard, changes.position
        changed = changes.since(heard[1]) if heard is not None and heard[0] is changes else None
        if changed is None:
            gone, new = sorted(self._carrying.keys() - classes.keys()), sorted(classes.keys() - self._met.keys())
        elif changed or self._since:
            numbers = sorted({*changed, *self._since})
            gone = [number for number in numbers if number not in classes and number in self._carrying]
            new = [number for number in numbers if number in classes and number not in self._met]
        else:
            return
        for start in range(0, len(gone), _CLASSES_AT_ONCE):
            part = gone[start : start + _CLASSES_AT_ONCE]
            for number in part:
                self._forget(self._met[number])
            yield part
        for count, number in enumerate(new, start=1):
            cls = classes.get(number)
            if cls is not None:
                self.meet(cls)
            if not count % _CLASSES_AT_ONCE:
                yield []
        self._heard = changes, position
        self._since = [number for number in self._since if number not in classes]

    def moved(self, part: int, cls: TaskClass, row: int, amount: int) -> None:
        """So many pods more (or less) of a class stand on a row, whatever the session does."""
        if part != self._part:
            return
        met = self._met.get(cls.id)
        if met is None:
            self._meet(cls)  # and with it all that stand
            return
        for counter, weight in met.moves:
            counter.add(row, amount * weight)

    def meet(self, cls: TaskClass) -> _Met:
        """Know a class from now on, whether or not pods of it stand anywhere."""
        return self._met.get(cls.id) or self._meet(cls)

    def add(self, cls: TaskClass, row: int, sign: int = 1) -> None:
        """The session puts a pod of a class on a row (1), or takes one from there (-1)."""
        met = self._met.get(cls.id) or self._meet(cls)
        if not met.rows:
            self._touched.append(met)
        met.rows[row] = met.rows.get(row, 0) + sign
        for counter, weight in met.moves:
            counter.add(row, sign * weight)

    def moves(self, cls: TaskClass, counters: Iterable[Counter]) -> bool:
        """Whether a pod of a class counts in one of these counters."""
        moved = {id(counter) for counter, _ in self.meet(cls).moves}
        return any(id(counter) in moved for counter in counters)

    def reset(self) -> Iterator[None]:
        """Take back what the session did, in pieces."""
        for number, met in enumerate(self._touched, start=1):
            for counter, weight in met.moves:
                counter.add_all(met.rows, -weight)
            met.rows.clear()
            if not number % _CLASSES_AT_ONCE:
                yield
        self._touched.clear()

    def _meet(self, cls: TaskClass) -> _Met:
        met = self._met[cls.id] = _Met(cls)
        alike = self._alike.get(_like(cls))
        if alike is None:
            alike = self._alike[_like(cls)] = []
            for label in cls.labels.items():
                self._alike_by_label.setdefault(label, []).append(alike)
        alike.append(met)
        for watch in self._near(self._targets_by_label, cls):
            if watch.who.match(cls, self._labels_of):
                met.moves.append((watch.counter, 1))
        for watch in self._near(self._carriers_by_label, cls):
            if watch.who.match(cls, self._labels_of):
                met.faces.setdefault(watch.effect, []).append(watch.counter)
        terms = list(self._carried(cls))
        if terms:
            self._carrying[cls.id] = terms
            self._since.append(cls.id)
        for term in terms:
            watch = self._carrier(term)
            watch.users += 1
            met.moves.append((watch.counter, term.weight))
        standing = self._standing.get(cls)
        if standing:
            for counter, weight in met.moves:
                counter.add_all(standing, weight)
        return met

    def _forget(self, met: _Met) -> None:
        """No pod of the class exists any more; what it carried matters to nobody."""
        cls = met.cls
        del self._met[cls.id]
        alike = self._alike[_like(cls)]
        alike.remove(met)
        if not alike:
            del self._alike[_like(cls)]
            for label in cls.labels.items():
                _remove(self._alike_by_label, label, alike)
        for term in self._carrying.pop(cls.id, ()):
            key = (term.effect, term.topology_key, term.who)
            watch = self._carriers[key]
            watch.users -= 1
            if not watch.users:
                del self._carriers[key]
                _remove(self._carriers_by_label, term.who.anchor, watch)
                for other in self._meant(term.who):
                    other.faces[term.effect].remove(watch.counter)

    @staticmethod
    def _near(by_label: Mapping[tuple[str, str] | None, list[_T]], cls: TaskClass) -> Iterator[_T]:
        """What may mean the class: under one of its labels, or under none."""
        yield from by_label.get(None, ())
        for label in cls.labels.items():
            yield from by_label.get(label, ())

    def _meant(self, who: Who) -> Iterator[_Met]:
        """The known classes that are meant; those alike in what selectors see are asked about once."""
        anchor = who.anchor
        sets = self._alike.values() if anchor is None else self._alike_by_label.get(anchor, ())
        for alike in sets:
            if who.match(alike[0].cls, self._labels_of):
                yield from alike

    # --- counters -----------------------------------------------------------------------------------------------------

    def target(self, topology_key: str, who: Who) -> Counter:
        """The pods that are meant, by domain of a topology."""
        return self._target((topology_key, who), who, lambda: self._counter(topology_key))

    def target_among(self, token: object, domain: Ids, domains: int, who: Who) -> Counter:
        """The same over domains of the caller's making; `token` tells them apart from others."""
        return self._target((token, who), who, lambda: Counter(domain, domains))

    def facing(self, cls: TaskClass, effect: str) -> list[Counter]:
        """The carriers' counters of all terms of an effect that mean pods of this class; it follows what is known, as
        long as the class itself is.
        """
        return self.meet(cls).faces.setdefault(effect, [])

    def _target(self, key: object, who: Who, make: Callable[[], Counter]) -> Counter:
        watch = self._targets.get(key)
        if watch is None:
            watch = self._targets[key] = _Watch(who, make())
            self._targets_by_label.setdefault(who.anchor, []).append(watch)
            for met in self._meant(who):
                met.moves.append((watch.counter, 1))
                watch.counter.add_all(self._standing.get(met.cls, _NO_ROWS))
                watch.counter.add_all(met.rows)
        return watch.counter

    def _carrier(self, term: Carried) -> _Watch:
        """The carrier of a term: one for all classes that carry it, each with a weight of its own."""
        key = (term.effect, term.topology_key, term.who)
        watch = self._carriers.get(key)
        if watch is None:
            watch = self._carriers[key] = _Watch(term.who, self._counter(term.topology_key), term.effect)
            self._carriers_by_label.setdefault(term.who.anchor, []).append(watch)
            for met in self._meant(term.who):
                met.faces.setdefault(term.effect, []).append(watch.counter)
        return watch

    def _counter(self, topology_key: str) -> Counter:
        ids, values = self._table.labels(topology_key)
        return Counter(ids, len(values))


def _like(cls: TaskClass) -> object:
    """What selectors see of a class."""
    return cls.namespace, tuple(sorted(cls.labels.items()))


def _remove(lists: dict[_K, list[_T]], key: _K, entry: _T) -> None:
    """Take one entry, that very object, out of a list; a list that is empty goes."""
    entries = lists[key]
    entries[:] = [each for each in entries if each is not entry]
    if not entries:
        del lists[key]
