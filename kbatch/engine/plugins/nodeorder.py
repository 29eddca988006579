"""nodeorder: which of the nodes that fit is best.

Each part gives 0..100 and counts as often as its weight says. The parts that every pod has (requested, balanced) look
at the node alone, so a gang of like pods is placed in one go; only pods that prefer other pods, or to spread, make the
engine look at all nodes again for each of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from pydantic import BaseModel

from kbatch.api.placement import Placement
from kbatch.engine.plugin import NO_UNDO, Plugin, Scope, Scores, Undo, View
from kbatch.engine.plugins import columns
from kbatch.engine.plugins.arguments import NodeOrderArguments
from kbatch.engine.plugins.coupling import Carried, CouplingIndex
from kbatch.engine.plugins.domains import Counter, domains_of
from kbatch.engine.plugins.occupants import STANDING, Occupants, occupants_of
from kbatch.engine.plugins.terms import (
    namespace_labels,
    preferred_terms,
    required_terms,
    soft_constraints,
    who_alike,
    who_of,
)
from kbatch.engine.state.node_resources import Index, Rows
from kbatch.model import matching
from kbatch.model.nodes import Column, NodeTable
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import CPU, MEMORY, PODS

_SOFT: Final = "preferences"
_BEST: Final = 100


class _Use(NamedTuple):
    """Weights of the parts that look at a node's use."""

    least_requested: int
    most_requested: int
    balanced_resource: int


@dataclass(frozen=True, slots=True)
class _Preferences:
    """What one class prefers of pods elsewhere: counters with their weights, and the domains to spread over."""

    counters: tuple[tuple[Counter, int], ...]
    facing: list[Counter]
    spread: tuple[tuple[Counter, Index], ...]


class _Kept:
    """What is kept from cycle to cycle: which classes prefer any pods and, where one does, the counters."""

    def __init__(self, view: View) -> None:
        self.index: CouplingIndex | None = None
        self._table = view.nodes
        self._classes = view.model.classes
        self._labels_of = partial(namespace_labels, view.model)
        self._known: set[int] = set()
        self._soft: set[int] = set()
        """Those of the known classes that prefer any pods."""
        self._position = -1

    def preparing(self, occupants: Occupants) -> Iterator[None]:
        """Know the classes of this snapshot that speak of other pods, and no others that do."""
        self._look()
        if not self._soft:
            self.index = None
            return
        if self.index is None:
            self.index = CouplingIndex(self._table, occupants, STANDING, _carried, self._labels_of)
            yield from self.index.meet_all()
        for _ in self.index.speaking(self._classes):
            yield

    def _look(self) -> None:
        """Look at the classes that have begun, or ceased, to speak of other pods."""
        coupling, changes = self._classes.coupling, self._classes.coupling_changes
        changed: Iterable[int] | None = changes.since(self._position) if self._position >= 0 else None
        self._position = changes.position
        for number in {*self._known, *coupling} if changed is None else changed:
            cls = coupling.get(number)
            if cls is None:
                self._known.discard(number)
                self._soft.discard(number)
            elif number not in self._known:
                self._known.add(number)
                if soft_constraints(cls.spec) or any(_carried(cls)):
                    self._soft.add(number)

    def moved(self, part: int, cls: TaskClass, row: int, amount: int) -> None:
        """See `Follower`."""
        if self.index is not None:
            self.index.moved(part, cls, row, amount)


class NodeOrder(Plugin):
    """Least and most requested, balanced, preferred node affinity, preferred inter-pod affinity and anti-affinity,
    PreferNoSchedule taints, spread with ScheduleAnyway, image locality.

    Arguments, whole numbers: `leastrequested.weight` 1, `mostrequested.weight` 0, `balancedresource.weight` 1,
    `nodeaffinity.weight` 1, `podaffinity.weight` 1, `tainttoleration.weight` 1, `imagelocality.weight` 1,
    `podtopologyspread.weight` 2; see `NodeOrderArguments`. Each part is 0..100 before its weight:

    * least requested: mean over cpu and memory of free / allocatable, after the pod; most requested: of the used part.
      For a pod that requests neither, the places for pods count instead, or all such pods would go to one node;
    * balanced: 100 less the distance, in per cent, between the used parts of cpu and of memory; 0 where one is full;
    * node affinity: the weights of the preferred terms that match, of all their weights;
    * taints: 100 with no PreferNoSchedule taint against the pod, 0 with as many as any node has of such;
    * images: see `columns.image_locality`;
    * inter-pod: the sum of weights over pods in the domain, of the pod's own preferred terms and of theirs that mean it
      (required affinity of theirs counts 1), from the worst node (0) to the best (100);
    * spread: for each constraint from the fullest domain (0) to the emptiest (100), and their mean.

    Where the pod's queue asks for a placement, requested and balanced count only for `Spread`; with weight 1 each if
    neither least requested nor balanced has any.
    """

    name: ClassVar[str] = "nodeorder"
    Arguments: ClassVar[type[BaseModel]] = NodeOrderArguments
    scope: ClassVar[Scope] = Scope.NODE
    stands_in: ClassVar[Mapping[Placement, Mapping[str, Any]]] = {
        Placement.SPREAD: {
            f"{part}.weight": 0
            for part in ("nodeaffinity", "podaffinity", "tainttoleration", "imagelocality", "podtopologyspread")
        }
    }

    def __init__(self, arguments: NodeOrderArguments, view: View) -> None:
        super().__init__(arguments, view)
        self._weights = arguments
        self._table: NodeTable = view.nodes
        spreads = bool(arguments.least_requested or arguments.balanced_resource)
        self._usual = _Use(arguments.least_requested, arguments.most_requested, arguments.balanced_resource)
        self._spread = _Use(arguments.least_requested, 0, arguments.balanced_resource) if spreads else _Use(1, 0, 1)
        self._of_use = any(self._usual) or any(
            queue.record.placement is Placement.SPREAD for queue in view.queues.values()
        )
        self._scopes: dict[int, Scope] = {}
        self._statics: dict[int, Column] = {}
        self._preferences: dict[int, _Preferences] = {}
        self._index: CouplingIndex | None = None
        self._kept: tuple[_Kept, Occupants, int] | None = None

    def let_go(self) -> Iterator[None]:
        """Give the counters back for the next cycle."""
        taken, self._kept, self._index = self._kept, None, None
        if taken is not None:
            kept, occupants, version = taken
            if kept.index is not None:
                yield from kept.index.reset()
            occupants.give_back(self.name, kept, version)

    def prepare(self) -> Iterator[None]:
        """Take the counters that the last cycle left, or count."""
        model, weights = self.view.model, self._weights
        if model.classes.coupled and (weights.pod_affinity or weights.topology_spread):
            occupants = yield from occupants_of(model, self._table)
            kept = occupants.take(self.name, _Kept) or _Kept(self.view)
            yield from kept.preparing(occupants)
            self._kept = kept, occupants, occupants.version
            self._index = kept.index

    # --- the contract -------------------------------------------------------------------------------------------------

    def score_scope(self, cls: TaskClass) -> Scope:
        """NODE, unless the class prefers pods or is preferred by some."""
        found = self._scopes.get(cls.id)
        if found is None:
            found = self._scopes[cls.id] = self._scope(cls)
        return found

    def _scope(self, cls: TaskClass) -> Scope:
        if self._index is not None:
            if self._weights.pod_affinity and (preferred_terms(cls.spec) or self._index.facing(cls, _SOFT)):
                return Scope.CLUSTER
            if self._weights.topology_spread and soft_constraints(cls.spec):
                return Scope.CLUSTER
        return Scope.NODE if self._of_use else Scope.STATIC

    def depends(self, cls: TaskClass) -> Hashable:
        """Only on what stands on the nodes."""
        return None

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores:
        """See the class."""
        score: Scores = self._static(cls)[rows.index]
        use = self._usual if rows.placement is None else self._spread if rows.placement is Placement.SPREAD else None
        if use is not None and any(use):
            self._add_use(cls, rows, score, use)
        if self._index is not None and self.score_scope(cls) is Scope.CLUSTER:
            preferences = self._preferences.get(cls.id)
            if preferences is None:
                preferences = self._preferences[cls.id] = self._prefer(self._index, cls)
            self._add_preferences(preferences, rows.index, score)
        return score

    def follows(self, cls: TaskClass) -> bool:
        """Whether any pod looks at others."""
        return self._index is not None

    def placed(self, task: Task, row: int) -> Undo:
        """Count the pod where it will stand."""
        index = self._index
        if index is None:
            return NO_UNDO
        index.add(task.cls, row)
        return lambda: index.add(task.cls, row, -1)

    def removed(self, task: Task, row: int) -> Undo:
        """Count the pod no longer."""
        index = self._index
        if index is None:
            return NO_UNDO
        index.add(task.cls, row, -1)
        return lambda: index.add(task.cls, row)

    # --- the node itself ----------------------------------------------------------------------------------------------

    def _static(self, cls: TaskClass) -> Column:
        found = self._statics.get(cls.id)
        if found is None:
            key = ("nodeorder", self._weights, _of_the_node(cls))
            found = self._statics[cls.id] = matching.cached(self._table, key, lambda: self._work_out(cls))
        return found

    def _work_out(self, cls: TaskClass) -> Column:
        """What labels, taints and images say; kept until a node changes."""
        table, weights = self._table, self._weights
        score = np.zeros(len(table), np.int64)
        affinity = cls.spec.affinity.node_affinity if cls.spec.affinity is not None else None
        terms = affinity.preferred if affinity is not None else None
        if weights.node_affinity and terms:
            whole = sum(max(0, term.weight) for term in terms)
            score += weights.node_affinity * (columns.preferred(table, terms) * _BEST // max(1, whole))
        if weights.taint_toleration:
            most = max((columns.soft_taint_count(taints) for taints in table.taint_sets), default=0)
            if most:
                against = columns.soft_taints(table, cls.spec.tolerations or ())
                score += weights.taint_toleration * (_BEST - against * _BEST // most)
        if weights.image_locality:
            score += weights.image_locality * columns.image_locality(table, cls.spec)
        return score

    # --- its use ------------------------------------------------------------------------------------------------------

    def _add_use(self, cls: TaskClass, rows: Rows, score: Scores, weights: _Use) -> None:
        request = cls.request
        if request.get(CPU) or request.get(MEMORY):
            parts = [_used_part(rows, CPU, request.get(CPU, 0)), _used_part(rows, MEMORY, request.get(MEMORY, 0))]
        else:
            parts = [_used_part(rows, PODS, 1)]
        if weights.least_requested:
            taken = np.minimum(parts[0], _BEST)
            for part in parts[1:]:
                taken += np.minimum(part, _BEST)
            score += weights.least_requested * ((_BEST * len(parts) - taken) // len(parts))
        if weights.most_requested:
            used = sum((np.where(part > _BEST, 0, part) for part in parts), np.zeros(len(rows), np.int64))
            score += weights.most_requested * (used // len(parts))
        if weights.balanced_resource and len(parts) == 2:
            cpu, memory = parts
            even = _BEST - np.abs(cpu - memory)
            even[(cpu >= _BEST) | (memory >= _BEST)] = 0
            score += weights.balanced_resource * even

    # --- pods elsewhere -----------------------------------------------------------------------------------------------

    def _prefer(self, index: CouplingIndex, cls: TaskClass) -> _Preferences:
        counters: list[tuple[Counter, int]] = []
        facing: list[Counter] = []
        spread: list[tuple[Counter, Index]] = []
        if self._weights.pod_affinity:
            facing = index.facing(cls, _SOFT)
            for term, weight in preferred_terms(cls.spec):
                counters.append((index.target(term.topology_key, who_of(term, cls)), weight))
        if self._weights.topology_spread:
            constraints = soft_constraints(cls.spec)
            for at, constraint in enumerate(constraints):
                domain, present, domains = domains_of(self._table, cls.spec, constraints, constraint)
                who = who_alike(constraint.label_selector, constraint.match_label_keys, cls)
                spread.append((index.target_among(("soft spread", cls.id, at), domain, domains, who), present))
        return _Preferences(tuple(counters), facing, tuple(spread))

    def _add_preferences(self, preferences: _Preferences, rows: Index, score: Scores) -> None:
        if preferences.counters or preferences.facing:
            raw = np.zeros(len(self._table), np.int64)
            for counter, weight in preferences.counters:
                raw += weight * counter.everywhere()
            for counter in preferences.facing:
                raw += counter.everywhere()
            if len(raw) and raw.max() > raw.min():
                low, high = int(raw.min()), int(raw.max())
                score += self._weights.pod_affinity * ((raw[rows] - low) * _BEST // (high - low))
        if preferences.spread:
            even = np.zeros(len(rows), np.int64)
            for counter, domains in preferences.spread:
                if len(domains):
                    counts = counter.counts[domains]
                    low, high = int(counts.min()), int(counts.max())
                    emptier = (high - counter.on(rows)) * _BEST // (high - low) if high > low else _BEST
                    even += np.where(counter.inside(rows), emptier, 0)
            score += self._weights.topology_spread * (even // len(preferences.spread))


def _of_the_node(cls: TaskClass) -> Hashable:
    """All of a class that `_work_out` reads."""
    affinity = cls.spec.affinity.node_affinity if cls.spec.affinity is not None else None
    images = tuple(sorted({container.image for container in cls.spec.containers}))
    return affinity.preferred if affinity is not None else None, cls.spec.tolerations or (), images


def _used_part(rows: Rows, name: str, more: int) -> Column:
    """How much of a dimension is used with `more`, in per cent of what there is, rounded up; 100 of nothing."""
    allocatable = rows.allocatable(name)
    part: Column = allocatable - rows.free(name)
    part += more
    part *= -_BEST
    part //= np.maximum(allocatable, 1)
    np.negative(part, out=part)
    part[allocatable <= 0] = _BEST
    return np.maximum(part, 0, out=part)


def _carried(cls: TaskClass) -> Iterator[Carried]:
    """What pods of a class say of others: their preferred terms, and (as 1) their required affinity."""
    for term, weight in preferred_terms(cls.spec):
        yield Carried(_SOFT, term.topology_key, who_of(term, cls), weight)
    for term in required_terms(cls.spec)[0]:
        yield Carried(_SOFT, term.topology_key, who_of(term, cls))
