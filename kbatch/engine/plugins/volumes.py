"""What volumes ask of nodes: where they can be reached from, and how many of a driver's a node may attach.

* A claim bound to a volume: the volume's own node affinity.
* A claim that waits for its first consumer: anywhere, until something wrote a node into its annotation
  `volume.kubernetes.io/selected-node`; from then on only there, for its volume is being made there.
* A claim that is to be bound at once, and is not yet; a claim or volume that does not exist: nowhere.
* CSINode tells how many volumes of a driver a node can attach. Pods that share a claim on a node share an attachment.
  Inline volumes are not counted: their drivers do not attach.

Where the model holds no claims at all, whoever fed it does not look at volumes, and they bind nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

import numpy as np

from kbatch.api.objects import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass
from kbatch.engine.plugins import columns
from kbatch.engine.room import Index
from kbatch.model.cluster import ClusterModel
from kbatch.model.nodes import Column, Mask, NodeTable
from kbatch.model.tasks import TaskClass

_T = TypeVar("_T", PersistentVolume, PersistentVolumeClaim, StorageClass)

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"

_INLINE: Final = "csi:"
_NO_LIMIT: Final = np.iinfo(np.int64).max


def reachable(model: ClusterModel, table: NodeTable, cls: TaskClass) -> Mask | None:
    """The nodes from which all volumes of a class can be used; None where volumes do not matter."""
    claims = list(_claims(cls))
    if not claims or not model.objects.get(PersistentVolumeClaim):
        return None
    mask = np.ones(len(table), np.bool_)
    for key in claims:
        mask &= _reachable_claim(model, table, key)
    return mask


def _reachable_claim(model: ClusterModel, table: NodeTable, key: str) -> Mask:
    everywhere = np.ones(len(table), np.bool_)
    nowhere = np.zeros(len(table), np.bool_)
    claim = _find(model, PersistentVolumeClaim, key)
    if claim is None:
        return nowhere
    if claim.spec.volume_name:
        volume = _find(model, PersistentVolume, claim.spec.volume_name)
        if volume is None:
            return nowhere
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return everywhere
        return columns.chosen(table, affinity.required)
    node = (claim.metadata.annotations or {}).get(SELECTED_NODE)
    if node:
        row = table.row.get(node)
        if row is not None:
            nowhere[row] = True
        return nowhere
    storage_class = _find(model, StorageClass, claim.spec.storage_class_name or "")
    waits = storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"
    return everywhere if waits else nowhere


def _claims(cls: TaskClass) -> Iterator[str]:
    return (name for name in cls.volumes if not name.startswith(_INLINE))


def _find(model: ClusterModel, kind: type[_T], key: str) -> _T | None:
    found = model.objects.get(kind, {}).get(key)
    return found if isinstance(found, kind) else None


class AttachIndex:
    """Volumes attached to nodes, by driver, against the limits of CSINode."""

    def __init__(self, model: ClusterModel, table: NodeTable) -> None:
        self._model = model
        self._nodes = len(table)
        self._limits: dict[str, Column] = {}
        self._used: dict[str, Column] = {}
        self._pods: dict[tuple[int, str], int] = {}
        self._rows_of: dict[str, set[int]] = {}
        self._handles: dict[int, tuple[tuple[str, str], ...]] = {}
        for name, obj in model.objects.get(CsiNode, {}).items():
            row = table.row.get(name)
            if row is not None and isinstance(obj, CsiNode):
                for driver in obj.spec.drivers:
                    if driver.allocatable is not None and driver.allocatable.count is not None:
                        limits = self._limits.setdefault(driver.name, np.full(self._nodes, _NO_LIMIT, np.int64))
                        limits[row] = driver.allocatable.count
        for limited in self._limits:
            self._used[limited] = np.zeros(self._nodes, np.int64)

    def limited(self, cls: TaskClass) -> bool:
        """Whether pods of the class use volumes of which some node can attach only so many."""
        return bool(self._limits) and bool(self._of(cls))

    def add(self, cls: TaskClass, row: int, sign: int = 1) -> None:
        """A pod of the class stands on a row (1), or no longer (-1)."""
        for driver, claim in self._of(cls):
            key = (row, claim)
            before = self._pods.get(key, 0)
            after = self._pods[key] = before + sign
            if (before > 0) != (after > 0):
                self._used[driver][row] += sign
                rows = self._rows_of.setdefault(claim, set())
                if after > 0:
                    rows.add(row)
                else:
                    rows.discard(row)

    def over(self, cls: TaskClass, rows: Index) -> Mask:
        """The rows that cannot attach the volumes of one more pod of the class."""
        mask = np.zeros(len(rows), np.bool_)
        by_driver: dict[str, list[str]] = {}
        for driver, claim in self._of(cls):
            by_driver.setdefault(driver, []).append(claim)
        for driver, claims in by_driver.items():
            more = np.full(self._nodes, len(claims), np.int64)
            for claim in claims:
                for row in self._rows_of.get(claim, ()):
                    more[row] -= 1  # attached there already
            mask |= ((self._used[driver] + more > self._limits[driver]) & (more > 0))[rows]
        return mask

    def _of(self, cls: TaskClass) -> tuple[tuple[str, str], ...]:
        """The claims of a class whose driver is limited somewhere, with that driver; each once."""
        found = self._handles.get(cls.id)
        if found is None:
            pairs = ((self._driver(claim), claim) for claim in dict.fromkeys(_claims(cls)))
            found = self._handles[cls.id] = tuple((driver, claim) for driver, claim in pairs if driver in self._limits)
        return found

    def _driver(self, key: str) -> str:
        claim = _find(self._model, PersistentVolumeClaim, key)
        if claim is None:
            return ""
        volume = _find(self._model, PersistentVolume, claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            return volume.spec.csi.driver if volume.spec.csi is not None else ""
        storage_class = _find(self._model, StorageClass, claim.spec.storage_class_name or "")
        return storage_class.provisioner if storage_class is not None else ""
