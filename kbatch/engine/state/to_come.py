"""Pods that do not exist yet, as tasks: they are placed like those that do, and are in no model."""

from __future__ import annotations

from collections.abc import Iterator

from kbatch.api.objects import Metadata, Pod, PodSpec
from kbatch.engine.state.jobs import JobState
from kbatch.model.makers import Template
from kbatch.model.tasks import Task, TaskClass


def pod_to_come(job: JobState, template: Template, spec: PodSpec) -> Pod:
    """One pod of a template of the group, with a spec that may say less than the template's."""
    meta = template.pod.metadata
    name = job.job.name.partition("/")[2]
    metadata = Metadata(name=name, namespace=job.job.namespace, labels=meta.labels, annotations=meta.annotations)
    return Pod(metadata=metadata, spec=spec)


def tasks_to_come(
    job: JobState,
    role: str,
    pod: Pod,
    cls: TaskClass,
    numbers: range,
    now: int,
    *,
    priority: int = 0,
    never_preempts: bool = False,
) -> Iterator[Task]:
    """A task for each of the numbers, which tell the awaited tasks of the group apart; no pod has such a key."""
    for number in numbers:
        key = f"{job.key}#{number}"
        yield Task(key, "", pod, cls, job.key, role, now, priority=priority, never_preempts=never_preempts)
