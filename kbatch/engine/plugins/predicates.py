"""predicates: what a pod demands of a node besides room.

Three kinds of demands, told apart so that each pod pays only for its own:

* what the node alone decides (selectors, taints, conditions, where a volume can be reached): worked out once per class
  of pods and kept until a node changes;
* what pods on the same node decide (host ports, attached volumes): worked out again where something moved;
* what pods anywhere decide (inter-pod affinity, topology spread): counters per domain, read again before each pod.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import ClassVar, Final

import numpy as np
from pydantic import BaseModel

from kbatch.api.node_reasons import (
    ClaimNotFound,
    DiskPressure,
    HostPortTaken,
    MemoryPressure,
    NodeFeatureMissing,
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
from kbatch.api.objects import Taint
from kbatch.api.reasons import Reason
from kbatch.engine.plugin import NO_UNDO, Codes, DomainLimit, Plugin, Scope, Scores, Undo, View
from kbatch.engine.plugins import columns
from kbatch.engine.plugins.arguments import PredicatesArguments
from kbatch.engine.plugins.neighbours import Neighbours
from kbatch.engine.plugins.occupancy import Occupancy
from kbatch.engine.plugins.volumes import missing_claim, reachable
from kbatch.engine.state.node_resources import Rows
from kbatch.model import matching
from kbatch.model.features import features_needed
from kbatch.model.nodes import Column, Mask, NodeTable
from kbatch.model.selectors import tolerates
from kbatch.model.tasks import Task, TaskClass
from kbatch.resources import CPU, MEMORY

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_ABOVE_ALL: Final = np.int64(10**8)
"""A score that outweighs any sum of the others."""
_MOST_TAINTS: Final = 200
"""Taint keys that are told apart in one answer; codes are bytes."""


class Predicates(Plugin):
    """Node selector and required node affinity, taints, cordons, readiness, pressure, host ports, volumes, features
    that kubelets declare; required inter-pod affinity and anti-affinity (of the pod, and of those that stand there);
    topology spread (DoNotSchedule).

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
        ClaimNotFound,
        VolumeUnavailable,
        HostPortTaken,
        PodAffinityUnsatisfied,
        PodAntiAffinityViolated,
        TopologySpreadViolated,
        NodeFeatureMissing,
    )

    def __init__(self, arguments: PredicatesArguments, view: View) -> None:
        super().__init__(arguments, view)
        self._table: NodeTable = view.nodes
        self._scopes: dict[int, Scope] = {}
        self._statics: dict[int, tuple[Codes, list[str]]] = {}
        self._occupancy = Occupancy(view.model, self._table, emptied=view.emptied)
        self._neighbours = Neighbours(view) if view.model.classes.coupled else None

    def prepare(self) -> Iterable[None]:
        """Get to know the pods that speak of others."""
        return self._neighbours.prepare() if self._neighbours is not None else ()

    def let_go(self) -> Iterator[None]:
        """What is known of other pods is there for the next cycle."""
        yield from self._occupancy.let_go()
        if self._neighbours is not None:
            yield from self._neighbours.let_go()

    # --- the contract -------------------------------------------------------------------------------------------------

    def predicate_scope(self, cls: TaskClass) -> Scope:
        """STATIC unless the class looks at other pods, or others look at it."""
        found = self._scopes.get(cls.id)
        if found is None:
            found = self._scopes[cls.id] = self._scope(cls)
        return found

    def _scope(self, cls: TaskClass) -> Scope:
        if self._neighbours is not None and self._neighbours.concern(cls):
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
            if self._neighbours is not None:
                around: Codes = np.zeros(len(self._table), np.uint8)
                for mask, reason in self._neighbours.refusals(cls, later=later):
                    around[mask] = _code(reason)
                codes = np.where(codes == 0, around[index], codes)
        return codes

    def static_predicate(self, cls: TaskClass, rows: Rows) -> Codes:
        """What the node alone decides."""
        codes: Codes = self._static(cls)[0][rows.index]
        return codes

    def score_scope(self, cls: TaskClass) -> Scope:
        """STATIC (no opinion), but for pods that must be where others of their kind are."""
        if self._neighbours is None or self.predicate_scope(cls) is not Scope.CLUSTER:
            return Scope.STATIC
        return Scope.CLUSTER if self._neighbours.together(cls) else Scope.STATIC

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores | None:
        """Before all other preferences: the first of pods that must stay together goes where most can follow it."""
        if self._neighbours is None or self.score_scope(cls) is Scope.STATIC:
            return None
        mask = self._neighbours.roomiest(cls, rows, self._static(cls)[0] == 0)
        return mask * _ABOVE_ALL if mask is not None else None

    def depends(self, cls: TaskClass) -> Hashable:
        """How many waiting pods want to be where pods of the class are: the first of them makes room for all."""
        return self._neighbours.company(cls) if self._neighbours is not None else 0

    def heeds(self, cls: TaskClass, other: TaskClass) -> bool:
        """Only pods that hold ports or volumes, for a class that does, or that a counter of the class counts."""
        if self._occupancy.counts(other) and self._occupancy.counts(cls):
            return True
        return self._neighbours is not None and self._neighbours.heeds(cls, other)

    def excludes(self, cls: TaskClass, other: TaskClass) -> bool:
        """Pods with the same host port. (Who keeps apart by affinity looks at more than a node: see `heeds`.)"""
        return any(
            mine.meets(theirs) for mine in self._occupancy.ports_of(cls) for theirs in self._occupancy.ports_of(other)
        )

    def heeds_elsewhere(self, cls: TaskClass, other: TaskClass) -> bool:
        """Those with a claim that the class wants too, and that a counter of the class counts: ports, and what can be
        attached, are a node's own affair.
        """
        if self._occupancy.contend(cls, other):
            return True
        return self._neighbours is not None and self._neighbours.heeds(cls, other)

    def one_by_one(self, cls: TaskClass) -> bool:
        """With one constraint on its own kind at most: anti-affinity then takes one pod a domain, and even spreading
        stops at the same counts in whatever order. Host ports and attach limits only make nodes smaller.
        """
        if self._occupancy.shares(cls):
            return False
        return self._neighbours is None or self._neighbours.on_own_kind(cls) <= 1

    def takes_one(self, cls: TaskClass) -> Mask | None:
        """All rows for pods with host ports; those in a domain by which pods of the class keep apart."""
        if self._occupancy.ports_of(cls):
            return np.ones(len(self._table), np.bool_)
        return self._neighbours.takes_one(cls) if self._neighbours is not None else None

    def domain_limits(self, cls: TaskClass, others: Sequence[TaskClass]) -> Sequence[DomainLimit]:
        """Those of anti-affinity and of topology spread."""
        return list(self._neighbours.domain_limits(cls, others)) if self._neighbours is not None else ()

    def alike(self, classes: Sequence[TaskClass]) -> Hashable:
        """What they ask of nodes, their ports and claims; and which of them look at which, where no others matter."""
        near: Hashable = None
        if self._neighbours is not None:
            near = self._neighbours.alike(classes)
        elif self.view.model.classes.coupled:  # since the cycle began: these may be the ones
            near = tuple(cls.id for cls in classes)
        return tuple((_of_the_node(cls), self._occupancy.ports_of(cls)) for cls in classes), near

    def told_apart(self, cls: TaskClass) -> Sequence[Column]:
        """What the counters of other pods say of the rows; ports and volumes show in `predicate`."""
        return self._neighbours.told_apart(cls) if self._neighbours is not None else ()

    def reasons_of(self, cls: TaskClass) -> tuple[Reason, ...]:
        """The types of `reasons`, then a taint for each key that keeps the class away somewhere."""
        keys = self._static(cls)[1]
        missing = ClaimNotFound(missing_claim(self.view.model, cls))
        plain = [missing if reason is ClaimNotFound else reason() for reason in self.reasons]
        return (*plain, *(UntoleratedTaint(key) for key in keys))

    def follows(self, cls: TaskClass) -> bool:
        """Whether pods of the class hold ports or volumes, or any pod looks at others."""
        return self._neighbours is not None or self._occupancy.counts(cls)

    def placed(self, task: Task, row: int) -> Undo:
        """Count the pod where it will stand."""
        cls, waits = task.cls, not task.node and task.key in self.view.job(task.job).nominated
        self._move(cls, row, 1, stays=False, waits=waits)
        return lambda: self._move(cls, row, -1, stays=False, waits=waits)

    def delayed(self, task: Task, row: int) -> Undo:
        """Who binds now must do without the pod."""
        neighbours, cls = self._neighbours, task.cls
        if neighbours is None:
            return NO_UNDO
        neighbours.wait(cls, row, 1)
        return lambda: neighbours.wait(cls, row, -1)

    def removed(self, task: Task, row: int) -> Undo:
        """Count the pod no longer; one that stood on a node is leaving it from now on."""
        cls, stays = task.cls, bool(task.node)
        if not self.follows(cls):
            return NO_UNDO
        waits = not task.node and task.key not in self.view.job(task.job).placed
        self._move(cls, row, -1, stays=stays, waits=waits)
        return lambda: self._move(cls, row, 1, stays=stays, waits=waits)

    def _move(self, cls: TaskClass, row: int, sign: int, *, stays: bool, waits: bool) -> None:
        """One more or one less of a class on a row; `stays`: it begins (or ceases) to terminate there; `waits`: it is
        only nominated.
        """
        if self._neighbours is not None:
            self._neighbours.move(cls, row, sign, stays=stays)
            if waits:
                self._neighbours.wait(cls, row, sign)
        self._occupancy.move(cls, row, sign, stays=stays)

    # --- what the node alone decides ----------------------------------------------------------------------------------

    def _static(self, cls: TaskClass) -> tuple[Codes, list[str]]:
        """Codes of all rows and the taint keys behind the last of them; kept until a node changes."""
        found = self._statics.get(cls.id)
        if found is None:
            key = ("predicates", self.arguments, _of_the_node(cls))
            found = self._statics[cls.id] = matching.cached(self._table, key, lambda: self._work_out(cls))
        return found

    def _work_out(self, cls: TaskClass) -> tuple[Codes, list[str]]:
        table, spec = self._table, cls.spec
        tolerations = spec.tolerations or ()
        codes: Codes = np.zeros(len(table), np.uint8)
        _refuse(codes, columns.not_ready(table, tolerations), _code(NodeNotReady))
        if not any(tolerates(each, _CORDON) for each in tolerations):
            _refuse(codes, table.cordoned, _code(NodeUnschedulable))
        _refuse(codes, ~matching.selected(table, spec), _code(NodeSelectorMismatch))
        refusals, keys = matching.taint_refusals(table, tolerations)
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
            missing = missing_claim(self.view.model, cls)
            _refuse(codes, ~reach, _code(ClaimNotFound if missing else VolumeUnavailable))
        features = features_needed(spec)
        if features:
            _refuse(codes, columns.lacking(table, features), _code(NodeFeatureMissing))
        return codes, keys[:_MOST_TAINTS]


def _of_the_node(cls: TaskClass) -> Hashable:
    """All of a class that `_work_out` reads."""
    spec = cls.spec
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    return (
        tuple(sorted((spec.node_selector or {}).items())), affinity.required if affinity is not None else None,
        spec.tolerations or (), cls.volumes, not cls.request.keys() & {CPU, MEMORY}, features_needed(spec),
    )  # fmt: skip


def _refuse(codes: Codes, mask: Mask, code: int) -> None:
    """Give rows of a mask a code, unless they have one."""
    codes[mask & (codes == 0)] = code


def _code(reason: type[Reason]) -> int:
    return _CODES[reason]


_CODES: Final = {reason: code for code, reason in enumerate(Predicates.reasons, start=1)}
