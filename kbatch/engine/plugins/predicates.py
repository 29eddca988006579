"""predicates: what a pod demands of a node besides room."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kbatch.api.node_reasons import NodeNotReady, NodeSelectorMismatch, NodeUnschedulable, UntoleratedTaint
from kbatch.api.objects import Taint, Toleration
from kbatch.api.reasons import Reason
from kbatch.engine.plugin import Codes, Plugin, Scope
from kbatch.engine.room import Rows
from kbatch.model.tasks import TaskClass


class Predicates(Plugin):
    """Node readiness, cordons, node selectors, taints."""

    name: ClassVar[str] = "predicates"
    scope: ClassVar[Scope] = Scope.STATIC
    reasons: ClassVar[tuple[type[Reason], ...]] = (
        NodeNotReady,
        NodeUnschedulable,
        NodeSelectorMismatch,
        UntoleratedTaint,
    )

    def predicate(self, cls: TaskClass, rows: Rows) -> Codes | None:
        """In the order of `reasons`, the first that holds."""
        codes = np.zeros(len(rows), np.uint8)
        tolerations = cls.spec.tolerations or ()
        untolerated = np.array(
            [any(_hinders(taint, tolerations) for taint in taints) for taints in rows.table.taint_sets], np.bool_
        )
        codes[untolerated[rows.taint_set()]] = 4
        for key, value in (cls.spec.node_selector or {}).items():
            ids, values = rows.labels(key)
            wanted = values.index(value) if value in values else -2
            codes[ids != wanted] = 3
        codes[rows.table.cordoned[rows.index]] = 2
        codes[~rows.table.ready[rows.index]] = 1
        return codes


def _hinders(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    if taint.effect not in ("NoSchedule", "NoExecute"):
        return False
    return not any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value
