"""What comes back to a queue's excessBudget while time goes on: a group's charge ends with the last of its pods."""

from __future__ import annotations

from collections.abc import Iterable

from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.timeline import Release
from kbatch.model.jobs import Job


class Refunds:
    """Follows the pods of one queue's groups as they end, and back."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._left: dict[str, int] = {}

    def moved(self, job: Job, sign: int) -> int:
        """One more pod of the group has ended (1), or one less (-1); how much of a charge has ended with it, in
        millionths of a resource-minute, or is there again (below 0).
        """
        state = self._session.job(job.key)
        if not state.charged:
            return 0
        before = self._left.get(job.key)
        if before is None:
            before = _standing(state)
        after = self._left[job.key] = before - sign
        return state.charged if not after else -state.charged if not before else 0


def refunded(session: Session, queue: str, ends: Iterable[Release]) -> int:
    """What the charges of a queue's groups come to of which nothing is left when these pods have ended."""
    refunds, jobs = Refunds(session), session.model.jobs
    owners = (jobs.get(end.task.job) for end in ends)
    return sum(refunds.moved(owner, 1) for owner in owners if owner is not None and owner.queue == queue)


def _standing(state: JobState) -> int:
    """How many pods the group has that hold a node, or wait for one."""
    return state.job.holding - len(state.evicted) + len(state.waiting) + state.gated
