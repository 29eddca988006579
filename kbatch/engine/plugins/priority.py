"""priority: what matters more goes first, and may push aside what matters less."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from kbatch.engine.plugin import ABSTAIN, Holder, Key, Plugin, Preemptor, Unit, Vote
from kbatch.engine.state.jobs import JobState
from kbatch.model.tasks import Task


class Priority(Plugin):
    """Orders jobs and tasks by priority, highest first. Takes no arguments.

    Victims: YES where the victim's job priority is lower than the preemptor's, VETO where it is higher. Inside one job
    the pods' priorities count instead, and a pod of equal priority is vetoed.
    """

    name: ClassVar[str] = "priority"
    agrees: ClassVar[frozenset[str]] = frozenset({"preemptable"})
    votes_by_class: ClassVar[bool] = True
    by_job: ClassVar[bool] = True

    def job_order_key(self, job: JobState) -> Key:
        """Highest first."""
        return (-job.priority,)

    def task_order_key(self, task: Task) -> Key:
        """Highest first."""
        return (-task.priority,)

    def preemptable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        if preemptor.intra:
            return Vote.YES if unit.priority < min(task.priority for task in preemptor.tasks) else Vote.VETO
        theirs, ours = unit.job.priority, preemptor.job.priority
        if theirs < ours:
            return Vote.YES
        return Vote.VETO if theirs > ours else ABSTAIN

    def vote_key(self, ballot: str, unit: Unit) -> Hashable:
        """Priorities alone."""
        return None

    def best_vote(self, ballot: str, preemptor: Preemptor, holder: Holder) -> Vote:
        """It depends on the priority alone."""
        priority, ours = holder.priority, preemptor.job.priority
        if ballot != "preemptable" or priority == ours:
            return ABSTAIN
        return Vote.YES if priority < ours else Vote.VETO
