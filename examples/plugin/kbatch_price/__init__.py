"""A kbatch plugin: nodes carry a price in a label; cheap ones are preferred, dear ones take no pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from kbatch.api.node_reasons import NodeReason
from kbatch.api.reasons import Reason
from kbatch.engine.plugin import Codes, Plugin, Scope, Scores, View
from kbatch.engine.state.node_resources import Rows
from kbatch.model.tasks import TaskClass


class PriceArguments(BaseModel):
    """What may stand under `arguments:`; a word that is not here is an error that names the line."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str = Field(default="example.com/price", alias="price.label")
    weight: int = Field(default=1, ge=0, le=1_000_000, alias="price.weight")
    most: int | None = Field(default=None, ge=0, alias="price.most")


@dataclass(frozen=True, slots=True)
class TooExpensive(NodeReason):
    """The node's price is above the limit. Nodes are counted under `words` in the message of a waiting group."""

    code: ClassVar[str] = "price/TooExpensive"
    words: ClassVar[str] = "too expensive"


class Price(Plugin):
    """Cheap nodes first; nodes above `price.most` never. A node without a price costs nothing."""

    name: ClassVar[str] = "price"
    Arguments: ClassVar[type[BaseModel]] = PriceArguments
    scope: ClassVar[Scope] = Scope.STATIC  # labels only: asked once per class of pods, until a node changes
    reasons: ClassVar[tuple[type[Reason], ...]] = (TooExpensive,)

    def __init__(self, arguments: PriceArguments, view: View) -> None:
        super().__init__(arguments, view)
        self._most = arguments.most
        self._weight = arguments.weight
        ids, values = view.nodes.labels(arguments.label)
        prices = np.array([*(_price(value) for value in values), 0], np.int64)
        self._prices = prices[ids]  # -1, "no such label", picks the last: 0
        self._highest = max(1, int(self._prices.max(initial=0)))

    def predicate(self, cls: TaskClass, rows: Rows) -> Codes | None:
        """0 where the pod may go, 1 (the first of `reasons`) where it may not."""
        if self._most is None:
            return None
        return (self._prices[rows.index] > self._most).astype(np.uint8)

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores | None:
        """100 for free, 0 for the dearest node of the cluster, times the weight."""
        return self._weight * (100 - self._prices[rows.index] * 100 // self._highest)


def _price(text: str) -> int:
    """A label is whatever somebody typed: what is no price counts as none, and stops nobody's scheduler."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
