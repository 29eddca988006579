"""nodeorder: which of the nodes that fit is best."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from kbatch.engine.plugin import Plugin, Scope, Scores
from kbatch.engine.room import Rows
from kbatch.model.tasks import TaskClass
from kbatch.resources import CPU, MEMORY


class NodeOrder(Plugin):
    """Least requested: the mean of the free parts of cpu and memory after the pod, 0..100."""

    name: ClassVar[str] = "nodeorder"
    scope: ClassVar[Scope] = Scope.NODE

    def node_order(self, cls: TaskClass, rows: Rows) -> Scores | None:
        """See the class."""
        score = np.zeros(len(rows), np.int64)
        for name in (CPU, MEMORY):
            allocatable = rows.allocatable(name)
            left = np.maximum(rows.free(name) - cls.request.get(name, 0), 0)
            score += left * 100 // np.maximum(allocatable, 1)
        return np.minimum(score // 2, 100)
