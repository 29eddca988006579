"""predicates: what a pod demands of a node besides room.

Three kinds of demands, told apart so that each pod pays only for its own:

* what the node alone decides (selectors, taints, conditions, where a volume can be reached): worked out once per class
  of pods and kept until a node changes;
* what pods on the same node decide (host ports, attached volumes): worked out again where something moved;
* what pods anywhere decide (inter-pod affinity, topology spread): counters per domain, read again before each pod.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from kbatch.api.node_reasons import (
    DiskPressure,
    HostPortTaken,
    MemoryPressure,
    NodeNotReady,
    NodeSelectorMismatch,
    NodeUnschedulable,
    PidPressure,
    PodAffinityUnsatisfied,
    PodAntiAffinityViolated,
    TopologySpreadViolated,
    UntoleratedTaint,
    VolumeUnavailable,
)
from kbatch.api.objects import PodSpec, Taint, TopologySpreadConstraint
from kbatch.api.reasons import Reason
from kbatch.engine.plugin import NO_UNDO, Codes, Plugin, Scope, Scores, Undo, View
from kbatch.engine.plugins import columns
from kbatch.engine.plugins.coupling import Carried, Counter, CouplingIndex, couples, occupants, taking_part
from kbatch.engine.plugins.occupancy import Occupancy
from kbatch.engine.plugins.terms import (
    hard_constraints,
    namespace_labels,
    required_terms,
    who_alike,
    who_of,
    who_of_all,
)
from kbatch.engine.plugins.volumes import reachable
from kbatch.engine.room import Index, Rows
from kbatch.model.nodes import Ids, Mask, NodeTable
from kbatch.model.selectors import tolerates
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import CPU, MEMORY

_ANTI: Final = "required anti-affinity"
_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_ABOVE_ALL: Final = np.int64(10**8)
"""A score that outweighs any sum of the others."""
_MOST_TAINTS: Final = 200
"""Taint keys that are told apart in one answer; codes are bytes."""


class PredicatesArguments(BaseModel):
    """kube-batch's names; what is not set is off, as it is there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    memory_pressure: bool = Field(
        default=False,
        alias="predicate.MemoryPressureEnable",
        description="pods that request neither cpu nor memory stay off nodes that report MemoryPressure",
    )
    disk_pressure: bool = Field(
        default=False,
        alias="predicate.DiskPressureEnable",
        description="no pod goes to nodes that report DiskPressure",
    )
    pid_pressure: bool = Field(
        default=False,
        alias="predicate.PIDPressureEnable",
        description="no pod goes to nodes that report PIDPressure",
    )


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


class Predicates(Plugin):
    """Node selector and required node affinity, taints, cordons, readiness, pressure, host ports, volumes, required
    inter-pod affinity and anti-affinity (of the pod, and of those that stand there), topology spread (DoNotSchedule).

    Room and the number of pods are the engine's own business; pods with scheduling gates are never asked about.

    Arguments: `predicate.MemoryPressureEnable`, `predicate.DiskPressureEnable`, `predicate.PIDPressureEnable`, each
    false if absent: see `PredicatesArguments`.

    Where pods must be with others of their own kind and none stands yet, the first goes to a domain that takes most of
    them (switched off with `enableNodeOrder: false`).

    A pod that is terminating still holds its host ports and attached volumes, and its domain by anti-affinity, for pods
    that bind now; not for pods that wait for its room. It counts neither for affinity nor for spread.
    """

    name: ClassVar[str] = "predicates"
    Arguments: ClassVar[type[BaseModel]] = PredicatesArguments
    scope: ClassVar[Scope] = Scope.CLUSTER
    reasons: ClassVar[tuple[type[Reason], ...]] = (
        NodeNotReady,
        NodeUnschedulable,
        NodeSelectorMismatch,
        MemoryPressure,
        DiskPressure,
        PidPressure,
        VolumeUnavailable,
        HostPortTaken,
        PodAffinityUnsatisfied,
        PodAntiAffinityViolated,
        TopologySpreadViolated,
    )

    def __init__(self, arguments: PredicatesArguments, view: View) -> None:
        super().__init__(arguments, view)
        self._table: NodeTable = view.nodes
        self._scopes: dict[int, Scope] = {}
        self._statics: dict[int, tuple[Codes, list[str]]] = {}
        self._couplings: dict[int, _Coupled] = {}
        self._standing: CouplingIndex | None = None
        self._leaving: CouplingIndex | None = None
        self._counted = False
        self._waits: Counted[TaskClass] | None = None
        self._occupancy = Occupancy(view.model, self._table)
        if view.model.classes.coupled:
            self._standing = CouplingIndex(self._table, _carried, self._namespace_labels)
            self._leaving = CouplingIndex(self._table, _carried, self._namespace_labels)
            for cls in couples(view.model, self._table):
                self._standing.meet(cls)

    # --- the contract -------------------------------------------------------------------------------------------------

    def predicate_scope(self, cls: TaskClass) -> Scope:
        """STATIC unless the class looks at other pods, or others look at it."""
        found = self._scopes.get(cls.id)
        if found is None:
            found = self._scopes[cls.id] = self._scope(cls)
        return found

    def _scope(self, cls: TaskClass) -> Scope:
        if self._standing is not None and (_demands_pods(cls.spec) or self._standing.facing(cls, _ANTI)):
            return Scope.CLUSTER
        if self._occupancy.shares(cls):
            return Scope.CLUSTER
        return Scope.NODE if self._occupancy.matters(cls) else Scope.STATIC

    def predicate(self, cls: TaskClass, rows: Rows) -> Codes:
        """What the node alone decides first; of several reasons the first in the order of `reasons`, taints last."""
        index = rows.index
        codes: Codes = self._static(cls)[0][index]
        scope = self.predicate_scope(cls)
        if scope is Scope.STATIC:
            return codes
        later = rows.later
        taken = self._occupancy.ports_taken(cls, index, later=later)
        if taken is not None:
            _refuse(codes, taken, _code(HostPortTaken))
        full = self._occupancy.cannot_attach(cls, index, later=later)
        if full is not None:
            _refuse(codes, full, _code(VolumeUnavailable))
        if scope is Scope.CLUSTER:
            used = self._occupancy.claims_used(cls, index, later=later)
            if used is not None:
                _refuse(codes, used, _code(VolumeUnavailable))
            around = self._look_around(cls, later=later)
            codes = np.where(codes == 0, around[index], codes)
        return codes

    def static_predicate(self, cls: TaskClass, rows: Rows) -> Codes:
        """What the node alone decides."""
        codes: Codes = self._static(cls)[0][rows.index]
        return codes

    def score_scope(self, cls: TaskClass) -> Scope:
        """STATIC (no opinion), but for pods that must be where others of their kind are."""
        if self.predicate_scope(cls) is Scope.CLUSTER and self._coupled(cls).own:
            return Scope.CLUSTER
        return Scope.STATIC

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores | None:
        """Before all other preferences: the first of pods that must stay together goes where most can follow it."""
        if self.score_scope(cls) is Scope.STATIC:
            return None
        coupled = self._coupled(cls)
        if coupled.company < 2 or not _is_first(coupled):
            return None
        mask = self._roomiest(cls, coupled, rows)
        return mask * _ABOVE_ALL if mask is not None else None

    def reasons_of(self, cls: TaskClass) -> tuple[Reason, ...]:
        """The types of `reasons`, then a taint for each key that keeps the class away somewhere."""
        keys = self._static(cls)[1]
        return (*(reason() for reason in self.reasons), *(UntoleratedTaint(key) for key in keys))

    def placed(self, task: Task, row: int) -> Undo:
        """Count the pod where it will stand."""
        cls = task.cls
        if self._standing is None and not self._occupancy.counts(cls):
            return NO_UNDO
        self._move(cls, row, 1, stays=False)
        return lambda: self._move(cls, row, -1, stays=False)

    def removed(self, task: Task, row: int) -> Undo:
        """Count the pod no longer; one that stood on a node is leaving it from now on."""
        cls, stays = task.cls, bool(task.node)
        if self._standing is None and not self._occupancy.counts(cls):
            return NO_UNDO
        self._move(cls, row, -1, stays=stays)
        return lambda: self._move(cls, row, 1, stays=stays)

    def _move(self, cls: TaskClass, row: int, sign: int, *, stays: bool) -> None:
        """One more or one less of a class on a row; `stays`: it begins (or ceases) to terminate there."""
        if self._standing is not None and self._leaving is not None:
            self._standing.add(cls, row, sign)
            if stays:
                self._leaving.add(cls, row, -sign)
        self._occupancy.move(cls, row, sign, stays=stays)

    # --- what the node alone decides ----------------------------------------------------------------------------------

    def _static(self, cls: TaskClass) -> tuple[Codes, list[str]]:
        """Codes of all rows and the taint keys behind the last of them; kept until a node changes."""
        found = self._statics.get(cls.id)
        if found is None:
            key = ("predicates", self.arguments, cls.id)
            found = self._statics[cls.id] = columns.cached(self._table, key, lambda: self._work_out(cls))
        return found

    def _work_out(self, cls: TaskClass) -> tuple[Codes, list[str]]:
        table, spec = self._table, cls.spec
        tolerations = spec.tolerations or ()
        codes: Codes = np.zeros(len(table), np.uint8)
        _refuse(codes, ~table.ready, _code(NodeNotReady))
        if not any(tolerates(each, _CORDON) for each in tolerations):
            _refuse(codes, table.cordoned, _code(NodeUnschedulable))
        _refuse(codes, ~columns.selected(table, spec), _code(NodeSelectorMismatch))
        refusals, keys = columns.taint_refusals(table, tolerations)
        first = len(self.reasons) + 1
        taints = np.where(refusals > 0, first + np.minimum(refusals, _MOST_TAINTS) - 1, 0).astype(np.uint8)
        codes = np.where(codes == 0, taints, codes)
        arguments: PredicatesArguments = self.arguments
        if arguments.memory_pressure and not (cls.request.keys() & {CPU, MEMORY}):
            _refuse(codes, columns.node_condition(table, "MemoryPressure"), _code(MemoryPressure))
        if arguments.disk_pressure:
            _refuse(codes, columns.node_condition(table, "DiskPressure"), _code(DiskPressure))
        if arguments.pid_pressure:
            _refuse(codes, columns.node_condition(table, "PIDPressure"), _code(PidPressure))
        reach = reachable(self.view.model, table, cls)
        if reach is not None:
            _refuse(codes, ~reach, _code(VolumeUnavailable))
        return codes, keys[:_MOST_TAINTS]

    # --- what pods anywhere decide ------------------------------------------------------------------------------------

    def _look_around(self, cls: TaskClass, *, later: bool) -> Codes:
        """Codes of all rows for what other pods decide."""
        coupled = self._coupled(cls)
        codes: Codes = np.zeros(len(self._table), np.uint8)
        for spread in reversed(coupled.spread):
            codes[spread.violated()] = _code(TopologySpreadViolated)
        for counter in coupled.anti if later else coupled.anti_now:
            if counter.total:
                codes[counter.everywhere() > 0] = _code(PodAntiAffinityViolated)
        for counter in (*coupled.facing, *(() if later else coupled.leaving_facing)):
            if counter.total:
                codes[counter.everywhere() > 0] = _code(PodAntiAffinityViolated)
        if coupled.affinity:
            first = _is_first(coupled)  # of a group that wants to be with its own kind: it may stand in any domain
            for counter in coupled.affinity:
                alone = counter.domain < 0 if first else counter.everywhere() <= 0
                codes[alone] = _code(PodAffinityUnsatisfied)
        return codes

    def _coupled(self, cls: TaskClass) -> _Coupled:
        found = self._couplings.get(cls.id)
        if found is None:
            found = self._couplings[cls.id] = self._couple(cls)
        return found

    def _couple(self, cls: TaskClass) -> _Coupled:
        standing, leaving = self._standing, self._leaving
        if standing is None or leaving is None:
            return _Coupled()
        self._count(standing, leaving)
        affinity, anti = required_terms(cls.spec)
        found = _Coupled(facing=standing.facing(cls, _ANTI), leaving_facing=leaving.facing(cls, _ANTI))
        if affinity:
            who = who_of_all(affinity, cls)
            found.affinity = tuple(standing.target(term.topology_key, who) for term in affinity)
            found.own = who.match(cls, self._namespace_labels)
            if found.own:
                found.company = sum(
                    count for other, count in self._waiting().items() if who.match(other, self._namespace_labels)
                )
        found.anti = tuple(standing.target(term.topology_key, who_of(term, cls)) for term in anti)
        found.anti_now = (*found.anti, *(leaving.target(term.topology_key, who_of(term, cls)) for term in anti))
        found.spread = tuple(self._spreads(standing, cls))
        return found

    def _waiting(self) -> Counted[TaskClass]:
        """How many pods of each class wait for a node."""
        if self._waits is None:
            self._waits = Counted(task.cls for job in self.view.model.live.values() for task in job.waiting)
        return self._waits

    def _roomiest(self, cls: TaskClass, coupled: _Coupled, rows: Rows) -> Mask | None:
        """The rows of the domains that take most of the pods that will have to follow the first; None: all alike."""
        finest = max(coupled.affinity, key=lambda counter: len(counter.counts))
        fitting = np.where(self._static(cls)[0] == 0, np.int64(coupled.company), np.int64(0))
        for name, amount in cls.needs:
            free = rows.room.future[name] if rows.later else np.minimum(rows.room.future[name], rows.room.idle[name])
            np.minimum(fitting, np.maximum(free, 0) // amount, out=fitting)
        inside = finest.domain >= 0
        capacity = np.zeros(len(finest.counts), np.int64)
        np.add.at(capacity, finest.domain[inside], fitting[inside])
        np.minimum(capacity, coupled.company, out=capacity)
        best = int(capacity.max())
        return (capacity[finest.domain] == best)[rows.index] if best else None

    def _count(self, standing: CouplingIndex, leaving: CouplingIndex) -> None:
        """Count the snapshot's pods, once, when the first class that looks at pods is asked about."""
        if not self._counted:
            self._counted = True
            staying, terminating = occupants(self.view.model, self._table)
            standing.add_all(staying)
            leaving.add_all(terminating)

    def _spreads(self, standing: CouplingIndex, cls: TaskClass) -> Iterator[_Spread]:
        constraints = hard_constraints(cls.spec)
        for at, constraint in enumerate(constraints):
            ids, values = self._table.labels(constraint.topology_key)
            domain = np.where(taking_part(self._table, cls.spec, constraints, constraint), ids, np.int32(-1))
            who = who_alike(constraint.label_selector, constraint.match_label_keys, cls)
            counter = standing.target_among(("hard spread", cls.id, at), domain, len(values), who)
            present = np.unique(domain[domain >= 0])
            own = int(who.match(cls, self._namespace_labels))
            yield _Spread(counter, ids, present, constraint, own)

    def _namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return namespace_labels(self.view.model, namespace)


def _is_first(coupled: _Coupled) -> bool:
    """Whether a class that wants to be with its own kind would be the first of it."""
    return coupled.own and not any(counter.total for counter in coupled.affinity)


def _carried(cls: TaskClass) -> Iterator[Carried]:
    """What pods of a class forbid others: their required anti-affinity holds for whoever comes after them too."""
    for term in required_terms(cls.spec)[1]:
        yield Carried(_ANTI, term.topology_key, who_of(term, cls))


def _demands_pods(spec: PodSpec) -> bool:
    return any(required_terms(spec)) or bool(hard_constraints(spec))


def _refuse(codes: Codes, mask: Mask, code: int) -> None:
    """Give rows of a mask a code, unless they have one."""
    codes[mask & (codes == 0)] = code


def _code(reason: type[Reason]) -> int:
    return Predicates.reasons.index(reason) + 1
