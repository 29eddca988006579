"""What a class of pods demands of pods elsewhere, as counters: its required terms and hard constraints, and those of
others that mean it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Final

from kbatch.api.objects import TopologySpreadConstraint
from kbatch.engine.plugin import View
from kbatch.engine.plugins.coupling import Carried, CouplingIndex
from kbatch.engine.plugins.domains import Counter, domains_of
from kbatch.engine.plugins.occupants import FOREIGN, LEAVING, STANDING, Occupants
from kbatch.engine.plugins.terms import (
    NamespaceLabels,
    Who,
    hard_constraints,
    namespace_labels,
    required_terms,
    who_alike,
    who_of,
    who_of_all,
)
from kbatch.engine.state.node_resources import Index
from kbatch.model.nodes import Ids, Mask, NodeTable
from kbatch.model.tasks import TaskClass

ANTI: Final = "required anti-affinity"


@dataclass(frozen=True, slots=True)
class Spread:
    """A constraint of topology spread for one class: pods alike by domain, among the nodes that take part.

    `domain` is that of every node with the label, also of such as do not take part; `present` are those that do. `who`
    are the pods alike.
    """

    who: Who
    counter: Counter
    domain: Ids
    present: Index
    constraint: TopologySpreadConstraint
    own: int

    def violated(self, fewer: Counter | None = None) -> Mask:
        """The rows on which one more pod would make the domains too uneven, or that stand in no domain; `fewer`: with
        so many less of those that are counted.
        """
        counts = self.counter.counts if fewer is None else self.counter.counts - fewer.counts
        least = 0
        if len(self.present) and len(self.present) >= (self.constraint.min_domains or 1):
            least = int(counts[self.present].min())
        full = counts + (self.own - least) > self.constraint.max_skew
        full[-1] = True  # the cell of rows in no domain
        mask: Mask = full[self.domain]
        return mask


@dataclass(slots=True)
class Coupled:
    """What one class demands of pods elsewhere, as counters.

    `near` are the pods that its required affinity means, `own` says that pods of the class are among them. `anti_now`
    and `leaving_facing` count terminating pods as well (or alone): a pod that binds now must avoid them too.
    """

    affinity: tuple[Counter, ...] = ()
    own: bool = False
    near: Who | None = None
    anti: tuple[Counter, ...] = ()
    facing: list[Counter] = field(default_factory=list)
    anti_now: tuple[Counter, ...] = ()
    leaving_facing: list[Counter] = field(default_factory=list)
    spread: tuple[Spread, ...] = ()

    def is_first(self, fewer: Sequence[Counter] = ()) -> bool:
        """Whether the class wants to be with its own kind and would be the first of it; `fewer`: with so many less of
        those that its affinity means, term by term.
        """
        return self.own and sum(each.total for each in self.affinity) == sum(each.total for each in fewer)

    def strangers(self, fewer: Sequence[Counter] = ()) -> Iterator[Mask]:
        """For each term of its affinity the rows without company; `fewer` as above."""
        first = self.is_first(fewer)  # of a group that wants to be with its own kind: it may stand in any domain
        for counter, less in zip_longest(self.affinity, fewer):
            if first:
                yield counter.domain < 0
            else:
                yield (counter.everywhere() if less is None else counter.everywhere() - less.everywhere()) <= 0


class Kept:
    """The counters of one kind of session, with what was worked out of them for each class."""

    def __init__(self, view: View, occupants: Occupants) -> None:
        self._model = view.model
        self._table: NodeTable = view.nodes
        # Not a method of this object: the indexes would refer to it, and it would outlive its last use.
        self.namespace_labels: Final = partial(namespace_labels, self._model)
        standing, leaving = (FOREIGN, None) if view.emptied else (STANDING, LEAVING)
        self.standing = CouplingIndex(self._table, occupants, standing, _carried, self.namespace_labels)
        self.leaving = CouplingIndex(self._table, occupants, leaving, _carried, self.namespace_labels)
        self._couplings: dict[int, Coupled] = {}

    def meet_all(self) -> Iterator[None]:
        """Know whoever stands on nodes."""
        yield from self.standing.meet_all()
        yield from self.leaving.meet_all()

    def speaking(self) -> Iterator[None]:
        """Know the classes of this snapshot that speak of other pods, and no others that do."""
        for gone in self.standing.speaking(self._model.classes):
            for number in gone:
                self._couplings.pop(number, None)
            yield

    def moved(self, part: int, cls: TaskClass, row: int, amount: int) -> None:
        """See `Follower`."""
        self.standing.moved(part, cls, row, amount)
        self.leaving.moved(part, cls, row, amount)

    def reset(self) -> Iterator[None]:
        """Take back what a session did, in pieces."""
        yield from self.standing.reset()
        yield from self.leaving.reset()

    def coupled(self, cls: TaskClass) -> Coupled:
        """What a class demands."""
        found = self._couplings.get(cls.id)
        if found is None:
            found = self._couplings[cls.id] = self._couple(cls)
        return found

    def _couple(self, cls: TaskClass) -> Coupled:
        standing, leaving = self.standing, self.leaving
        affinity, anti = required_terms(cls.spec)
        found = Coupled(facing=standing.facing(cls, ANTI), leaving_facing=leaving.facing(cls, ANTI))
        if affinity:
            found.near = who_of_all(affinity, cls)
            found.affinity = tuple(standing.target(term.topology_key, found.near) for term in affinity)
            found.own = found.near.match(cls, self.namespace_labels)
        found.anti = tuple(standing.target(term.topology_key, who_of(term, cls)) for term in anti)
        found.anti_now = (*found.anti, *(leaving.target(term.topology_key, who_of(term, cls)) for term in anti))
        found.spread = tuple(self._spreads(cls))
        return found

    def _spreads(self, cls: TaskClass) -> Iterator[Spread]:
        constraints = hard_constraints(cls.spec)
        for at, constraint in enumerate(constraints):
            ids, _ = self._table.labels(constraint.topology_key)
            domain, present, domains = domains_of(self._table, cls.spec, constraints, constraint)
            who = who_alike(constraint.label_selector, constraint.match_label_keys, cls)
            counter = self.standing.target_among(("hard spread", cls.id, at), domain, domains, who)
            own = int(who.match(cls, self.namespace_labels))
            yield Spread(who, counter, ids, present, constraint, own)


class Nominated:
    """The pods that only wait for their rows, in one cycle. All other counters have them too: for whoever waits like
    them they will be there. Who binds now must do with them and without: they may come late, or never.
    """

    def __init__(self, table: NodeTable, occupants: Occupants, labels_of: NamespaceLabels) -> None:
        self._index = CouplingIndex(table, occupants, None, lambda _: (), labels_of)
        self._counters: dict[int, tuple[list[Counter], list[Counter]]] = {}
        self._pods = 0

    def add(self, cls: TaskClass, row: int, sign: int) -> None:
        """One more pod of a class waits for a row, or one less."""
        self._pods += sign
        self._index.add(cls, row, sign)

    def uneven(self, cls: TaskClass, coupled: Coupled) -> Iterator[Mask]:
        """The rows on which a pod of a class would make domains too uneven without those that wait; `coupled` is what
        the class demands.
        """
        if self._pods and coupled.spread:
            for each, fewer in zip(coupled.spread, self._fewer(cls, coupled)[0], strict=True):
                if fewer.total:
                    yield each.violated(fewer)

    def strangers(self, cls: TaskClass, coupled: Coupled) -> Iterator[Mask]:
        """The rows on which a pod of a class would be without company that it needs, without those that wait."""
        if self._pods and coupled.affinity:
            fewer = self._fewer(cls, coupled)[1]
            if any(each.total for each in fewer):
                yield from coupled.strangers(fewer)

    def counters(self, cls: TaskClass, coupled: Coupled) -> list[Counter]:
        """Those that wait, as far as they matter to a pod of a class that binds now."""
        if not (self._pods and (coupled.spread or coupled.affinity)):
            return []
        spread, affinity = self._fewer(cls, coupled)
        return [*spread, *affinity]

    def _fewer(self, cls: TaskClass, coupled: Coupled) -> tuple[list[Counter], list[Counter]]:
        """Those that wait, as the counters of the class's spread and affinity have them."""
        found = self._counters.get(cls.id)
        if found is None:
            found = self._counters[cls.id] = self._count(cls, coupled)
        return found

    def _count(self, cls: TaskClass, coupled: Coupled) -> tuple[list[Counter], list[Counter]]:
        index = self._index
        spread = [
            index.target_among(("hard spread", cls.id, at), each.counter.domain, len(each.counter.counts) - 1, each.who)
            for at, each in enumerate(coupled.spread)
        ]
        near = coupled.near
        terms = required_terms(cls.spec)[0] if near is not None else ()
        return spread, [index.target(term.topology_key, near) for term in terms if near is not None]


def _carried(cls: TaskClass) -> Iterator[Carried]:
    """What pods of a class forbid others: their required anti-affinity holds for whoever comes after them too."""
    for term in required_terms(cls.spec)[1]:
        yield Carried(ANTI, term.topology_key, who_of(term, cls))
