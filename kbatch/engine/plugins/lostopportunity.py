"""lostopportunity: of the nodes that fit, the one on which the pod leaves the least that others could have used."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import BaseModel

from kbatch.api.placement import Placement
from kbatch.engine.plugin import Plugin, Scope, Scores, View
from kbatch.engine.plugins.arguments import LostOpportunityArguments
from kbatch.engine.plugins.left_over import BEST, WHOLE, Dimension, dimensions, extended, left, score
from kbatch.engine.state.node_resources import Rows
from kbatch.model.tasks import TaskClass
from kbatch.resources import CPU, MEMORY

_UNITS: Final = {CPU: 1000, MEMORY: 1 << 30}
"""What weights are per: a core, a GiB, one of anything else."""
_MOST: Final = 1_000_000


class LostOpportunity(Plugin):
    """What a pod leaves on its node is lost to others: the less, the better, of every resource by its weight; 10,000
    where nothing is.

    A node on which the pod's job has pods already costs nothing more: it has the full score. On any other counts what
    is left when as many of the job's like pods have come there as are to be placed and have room, for each of them. So
    a gang opens those nodes that it fills.

    Arguments, whole numbers: `lostopportunity.weight` 1 of the whole;
    `lostopportunity.cpu` for a core, `lostopportunity.memory` for a GiB, `lostopportunity.resources.<name>` for one of
    any other resource. Those that are not given: cpu, memory and every extended resource (its name has a `/`) are worth
    the same in the whole cluster, so that what is scarce is dear; other resources count for nothing.
    """

    name: ClassVar[str] = "lostopportunity"
    Arguments: ClassVar[type[BaseModel]] = LostOpportunityArguments
    scope: ClassVar[Scope] = Scope.NODE
    own_nodes: ClassVar[bool] = True
    stands_in: ClassVar[Mapping[Placement, Mapping[str, Any]]] = {Placement.LEAST_LOST: {}}

    def __init__(self, arguments: LostOpportunityArguments, view: View) -> None:
        super().__init__(arguments, view)
        self._weight = arguments.weight
        self._worth = _worth(arguments.given(), view)

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores | None:
        """See the class."""
        if not self._worth or not self._weight or rows.placement not in {None, Placement.LEAST_LOST}:
            return None
        request = dict(cls.needs)
        lost = np.zeros(len(rows), np.int64)
        for each, worth in self._worth:
            lost += worth * each.part(left(rows, each.name, rows.coming * request.get(each.name, 0)))
        best = BEST * self._weight  # for the job's own nodes alone
        found: Scores = np.minimum(score(lost // rows.coming, WHOLE * WHOLE, self._weight), best - 1)
        if rows.opened is not None:
            found[rows.opened] = best
        return found


def _worth(given: Mapping[str, int], view: View) -> list[tuple[Dimension, int]]:
    """What the largest node's amount of each resource is worth, in 2^-20 of all of them together."""
    names = {CPU: None, MEMORY: None, **dict.fromkeys(name for name in view.nodes.allocatable if extended(name))}
    found = dimensions(view.nodes, {**names, **dict.fromkeys(given)})
    cores = Fraction(found[CPU].total, _UNITS[CPU]) if CPU in found else Fraction(1)
    worth = {
        name: each.largest * (Fraction(given[name], _UNITS.get(name, 1)) if name in given else cores / each.total)
        for name, each in found.items()
    }
    whole = sum(worth.values())
    return [(found[name], int(part * WHOLE / whole)) for name, part in worth.items() if part] if whole else []
