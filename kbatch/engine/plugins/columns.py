"""What a pod's spec would rather have of every node at once: preferences, soft taints, images; and node conditions.

Columns over a `NodeTable`, kept like those of `kbatch.model.matching` until a node changes.

Arrays from here are shared: read them, never write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from kbatch.api.objects import Node, PodSpec, PreferredSchedulingTerm, Taint, Toleration
from kbatch.model.images import images_of, with_tag
from kbatch.model.matching import cached, term
from kbatch.model.nodes import IMAGE_SIZES, Column, Mask, NodeTable
from kbatch.model.selectors import PREFER_NO_SCHEDULE, tolerates

_MEBIBYTE: Final = 1024 * 1024
_SMALLEST_IMAGE: Final = 23 * _MEBIBYTE
_LARGEST_IMAGE: Final = 1000 * _MEBIBYTE


def preferred(table: NodeTable, terms: Iterable[PreferredSchedulingTerm]) -> Column:
    """For each node the sum of the weights of the preferred terms that match it."""
    weights = np.zeros(len(table), np.int64)
    for each in terms:
        if each.weight and (each.preference.match_expressions or each.preference.match_fields):
            weights += each.weight * term(table, each.preference)
    return weights


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


# --- features ---------------------------------------------------------------------------------------------------------


def lacking(table: NodeTable, features: tuple[str, ...]) -> Mask:
    """The nodes that do not declare all of these features."""

    def make() -> Mask:
        nodes = (table.node(row) for row in range(len(table)))
        return np.array([not set(features) <= set(each.status.declared_features or ()) for each in nodes], np.bool_)

    return cached(table, ("features", features), make)


# --- images -----------------------------------------------------------------------------------------------------------


def image_locality(table: NodeTable, spec: PodSpec) -> Column:
    """How much of a pod's images each node has already, 0..100.

    The bytes of the images there, each scaled by the part of all nodes that has it (so that one node with a rare image
    does not draw all pods), between 23 MiB and 1000 MiB per image: kube-scheduler's scale.
    """
    images = tuple(sorted({with_tag(container.image) for container in spec.containers if container.image}))
    return cached(table, ("images", images), lambda: _image_locality(table, images))


def _image_locality(table: NodeTable, images: tuple[str, ...]) -> Column:
    total = np.zeros(len(table), np.int64)
    if not images or not len(table):
        return total
    table.images_used.update(images)
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
            for name, size in images_of(table.node(row)):
                found.setdefault(name, []).append((row, size))
        return found

    return cached(table, IMAGE_SIZES, make)
