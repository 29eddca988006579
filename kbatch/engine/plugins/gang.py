"""gang: a group runs with its minimum, and with each role's, or not at all."""

from __future__ import annotations

from typing import ClassVar

from kbatch.api.reasons import NotEnoughTasks, Reason
from kbatch.engine.plugin import ABSTAIN, Key, Plugin, Preemptor, Unit, Vote
from kbatch.engine.state.jobs import JobState


class Gang(Plugin):
    """Groups that lack their minimum come before those that have it. Takes no arguments.

    Victims: VETO of a unit that would leave a group with some pods, but fewer than its minimum or a role's.
    """

    name: ClassVar[str] = "gang"
    agrees: ClassVar[frozenset[str]] = frozenset()
    votes_by_class: ClassVar[bool] = True
    reasons: ClassVar[tuple[type[Reason], ...]] = (NotEnoughTasks,)

    def job_order_key(self, job: JobState) -> Key:
        """First who is not whole."""
        return (job.whole,)

    def job_valid(self, job: JobState) -> Reason | None:
        """Enough pods must exist, of the group and of each role; those beyond a role's maxMember do not count."""
        exists = job.pipelined + len(job.job.waiting) - len(job.placed) - len(job.nominated) - _beyond(job)
        if exists < job.minimum:
            return NotEnoughTasks(exists, job.minimum)
        for role in job.job.roles:
            if role.min_member:
                of_role = sum(
                    1 for task in job.job.tasks.values()
                    if task.role == role.name and (task.succeeded or not (task.terminal or task.terminating))
                )  # fmt: skip
                if of_role < role.min_member:
                    return NotEnoughTasks(of_role, role.min_member, role.name)
        return None

    def job_ready(self, job: JobState) -> Reason | None:
        """The minimum must be bound."""
        return None if job.whole else NotEnoughTasks(job.ready, job.minimum)

    def job_pipelined(self, job: JobState) -> Reason | None:
        """The minimum must be bound or nominated."""
        return NotEnoughTasks(job.pipelined, job.minimum) if job.missing() else None

    def preemptable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        return _vote(unit)

    def reclaimable(self, preemptor: Preemptor, unit: Unit) -> Vote:
        """See the class."""
        return _vote(unit)


def _beyond(job: JobState) -> int:
    """How many of its waiting pods can never be placed, because their role would have more than its maxMember."""
    found = 0
    for role in job.job.roles:
        headroom = job.role_headroom(role.name)
        if headroom is not None:
            waiting = sum(
                1 for task in job.job.waiting
                if task.role == role.name and task.key not in job.placed and task.key not in job.nominated
            )  # fmt: skip
            found += max(0, waiting - headroom)
    return found


def _vote(unit: Unit) -> Vote:
    job = unit.job
    if unit.whole or not job.job.gang:
        return ABSTAIN
    if job.ready - len(unit.tasks) < job.minimum:
        return Vote.VETO
    for role in job.job.roles:
        leaving = sum(1 for task in unit.tasks if task.role == role.name)
        if leaving and job.role_count(role.name) - leaving < role.min_member:
            return Vote.VETO
    return ABSTAIN
