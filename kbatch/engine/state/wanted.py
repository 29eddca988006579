"""What a job wants next."""

from __future__ import annotations

from dataclasses import dataclass

from kbatch.engine.state.jobs import Known
from kbatch.engine.state.minimum import request_of
from kbatch.model.tasks import Task
from kbatch.resources import Resources


@dataclass(slots=True)
class Wanted:
    """A step of a job.

    Attributes:
        tasks: the tasks of its minimum that come first in order, or (`single`) one task above it.
        single: the one task above the minimum.
        instead: the tasks are others of the minimum than those that come first; see `preemption.steps.keeping_to`.
    """

    tasks: tuple[Task, ...]
    single: Task | None = None
    instead: bool = False
    _request: Resources | None = None

    @property
    def request(self) -> Resources:
        """What its tasks ask for together; not to be changed."""
        if self._request is None:
            self._request = request_of(self.tasks)
        return self._request


@dataclass(frozen=True, slots=True)
class FirstStep:
    """The first step towards a job's minimum, for several actions that ask for it.

    Attributes:
        known: it stands while this is what is known of the job.
        tasks: its waiting tasks that may be placed at all. wanted: those of them that come first, as many as it lacks.
    """

    known: Known
    tasks: list[Task]
    wanted: Wanted
