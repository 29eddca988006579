"""Which news no decision waits for.

Most of what a watch tells a busy scheduler is what it knew, or asked for, itself: that a pod came to the node that it
was bound to, that it has begun to run there, that somebody counted a group's pods. The model takes it over at once. But
a cycle is not begun for it: it is seen by the next one, which comes with other news, or after about a second.
"""

from __future__ import annotations

from kbatch.api import conditions
from kbatch.api.objects import Condition, Pod, PodGroup
from kbatch.kube.kinds import key_of
from kbatch.model.cluster import ClusterModel
from kbatch.model.events import Event, Upsert
from kbatch.model.tasks import Task

Known = Task | PodGroup | None
"""What the model says of the object of an event; None where it says nothing, or where such news always matter."""


def known_of(model: ClusterModel, event: Event) -> Known:
    """What the model says of it now."""
    if isinstance(event, Upsert):
        obj = event.obj
        if isinstance(obj, Pod):
            return model.tasks.get(key_of(obj.metadata.namespace, obj.metadata.name))
        if isinstance(obj, PodGroup):
            job = model.members.get(key_of(obj.metadata.namespace, obj.metadata.name))
            return job.group if job is not None else None
    return None


def is_quiet(before: Known, after: Known) -> bool:
    """Whether the news between the two can wait for the next cycle, whenever that comes."""
    if isinstance(before, Task) and isinstance(after, Task):
        return before is after or _stays(before, after)
    if isinstance(before, PodGroup) and isinstance(after, PodGroup):
        return before is after or _decided_alike(before, after)
    return False


def says_the_same(before: Known, after: Known) -> bool:
    """Whether an answer to our own write of a group's status tells nothing besides what was written: others may have
    changed the group just before, and the watch tells of that no more.
    """
    if isinstance(before, PodGroup) and isinstance(after, PodGroup):
        return before is after or (_asks_alike(before, after) and _of_others(before) == _of_others(after))
    return False


def _stays(before: Task, after: Task) -> bool:
    """Whether a pod holds its node as it did, though its bind may have been confirmed, or it may have started."""
    was, now = before.pod.metadata, after.pod.metadata
    return (
        bool(after.node)
        and before.node == after.node
        and before.uid == after.uid
        and before.cls is after.cls
        and not (before.terminal or after.terminal or before.terminating or after.terminating)
        and before.job == after.job
        and before.priority == after.priority
        and was.labels == now.labels
        and was.annotations == now.annotations
    )


def _decided_alike(before: PodGroup, after: PodGroup) -> bool:
    """Whether a group says the same of all that cycles go by: not so its phase, and who counts its pods."""
    one, other = before.status, after.status
    return (
        one.conditions == other.conditions
        and one.scheduling_attempts == other.scheduling_attempts
        and one.excess_charged == other.excess_charged
        and one.estimated_start == other.estimated_start
        and _asks_alike(before, after)
    )


def _asks_alike(before: PodGroup, after: PodGroup) -> bool:
    """The same, without what this process itself writes, and without conditions."""
    was, now = before.metadata, after.metadata
    one, other = before.status, after.status
    return (
        was.uid == now.uid
        and was.generation == now.generation
        and was.deletion_timestamp == now.deletion_timestamp
        and was.labels == now.labels
        and was.annotations == now.annotations
        and one.node_failures == other.node_failures
        and one.finished == other.finished
        and before.spec == after.spec
    )


def _of_others(group: PodGroup) -> list[Condition]:
    return [one for one in group.status.conditions or () if one.type not in conditions.SCHEDULER_TYPES]
