"""Topology domains: which nodes take part in a constraint, and numbers by domain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from kbatch.api.objects import PodSpec, TopologySpreadConstraint
from kbatch.engine.state.node_resources import Index
from kbatch.model import matching
from kbatch.model.nodes import Column, Ids, Mask, NodeTable

_FEW: Final = 16
"""Fewer rows than these are counted one by one: arrays would take longer."""


def domains_of(
    table: NodeTable,
    spec: PodSpec,
    together: Sequence[TopologySpreadConstraint],
    constraint: TopologySpreadConstraint,
) -> tuple[Ids, Index, int]:
    """The domains in which pods count for a constraint of a pod: for each row the index of its domain, -1 where its
    pods do not count; the domains that occur there; how many domains there are at all.

    The nodes that take part carry the topology keys of all the constraints of its kind (`together`), are chosen by the
    pod's node selector and affinity unless nodeAffinityPolicy is Ignore, and have no taint against it where
    nodeTaintsPolicy is Honor. Pods that ask for the same nodes share one answer, whomever else their constraints mean.
    """
    keys = tuple(dict.fromkeys(each.topology_key for each in together))
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    selecting = constraint.node_affinity_policy != "Ignore"
    chosen = (tuple(sorted((spec.node_selector or {}).items())), affinity.required if affinity is not None else None)
    tolerations = spec.tolerations or () if constraint.node_taints_policy == "Honor" else None
    token = ("domains", constraint.topology_key, keys, chosen if selecting else None, tolerations)

    def make() -> tuple[Ids, Index, int]:
        mask: Mask = np.ones(len(table), np.bool_)
        for key in keys:
            mask &= table.labels(key)[0] >= 0
        if selecting:
            mask &= matching.selected(table, spec)
        if tolerations is not None:
            mask &= matching.taint_refusals(table, tolerations)[0] == 0
        ids, values = table.labels(constraint.topology_key)
        domain = np.where(mask, ids, np.int32(-1))
        present = np.flatnonzero(np.bincount(domain[domain >= 0], minlength=len(values)))
        return domain, present, len(values)

    return matching.cached(table, token, make)


class Counter:
    """A number for each domain of a topology: `counts[domain]`; the last cell is of nodes that stand in no domain.

    Attributes:
        domain: for each row the index of its domain, -1 for none: nodes without the label, or that do not take part.
        total: over all domains.
    """

    __slots__ = ("counts", "domain", "total")

    def __init__(self, domain: Ids, domains: int) -> None:
        self.domain = domain
        self.counts: Column = np.zeros(domains + 1, np.int64)
        self.total = 0

    def add(self, row: int, amount: int) -> None:
        """Count `amount` more on a row."""
        domain = self.domain[row]
        if domain >= 0:
            self.counts[domain] += amount
            self.total += amount

    def add_all(self, rows: Mapping[int, int], weight: int = 1) -> None:
        """Count for each of these rows its number, `weight` times."""
        if len(rows) < _FEW:
            for row, amount in rows.items():
                self.add(row, weight * amount)
            return
        domain = self.domain[np.fromiter(rows.keys(), np.intp, len(rows))]
        amounts = np.fromiter(rows.values(), np.int64, len(rows))[domain >= 0] * weight
        np.add.at(self.counts, domain[domain >= 0], amounts)
        self.total += int(amounts.sum())

    def on(self, rows: Index) -> Column:
        """The count of each row's domain; 0 for rows in no domain."""
        found: Column = self.counts.take(self.domain[rows])
        return found

    def everywhere(self) -> Column:
        """The count of every row's domain."""
        found: Column = self.counts.take(self.domain)
        return found

    def inside(self, rows: Index) -> Mask:
        """Which rows stand in a domain at all."""
        found: Mask = self.domain[rows] >= 0
        return found
