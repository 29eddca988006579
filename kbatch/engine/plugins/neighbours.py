"""What pods anywhere decide for one: required inter-pod affinity and anti-affinity, topology spread (DoNotSchedule).

Counters per domain, kept while a cycle places and removes pods. Pods are first counted when a class is asked about that
looks at other pods, or that others look at.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from kbatch.api.node_reasons import PodAffinityUnsatisfied, PodAntiAffinityViolated, TopologySpreadViolated
from kbatch.api.objects import TopologySpreadConstraint
from kbatch.api.reasons import Reason
from kbatch.engine.cooperative import emptying, finish
from kbatch.engine.plugin import View
from kbatch.engine.plugins.coupling import Carried, Counter, CouplingIndex, occupants, present, taking_part
from kbatch.engine.plugins.terms import (
    Who,
    hard_constraints,
    namespace_labels,
    required_terms,
    who_alike,
    who_of,
    who_of_all,
)
from kbatch.engine.state.node_resources import Index, Rows
from kbatch.model.nodes import Column, Ids, Mask
from kbatch.model.tasks import TaskClass

_ANTI: Final = "required anti-affinity"


@dataclass(frozen=True, slots=True)
class _Spread:
    """A constraint of topology spread for one class: pods alike by domain, among the nodes that take part.

    `domain` is that of every node with the label, also of such as do not take part; `present` are those that do.
    """

    counter: Counter
    domain: Ids
    present: Index
    constraint: TopologySpreadConstraint
    own: int

    def violated(self) -> Mask:
        """The rows on which one more pod would make the domains too uneven, or that stand in no domain."""
        counts, domain = self.counter.counts, self.domain
        least = 0
        if len(self.present) and len(self.present) >= (self.constraint.min_domains or 1):
            least = int(counts[self.present].min())
        return (domain < 0) | (counts[domain] + self.own - least > self.constraint.max_skew)


@dataclass(slots=True)
class _Coupled:
    """What one class demands of pods elsewhere, as counters.

    `own` says that pods of the class satisfy their own required affinity, `company` how many waiting pods do.
    `anti_now` and `leaving_facing` count terminating pods as well (or alone): a pod that binds now must avoid them too.
    """

    affinity: tuple[Counter, ...] = ()
    own: bool = False
    company: int = 0
    anti: tuple[Counter, ...] = ()
    facing: list[Counter] = field(default_factory=list)
    anti_now: tuple[Counter, ...] = ()
    leaving_facing: list[Counter] = field(default_factory=list)
    spread: tuple[_Spread, ...] = ()

    def is_first(self) -> bool:
        """Whether the class wants to be with its own kind and would be the first of it."""
        return self.own and not any(counter.total for counter in self.affinity)


class Neighbours:
    """What required terms and hard constraints of pods say, in one cycle of a cluster that has such pods."""

    def __init__(self, view: View) -> None:
        self._model = view.model
        self._emptied = view.emptied
        self._table = view.nodes
        self._couplings: dict[int, _Coupled] = {}
        # Not a method of this object: the indexes would refer to it, and all that a cycle has made would outlive it.
        self._namespace_labels: Final = partial(namespace_labels, self._model)
        self._standing = CouplingIndex(self._table, _carried, self._namespace_labels)
        self._leaving = CouplingIndex(self._table, _carried, self._namespace_labels)
        self._counted = False
        self._waits: dict[tuple[str, str] | None, list[tuple[TaskClass, int]]] | None = None
        """The classes of waiting pods and their numbers, under each of their labels; under None all of them."""

    def prepare(self) -> Iterator[None]:
        """Get to know the classes that speak of other pods; and, where any pod may ask, who stands where."""
        classes = list(self._model.classes.coupling.values())
        yield from self._standing.meet_all(classes)
        if any(job.waiting for job in self._model.live.values()):
            yield from self._count()

    def let_go(self) -> Iterator[None]:
        """Let go of everything, in pieces."""
        yield from emptying(self._couplings)
        yield from self._standing.let_go()
        yield from self._leaving.let_go()

    def concern(self, cls: TaskClass) -> bool:
        """Whether the class looks at other pods, or others look at it."""
        demands = any(required_terms(cls.spec)) or bool(hard_constraints(cls.spec))
        return demands or bool(self._standing.facing(cls, _ANTI))

    def together(self, cls: TaskClass) -> bool:
        """Whether pods of the class satisfy their own required affinity."""
        return bool(required_terms(cls.spec)[0]) and self._coupled(cls).own

    def company(self, cls: TaskClass) -> int:
        """How many waiting pods the class's required affinity means, if it means its own kind too; else 0."""
        return self._coupled(cls).company if required_terms(cls.spec)[0] else 0

    def on_own_kind(self, cls: TaskClass) -> int:
        """How many of its demands count pods of the class itself; 2 at least where they must stand together."""
        affinity, anti = required_terms(cls.spec)
        meant = [who_of(term, cls) for term in anti]
        meant += [who_alike(each.label_selector, each.match_label_keys, cls) for each in hard_constraints(cls.spec)]
        if affinity:
            meant += [who_of_all(affinity, cls)] * 2
        return sum(1 for who in meant if who.match(cls, self._namespace_labels))

    def told_apart(self, cls: TaskClass) -> list[Column]:
        """Columns: to the class, as far as other pods go, rows are alike that are equal in all of them.

        Where nearly each row is a domain of its own (hosts), its count stands for it.
        """
        coupled = self._coupled(cls)
        counters = (*(each.counter for each in coupled.spread), *coupled.anti_now, *coupled.facing, *coupled.affinity)
        rows = len(self._table)
        return [
            counter.everywhere() if 2 * len(counter.counts) > rows else counter.domain.astype(np.int64)
            for counter in counters
        ]

    def refusals(self, cls: TaskClass, *, later: bool) -> Iterator[tuple[Mask, type[Reason]]]:
        """The rows that other pods keep the class from, and why; of several reasons for a row the last counts.

        Args:
            cls: whose pod asks.
            later: it will bind once terminating pods are gone.
        """
        coupled = self._coupled(cls)
        for spread in coupled.spread:
            yield spread.violated(), TopologySpreadViolated
        against = (*coupled.anti, *coupled.facing)
        if not later:
            against = (*coupled.anti_now, *coupled.facing, *coupled.leaving_facing)
        for counter in against:
            if counter.total:
                yield counter.everywhere() > 0, PodAntiAffinityViolated
        first = coupled.is_first()  # of a group that wants to be with its own kind: it may stand in any domain
        for counter in coupled.affinity:
            yield counter.domain < 0 if first else counter.everywhere() <= 0, PodAffinityUnsatisfied

    def roomiest(self, cls: TaskClass, rows: Rows, allowed: Mask) -> Mask | None:
        """For the first of pods that must stay together: those of `rows` in the domains that take most of them.

        `allowed` says of all rows whether the node alone would take the class. None: all are alike, or others stand.
        """
        coupled = self._coupled(cls)
        if coupled.company < 2 or not coupled.is_first():
            return None
        finest = max(coupled.affinity, key=lambda counter: len(counter.counts))
        fitting = np.where(allowed, np.int64(coupled.company), np.int64(0))
        for name, amount in cls.needs:
            free = rows.room.future[name] if rows.later else np.minimum(rows.room.future[name], rows.room.idle[name])
            np.minimum(fitting, np.maximum(free, 0) // amount, out=fitting)
        inside = finest.domain >= 0
        capacity = np.zeros(len(finest.counts), np.int64)
        np.add.at(capacity, finest.domain[inside], fitting[inside])
        np.minimum(capacity, coupled.company, out=capacity)
        best = int(capacity.max())
        return (capacity[finest.domain] == best)[rows.index] if best else None

    def move(self, cls: TaskClass, row: int, sign: int, *, stays: bool) -> None:
        """One more or one less of a class on a row; `stays`: it begins (or ceases) to terminate there."""
        self._standing.add(cls, row, sign)
        if stays:
            self._leaving.add(cls, row, -sign)

    def _coupled(self, cls: TaskClass) -> _Coupled:
        found = self._couplings.get(cls.id)
        if found is None:
            found = self._couplings[cls.id] = self._couple(cls)
        return found

    def _couple(self, cls: TaskClass) -> _Coupled:
        finish(self._count())
        standing, leaving = self._standing, self._leaving
        affinity, anti = required_terms(cls.spec)
        found = _Coupled(facing=standing.facing(cls, _ANTI), leaving_facing=leaving.facing(cls, _ANTI))
        if affinity:
            who = who_of_all(affinity, cls)
            found.affinity = tuple(standing.target(term.topology_key, who) for term in affinity)
            found.own = who.match(cls, self._namespace_labels)
            if found.own:
                found.company = self._waiting_like(who)
        found.anti = tuple(standing.target(term.topology_key, who_of(term, cls)) for term in anti)
        found.anti_now = (*found.anti, *(leaving.target(term.topology_key, who_of(term, cls)) for term in anti))
        found.spread = tuple(self._spreads(cls))
        return found

    def _waiting_like(self, who: Who) -> int:
        """How many of the pods that wait for a node are meant."""
        if self._waits is None:
            counts = Counted(task.cls for job in self._model.live.values() for task in job.waiting)
            self._waits = {None: list(counts.items())}
            for cls, count in counts.items():
                for label in cls.labels.items():
                    self._waits.setdefault(label, []).append((cls, count))
        near = self._waits.get(who.anchor, ())
        return sum(count for cls, count in near if who.match(cls, self._namespace_labels))

    def _count(self) -> Generator[None, None, None]:
        """Count the snapshot's pods, once."""
        if not self._counted:
            self._counted = True
            staying, terminating = yield from occupants(self._model, self._table, emptied=self._emptied)
            yield from self._standing.add_all(staying)
            yield from self._leaving.add_all(terminating)

    def _spreads(self, cls: TaskClass) -> Iterator[_Spread]:
        constraints = hard_constraints(cls.spec)
        for at, constraint in enumerate(constraints):
            ids, values = self._table.labels(constraint.topology_key)
            domain = np.where(taking_part(self._table, cls.spec, constraints, constraint), ids, np.int32(-1))
            who = who_alike(constraint.label_selector, constraint.match_label_keys, cls)
            counter = self._standing.target_among(("hard spread", cls.id, at), domain, len(values), who)
            own = int(who.match(cls, self._namespace_labels))
            yield _Spread(counter, ids, present(domain, len(values)), constraint, own)


def _carried(cls: TaskClass) -> Iterator[Carried]:
    """What pods of a class forbid others: their required anti-affinity holds for whoever comes after them too."""
    for term in required_terms(cls.spec)[1]:
        yield Carried(_ANTI, term.topology_key, who_of(term, cls))
