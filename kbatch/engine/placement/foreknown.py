"""Where room was found for minimums already: whoever places them again, as things were then, finds the same.

`reclaim` sets room aside for those who need nobody's, one after the other, and gives all of it back in the end;
`allocate` then places the same groups, mostly in the same order. Where the session stands as it did, it looks for no
node again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from kbatch.engine.session.session import Session
from kbatch.engine.session.statement import Operation, Statement
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task

Steps: TypeAlias = Sequence[tuple[Operation, Task, int, JobState, str]]
"""What `Statement.recorded` gives."""


class Foreknown:
    """Placements that are known, each to follow upon the ones before it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._next: deque[tuple[JobState, Steps]] = deque()
        self._placed: Statement | None = None
        self._as: object = None

    def learn(self, found: Iterable[tuple[JobState, Steps, bool]]) -> None:
        """These were found one after the other from how the session stands now; of each whether it is the job's first
        choice for its minimum.
        """
        self._next.clear()
        self._as = self._now()
        for job, steps, first in found:
            if not first or job.together is not None or any(step[0] is not Operation.ALLOCATE for step in steps):
                break
            self._next.append((job, steps))

    def place(self, statement: Statement) -> bool:
        """Place the minimum of the statement's job where it is known to go; False: that is not known."""
        session = self._session
        if not self._next or self._next[0][0] is not statement.job or self._as != self._now():
            return False
        if session.set_aside or session.open_statements or session.plugins.limit is not None:
            return False
        statement.replay(self._next[0][1])
        self._placed = statement
        return True

    def committed(self, statement: Statement) -> None:
        """A statement was kept: if it is what `place` has placed last, what was found after that is known too."""
        if self._placed is statement:
            self._next.popleft()
            self._as = self._now()
        self._placed = None

    def forget(self) -> None:
        """Know nothing any more: an error may have left something half done."""
        self._next.clear()
        self._placed = None

    def _now(self) -> object:
        """What moves whenever anything is decided, or room is kept."""
        return self._session.commits, len(self._session.kept_rooms)
