"""Which news of a PodGroup is only what its group was told: nothing that anybody decides by."""

from __future__ import annotations

from kbatch.api import conditions
from kbatch.api.objects import Condition, PodGroup
from kbatch.model.jobs import Job
from kbatch.model.phase import Phase


def only_told(job: Job, now: PodGroup) -> bool:
    """Whether the PodGroup says the same as before, but for why its group waits, and how many of its pods do.

    Nothing of the group runs, and it is not in queue, neither before nor now: so none of its sums says anything else,
    nor does anybody who decides go by what has changed. Nor are groups counted by that: its phase is the same. Its sums
    are up to date. Where somebody took away what it was told, that is news: it is to be told again.
    """
    was = job.group
    if was is None or not job.waiting or job.holding or job.succeeded or job.terminating:
        return False
    before, after = was.status, now.status
    if _in_queue(before.conditions) or _in_queue(after.conditions):
        return False
    one, other = was.metadata, now.metadata
    return (
        was.spec == now.spec
        and (before.phase or Phase.PENDING) == (after.phase or Phase.PENDING)
        and not before.scheduling_attempts
        and not after.scheduling_attempts
        and before.excess_charged == after.excess_charged
        and before.node_failures == after.node_failures
        and before.finished == after.finished
        and one.uid == other.uid
        and one.creation_timestamp == other.creation_timestamp
        and one.deletion_timestamp == other.deletion_timestamp
        and one.labels == other.labels
        and one.annotations == other.annotations
        and one.owner_references == other.owner_references
        and _of_others(before.conditions) == _of_others(after.conditions)
        and _types(before.conditions) <= _types(after.conditions)
    )


def _in_queue(said: tuple[Condition, ...] | None) -> bool:
    """Whether the group was ever let in, or placed, since it was last told that it is not."""
    return any(
        each.status == conditions.TRUE and each.type in {conditions.ENQUEUED, conditions.SCHEDULED}
        for each in said or ()
    )


def _types(said: tuple[Condition, ...] | None) -> set[str]:
    return {each.type for each in said or ()}


def _of_others(said: tuple[Condition, ...] | None) -> list[Condition]:
    """The conditions that others write."""
    return [each for each in said or () if each.type not in conditions.SCHEDULER_TYPES]
