"""The phase of a group in the simulation, by the same table as the podgroup operator's."""

from __future__ import annotations

from typing import Final

from kbatch.api import conditions
from kbatch.api.objects import Condition
from kbatch.model.jobs import Job
from kbatch.model.phase import GroupFacts, MemberCounts, Phase, RoleFacts, derive
from kbatch.model.tasks import Task

_PHASES: Final = {phase.value: phase for phase in Phase}


def phase_of(
    job: Job, standing: tuple[Condition, ...], current: str, *, ongoing: bool = False, done: bool = False
) -> Phase:
    """The phase of a group (or shadow group) of the model.

    Args:
        job: the group, its sums up to date.
        standing: its conditions.
        current: its phase so far; empty for none.
        ongoing: a Job that makes its pods has not ended.
        done: all Jobs that make its pods are Complete, and nobody else makes any.
    """
    return derive(
        GroupFacts(
            minimum=job.minimum,
            members=_members(job),
            roles=tuple(RoleFacts(role.min_member, _count(_of_role(job, role.name))) for role in job.roles),
            enqueued=_in_queue(standing, current),
            scheduled=_verdict(standing, conditions.SCHEDULED),
            unschedulable=_verdict(standing, conditions.UNSCHEDULABLE),
            ongoing=ongoing,
            done=done,
            gave_up=job.failed > 0
            and any(_failed(task) and not task.pod.metadata.owner_references for task in job.tasks.values()),
            current=_PHASES.get(current),
        )
    )


def ending(job: Job, phase: Phase, standing: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """The condition that says how a group ended, if it ended and does not say so yet, or takes that back."""
    if phase is Phase.COMPLETED and not conditions.is_true(standing, conditions.COMPLETED):
        reason, message = conditions.completed(job.succeeded, job.minimum)
        return (Condition(type=conditions.COMPLETED, status=conditions.TRUE, reason=reason, message=message),)
    if phase is Phase.FAILED and not conditions.is_true(standing, conditions.FAILED):
        left = job.holding + len(job.waiting) + job.succeeded
        message = f"{left} pods run or succeeded, {job.minimum} needed, and no more will be made"
        return (
            Condition(type=conditions.FAILED, status=conditions.TRUE, reason="MinimumUnattainable", message=message),
        )
    return tuple(
        Condition(type=type_, status=conditions.FALSE, reason="MembersAgain", message="members were made again")
        for type_, ended in ((conditions.COMPLETED, Phase.COMPLETED), (conditions.FAILED, Phase.FAILED))
        if phase is not ended and conditions.is_true(standing, type_)
    )


def _members(job: Job) -> MemberCounts:
    """`_count` of all its pods, by its sums."""
    succeeded = job.succeeded - sum(job.gone.values())
    return MemberCounts(running=job.holding, succeeded=succeeded, failed=job.failed, pending=len(job.waiting))


def _of_role(job: Job, role: str) -> list[Task]:
    return [task for task in job.tasks.values() if task.role == role]


def _count(tasks: list[Task]) -> MemberCounts:
    running = succeeded = failed = pending = 0
    for task in tasks:
        if task.terminating:
            continue
        running += task.holds
        pending += task.pending
        if task.terminal:
            succeeded += task.succeeded
            failed += not task.succeeded
    return MemberCounts(running=running, succeeded=succeeded, failed=failed, pending=pending)


def _failed(task: Task) -> bool:
    return task.terminal and not task.succeeded


def _in_queue(standing: tuple[Condition, ...], current: str) -> bool | None:
    """What Enqueued says of the life that the group lives now."""
    over = current in {Phase.COMPLETED.value, Phase.FAILED.value}
    said = _verdict(standing, conditions.ENQUEUED)
    return None if said and (over or not conditions.let_in(standing)) else said


def _verdict(standing: tuple[Condition, ...], type_: str) -> bool | None:
    condition = conditions.find(standing, type_)
    return None if condition is None else condition.status == conditions.TRUE
