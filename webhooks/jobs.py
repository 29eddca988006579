"""What admission does to a new batch Job whose pods shall wait for their group: it is created suspended. Pure.

A Job counts when its pods are ours (`schedulerName`), and its template names a group or the Job a queue. With the label
`kbatch.dev/queue`, also an empty one, a Job that names no scheduler gets ours: it could not be set later. A Job that
waits for a queue without naming a group is given one of its own name; as the pods' template must say that name, a Job
with generateName gets its name here, in the API server's place.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from kbatch.api.names import GROUP_NAME_ANNOTATION, OWN_GROUP_ANNOTATION, SUSPENDED_ANNOTATION
from kbatch.api.objects import Job
from kbatch.model.jobs_release import held_back, named_group

MARK: Final = "true"
"""kbatch suspended it, and will resume it; once it has, the mark says `false`."""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX: Final = 8
_LONGEST: Final = 63


def generated_name(prefix: str) -> str:
    """A new name, as the API server would make it from generateName."""
    return prefix[: _LONGEST - _SUFFIX] + "".join(secrets.choice(_LETTERS) for _ in range(_SUFFIX))


def delay(job: Job, *, scheduler_name: str, new_name: str | None = None) -> dict[str, Any]:
    """The changes to a Job that is being created, as a merge patch; empty where it is none of ours.

    Args:
        job: as it was sent, the API server's defaults applied.
        scheduler_name: that of our pods.
        new_name: what a Job with generateName is to be called; None makes a name.
    """
    metadata, template = job.metadata, job.spec.template
    if not held_back(job, scheduler_name):
        return {}
    changes: dict[str, Any] = {}
    if template.spec.scheduler_name != scheduler_name:
        _put(changes, scheduler_name, "spec", "template", "spec", "schedulerName")
    if named_group(job) is None or _copied(job):
        name = metadata.name
        if not name:
            if not metadata.generate_name:
                return {}  # the API server refuses it
            name = new_name or generated_name(metadata.generate_name)
            _put(changes, name, "metadata", "name")
        _put(changes, name, "spec", "template", "metadata", "annotations", GROUP_NAME_ANNOTATION)
        _put(changes, MARK, "metadata", "annotations", OWN_GROUP_ANNOTATION)
    if not job.spec.suspend:
        _put(changes, True, "spec", "suspend")
        _put(changes, MARK, "metadata", "annotations", SUSPENDED_ANNOTATION)
    return changes


def _copied(job: Job) -> bool:
    """Whether it is a copy of a Job that had a group of its own, under another name: its template names that one's."""
    return OWN_GROUP_ANNOTATION in (job.metadata.annotations or {}) and named_group(job) != job.metadata.name


def _put(changes: dict[str, Any], value: object, *path: str) -> None:
    for key in path[:-1]:
        changes = changes.setdefault(key, {})
    changes[path[-1]] = value
