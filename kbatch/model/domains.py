"""Where nodes stand in the network: a tree of domains, made of node labels.

The labels (*levels*) are given outermost first, such as zone, block, rack; the nodes themselves are the last level, and
the whole cluster stands above the first. A domain is told by its path: domains of one name in different parents are
different, and a node without a label at some level is a domain of its own there.

The *height* of a domain is the number of levels below it: 0 is a node, 1 the innermost label's domain, and so on up to
the cluster. Between two pods lie twice as many *hops* as the height of the lowest domain that holds both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from kbatch.model.nodes import Column, Mask, NodeTable

HOSTNAME: Final = "kubernetes.io/hostname"
"""The level that is always the last; where it is given, it means just that."""


class DomainTree:
    """The tree over the rows of a `NodeTable`.

    Attributes:
        levels: the labels, outermost first, without the nodes themselves.
        top: the height of the cluster.
        of: by height, for each row the number of its domain; numbers follow the order of paths.
    """

    def __init__(self, table: NodeTable, levels: Sequence[str]) -> None:
        self.levels = tuple(level for level in dict.fromkeys(levels) if level != HOSTNAME)
        self.top = len(self.levels) + 1
        self.of: tuple[Column, ...] = ()
        self._table = table

    def building(self) -> Iterator[None]:
        """Read the labels, level by level."""
        rows = len(self._table)
        found: list[Column] = [np.zeros(rows, np.int64)]
        for level in self.levels:
            ids, values = self._table.labels(level)
            order = sorted(range(len(values)), key=values.__getitem__)
            place = np.zeros(len(values) + 1, np.int64)
            place[order] = np.arange(len(values))
            # Rows without the label come after those with it, each for itself.
            own = np.where(ids >= 0, place[ids], len(values) + np.arange(rows))
            path = found[-1] * (len(values) + rows) + own
            found.append(np.unique(path, return_inverse=True)[1].reshape(rows).astype(np.int64))
            yield
        found.append(np.arange(rows, dtype=np.int64))
        self.of = tuple(reversed(found))

    def mask(self, height: int, number: int) -> Mask:
        """The rows of a domain."""
        found: Mask = self.of[height] == number
        return found

    def height(self, rows: Sequence[int]) -> int:
        """That of the lowest domain that holds all of these rows; 0 for none."""
        if len(rows) < 2:
            return 0
        some = np.array(rows, np.int64)
        for height, of in enumerate(self.of):
            numbers = of[some]
            if (numbers == numbers[:1]).all():
                return height
        return self.top

    def name(self, height: int, row: int) -> str:
        """The path of the row's domain: the labels' values, outermost first, such as `z1/b2/r3`; that of a node is its
        name, and that of the cluster `cluster`.
        """
        if height == 0:
            return self._table.names[row]
        if height >= self.top:
            return "cluster"
        found: list[str] = []
        for level in self.levels[: self.top - height]:
            ids, values = self._table.labels(level)
            found.append(values[ids[row]] if ids[row] >= 0 else self._table.names[row])
        return "/".join(found)

    def unlabelled(self, height: int) -> str:
        """The outermost label that no node carries of those that make the domains of this height; "" for none."""
        for level in self.levels[: max(0, self.top - height)]:
            if not (self._table.labels(level)[0] >= 0).any():
                return level
        return ""

    def level(self, height: int) -> str:
        """What the domains of this height are called: the last part of the label's name."""
        if height == 0:
            return "node"
        if height >= self.top:
            return "cluster"
        return self.levels[self.top - 1 - height].rpartition("/")[2]


def domains(table: NodeTable, levels: Sequence[str]) -> DomainTree:
    """The tree, kept beside the table until any of its nodes changes in itself."""
    found = _kept(table, levels)
    if found is None:
        found = DomainTree(table, levels)
        for _ in found.building():
            pass
        table.static_cache["domains", tuple(levels)] = found
    return found


def preparing(table: NodeTable, levels: Sequence[str]) -> Iterator[None]:
    """Make the tree for `domains` in pieces of a few milliseconds."""
    if _kept(table, levels) is None:
        tree = DomainTree(table, levels)
        yield from tree.building()
        table.static_cache["domains", tuple(levels)] = tree


def _kept(table: NodeTable, levels: Sequence[str]) -> DomainTree | None:
    found: DomainTree | None = table.static_cache.get(("domains", tuple(levels)))
    return found
