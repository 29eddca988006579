"""What comes back to a queue's excessBudget while time goes on: a group's charge ends with the last of its pods."""

from __future__ import annotations

from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.model.jobs import Job


class Refunds:
    """Follows the pods of one queue's groups as they end, and back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left: dict[str, int] = {}

    def follows(self, job: Job) -> bool:
        """Whether any pod of the group has ended here."""
        return job.key in self._left

    def moved(self, job: Job, sign: int) -> int:
        """One more pod of the group has ended (1), or one less (-1); how much of a charge has ended with it, in
        millionths of a resource-minute, or is there again (below 0).
        """
        state = self._session.job(job.key)
        if not state.charged:
            return 0
        before = self._left.get(job.key)
        if before is None:
            before = self._standing(state)
        after = self._left[job.key] = before - sign
        return state.charged if not after else -state.charged if not before else 0

    def _standing(self, state: JobState) -> int:
        """How many pods the group has that hold a node, or wait for one."""
        leaving = self._session.leaving
        gone = sum(1 for key in state.evicted if key in leaving)
        return state.job.holding - gone + len(state.waiting) + state.gated
