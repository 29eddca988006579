"""Job sets: the PodGroups and Jobs of one queue that carry the same label, and what belongs to them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbatch.api.names import DEFAULT_QUEUE, GROUP_NAME_ANNOTATION, JOB_SET_LABEL, QUEUE_LABEL
from kbatch.api.objects import Job, Metadata, Pod, PodGroup
from kbatch.kube.kinds import key_of
from kbatch.model.jobs_release import ended, named_group, suspended_by_user
from kbatch.model.phase import OVER


class UnknownNameError(Exception):
    """What was named is not there, or there are several of that name; says which."""


@dataclass(slots=True)
class JobSet:
    """Work that is managed as one.

    Attributes:
        groups: with its label, or of a Job that has it. jobs: with its label, or of such a group.
    """

    queue: str
    name: str
    groups: list[PodGroup] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)

    def jobs_of(self, group: PodGroup) -> list[Job]:
        """The Jobs of the set whose pods belong to the group."""
        return [job for job in self.jobs if _of(job, group)]

    def jobs_without_group(self) -> list[Job]:
        """The Jobs of the set whose pods belong to no group of it."""
        return [job for job in self.jobs if not any(_of(job, group) for group in self.groups)]

    def json(self) -> dict[str, Any]:
        """As one object of the output."""
        statuses = [group.status for group in self.groups]
        suspended = sum(map(suspended_by_user, self.jobs)) + sum(group.spec.suspend for group in self.groups)
        return {
            "queue": self.queue,
            "name": self.name,
            "namespaces": sorted(
                {group.metadata.namespace for group in self.groups} | {job.metadata.namespace for job in self.jobs}
            ),
            "groups": len(self.groups),
            "phases": dict(sorted(Counter(status.phase or "Pending" for status in statuses).items())),
            "jobs": len(self.jobs),
            "suspended": suspended,
            "running": sum(status.running for status in statuses),
            "pending": sum(status.pending for status in statuses),
            "succeeded": sum(status.succeeded for status in statuses),
            "failed": sum(status.failed for status in statuses),
        }


def job_sets(groups: Sequence[PodGroup], jobs: Sequence[Job], default_queue: str = DEFAULT_QUEUE) -> list[JobSet]:
    """All job sets, by queue and name; what is in them by namespace and name.

    `default_queue`: that of Jobs which name none, and have no group yet.
    """
    group_of = _groups_of(groups, jobs)
    labels = {group.metadata.uid: _label(group.metadata) for group in groups}
    for job in jobs:
        group = group_of.get(job.metadata.uid)
        if group is not None and not labels[group.metadata.uid]:
            labels[group.metadata.uid] = _label(job.metadata)
    found: dict[tuple[str, str], JobSet] = {}

    def put(queue: str, name: str) -> JobSet:
        return found.setdefault((queue, name), JobSet(queue, name))

    for group in sorted(groups, key=_key):
        if name := labels[group.metadata.uid]:
            put(group.spec.queue, name).groups.append(group)
    for job in sorted(jobs, key=_key):
        group = group_of.get(job.metadata.uid)
        if name := _label(job.metadata) or (labels[group.metadata.uid] if group is not None else ""):
            queue = group.spec.queue if group is not None else (job.metadata.labels or {}).get(QUEUE_LABEL)
            put(queue or default_queue, name).jobs.append(job)
    return [found[key] for key in sorted(found)]


def choose(sets: Iterable[JobSet], name: str, queue: str | None) -> JobSet:
    """The job set of that name, of this queue if one is given.

    Raises:
        UnknownNameError: there is none, or there are several.
    """
    found = [one for one in sets if one.name == name and queue in (None, one.queue)]
    if not found:
        raise UnknownNameError(f"there is no job set {name}" + (f" in queue {queue}" if queue else ""))
    if len(found) > 1:
        queues = ", ".join(one.queue for one in found)
        raise UnknownNameError(f"there is a job set {name} in each of the queues {queues}: say which with --queue")
    return found[0]


def plain_pods(groups: Sequence[PodGroup], pods: Iterable[Pod]) -> tuple[list[Pod], list[Pod]]:
    """Pods that name one of the groups: those that nobody controls, and those that others than Jobs and groups do."""
    keys = {_key(group) for group in groups}
    alone: list[Pod] = []
    foreign: list[Pod] = []
    for pod in sorted(pods, key=_key):
        name = (pod.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION, "")
        if (pod.metadata.namespace, name) not in keys or pod.metadata.deletion_timestamp is not None:
            continue
        controller = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
        if controller is None:
            alone.append(pod)
        elif controller.kind not in {"Job", "PodGroup"}:
            foreign.append(pod)
    return alone, foreign


def over(one: PodGroup | Job) -> bool:
    """Whether it has ended, so that nothing is left to be done about it."""
    return ended(one) if isinstance(one, Job) else one.status.phase in OVER


def owned_by(group: PodGroup, jobs: Iterable[Job]) -> bool:
    """Whether one of these Jobs owns the group, so that it goes with it."""
    uids = {job.metadata.uid for job in jobs}
    return any(owner.uid in uids for owner in group.metadata.owner_references)


def _groups_of(groups: Sequence[PodGroup], jobs: Sequence[Job]) -> Mapping[str, PodGroup]:
    """The group of each Job that has one, by the Job's uid."""
    owners = {owner.uid: group for group in groups for owner in group.metadata.owner_references}
    named = {key_of(group.metadata.namespace, group.metadata.name): group for group in groups}
    found: dict[str, PodGroup] = {}
    for job in jobs:
        name = named_group(job)
        group = owners.get(job.metadata.uid) or (named.get(key_of(job.metadata.namespace, name)) if name else None)
        if group is not None:
            found[job.metadata.uid] = group
    return found


def _of(job: Job, group: PodGroup) -> bool:
    same = job.metadata.namespace == group.metadata.namespace and named_group(job) == group.metadata.name
    return same or owned_by(group, [job])


def _label(metadata: Metadata) -> str:
    return (metadata.labels or {}).get(JOB_SET_LABEL, "")


def _key(one: PodGroup | Job | Pod) -> tuple[str, str]:
    return one.metadata.namespace, one.metadata.name
