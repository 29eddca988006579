"""The decision log of this process, where one is kept: which model notes what it is told, and which engine is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from kbatch.decisions.files import LogFolder
from kbatch.decisions.recording import Decide, RecordedModel, Recorder
from kbatch.decisions.records import PolicyText
from kbatch.engine import cycle
from kbatch.model.cluster import ClusterModel


class DecisionLog:
    """A model and an engine to schedule with, and the log of both.

    Args:
        folder: where logs go; empty: none are kept, and model and engine are the plain ones.
        policy: the text of the policy in force.
    """

    def __init__(
        self,
        folder: str,
        *,
        scheduler_name: str,
        default_queue: str,
        policy: Callable[[], PolicyText],
        max_bytes: int,
        max_files: int,
        written_by: str,
    ) -> None:
        self.model: ClusterModel
        self.decide: Decide
        self._folder: LogFolder | None = None
        if not folder:
            self.model = ClusterModel(scheduler_name, default_queue)
            self.decide = cycle
            return
        recorded = RecordedModel(scheduler_name, default_queue)
        self._folder = LogFolder(Path(folder), max_bytes=max_bytes, max_files=max_files, written_by=written_by)
        self.model = recorded
        self.decide = Recorder(recorded, policy, self._folder).deciding(cycle)

    def ended(self) -> Mapping[str, int]:
        """How often a log ended, by why; nothing where none is kept."""
        return {} if self._folder is None else self._folder.ended

    async def close(self) -> None:
        """End the log; what was decided is on disk afterwards."""
        if self._folder is not None:
            await asyncio.to_thread(self._folder.close)
