"""Pods that look at other pods: how many of which pods stand in each topology domain, kept while a session decides.

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

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import numpy as np

from kbatch.api.objects import PodSpec, TopologySpreadConstraint
from kbatch.engine.cooperative import emptying
from kbatch.engine.plugins.terms import NamespaceLabels, Who
from kbatch.engine.state.node_resources import Index
from kbatch.model import matching
from kbatch.model.cluster import ClusterModel
from kbatch.model.nodes import Column, Ids, Mask, NodeTable
from kbatch.model.tasks import TaskClass

_T = TypeVar("_T")

_PODS_AT_ONCE: Final = 5000
_CLASSES_AT_ONCE: Final = 50
"""To look at so many takes a millisecond or two."""


def taking_part(
    table: NodeTable,
    spec: PodSpec,
    together: Iterable[TopologySpreadConstraint],
    constraint: TopologySpreadConstraint,
) -> Mask:
    """The nodes whose pods count for a constraint of a pod.

    They carry the topology keys of all the constraints of its kind (`together`), are chosen by the pod's node selector
    and affinity unless nodeAffinityPolicy is Ignore, and have no taint against it where nodeTaintsPolicy is Honor.
    """
    mask = np.ones(len(table), np.bool_)
    for each in together:
        mask &= table.labels(each.topology_key)[0] >= 0
    if constraint.node_affinity_policy != "Ignore":
        mask &= matching.selected(table, spec)
    if constraint.node_taints_policy == "Honor":
        mask &= matching.taint_refusals(table, spec.tolerations or ())[0] == 0
    return mask


_Rows: TypeAlias = dict[TaskClass, Index]


def occupants(
    model: ClusterModel, table: NodeTable, *, emptied: bool = False
) -> Generator[None, None, tuple[_Rows, _Rows]]:
    """The rows of all pods on nodes by class, one element per pod: those that stay, and those that are terminating.

    With `emptied`, only other schedulers' pods that stay. In pieces, as it looks at all pods; the same until the model
    changes.
    """
    standing, leaving, foreign = yield from _until_change(model, table, "occupants", _occupants(table))
    return (foreign, {}) if emptied else (standing, leaving)


def _occupants(table: NodeTable) -> Generator[None, None, tuple[_Rows, _Rows, _Rows]]:
    standing: dict[TaskClass, list[int]] = {}
    leaving: dict[TaskClass, list[int]] = {}
    foreign: dict[TaskClass, list[int]] = {}
    work = 0
    for row, record in enumerate(table.records):
        for task in record.tasks.values():
            (leaving if task.terminating else standing).setdefault(task.cls, []).append(row)
            if not (task.job or task.terminating):
                foreign.setdefault(task.cls, []).append(row)
        work += 1 + len(record.tasks)
        if work > _PODS_AT_ONCE:
            work = 0
            yield
    return _arrays(standing), _arrays(leaving), _arrays(foreign)


def _until_change(
    model: ClusterModel, table: NodeTable, name: str, make: Generator[None, None, _T]
) -> Generator[None, None, _T]:
    """What `make` makes, kept until the model changes: it walks over all pods, and several plugins ask."""
    kept: tuple[int, _T] | None = table.static_cache.get(name)
    if kept is None or kept[0] != model.generation:
        made = yield from make
        kept = table.static_cache[name] = (model.generation, made)
    return kept[1]


def present(domain: Ids, domains: int) -> Index:
    """Which domains occur in the column; -1 stands for none."""
    return np.flatnonzero(np.bincount(domain[domain >= 0], minlength=domains))


def _arrays(rows: Mapping[TaskClass, list[int]]) -> dict[TaskClass, Index]:
    return {cls: np.array(each, np.intp) for cls, each in rows.items()}


class Counter:
    """A number for each domain of a topology: `counts[domain]`; the last cell is of nodes that stand in no domain.

    Attributes:
        domain: for each row the index of its domain, -1 for none: nodes without the label, or that do not take part.
        total: over all domains.
    """

    __slots__ = ("counts", "domain", "total")

    def __init__(self, domain: Ids, domains: int) -> None:
        self.domain = domain
        self.counts: Column = np.zeros(domains + 1, np.int64)
        self.total = 0

    def add(self, row: int, amount: int) -> None:
        """Count `amount` more on a row."""
        domain = self.domain[row]
        if domain >= 0:
            self.counts[domain] += amount
            self.total += amount

    def add_all(self, rows: Index, amount: int = 1) -> None:
        """Count `amount` more for each of these rows; a row that stands there twice counts twice."""
        domain = self.domain[rows]
        found = np.bincount(domain[domain >= 0], minlength=len(self.counts))
        self.counts += found * amount
        self.total += int(found.sum()) * amount

    def on(self, rows: Index) -> Column:
        """The count of each row's domain; 0 for rows in no domain."""
        found: Column = self.counts[self.domain[rows]]
        return found

    def everywhere(self) -> Column:
        """The count of every row's domain."""
        found: Column = self.counts[self.domain]
        return found

    def inside(self, rows: Index) -> Mask:
        """Which rows stand in a domain at all."""
        found: Mask = self.domain[rows] >= 0
        return found


@dataclass(eq=False, slots=True)
class _Watch:
    """A counter and the pods it is about."""

    who: Who
    counter: Counter


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
    """A class that the index knows: its pods, the counters they move, the carriers whose terms mean them.

    `known` are the rows of pods that were there at first, `rows` how many came (or went) since on a row.
    """

    cls: TaskClass
    known: Index | None = None
    rows: dict[int, int] = field(default_factory=dict)
    moves: list[tuple[Counter, int]] = field(default_factory=list)
    faces: dict[str, list[Counter]] = field(default_factory=dict)


class CouplingIndex:
    """Counters over the pods that stand, or will stand, on nodes. `pods` is how many it counts.

    Args:
        table: the nodes.
        carried: the terms that pods of a class carry and that matter to others.
        labels_of: the labels of a namespace.
    """

    def __init__(
        self, table: NodeTable, carried: Callable[[TaskClass], Iterable[Carried]], labels_of: NamespaceLabels
    ) -> None:
        self._table = table
        self._carried = carried
        self._labels_of = labels_of
        self.pods = 0
        self._met: dict[int, _Met] = {}
        self._alike: dict[object, list[_Met]] = {}
        self._alike_by_label: dict[tuple[str, str], list[list[_Met]]] = {}
        self._targets: dict[object, _Watch] = {}
        self._targets_by_label: dict[tuple[str, str] | None, list[_Watch]] = {}
        self._carriers: dict[tuple[str, str, Who], Counter] = {}
        self._carriers_by_label: dict[tuple[str, str] | None, list[tuple[str, _Watch]]] = {}

    def let_go(self) -> Iterator[None]:
        """Let go of all counters, in pieces. Nothing is asked any more."""
        for known in (
            self._met, self._alike, self._alike_by_label, self._targets, self._targets_by_label, self._carriers,
            self._carriers_by_label,
        ):  # fmt: skip
            yield from emptying(known)

    # --- pods ---------------------------------------------------------------------------------------------------------

    def meet(self, cls: TaskClass) -> None:
        """Know a class from now on, whether or not pods of it stand anywhere."""
        if cls.id not in self._met:
            self._meet(cls)

    def add(self, cls: TaskClass, row: int, sign: int = 1) -> None:
        """A pod of a class stands on a row (1), or no longer (-1)."""
        met = self._met.get(cls.id)
        if met is None:
            met = self._meet(cls)
        met.rows[row] = met.rows.get(row, 0) + sign
        self.pods += sign
        for counter, weight in met.moves:
            counter.add(row, sign * weight)

    def meet_all(self, classes: Iterable[TaskClass]) -> Iterator[None]:
        """Know all of these classes, in pieces."""
        for number, cls in enumerate(classes, start=1):
            self.meet(cls)
            if not number % _CLASSES_AT_ONCE:
                yield

    def add_all(self, occupants: Mapping[TaskClass, Index]) -> Iterator[None]:
        """Count the pods that are there already: for each class the rows on which its pods stand. Once; in pieces."""
        for number, (cls, rows) in enumerate(occupants.items(), start=1):
            if not number % _CLASSES_AT_ONCE:
                yield
            met = self._met.get(cls.id)
            if met is None:
                met = self._meet(cls)
            met.known = rows
            self.pods += len(rows)
            for counter, weight in met.moves:
                counter.add_all(rows, weight)

    def _meet(self, cls: TaskClass) -> _Met:
        met = self._met[cls.id] = _Met(cls)
        like = cls.namespace, tuple(sorted(cls.labels.items()))
        alike = self._alike.get(like)
        if alike is None:
            alike = self._alike[like] = []
            for label in cls.labels.items():
                self._alike_by_label.setdefault(label, []).append(alike)
        alike.append(met)
        for watch in self._near(self._targets_by_label, cls):
            if watch.who.match(cls, self._labels_of):
                met.moves.append((watch.counter, 1))
        for effect, watch in self._near(self._carriers_by_label, cls):
            if watch.who.match(cls, self._labels_of):
                met.faces.setdefault(effect, []).append(watch.counter)
        for term in self._carried(cls):
            met.moves.append((self._carrier(term), term.weight))
        return met

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
        """The carriers' counters of all terms of an effect that mean pods of this class; grows as more are known."""
        self.meet(cls)
        return self._met[cls.id].faces.setdefault(effect, [])

    def _target(self, key: object, who: Who, make: Callable[[], Counter]) -> Counter:
        watch = self._targets.get(key)
        if watch is None:
            watch = self._targets[key] = _Watch(who, make())
            self._targets_by_label.setdefault(who.anchor, []).append(watch)
            for met in self._meant(who):
                met.moves.append((watch.counter, 1))
                if met.known is not None:
                    watch.counter.add_all(met.known)
                for row, count in met.rows.items():
                    watch.counter.add(row, count)
        return watch.counter

    def _carrier(self, term: Carried) -> Counter:
        key = (term.effect, term.topology_key, term.who)
        counter = self._carriers.get(key)
        if counter is None:
            counter = self._carriers[key] = self._counter(term.topology_key)
            self._carriers_by_label.setdefault(term.who.anchor, []).append((term.effect, _Watch(term.who, counter)))
            for met in self._meant(term.who):
                met.faces.setdefault(term.effect, []).append(counter)
        return counter

    def _counter(self, topology_key: str) -> Counter:
        ids, values = self._table.labels(topology_key)
        return Counter(ids, len(values))
