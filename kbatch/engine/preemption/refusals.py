"""Victims that could not be evicted: the API server said no, and would say it again for a while.

The nodes that refused a pod are another matter: such a pod is of a class of its own (`TaskClass.avoids`), so that every
placement looks at those nodes alone with other eyes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from kbatch.api.reasons import Protector
from kbatch.engine.plugin import Unit
from kbatch.model.refusals import Refusal
from kbatch.model.tasks import Task


class RefusedVictims:
    """The guard of pods whose eviction was refused (see `kbatch.engine.session.consent.Guard`)."""

    def __init__(self, refused: Mapping[str, Refusal]) -> None:
        self._refused = refused

    def allow(self, unit: Unit) -> bool:
        """Whether none of its pods was refused: of a group that goes as a whole, one is enough to keep all."""
        return not any(task.key in self._refused for task in unit.tasks)

    def protecting(self, unit: Unit) -> list[tuple[Protector, str]]:
        """Those of its pods that were refused."""
        return [(Protector.REFUSED, task.key) for task in unit.tasks if task.key in self._refused]

    def of(self, task: Task) -> Hashable:
        """Whether this pod was refused."""
        return task.key in self._refused
