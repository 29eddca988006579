"""When a Job that was held back is let go, and the PodGroup that a Job with a queue but without a group gets.

A Job belongs to kbatch as long as it carries the mark (`SUSPENDED_ANNOTATION`), which says who suspended it:

* any value but `false`: kbatch did. It is resumed, and the mark turned to `false`, when its group is in queue.
* `false`: kbatch has resumed it. If it is suspended now, its user did that, and only its user resumes it. Where its
  group is sent back to wait and none of its pods has a node, kbatch suspends it again.
* no mark: nobody's business but the user's. A user who resumes a Job that kbatch holds takes it over: the mark goes.

A group whose minimum cannot be had without a Job that its user has suspended keeps no place: it is sent back to wait,
so that what was reserved for it serves others meanwhile. Resumed, such a Job waits for its turn again.

So each state can be read off the Job alone, and a process that starts anew goes on where another ended.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from kbatch.api.names import (
    API_VERSION,
    GROUP_NAME_ANNOTATION,
    JOB_SET_LABEL,
    OWN_GROUP_ANNOTATION,
    QUEUE_LABEL,
    SUSPENDED_ANNOTATION,
)
from kbatch.api.objects import Job
from kbatch.model.annotations import minimum_said
from kbatch.model.requests import effective_request
from kbatch.resources import check_limit, format_resources, scale

UNNAMED_SCHEDULERS: Final = frozenset({"", "default-scheduler"})
"""What a template says of which its user named no scheduler: the API server fills in its default before admission."""
RELEASED: Final = "false"
"""The mark's value once kbatch has resumed the Job."""
HELD: Final = "true"


class Step(Enum):
    """What is to be done about a Job."""

    NOTHING = "nothing"
    RELEASE = "resume it"
    HOLD = "suspend it again"
    LET_GO = "its user resumed it: take the mark away"


def step(job: Job, *, admitted: bool, withdrawn: bool) -> Step:
    """The step that a Job needs.

    Args:
        job: as the API server has it.
        admitted: its group exists and is in queue, or further.
        withdrawn: its group was sent back to wait, and none of its pods has a node.
    """
    mark = (job.metadata.annotations or {}).get(SUSPENDED_ANNOTATION)
    if mark is None or job.metadata.deletion_timestamp is not None or ended(job):
        return Step.NOTHING
    if mark == RELEASED:
        return Step.HOLD if withdrawn and not job.spec.suspend else Step.NOTHING
    if not job.spec.suspend:
        return Step.LET_GO
    return Step.RELEASE if admitted else Step.NOTHING


def suspended_by_user(job: Job) -> bool:
    """Whether its user holds the Job back, and nobody else may resume it."""
    mark = (job.metadata.annotations or {}).get(SUSPENDED_ANNOTATION, RELEASED)
    return job.spec.suspend and mark == RELEASED and not ended(job)


def patch(job: Job, wanted: Step, group: str) -> dict[str, Any]:
    """The merge patch that takes the step, with the Job's version as its precondition.

    `group` is the name of the Job's PodGroup; where the pods do not name it yet, they do from then on (the template of
    a suspended Job that never started may still change).
    """
    metadata: dict[str, Any] = {"resourceVersion": job.metadata.resource_version}
    if wanted is Step.LET_GO:
        return {"metadata": {**metadata, "annotations": {SUSPENDED_ANNOTATION: None}}}
    release = wanted is Step.RELEASE
    metadata["annotations"] = {SUSPENDED_ANNOTATION: RELEASED if release else HELD}
    spec: dict[str, Any] = {"suspend": not release}
    if release and named_group(job) != group:
        spec["template"] = {"metadata": {"annotations": {GROUP_NAME_ANNOTATION: group}}}
    return {"metadata": metadata, "spec": spec}


def group_of(job: Job, scheduler_name: str) -> str | None:
    """The name of the PodGroup that the Job's pods belong to, made for it or not; None where they belong to none."""
    return named_group(job) or (job.metadata.name if wants_group(job, scheduler_name) else None)


def named_group(job: Job) -> str | None:
    """The PodGroup that the Job's template names."""
    return (job.spec.template.metadata.annotations or {}).get(GROUP_NAME_ANNOTATION) or None


def group_of_its_own(job: Job) -> bool:
    """Whether its user has named no group: then it joins none that was not made for it, whatever its name."""
    return named_group(job) is None or OWN_GROUP_ANNOTATION in (job.metadata.annotations or {})


def names_queue(job: Job) -> bool:
    """Whether the Job is for a queue; an empty label, what a variable without a value gives, is the default queue."""
    return QUEUE_LABEL in (job.metadata.labels or {})


def held_back(job: Job, scheduler_name: str) -> bool:
    """Whether admission suspends a new Job: its pods wait for the group that their template names, or for the Job's
    queue. With a queue, one that names no scheduler counts as one of ours.
    """
    named = job.spec.template.spec.scheduler_name
    if names_queue(job):
        return named == scheduler_name or named in UNNAMED_SCHEDULERS
    return named == scheduler_name and named_group(job) is not None


def wants_group(job: Job, scheduler_name: str) -> bool:
    """Whether a PodGroup is to be made for the Job: it has a queue, and its pods name no other group.

    Not as long as its user holds it back: it would keep room for nobody. Nor for a Job whose pods exist already and
    name no group at all.
    """
    named = named_group(job)
    marked = SUSPENDED_ANNOTATION in (job.metadata.annotations or {})
    waits = marked or (not job.spec.suspend and named is not None)
    return (
        names_queue(job)
        and waits
        and named in (None, job.metadata.name)
        and job.spec.template.spec.scheduler_name == scheduler_name
        and not ended(job)
        and members(job) > 0
    )


def passed_by(job: Job) -> bool:
    """Whether a Job that names a queue went past it: no webhook saw its creation, and its pods start elsewhere.

    Its template cannot change any more, and nobody here touches what runs.
    """
    return (
        names_queue(job)
        and SUSPENDED_ANNOTATION not in (job.metadata.annotations or {})
        and job.spec.template.spec.scheduler_name in UNNAMED_SCHEDULERS
        and not job.spec.suspend
        and not ended(job)
    )


def members(job: Job) -> int:
    """How many pods the Job runs at one time."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    return parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)


def group_for(job: Job) -> dict[str, Any]:
    """The PodGroup for a Job with a queue, owned by the Job. Its minimum is all pods that run at one time, or as many
    of them as the annotation of their template says.

    Raises:
        QuantityError: what its pods ask for cannot be read, or is beyond 2^53 in all.
    """
    most = members(job)
    count = min(most, minimum_said(job.spec.template.metadata) or most)
    spec: dict[str, Any] = {"minMember": count}
    if queue := (job.metadata.labels or {}).get(QUEUE_LABEL):  # else the API server fills in the default queue
        spec["queue"] = queue
    asked = scale(effective_request(job.spec.template.spec), count)
    check_limit(asked)
    if asked:
        spec["minResources"] = format_resources(asked)
    if job.spec.template.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.template.spec.priority_class_name
    job_set = (job.metadata.labels or {}).get(JOB_SET_LABEL)
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            **({"labels": {JOB_SET_LABEL: job_set}} if job_set else {}),
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job.metadata.name,
                    "uid": job.metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": spec,
    }


def ended(job: Job) -> bool:
    """Whether the Job makes no more pods."""
    return any(
        condition.status == "True" and condition.type in {"Complete", "Failed"}
        for condition in job.status.conditions or ()
    )
