"""binpack: fill nodes one after the other, so that large pods still find empty ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import BaseModel

from kbatch.api.placement import Placement
from kbatch.engine.plugin import Plugin, Scope, Scores, View
from kbatch.engine.plugins.arguments import BinpackArguments
from kbatch.engine.plugins.left_over import WHOLE, Dimension, dimensions, extended, left, score
from kbatch.engine.state.node_resources import Rows
from kbatch.model.nodes import Column
from kbatch.model.tasks import TaskClass
from kbatch.resources import CPU, MEMORY

_STRANDED: Final = 10
"""How often an extended resource counts that has no cpu or memory beside it any more; docs/packing.md has the study."""
_POINT: Final = 16
"""Fixed point of the proportions between resources."""


class Binpack(Plugin):
    """How little the pod leaves on the node of all that the node has: 10,000 where nothing is left, 0 at the worst.

    What is left counts in parts of the largest node, the mean over the resources by their weights: cpu, memory and
    every extended resource (its name has a `/`), whether or not the pod asks for it. Extended resources are protected
    besides: a node that has some free comes after those that have none for a pod that does not ask for it; and it
    counts many times how much more of it the pod leaves without cpu or memory beside it, in the proportion that the
    cluster has of them.

    Arguments, whole numbers: `binpack.weight` 1 of the whole; `binpack.cpu` 1,
    `binpack.memory` 1 and `binpack.resources.<name>` of each resource, such as `binpack.resources.nvidia.com/gpu: 5`;
    extended resources have 1, and 0 leaves one out. `binpack.resources` names further ones, divided by commas, with
    weight 1.

    To pack rather than spread, set nodeorder's `leastrequested.weight` and `balancedresource.weight` to 0.
    """

    name: ClassVar[str] = "binpack"
    Arguments: ClassVar[type[BaseModel]] = BinpackArguments
    scope: ClassVar[Scope] = Scope.NODE
    stands_in: ClassVar[Mapping[Placement, Mapping[str, Any]]] = {Placement.PACK: {}}

    def __init__(self, arguments: BinpackArguments, view: View) -> None:
        super().__init__(arguments, view)
        self._weight = arguments.weight
        weights = arguments.by_resource(tuple(view.nodes.allocatable))
        found = dimensions(view.nodes, weights)
        self._counting = [(each, weights[name]) for name, each in found.items()]
        self._beside = [found[name] for name in (CPU, MEMORY) if name in found]
        self._guard = sum(weight for _, weight in self._counting) + sum(
            2 * _STRANDED * weight for each, weight in self._counting if extended(each.name)
        )
        """More than all else that may be lost on a node."""

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores | None:
        """See the class."""
        if not self._counting or not self._weight or rows.placement not in {None, Placement.PACK}:
            return None
        request = dict(cls.needs)
        lost = np.zeros(len(rows), np.int64)
        most = 0
        parts = {
            each.name: tuple(each.part(left(rows, each.name, more)) for more in (0, request.get(each.name, 0)))
            for each in (*(each for each, _ in self._counting), *self._beside)
        }
        for each, weight in self._counting:
            before, after = parts[each.name]
            lost += weight * after
            most += weight * WHOLE
            if extended(each.name):
                more = self._stranded(each, parts, 1) - self._stranded(each, parts, 0)
                lost += _STRANDED * weight * (WHOLE + more)
                most += 2 * _STRANDED * weight * WHOLE
                if each.name not in request:
                    lost += (before > 0) * (self._guard * WHOLE)
                    most += self._guard * WHOLE
        return score(lost, most, self._weight)

    def _stranded(self, scarce: Dimension, parts: Mapping[str, tuple[Column, ...]], moment: int) -> Column:
        """How much of a resource has no cpu or no memory beside it, before (0) or after (1) the pod."""
        reach: Column | None = None
        for other in self._beside:
            ratio = scarce.per(other)
            enough = parts[other.name][moment] * ((ratio.numerator << _POINT) // ratio.denominator) >> _POINT
            reach = enough if reach is None else np.minimum(reach, enough)
        if reach is None:
            return np.zeros(len(parts[scarce.name][moment]), np.int64)
        found: Column = np.maximum(parts[scarce.name][moment] - reach, 0)
        return found
