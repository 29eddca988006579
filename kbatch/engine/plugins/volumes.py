"""What volumes ask of nodes: where they can be reached from, who else may use them, how many a node may attach.

* A claim bound to a volume: the volume's own node affinity, and its zone labels: a node in another zone or region does
  not take it, one that has no such label at all does (kube-scheduler's VolumeZone).
* A claim that waits for its first consumer: wherever its class can make volumes, until something wrote a node into its
  annotation `volume.kubernetes.io/selected-node`; from then on only there, for its volume is being made there.
* A claim that is to be bound at once, and is not yet; one whose class has its volumes made by hand; one that is being
  deleted or has lost its volume; a claim or volume that does not exist: nowhere.
* A ReadWriteOncePod claim that a pod uses: nowhere. A claim that waits for its first consumer and is not for many
  nodes: all its pods go to one node, for the volume will be made there.
* CSINode tells how many volumes of a driver a node can attach. Pods that share a claim on a node share an attachment.
  Inline volumes are not counted: their drivers do not attach.

Where the model has no place for claims, whoever feeds it does not look at volumes, and they bind nothing.
"""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np

from kbatch.api.objects import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass
from kbatch.engine.state.node_resources import Index
from kbatch.model import matching
from kbatch.model.cluster import ClusterModel
from kbatch.model.nodes import Column, Mask, NodeTable
from kbatch.model.tasks import TaskClass
from kbatch.model.volumes import (
    ZONE_LABELS,
    claims_of,
    for_one_pod,
    made_on_demand,
    on_many_nodes,
    selected_node,
    topologies,
    usable,
    zones_of,
)

_T = TypeVar("_T", PersistentVolume, PersistentVolumeClaim, StorageClass)

_NO_LIMIT: Final = np.iinfo(np.int64).max


def reachable(model: ClusterModel, table: NodeTable, cls: TaskClass) -> Mask | None:
    """The nodes from which all volumes of a class can be used; None where volumes do not matter."""
    claims = list(claims_of(cls.volumes))
    if not claims or PersistentVolumeClaim not in model.objects:
        return None
    mask = np.ones(len(table), np.bool_)
    for key in claims:
        mask &= _reachable_claim(model, table, key)
    return mask


def missing_claim(model: ClusterModel, cls: TaskClass) -> str:
    """The name of the first claim of a class that does not exist; empty where all do, or volumes do not matter."""
    if PersistentVolumeClaim not in model.objects:
        return ""
    missing = (key for key in claims_of(cls.volumes) if _find(model, PersistentVolumeClaim, key) is None)
    return next(missing, "").partition("/")[2]


def _reachable_claim(model: ClusterModel, table: NodeTable, key: str) -> Mask:
    everywhere = np.ones(len(table), np.bool_)
    nowhere = np.zeros(len(table), np.bool_)
    claim = _find(model, PersistentVolumeClaim, key)
    if claim is None or not usable(claim):
        return nowhere
    if claim.spec.volume_name:
        volume = _find(model, PersistentVolume, claim.spec.volume_name)
        if volume is None:
            return nowhere
        affinity = volume.spec.node_affinity
        near = _in_zone(table, volume)
        if affinity is None or affinity.required is None:
            return near
        return near & matching.chosen(table, affinity.required)
    storage_class = _class_of(model, claim)
    if storage_class is None or not made_on_demand(claim, storage_class):
        return nowhere
    node = selected_node(claim)
    if node:
        row = table.row.get(node)
        if row is not None:
            nowhere[row] = True
        return nowhere
    places = topologies(storage_class)
    return everywhere if places is None else matching.chosen(table, places)


def _in_zone(table: NodeTable, volume: PersistentVolume) -> Mask:
    """The nodes in one of the volume's zones, and in one of its regions; those that say nothing of either too."""
    mask = np.ones(len(table), np.bool_)
    zones = zones_of(volume)
    if not zones:
        return mask
    for key, names in zones.items():
        ids, values = table.labels(key)
        today, more = table.labels(ZONE_LABELS[key])
        # Where the node lacks the label, it may have it under the name of today.
        old = np.array([value in names for value in values] + [False], np.bool_)[ids]
        new = np.array([value in names for value in more] + [False], np.bool_)[today]
        mask &= np.where(ids >= 0, old, new)
    silent = np.ones(len(table), np.bool_)
    for key in ZONE_LABELS:
        silent &= table.labels(key)[0] < 0
    return mask | silent


def _class_of(model: ClusterModel, claim: PersistentVolumeClaim) -> StorageClass | None:
    return _find(model, StorageClass, claim.spec.storage_class_name or "")


def _find(model: ClusterModel, kind: type[_T], key: str) -> _T | None:
    found = model.objects.get(kind, {}).get(key)
    return found if isinstance(found, kind) else None


class ClaimIndex:
    """Who uses the claims that pods cannot share wherever they like."""

    def __init__(self, model: ClusterModel, table: NodeTable) -> None:
        self._model = model
        self._nodes = len(table)
        self._users: dict[str, dict[int, int]] = {}
        self._alone: dict[str, bool | None] = {}
        self._claims: dict[int, tuple[str, ...]] = {}

    def matters(self, cls: TaskClass) -> bool:
        """Whether pods of the class have such a claim."""
        return bool(self._of(cls))

    def add(self, cls: TaskClass, row: int, sign: int = 1) -> None:
        """A pod of the class stands on a row (1), or no longer (-1)."""
        for claim in self._of(cls):
            users = self._users.setdefault(claim, {})
            count = users.get(row, 0) + sign
            if count:
                users[row] = count
            else:
                del users[row]
                if not users:
                    del self._users[claim]

    def contend(self, cls: TaskClass, other: TaskClass) -> bool:
        """Whether pods of two classes have such a claim in common."""
        return not set(self._of(cls)).isdisjoint(self._of(other))

    def refused(self, cls: TaskClass, rows: Index) -> Mask:
        """The rows on which one more pod of the class could not use its claims, because of those who do."""
        mask = np.zeros(self._nodes, np.bool_)
        for claim in self._of(cls):
            users = self._users.get(claim)
            if users:
                elsewhere = np.ones(self._nodes, np.bool_)
                if not self._alone[claim]:
                    elsewhere[list(users)] = False
                mask |= elsewhere
        found: Mask = mask[rows]
        return found

    def _of(self, cls: TaskClass) -> tuple[str, ...]:
        found = self._claims.get(cls.id)
        if found is None:
            each = dict.fromkeys(claims_of(cls.volumes))
            found = self._claims[cls.id] = tuple(claim for claim in each if self._kind(claim) is not None)
        return found

    def _kind(self, key: str) -> bool | None:
        """True: for one pod. False: for the pods of one node, which is not chosen yet. None: for all."""
        if key not in self._alone:
            claim = _find(self._model, PersistentVolumeClaim, key)
            kind: bool | None = None
            if claim is not None and for_one_pod(claim):
                kind = True
            elif claim is not None and made_on_demand(claim, _class_of(self._model, claim)):
                kind = None if on_many_nodes(claim) else False
            self._alone[key] = kind
        return self._alone[key]


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
            after = before + sign
            if after:
                self._pods[key] = after
            else:
                del self._pods[key]
            if (before > 0) != (after > 0):
                self._used[driver][row] += sign
                rows = self._rows_of.setdefault(claim, set())
                if after > 0:
                    rows.add(row)
                else:
                    rows.discard(row)
                    if not rows:
                        del self._rows_of[claim]

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
            pairs = ((self._driver(claim), claim) for claim in dict.fromkeys(claims_of(cls.volumes)))
            found = self._handles[cls.id] = tuple((driver, claim) for driver, claim in pairs if driver in self._limits)
        return found

    def _driver(self, key: str) -> str:
        claim = _find(self._model, PersistentVolumeClaim, key)
        if claim is None:
            return ""
        volume = _find(self._model, PersistentVolume, claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            return volume.spec.csi.driver if volume.spec.csi is not None else ""
        storage_class = _class_of(self._model, claim)
        return storage_class.provisioner if storage_class is not None else ""
