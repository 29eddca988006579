"""binpack: fill nodes one after the other, so that large pods still find empty ones."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from kbatch.engine.plugin import Plugin, Scope, Scores, View
from kbatch.engine.state.node_resources import Rows
from kbatch.model.tasks import TaskClass
from kbatch.resources import CPU, MEMORY

_RESOURCE: Final = "binpack.resources."
_BEST: Final = 100


class BinpackArguments(BaseModel):
    """Weights, whole numbers from 0: of the plugin beside others, and of each resource within it."""

    model_config = ConfigDict(extra="allow", frozen=True)
    extra_prefixes: ClassVar[tuple[str, ...]] = (_RESOURCE,)
    __pydantic_extra__: dict[str, Annotated[int, Field(ge=0, le=1_000_000)]]

    weight: int = Field(default=1, ge=0, le=1_000_000, alias="binpack.weight", description="of the whole score")
    cpu: int = Field(default=1, ge=0, le=1_000_000, alias="binpack.cpu", description="of cpu")
    memory: int = Field(default=1, ge=0, le=1_000_000, alias="binpack.memory", description="of memory")
    resources: str = Field(
        default="", alias="binpack.resources", description="further resources, divided by commas, of weight 1 each"
    )

    def by_resource(self) -> dict[str, int]:
        """The weight of each resource that counts."""
        weights = {CPU: self.cpu, MEMORY: self.memory}
        weights.update((name.strip(), 1) for name in self.resources.split(",") if name.strip())
        for name, weight in (self.__pydantic_extra__ or {}).items():
            weights[name.removeprefix(_RESOURCE)] = weight
        return {name: weight for name, weight in weights.items() if weight}


class Binpack(Plugin):
    """The used part of the resources that the pod requests, after the pod: 0 on an empty node, 100 on a full one.

    Arguments, whole numbers: `binpack.weight` 1 of the whole; `binpack.cpu` 1, `binpack.memory` 1 and
    `binpack.resources.<name>` of each resource, such as `binpack.resources.nvidia.com/gpu: 5`; `binpack.resources`
    names further ones, divided by commas, with weight 1. A resource that the pod does not request does not count.

    To pack rather than spread, give it more weight than nodeorder's `leastrequested.weight`, or set that to 0.
    """

    name: ClassVar[str] = "binpack"
    Arguments: ClassVar[type[BaseModel]] = BinpackArguments
    scope: ClassVar[Scope] = Scope.NODE

    def __init__(self, arguments: BinpackArguments, view: View) -> None:
        super().__init__(arguments, view)
        self._weight = arguments.weight
        self._weights = arguments.by_resource()

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores | None:
        """See the class."""
        counting = [(name, self._weights[name], amount) for name, amount in cls.needs if name in self._weights]
        if not counting or not self._weight:
            return None
        score = np.zeros(len(rows), np.int64)
        for name, weight, amount in counting:
            allocatable = rows.allocatable(name)
            used = np.clip(allocatable - rows.free(name) + amount, 0, allocatable)
            score += weight * (used * _BEST // np.maximum(allocatable, 1))
        return self._weight * (score // sum(weight for _, weight, _ in counting))
