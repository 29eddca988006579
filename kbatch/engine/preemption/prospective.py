"""Pods that do not exist yet: what is known of them once their group is in queue, and who makes room for them.

A group in queue is promised room before its pods exist. Where its pods are sure to come (kbatch makes them, or resumes
their Job) their templates say where they could stand, and so `preempt` can clear the room while they are being made.
See docs/decisions/0007-room-for-pods-to-come.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final

from kbatch.api.names import IN_QUEUE_GATE
from kbatch.api.objects import PodSpec
from kbatch.engine.decisions import TURN, Turn
from kbatch.engine.session.session import Session
from kbatch.engine.state.jobs import JobState
from kbatch.engine.state.to_come import pod_to_come, tasks_to_come
from kbatch.model.jobs import Job
from kbatch.model.makers import ToCome
from kbatch.model.tasks import Task
from kbatch.resources import Resources, subtract

MOST_FORESEEN: Final = 2_000
"""For more pods of one minimum no room is made before they exist: their places would be worked out twice, in every
cycle in which their group could come in queue."""

_AT_ONCE: Final = 500
"""So many tasks are made between two turns: a few milliseconds."""


def foreseen(session: Session, job: JobState) -> list[ToCome]:
    """The pods that the group's minimum waits for, where all of them are sure to come; else none.

    Only for a group that was promised room, has no pod on a node yet, and waits for no more than `MOST_FORESEEN`.
    """
    if job.bound or not job.job.outstanding or job.job.shadow:
        return []
    missing = job.missing() - len(job.waiting)
    if not 0 < missing <= MOST_FORESEEN:
        return []
    found = [pods for pods in job.job.to_come if pods.sure and _placeable(pods.template.pod.spec)]
    return found if sum(pods.count for pods in found) >= missing else []


def fresh(job: JobState) -> bool:
    """Whether the group came in queue in this very cycle, and for the first time since it last ran.

    Surplus makes room for pods to come only then: it could go again and again for pods that never come.
    """
    return job.in_queue and not job.attempts and not job.job.let_in


def behind(session: Session, name: str, asked: Iterable[str]) -> bool:
    """Whether another queue that is below its share would get what is cleared for a group of the queue `name`, in the
    dimensions that the group asks for: its own has had its part.

    Any queue that deserves more than it holds counts: its pods may be yet to come too.
    """
    queue = session.queue(name)
    if all(queue.allocated.get(name, 0) < queue.deserved.get(name, 0) for name in asked):
        return False
    return any(
        other.deserved.get(name, 0) > other.allocated.get(name, 0)
        for other in session.queues.values() if other is not queue for name in asked
    )  # fmt: skip


def awaited(session: Session, job: JobState, found: list[ToCome]) -> Generator[Turn, None, list[Task]]:
    """The pods to come as tasks that are in no model: enough of each template for the group's minimum."""
    most = job.missing()
    tasks: list[Task] = []
    for pods in found:
        spec = pods.template.pod.spec
        pod = pod_to_come(job, pods.template, spec)
        cls = session.model.classes.classify(pod)
        never = _never_preempts(session, job, spec)
        numbers = range(len(tasks), len(tasks) + min(most, pods.count))
        for task in tasks_to_come(
            job, pods.template.role, pod, cls, numbers, session.now, priority=job.priority, never_preempts=never
        ):
            tasks.append(task)
            if len(tasks) % _AT_ONCE == 0:
                yield TURN
    return tasks


def never_preempts(session: Session, job: JobState) -> bool:
    """Whether too few pods for the group's minimum may preempt, those to come included: nobody is evicted for it then.
    Pods of which nothing is known yet are taken to have the group's priority class.
    """
    missing, willing = job.missing(), 0
    if missing <= 0:
        return False
    for task in job.waiting:
        willing += not task.never_preempts
        if willing == missing:
            return False
    known = len(job.waiting)
    for pods in job.job.to_come if willing < missing else ():
        known += pods.count
        willing += 0 if _never_preempts(session, job, pods.template.pod.spec) else pods.count
    if willing < missing and known < missing and not _never_preempts(session, job, PodSpec()):
        willing += missing - known
    return willing < missing


def gives(job: Job) -> Resources:
    """What a group holds beyond its minimum and its minResources: about what its surplus pods could give."""
    spare = job.holding - job.minimum
    if job.shadow or not job.min_resources or spare <= 0 or job.disruption == "Never":
        return {}
    beyond = subtract(job.bound, job.min_resources)
    return {name: min(beyond.get(name, 0), held * spare // job.holding) for name, held in job.bound.items()}


def _placeable(spec: PodSpec) -> bool:
    """Whether its place can be foreseen: not that of pods which seek or shun others, or wait behind a gate."""
    affinity = spec.affinity
    couples = affinity is not None and bool(affinity.pod_affinity or affinity.pod_anti_affinity)
    gated = any(gate.name != IN_QUEUE_GATE for gate in spec.scheduling_gates or ())
    return not (couples or gated or spec.topology_spread_constraints)


def _never_preempts(session: Session, job: JobState, spec: PodSpec) -> bool:
    if spec.preemption_policy:
        return spec.preemption_policy == "Never"
    group = job.job.group
    name = spec.priority_class_name or (group.spec.priority_class_name if group is not None else "")
    found = session.model.priority_class(name)
    return found is not None and found.preemption_policy == "Never"
