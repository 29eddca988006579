"""What a pod's spec says of every node at once: selectors, taints and images as columns over a `NodeTable`.

Everything here depends on the nodes themselves (labels, taints, images), not on their use, so each answer is kept in
the table's `static_cache` until a node changes. A requirement is worked out once per distinct value of its label, not
once per node: a thousand nodes in three zones cost three comparisons. The meaning is that of `kbatch.model.selectors`.

Arrays from here are shared: read them, never write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from kbatch.api.objects import (
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
)
from kbatch.model.nodes import Column, Ids, Mask, NodeTable
from kbatch.model.selectors import BINDING_EFFECTS, PREFER_NO_SCHEDULE, requirement_matches, tolerates, untolerated

_T = TypeVar("_T")

_MEBIBYTE: Final = 1024 * 1024
_SMALLEST_IMAGE: Final = 23 * _MEBIBYTE
_LARGEST_IMAGE: Final = 1000 * _MEBIBYTE


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


def preferred(table: NodeTable, terms: Iterable[PreferredSchedulingTerm]) -> Column:
    """For each node the sum of the weights of the preferred terms that match it."""
    weights = np.zeros(len(table), np.int64)
    for each in terms:
        if each.weight and (each.preference.match_expressions or each.preference.match_fields):
            weights += each.weight * term(table, each.preference)
    return weights


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


def soft_taints(table: NodeTable, tolerations: tuple[Toleration, ...]) -> Column:
    """For each node the number of its PreferNoSchedule taints that the pod does not tolerate."""

    def make() -> Column:
        counts = np.zeros(len(table.taint_sets), np.int64)
        for at, taints in enumerate(table.taint_sets):
            counts[at] = sum(
                taint.effect == PREFER_NO_SCHEDULE and not any(tolerates(each, taint) for each in tolerations)
                for taint in taints
            )
        return counts[table.taint_set]

    return cached(table, ("soft taints", tolerations), make)


def soft_taint_count(taints: Iterable[Taint]) -> int:
    """How many of these taints are PreferNoSchedule."""
    return sum(taint.effect == PREFER_NO_SCHEDULE for taint in taints)


def not_ready(table: NodeTable, tolerations: tuple[Toleration, ...]) -> Mask:
    """The nodes whose conditions keep the pod away: not Ready, or without a network, and it does not tolerate that.

    The node controller sets a taint for each of these conditions; until it has, the condition stands for the taint.
    """

    def make() -> Mask:
        found: Mask = ~table.ready
        borne = {key for key in _CONDITION_TAINTS if _borne(key, tolerations)}
        if borne:
            for row in np.flatnonzero(found).tolist():
                found[row] = not borne.issuperset(_condition_taints(table.node(row)))
        return found

    return cached(table, ("not ready", tolerations), make)


_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_NO_NETWORK: Final = "node.kubernetes.io/network-unavailable"
_CONDITION_TAINTS: Final = (_NOT_READY, _UNREACHABLE, _NO_NETWORK)


def _borne(key: str, tolerations: tuple[Toleration, ...]) -> bool:
    return any(tolerates(each, Taint(key=key, effect="NoSchedule")) for each in tolerations)


def _condition_taints(node: Node) -> Iterator[str]:
    """The taints that the node gets, or soon will, because it is not ready."""
    for condition in node.status.conditions or ():
        if condition.type == "Ready" and condition.status != "True":
            yield _UNREACHABLE if condition.status == "Unknown" else _NOT_READY
        elif condition.type == "NetworkUnavailable" and condition.status == "True":
            yield _NO_NETWORK


def node_condition(table: NodeTable, condition: str) -> Mask:
    """The nodes that report this condition as True."""

    def make() -> Mask:
        return np.array(
            [
                any(
                    each.type == condition and each.status == "True" for each in table.node(row).status.conditions or ()
                )
                for row in range(len(table))
            ],
            np.bool_,
        )

    return cached(table, ("condition", condition), make)


# --- images -----------------------------------------------------------------------------------------------------------


def image_locality(table: NodeTable, spec: PodSpec) -> Column:
    """How much of a pod's images each node has already, 0..100.

    The bytes of the images there, each scaled by the part of all nodes that has it (so that one node with a rare image
    does not draw all pods), between 23 MiB and 1000 MiB per image: kube-scheduler's scale.
    """
    images = tuple(sorted({_with_tag(container.image) for container in spec.containers if container.image}))
    return cached(table, ("images", images), lambda: _image_locality(table, images))


def _image_locality(table: NodeTable, images: tuple[str, ...]) -> Column:
    total = np.zeros(len(table), np.int64)
    if not images or not len(table):
        return total
    for image in images:
        sizes = _image_sizes(table).get(image)
        if sizes:
            for row, size in sizes:
                total[row] += size * len(sizes) // len(table)
    most = _LARGEST_IMAGE * len(images)
    scaled = (np.clip(total, _SMALLEST_IMAGE, most) - _SMALLEST_IMAGE) * 100
    return scaled // max(1, most - _SMALLEST_IMAGE)


def _image_sizes(table: NodeTable) -> dict[str, list[tuple[int, int]]]:
    """Rows and sizes in bytes by image name."""

    def make() -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = {}
        for row in range(len(table)):
            for image in table.node(row).status.images or ():
                for name in dict.fromkeys(_with_tag(name) for name in image.names or ()):
                    found.setdefault(name, []).append((row, image.size_bytes))
        return found

    return cached(table, ("image sizes",), make)


def _with_tag(name: str) -> str:
    """The name with `:latest` where it has neither tag nor digest, as the kubelet reports it."""
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"
