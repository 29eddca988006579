"""Jobs that kbatch holds suspended: those for which no PodGroup stands, and how any can start without kbatch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec

from kbatch.api.names import GROUP_NAME_ANNOTATION, QUEUE_LABEL, SUSPENDED_ANNOTATION
from kbatch.api.objects import Job, PodGroup
from kbatch.api.reasons import PodGroupNotFound
from kbatch.cli.events import newest
from kbatch.cli.permitted import if_readable, if_there
from kbatch.kube.client import Api
from kbatch.kube.kinds import JOBS, key_of
from kbatch.kube.lists import list_all
from kbatch.model.jobs_release import (
    HELD,
    UNNAMED_SCHEDULERS,
    ended,
    group_of_its_own,
    members,
    named_group,
    names_queue,
    passed_by,
    suspended_by_user,
)

_TROUBLES: Final = frozenset({"PodGroupNotFound", "PodGroupRefused", "PodGroupNameTaken", "RequestUnreadable"})
"""Reasons of the Events that the podgroup operator writes on a Job of which no PodGroup comes to stand."""

_NEVER_SENT: Final = frozenset({"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"})
_OF_THE_CONTROLLER: Final = frozenset(
    {"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}
)


def is_held(job: Job) -> bool:
    """Whether kbatch suspended it and has not resumed it."""
    mark = (job.metadata.annotations or {}).get(SUSPENDED_ANNOTATION)
    return mark == HELD and job.spec.suspend and job.metadata.deletion_timestamp is None and not ended(job)


async def all_jobs(client: Api, namespace: str | None) -> list[Job]:
    """The Jobs of a namespace, or of all; none where they may not be listed.

    Raises:
        KubeError: the cluster does not answer.
    """
    return await if_readable(list_all(client, JOBS, namespace=namespace)) or []


def without_group(jobs: Iterable[Job], groups: Mapping[str, PodGroup]) -> list[Job]:
    """Those that are held although no PodGroup of these (by `namespace/name`) is theirs, by namespace and name."""
    found = [job for job in jobs if is_held(job) and not is_its_group(job, groups.get(group_key(job)))]
    return sorted(found, key=lambda job: (job.metadata.namespace, job.metadata.name))


def is_its_group(job: Job, group: PodGroup | None) -> bool:
    """Whether a PodGroup of the name that the Job waits for is its own, if that is one that kbatch makes for it."""
    if group is None:
        return False
    return not group_of_its_own(job) or any(owner.uid == job.metadata.uid for owner in group.metadata.owner_references)


def group_key(job: Job) -> str:
    """`namespace/name` of the PodGroup that a held Job waits for."""
    return key_of(job.metadata.namespace, named_group(job) or job.metadata.name)


def why_no_group(job: Job, *, taken: bool = False) -> tuple[str, str]:
    """Reason and message for a held Job without a PodGroup, from the Job alone. `taken`: another one has its name."""
    if taken:
        note = f"PodGroup {group_key(job)} exists and belongs to another; the Job waits for that name"
        return "PodGroupNameTaken", f"{note}: delete that PodGroup, or create the Job under another name"
    if _has_own_group(job):
        if not members(job):
            nothing = "parallelism is" if job.spec.parallelism == 0 else "completions are"
            return "NoPodGroup", f"no PodGroup is made for it: its {nothing} 0"
        return "NoPodGroup", "no PodGroup could be made for it yet; its Events say why"
    reason = PodGroupNotFound(group_key(job))
    return reason.code, reason.message


def why_not_held(job: Job, scheduler_name: str) -> str:
    """What is to be said of a Job that is not held and has no PodGroup. `scheduler_name`: of kbatch's scheduler."""
    theirs = job.spec.template.spec.scheduler_name
    if theirs not in {scheduler_name, *UNNAMED_SCHEDULERS}:
        note = f"its pods are for another scheduler, {theirs} (schedulerName of its template)"
        return f"{note}; kbatch's is {scheduler_name}"
    if passed_by(job):
        return "it bypassed the queue that it names: no webhook answered when it was created; create it again"
    if named := named_group(job):
        if suspended_by_user(job):
            if _has_own_group(job):
                return "its user has suspended it; its PodGroup is made once its user resumes it"
            return f"its user has suspended it; its pods name PodGroup {named}, which does not exist"
        return f"kbatch does not hold it; its pods name PodGroup {named}, which does not exist"
    return (
        f"kbatch does not hold it: its pods name no PodGroup (annotation {GROUP_NAME_ANNOTATION}), "
        f"and it names no queue (label {QUEUE_LABEL})"
    )


def _has_own_group(job: Job) -> bool:
    """Whether its PodGroup is one that kbatch makes for it."""
    return names_queue(job) and named_group(job) in (None, job.metadata.name)


async def told(client: Api, job: Job) -> tuple[str, str] | None:
    """Reason and message of the newest Event about why no PodGroup stands for the Job; None where none can be read, or
    none is to stand for it, as it is to have no pods.
    """
    if not members(job):
        return None
    return await newest(client, "Job", job.metadata, lambda event: event.get("reason") in _TROUBLES)


async def plain_manifests(client: Api, jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """These Jobs as manifests of Jobs that start at once, on the default scheduler, without a queue or a group.

    A Job's scheduler cannot be changed: they are for `kubectl replace --force`, which deletes and creates.

    Raises:
        KubeError: the cluster does not answer, or refuses.
    """
    made = []
    for job in jobs:
        path = JOBS.path(job.metadata.namespace, job.metadata.name)
        answer = await if_there(client.request("GET", path))
        if answer is not None and is_held(msgspec.json.decode(answer, type=Job)):  # else it is gone, or runs by now
            made.append(plain(msgspec.json.decode(answer)))
    return made


def plain(job: dict[str, Any]) -> dict[str, Any]:
    """The manifest of one Job, as `plain_manifests` says."""
    spec = {key: value for key, value in job["spec"].items() if key not in {"suspend", "selector"}}
    if spec.get("manualSelector"):
        spec["selector"] = job["spec"]["selector"]
    template = dict(spec["template"])
    template["metadata"] = _without(template.get("metadata") or {}, _OF_THE_CONTROLLER, {GROUP_NAME_ANNOTATION})
    template["spec"] = {key: value for key, value in template["spec"].items() if key != "schedulerName"}
    metadata = {key: value for key, value in job["metadata"].items() if key not in _NEVER_SENT}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _without(metadata, {QUEUE_LABEL, *_OF_THE_CONTROLLER}, {SUSPENDED_ANNOTATION}),
        "spec": {**spec, "template": template},
    }


def _without(metadata: dict[str, Any], labels: Collection[str], annotations: Collection[str]) -> dict[str, Any]:
    """The metadata without these labels and annotations."""
    taken = {"labels": labels, "annotations": annotations}
    result = {key: value for key, value in metadata.items() if key not in taken}
    for key, gone in taken.items():
        left = {name: value for name, value in (metadata.get(key) or {}).items() if name not in gone}
        if left:
            result[key] = left
    return result
