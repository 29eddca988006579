"""What is left on nodes beside a pod, in whole numbers that can be weighed against one another.

An amount is told as a part of what the largest node offers of its dimension, in 2^-20. That is the same for all nodes,
so what is left on one node can be compared with what is left on another, and it depends on the row alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

import numpy as np
from pydantic import BaseModel

from kbatch.engine.state.node_resources import Rows
from kbatch.model.nodes import Column, NodeTable, exact_sum

_FINE: Final = 20
WHOLE: Final = 1 << _FINE
"""What the largest node offers."""
BEST: Final = 10_000
"""The best score, before a plugin's weight: differences between nodes are small against the range."""
_BITS: Final = 28
"""A sum of this many bits can be multiplied by `BEST` and the largest weight of a plugin in 64 bits."""


class Dimension:
    """One resource over all nodes. `largest` is of one node, `total` of all; both above 0."""

    def __init__(self, name: str, largest: int, total: int) -> None:
        self.name = name
        self.largest = largest
        self.total = total
        self._shift = min(_FINE, 62 - largest.bit_length())

    def part(self, amount: Column) -> Column:
        """Amounts, from 0 to that of the largest node, in parts of it."""
        found: Column = ((amount << self._shift) // self.largest) << (_FINE - self._shift)
        return found

    def per(self, other: Dimension) -> Fraction:
        """With one whole of `other` in this dimension's proportion to it in the cluster, how many wholes of this."""
        return Fraction(self.total * other.largest, self.largest * other.total)


def dimensions(table: NodeTable, names: Iterable[str]) -> dict[str, Dimension]:
    """Those of the named resources that some node offers, in the order given."""
    found: dict[str, Dimension] = {}
    for name in names:
        column = table.allocatable.get(name)
        if column is not None and column.max(initial=0) > 0:
            found[name] = Dimension(name, int(column.max()), exact_sum(np.maximum(column, 0)))
    return found


def left(rows: Rows, name: str, request: int | Column) -> Column:
    """What is free of a resource when so much of it is taken; never below 0."""
    return np.maximum(np.minimum(rows.free(name), rows.allocatable(name)) - request, 0)


def score(lost: Column, most: int, weight: int) -> Column:
    """From 0, where `most` is lost, to `BEST` times the weight, where nothing is."""
    shift = max(0, most.bit_length() - _BITS)
    found: Column = (np.maximum(most - lost, 0) >> shift) * (BEST * weight) // max(1, most >> shift)
    return found


def extended(name: str) -> bool:
    """Whether it is an extended resource, such as a GPU: few nodes have it, and those who need it can go nowhere
    else.
    """
    return "/" in name


def named(arguments: BaseModel, prefix: str) -> Mapping[str, int]:
    """Of arguments that begin with the prefix the rest of the name, and the value."""
    return {name.removeprefix(prefix): weight for name, weight in (arguments.__pydantic_extra__ or {}).items()}
