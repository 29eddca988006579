"""An error that is about one group, on its way up to where work on a group is begun."""

from __future__ import annotations

from kbatch.engine.state.jobs import JobState


class CulpritError(Exception):
    """What was raised (`__cause__`) while a group other than the one worked on was asked about."""

    def __init__(self, job: JobState) -> None:
        super().__init__(job.key)
        self.job = job
