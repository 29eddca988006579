"""The nodes in classes: nodes of one class are alike to all selections of the work that there is.

Found from one mask for each selection, never by asking node for node: the masks are those by which pods are placed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbatch.model import matching
from kbatch.model.nodes import Mask, NodeTable
from kbatch.model.selections import Selection


def usable(table: NodeTable, selection: Selection) -> Mask:
    """The nodes whose labels and taints allow a selection: a shared array."""

    def make() -> Mask:
        mask: Mask = matching.selected(table, selection.spec) & (
            matching.taint_refusals(table, selection.spec.tolerations or ())[0] == 0
        )
        return mask

    return matching.cached(table, ("usable", selection.id), make)


class NodeClasses:
    """The nodes by which of some selections may use them: nodes of one class are alike to all of these.

    Attributes:
        of_row: for each row of the table its class. count: how many classes there are.
        reach: for each selection the classes that it may use, as bits, in the order in which they were given.
    """

    def __init__(self, table: NodeTable, selections: Sequence[Selection]) -> None:
        masks = np.array([usable(table, each) for each in selections], np.bool_).reshape(len(selections), len(table))
        packed = np.ascontiguousarray(np.packbits(masks, axis=0).T)
        keys = packed.view(np.dtype((np.void, packed.shape[1]))).ravel() if packed.size else np.zeros(len(table))
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        self.count = len(first)
        self.of_row = inverse.ravel()
        alike = np.packbits(masks[:, first], axis=1, bitorder="little")
        self.reach = [int.from_bytes(row.tobytes(), "little") for row in alike]
        self._order = np.argsort(self.of_row, kind="stable")
        self._starts = np.searchsorted(self.of_row[self._order], np.arange(self.count))

    def capacities(self, table: NodeTable) -> list[dict[str, int]]:
        """What the nodes of each class offer, by dimension; the table must be the one it was made of."""
        found: list[dict[str, int]] = [{} for _ in range(self.count)]
        if self.count:
            for name, column in table.capacity.items():
                amounts = column[self._order]
                # In two halves, so that no sum leaves the range of int64: amounts are below 2^53.
                high = np.add.reduceat(amounts >> 32, self._starts).tolist()
                low = np.add.reduceat(amounts & 0xFFFFFFFF, self._starts).tolist()
                for at in range(self.count):
                    found[at][name] = (high[at] << 32) + low[at]
        return found
