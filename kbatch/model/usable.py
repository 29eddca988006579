"""Which part of a cluster the work of each queue may use, and what the queues deserve by that.

What counts is what Kubernetes itself makes of labels and taints, whatever plugins a scheduler is configured with: what
queues deserve is the same for the scheduler and for those who report it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import Final

from kbatch.model.division_again import LastDivision
from kbatch.model.node_classes import NodeClasses
from kbatch.model.nodes import NodeTable
from kbatch.model.parts import UNKNOWN, Selections
from kbatch.model.selections import Selection, SelectionTable
from kbatch.model.shares import Claim
from kbatch.model.tasks import TaskClass
from kbatch.resources import PODS, Resources, add_to

Astray = tuple[str, TaskClass, int]
"""A pod that holds room on a node that it could not come to now: its queue, its class, the node's row."""


class Usable:
    """The nodes in classes by what the work that there is may use; kept while nodes and kinds of work are the same."""

    def __init__(self, table: NodeTable, selections: SelectionTable) -> None:
        self._table: Final = table
        self._plain: Final = selections.plain
        self._made: tuple[int, tuple[Selection, ...], NodeClasses] | None = None
        self._offer: tuple[NodeClasses, int, list[dict[str, int]]] | None = None
        self._last: Final = LastDivision()

    def dividing(
        self, claims: Sequence[Claim], parts: Sequence[Mapping[Selections, Resources]], astray: Sequence[Astray]
    ) -> Generator[None, None, dict[str, Resources]]:
        """Work out the deserved share of each claim, by its name, in pieces of a few milliseconds.

        A part may be served by the nodes that one of its selections may use. That of `UNKNOWN` may be served by nodes
        that some other part may use, or a pod that chooses and tolerates nothing; where these offer none of a
        dimension, by all. What a pod holds astray may be served where it stands, besides.

        Args:
            claims: of the queues.
            parts: for each claim, what it asks for by selections.
            astray: pods that stand where they could not come to now; those of other queues are left out.
        """
        classes, reach = self._classes(parts)
        capacities = self._capacities(classes)
        known = 0
        for selection in reach:
            known |= reach[selection]
        offered = {name for at, each in enumerate(capacities) if known >> at & 1 for name in each if each[name]}
        everywhere = (1 << classes.count) - 1
        demands: list[dict[int, Resources]] = []
        for part in parts:
            demand: dict[int, Resources] = {}
            for selections, amounts in part.items():
                if selections == UNKNOWN:
                    _add(demand, known, {name: amount for name, amount in amounts.items() if name in offered})
                    _add(demand, everywhere, {name: amount for name, amount in amounts.items() if name not in offered})
                else:
                    served = 0
                    for selection in selections:
                        served |= reach[selection]
                    _add(demand, served, amounts)
            demands.append(demand)
        place = {claim.name: at for at, claim in enumerate(claims)}
        class_of = classes.of_row.tolist() if astray else []
        for (queue, cls, at), count in Counter((queue, cls, class_of[row]) for queue, cls, row in astray).items():
            if queue in place:
                demand, own = demands[place[queue]], reach[cls.selection]
                _add(demand, own, {name: -count * amount for name, amount in cls.request.items()})
                _add(demand, own | 1 << at, {name: count * amount for name, amount in cls.request.items()})
        yield
        return (yield from self._last.dividing(capacities, claims, demands))

    def _capacities(self, classes: NodeClasses) -> list[dict[str, int]]:
        """What each of the classes offers but for places; kept until nodes, or what others use of them, change."""
        moves = self._table.capacity_moves
        if self._offer is None or self._offer[0] is not classes or self._offer[1] != moves:
            found = classes.capacities(self._table)
            for capacity in found:
                capacity.pop(PODS, None)
            self._offer = classes, moves, found
        return self._offer[2]

    def _classes(self, parts: Sequence[Mapping[Selections, Resources]]) -> tuple[NodeClasses, dict[Selection, int]]:
        """The nodes in classes, and the classes that each selection of the parts, and a plain one, may use."""
        found = {each for part in parts for selections in part for each in selections}
        found.add(self._plain)
        wanted = tuple(sorted(found, key=lambda each: each.id))
        generation = self._table.static_generation
        if self._made is None or self._made[0] != generation or self._made[1] != wanted:
            self._made = (generation, wanted, NodeClasses(self._table, wanted))
        classes = self._made[2]
        return classes, dict(zip(wanted, classes.reach, strict=True))


def _add(demand: dict[int, Resources], reach: int, amounts: Resources) -> None:
    add_to(demand.setdefault(reach, {}), amounts)
