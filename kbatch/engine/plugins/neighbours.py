"""What pods anywhere decide for one: required inter-pod affinity and anti-affinity, topology spread (DoNotSchedule).

Counters per domain. They are kept from cycle to cycle and follow the pods that come and go; a cycle moves them as it
places and removes pods, and takes that back at its end.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Sequence
from typing import Final

import numpy as np

from kbatch.api.node_reasons import PodAffinityUnsatisfied, PodAntiAffinityViolated, TopologySpreadViolated
from kbatch.api.reasons import Reason
from kbatch.engine.cooperative import finish
from kbatch.engine.plugin import DomainLimit, View
from kbatch.engine.plugins.coupled import ANTI, Coupled, Kept, Nominated
from kbatch.engine.plugins.occupants import Occupants, occupants_of
from kbatch.engine.plugins.terms import Who, hard_constraints, required_terms, who_alike, who_of, who_of_all
from kbatch.engine.plugins.waiting import waiting_of
from kbatch.engine.state.node_resources import Rows
from kbatch.model.nodes import Column, Mask, NodeTable
from kbatch.model.tasks import TaskClass


class Neighbours:
    """What required terms and hard constraints of pods say, in one cycle of a cluster that has such pods."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._model = view.model
        self._table: NodeTable = view.nodes
        self._name: Final = "neighbours", view.emptied
        self._occupants: Occupants | None = None
        self._version = 0
        self._kept: Kept | None = None
        self._company: dict[int, int] = {}
        self._nominated: Nominated | None = None

    def prepare(self) -> Iterator[None]:
        """Where any pod may ask, get to know who stands where and who speaks of whom."""
        if any(job.waiting for job in self._model.live.values()):
            yield from self._taking()

    def let_go(self) -> Iterator[None]:
        """Give the counters back for the next cycle. Nothing is asked any more."""
        kept, self._kept = self._kept, None
        if kept is not None and self._occupants is not None:
            yield from kept.reset()
            self._occupants.give_back(self._name, kept, self._version)

    def _taking(self) -> Generator[None, None, None]:
        """Take the counters that the last cycle left, or count."""
        if self._kept is not None:
            return
        occupants = yield from occupants_of(self._model, self._table)
        kept = occupants.take(self._name, Kept)
        if kept is None:
            kept = Kept(self._view, occupants)
            yield from kept.meet_all()
        yield from kept.speaking()
        self._kept, self._occupants, self._version = kept, occupants, occupants.version

    def _counters(self) -> Kept:
        if self._kept is None:
            finish(self._taking())
        if self._kept is None:
            raise LookupError("counters were not taken")
        return self._kept

    def concern(self, cls: TaskClass) -> bool:
        """Whether the class looks at other pods, or others look at it."""
        demands = any(required_terms(cls.spec)) or bool(hard_constraints(cls.spec))
        return demands or bool((self._kept or self._counters()).standing.facing(cls, ANTI))

    def together(self, cls: TaskClass) -> bool:
        """Whether pods of the class satisfy their own required affinity."""
        return bool(required_terms(cls.spec)[0]) and self._coupled(cls).own

    def company(self, cls: TaskClass) -> int:
        """How many waiting pods the class's required affinity means, if it means its own kind too; else 0."""
        found = self._company.get(cls.id)
        if found is None:
            near = self._coupled(cls).near if self.together(cls) else None
            found = self._company[cls.id] = waiting_of(self._model, self._table).of(near) if near is not None else 0
        return found

    def on_own_kind(self, cls: TaskClass) -> int:
        """How many of its demands count pods of the class itself; 2 at least where they must stand together."""
        affinity, anti = required_terms(cls.spec)
        meant = [who_of(term, cls) for term in anti]
        meant += [who_alike(each.label_selector, each.match_label_keys, cls) for each in hard_constraints(cls.spec)]
        if affinity:
            meant += [who_of_all(affinity, cls)] * 2
        labels_of = (self._kept or self._counters()).namespace_labels
        return sum(1 for who in meant if who.match(cls, labels_of))

    def takes_one(self, cls: TaskClass) -> Mask | None:
        """The rows in a domain of which anti-affinity of the class lets in one of its own pods at most; None: none."""
        found: Mask | None = None
        for term in required_terms(cls.spec)[1]:
            if who_of(term, cls).match(cls, (self._kept or self._counters()).namespace_labels):
                rows = self._table.labels(term.topology_key)[0] >= 0
                found = rows if found is None else found | rows
        return found

    def domain_limits(self, cls: TaskClass, others: Sequence[TaskClass]) -> Iterator[DomainLimit]:
        """By the terms and constraints that count pods of the class itself. Where hosts are the domains `takes_one`
        says enough; where others count in a constraint of spread, too, these may raise the least count.
        """
        anti, constraints = required_terms(cls.spec)[1], hard_constraints(cls.spec)
        if not (anti or constraints):
            return
        labels_of = (self._kept or self._counters()).namespace_labels
        coupled = self._coupled(cls)
        for term, counter in zip(anti, coupled.anti, strict=True):
            if 2 * len(counter.counts) <= len(self._table) and who_of(term, cls).match(cls, labels_of):
                yield DomainLimit(counter.domain, counter.counts.copy())
        for constraint, spread in zip(constraints, coupled.spread, strict=True):
            who = who_alike(constraint.label_selector, constraint.match_label_keys, cls)
            if spread.own and not any(who.match(other, labels_of) for other in others):
                few = len(spread.present) < (constraint.min_domains or 1)
                present = np.zeros(0, np.intp) if few else spread.present
                yield DomainLimit(spread.domain, spread.counter.counts.copy(), constraint.max_skew, present)

    def heeds(self, cls: TaskClass, other: TaskClass) -> bool:
        """Whether a pod of the class `other` counts in anything that decides about the class, once it waits."""
        coupled = self._coupled(cls)
        counters = (*(each.counter for each in coupled.spread), *coupled.anti, *coupled.facing, *coupled.affinity)
        kept = self._kept or self._counters()
        return kept.standing.moves(other, counters)

    def alike(self, classes: Sequence[TaskClass]) -> Hashable:
        """Which of these classes look at which, and how. Where they look at pods that stand, or others are known whose
        pods would look at theirs, each class is one of its own.
        """
        kept = self._kept or self._counters()
        carried = {(term.topology_key, who_of(term, cls)) for cls in classes for term in required_terms(cls.spec)[1]}
        found: list[Hashable] = []
        for cls in classes:
            facing = kept.standing.facing(cls, ANTI)
            if len(facing) != sum(1 for _, who in carried if who.match(cls, kept.namespace_labels)):
                return tuple(each.id for each in classes)
            coupled = kept.coupled(cls) if self.concern(cls) else Coupled()
            counters = (*coupled.affinity, *coupled.anti_now, *facing, *(each.counter for each in coupled.spread))
            if any(counter.total for counter in counters):
                return tuple(each.id for each in classes)
            found.append(self._demands(cls, classes))
        return tuple(found)

    def _demands(self, cls: TaskClass, classes: Sequence[TaskClass]) -> Hashable:
        """What a class demands, with "which of the classes are meant" in the place of selectors."""
        labels_of = (self._kept or self._counters()).namespace_labels
        affinity, anti = required_terms(cls.spec)

        def meant(who: Who) -> tuple[bool, ...]:
            return tuple(who.match(each, labels_of) for each in classes)

        near = (tuple(term.topology_key for term in affinity), meant(who_of_all(affinity, cls))) if affinity else None
        far = tuple((term.topology_key, meant(who_of(term, cls))) for term in anti)
        spread = tuple(
            (each.topology_key, each.max_skew, each.min_domains, each.node_affinity_policy, each.node_taints_policy,
             meant(who_alike(each.label_selector, each.match_label_keys, cls)))
            for each in hard_constraints(cls.spec)
        )  # fmt: skip
        return near, far, spread

    def told_apart(self, cls: TaskClass) -> list[Column]:
        """Columns: to the class, as far as other pods go, rows are alike that are equal in all of them.

        Where nearly each row is a domain of its own (hosts), its count stands for it.
        """
        coupled = self._coupled(cls)
        counters = [*(each.counter for each in coupled.spread), *coupled.anti_now, *coupled.facing, *coupled.affinity]
        if self._nominated is not None:
            counters += self._nominated.counters(cls, coupled)
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
        nominated = None if later else self._nominated
        for spread in coupled.spread:
            yield spread.violated(), TopologySpreadViolated
        if nominated is not None:
            for mask in nominated.uneven(cls, coupled):
                yield mask, TopologySpreadViolated
        against = (*coupled.anti, *coupled.facing)
        if not later:
            against = (*coupled.anti_now, *coupled.facing, *coupled.leaving_facing)
        for counter in against:
            if counter.total:
                yield counter.everywhere() > 0, PodAntiAffinityViolated
        for mask in coupled.strangers():
            yield mask, PodAffinityUnsatisfied
        if nominated is not None:
            for mask in nominated.strangers(cls, coupled):
                yield mask, PodAffinityUnsatisfied

    def roomiest(self, cls: TaskClass, rows: Rows, allowed: Mask) -> Mask | None:
        """For the first of pods that must stay together: those of `rows` in the domains that take most of them.

        `allowed` says of all rows whether the node alone would take the class. None: all are alike, or others stand.
        """
        coupled = self._coupled(cls)
        if not coupled.is_first():
            return None
        company = self.company(cls)
        if company < 2:
            return None
        finest = max(coupled.affinity, key=lambda counter: len(counter.counts))
        fitting = np.where(allowed, np.int64(company), np.int64(0))
        for name, amount in cls.needs:
            free = rows.room.future[name] if rows.later else np.minimum(rows.room.future[name], rows.room.idle[name])
            np.minimum(fitting, np.maximum(free, 0) // amount, out=fitting)
        inside = finest.domain >= 0
        capacity = np.zeros(len(finest.counts), np.int64)
        np.add.at(capacity, finest.domain[inside], fitting[inside])
        np.minimum(capacity, company, out=capacity)
        best = int(capacity.max())
        return (capacity[finest.domain] == best)[rows.index] if best else None

    def move(self, cls: TaskClass, row: int, sign: int, *, stays: bool) -> None:
        """One more or one less of a class on a row; `stays`: it begins (or ceases) to terminate there."""
        kept = self._kept or self._counters()
        kept.standing.add(cls, row, sign)
        if stays:
            kept.leaving.add(cls, row, -sign)

    def wait(self, cls: TaskClass, row: int, sign: int) -> None:
        """One more or one less of those on a row only waits for it."""
        if self._nominated is None:
            kept = self._kept or self._counters()
            occupants = self._occupants
            if occupants is None:
                raise LookupError("counters were not taken")
            self._nominated = Nominated(self._table, occupants, kept.namespace_labels)
        self._nominated.add(cls, row, sign)

    def _coupled(self, cls: TaskClass) -> Coupled:
        return (self._kept or self._counters()).coupled(cls)
