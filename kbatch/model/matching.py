"""What a pod's spec demands of every node at once: selectors and taints as columns over a `NodeTable`.

Everything here depends on the nodes themselves (labels, taints), not on their use, so each answer is kept in the
table's `static_cache` until a node changes. A requirement is worked out once per distinct value of its label, not once
per node: a thousand nodes in three zones cost three comparisons. The meaning is that of `kbatch.model.selectors`.
Predicates and deserved shares go by the same answers.

Arrays from here are shared: read them, never write them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from kbatch.api.objects import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Toleration
from kbatch.model.nodes import Ids, Mask, NodeTable
from kbatch.model.selectors import BINDING_EFFECTS, requirement_matches, untolerated

_T = TypeVar("_T")


def cached(table: NodeTable, key: tuple[Any, ...], make: Callable[[], _T]) -> _T:
    """The value kept under `key` until a node changes, made now if there is none."""
    found = table.static_cache.get(key)
    if found is None:
        found = table.static_cache[key] = make()
    value: _T = found
    return value


# --- node selectors ---------------------------------------------------------------------------------------------------


def selected(table: NodeTable, spec: PodSpec) -> Mask:
    """The nodes that a pod's nodeSelector and its required node affinity choose."""
    mask = np.ones(len(table), np.bool_)
    for key, value in (spec.node_selector or {}).items():
        mask &= requirement(table, NodeSelectorRequirement(key=key, operator="In", values=(value,)))
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is not None and affinity.required is not None:
        mask &= chosen(table, affinity.required)
    return mask


def chosen(table: NodeTable, selector: NodeSelector) -> Mask:
    """The nodes that any term of a node selector matches."""
    mask = np.zeros(len(table), np.bool_)
    for each in selector.node_selector_terms:
        mask |= term(table, each)
    return mask


def term(table: NodeTable, term: NodeSelectorTerm) -> Mask:
    """The nodes for which all of a term holds; none for a term without requirements."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(len(table), np.bool_)
    mask = np.ones(len(table), np.bool_)
    for each in term.match_expressions or ():
        mask &= requirement(table, each)
    for each in term.match_fields or ():
        mask &= _field(table, each)
    return mask


def requirement(table: NodeTable, requirement: NodeSelectorRequirement) -> Mask:
    """The nodes whose label satisfies one expression."""
    return cached(table, ("requirement", requirement), lambda: _requirement(table, requirement))


def _requirement(table: NodeTable, requirement: NodeSelectorRequirement) -> Mask:
    ids, values = table.labels(requirement.key)
    missing = requirement_matches(requirement, {})
    holds = np.empty(len(values) + 1, np.bool_)
    holds[-1] = missing  # ids of nodes without the label are -1: the last cell
    if requirement.operator in {"In", "NotIn"}:
        holds[:-1] = requirement.operator == "NotIn"
        index = _index(table, requirement.key, values)
        for value in requirement.values or ():
            if value in index:
                holds[index[value]] = requirement.operator == "In"
    else:
        key = requirement.key
        holds[:-1] = [requirement_matches(requirement, {key: value}) for value in values]
    mask: Mask = holds[ids]
    return mask


def _index(table: NodeTable, key: str, values: Sequence[str]) -> Mapping[str, int]:
    return cached(table, ("values", key), lambda: {value: at for at, value in enumerate(values)})


def _field(table: NodeTable, requirement: NodeSelectorRequirement) -> Mask:
    """A requirement on a field; Kubernetes knows one, the node's name."""
    mask = np.zeros(len(table), np.bool_)
    if requirement.key != "metadata.name":
        return mask
    if requirement.operator == "In":
        for name in requirement.values or ():
            row = table.row.get(name)
            if row is not None:
                mask[row] = True
        return mask
    mask[:] = [requirement_matches(requirement, {requirement.key: name}) for name in table.names]
    return mask


# --- taints -----------------------------------------------------------------------------------------------------------


def taint_refusals(table: NodeTable, tolerations: tuple[Toleration, ...]) -> tuple[Ids, list[str]]:
    """Which taint keeps the pod away: for each row 0, or i for the key of the list's item i - 1.

    Only NoSchedule and NoExecute keep away. The keys are in the order in which they stand in the table's taint sets.
    """

    def make() -> tuple[Ids, list[str]]:
        keys: dict[str, int] = {}
        codes = np.zeros(len(table.taint_sets), np.int32)
        for at, taints in enumerate(table.taint_sets):
            taint = untolerated(taints, tolerations, BINDING_EFFECTS)
            if taint is not None:
                codes[at] = keys.setdefault(taint.key, len(keys) + 1)
        return codes[table.taint_set], list(keys)

    return cached(table, ("taints", tolerations), make)
