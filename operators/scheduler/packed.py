"""How tightly the cluster is packed, for the metrics: told anew where something has changed, and not too often."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from kbatch.metrics import SchedulerMetrics
from kbatch.model.cluster import ClusterModel
from kbatch.model.fragmentation import Mix, measuring, opened

_APART: Final = 10.0
"""Seconds between two looks: each costs up to 64 looks at all nodes, some ten milliseconds of 5,000."""


class Packed:
    """Keeps fragmentation and the number of open nodes. `clock`: seconds that only go forward."""

    def __init__(self, metrics: SchedulerMetrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._mix = Mix()
        self._generation = -1
        self._due = 0.0
        self._told: set[str] = set()

    def look(self, model: ClusterModel) -> Iterator[None]:
        """Tell how the model stands, if it changed since the last time and that was long enough ago; in pieces."""
        if model.generation == self._generation or self._clock() < self._due:
            return
        self._generation = model.generation
        yield from model.refreshing()
        self._metrics.nodes_opened.set(len(opened(model.table)))
        waiting = yield from self._mix.looking(model)
        found = yield from measuring(model.table, waiting)
        for name in self._told - found.keys():
            self._metrics.fragmentation.labels(name).set(0)
        for name, part in found.items():
            self._metrics.fragmentation.labels(name).set(float(part))
        self._told |= found.keys()
        self._due = self._clock() + _APART
