"""Maximum flow through a small network, in exact integers: Dinic's algorithm with sets of nodes as bits of integers.

E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", Soviet Mathematics
Doklady 11 (1970). A step from one layer to the next is one operation on integers, so a network of a few hundred nodes
takes a few milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

SOURCE: Final = 0
SINK: Final = 1


class Network:
    """Nodes 0 (source), 1 (sink) and more; edges with capacities; what flows, as it was pushed so far.

    Attributes:
        reached: after `push`, the nodes that more could still get to from the source, as bits: the source's side of a
            minimum cut.
    """

    def __init__(self, nodes: int) -> None:
        self.reached = 0
        self._stuck = 1 << SOURCE
        self._left: list[dict[int, int]] = [{} for _ in range(nodes)]
        self._onward = [0] * nodes
        self._any = [0] * nodes
        self._last = 0

    def join(self, start: int, end: int, capacity: int) -> None:
        """Let so much more flow from one node to another."""
        left = self._left[start]
        left[end] = left.get(end, 0) + capacity
        if left[end]:
            self._onward[start] |= 1 << end
            if end == SINK:
                self._last |= 1 << start

    def open(self, start: int, ends: int) -> None:
        """Let any amount flow from one node to each of others, given as bits. Edges back are joined for themselves."""
        self._any[start] |= ends
        self._onward[start] |= ends

    def left(self, start: int, end: int) -> int:
        """How much more could flow from one node to another."""
        return self._left[start].get(end, 0)

    def push(self) -> int:
        """Let as much flow as can; how much more that is than before."""
        total = 0
        while layers := self._layers():
            total += self._push_through(layers)
        return total

    def push_one(self, start: int) -> bool:
        """Let one unit more flow from a node to the sink, if it can.

        Nodes from which it could not will not do later either: no way to the sink leads through them.
        """
        seen = self._stuck
        layers: list[int] = []
        layer = 1 << start & ~seen
        while layer and not layer & self._last:
            layers.append(layer)
            seen |= layer
            layer = self._next(layer) & ~seen
        if not layer:
            self._stuck = seen
            return False
        onward, end = self._onward, SINK
        layers.append(layer & self._last)
        for layer in reversed(layers):
            node = next(each for each in bits(layer) if onward[each] >> end & 1)
            self._move(node, end, 1)
            end = node
        return True

    def _next(self, layer: int) -> int:
        """All nodes to which more can flow from some nodes."""
        ways, onward = self._onward, 0
        while layer:
            lowest = layer & -layer
            onward |= ways[lowest.bit_length() - 1]
            layer ^= lowest
        return onward

    def _move(self, start: int, end: int, amount: int) -> None:
        if not self._any[start] >> end & 1:
            here = self._left[start]
            here[end] -= amount
            if not here[end]:
                self._onward[start] &= ~(1 << end)
                if end == SINK:
                    self._last &= ~(1 << start)
        if not self._any[end] >> start & 1:
            there = self._left[end]
            there[start] = there.get(start, 0) + amount
            self._onward[end] |= 1 << start

    def _layers(self) -> list[int]:
        """The nodes by their distance from the source, up to the sink alone; empty where it cannot be reached."""
        seen = layer = 1 << SOURCE
        layers = [layer]
        while layer:
            onward = self._next(layer)
            if onward >> SINK & 1:
                layers.append(1 << SINK)
                return layers
            layer = onward & ~seen
            seen |= layer
            layers.append(layer)
        self.reached = seen
        return []

    def _push_through(self, layers: list[int]) -> int:
        """Fill all shortest ways. They are walked node by node; a node that leads no further is left out for good."""
        left, onward = self._left, self._onward
        total, node, depth = 0, SOURCE, 0
        path = [SOURCE] * len(layers)
        last = len(layers) - 1
        while True:
            ways = onward[node] & layers[depth + 1] if depth < last else 0
            if ways:
                depth += 1
                node = path[depth] = (ways & -ways).bit_length() - 1
                if depth < last:
                    continue
                amount = min([left[start][end] for start, end in pairwise(path) if not self._any[start] >> end & 1])
                total += amount
                for at in range(last - 1, -1, -1):
                    self._move(path[at], path[at + 1], amount)
                    if not onward[path[at]] >> path[at + 1] & 1:
                        depth = at
                node = path[depth]
            elif depth:
                layers[depth] &= ~(1 << node)
                depth -= 1
                node = path[depth]
            else:
                return total


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
