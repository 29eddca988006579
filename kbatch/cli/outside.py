"""Jobs that went past the queue that they name: no webhook saw their creation, and so no PodGroup stands for them."""

from __future__ import annotations

from collections.abc import Iterable

from kbatch.api.objects import Job
from kbatch.kube.kinds import key_of
from kbatch.model.jobs_release import passed_by


def outside_queues(jobs: Iterable[Job]) -> list[str]:
    """Their names, `namespace/name`."""
    return sorted(key_of(job.metadata.namespace, job.metadata.name) for job in jobs if passed_by(job))
