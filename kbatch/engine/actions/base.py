"""What an action is: a pass over jobs that makes transactions. Start here to write one.

What an action does for one job, it does through `working` or `attempt` (`kbatch.engine.session.guarding`): then an
error there leaves that job out, and nobody else. Actions run in the order of the configuration. They decide with the
parts of a `CycleContext`; which jobs, which order, whose victims is asked of the plugins. Installed packages register
theirs under the entry-point group `kbatch.actions`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import BaseModel

from kbatch.engine.arguments import NoArguments
from kbatch.engine.context import CycleContext
from kbatch.engine.decisions import Step


class Action(ABC):
    """Base of all actions. One is made for each run.

    Attributes:
        name: the word in the configuration.
        needs: plugin methods that some enabled plugin must answer; else the configuration is refused.
        victims: the plugin method that votes on its victims: `preemptable`, `reclaimable` or one of its own; None: it
            evicts nobody. Some plugin must be able to say yes; else the configuration is refused.
        example: the plugins to name where the configuration is refused for want of one.
        Arguments: the pydantic model of its arguments in the configuration. arguments: those of this run.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    victims: ClassVar[str | None] = None
    example: ClassVar[str] = ""
    Arguments: ClassVar[type[BaseModel]] = NoArguments

    arguments: Any = NoArguments()

    @abstractmethod
    def run(self, context: CycleContext) -> Iterator[Step]:
        """Decide: yields transactions as they are found, and a `Turn` every few milliseconds."""
