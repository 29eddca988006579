"""What a group's priority is, and how far its pods bear it out.

Kubernetes decides who may use a PriorityClass when a pod is created: by quotas that are scoped by class, by the API
server's own list of restricted ones, by admission policies. Nobody decides so of what a PodGroup names. So a group
counts for no more than each of its pods was admitted with, and, while it has none, its class is a word that only orders
it among those that wait in its queue.
"""

from __future__ import annotations

from collections.abc import Collection

from kbatch.api.objects import PriorityClass
from kbatch.model.jobs import Job
from kbatch.model.others import OtherObjects
from kbatch.model.tasks import Task


def priority_of(job: Job, named: PriorityClass | None, others: OtherObjects) -> tuple[int, int]:
    """The priority by which a group is ordered, and the one for whose sake others may be evicted, never above it.

    The first is its class's value, and the lowest of its pods at most; without a class the latter.

    A pod that names no class and has no priority, as no API server leaves one, bounds nothing: a manifest that is
    simulated need not repeat in each pod what its group says.

    Args:
        job: the group, with its pods.
        named: the class that its PodGroup names; None for none.
        others: where the default class stands.
    """
    admitted: int | None = None
    highest: int | None = None
    live: Collection[Task] = job.tasks.values()
    if len(live) > 1:  # pods of one class name the same priority: of thousands that are alike one is looked at
        live = {task.cls: task for task in live if not task.terminal}.values()
    for task in live:
        if task.terminal:
            continue
        priority, spec = task.priority, task.pod.spec
        if highest is None or priority > highest:
            highest = priority
        if (spec.priority is not None or spec.priority_class_name) and (admitted is None or priority < admitted):
            admitted = priority
    if named is not None:
        value = named.value if admitted is None else min(named.value, admitted)
    else:
        value = admitted if admitted is not None else highest or 0
    if highest is not None:
        return value, value
    default = others.priority_class("")
    return value, min(value, default.value if default is not None else 0)
