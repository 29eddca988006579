"""Why the pods of a group are not made: what the API server answered to the controller of its Jobs."""

from __future__ import annotations

from typing import Final

from kbatch.cli.events import newest
from kbatch.cli.held import all_jobs
from kbatch.kube.client import Api
from kbatch.model.jobs_release import ended, named_group

_REFUSED: Final = "FailedCreate"
_OF_MAKING: Final = frozenset({_REFUSED, "SuccessfulCreate"})
"""Reasons of the Events of Kubernetes' Job controller on its attempts to create pods."""
_MOST: Final = 3
"""Of so many Jobs at most it is asked."""


async def refused_pods(client: Api, namespace: str, group: str) -> list[str]:
    """A line for each Job of a group whose last attempt to create pods was refused.

    Raises:
        KubeError: the cluster does not answer.
    """
    jobs = [job for job in await all_jobs(client, namespace) if named_group(job) == group]
    found = []
    for job in [job for job in jobs if not (job.spec.suspend or ended(job))][:_MOST]:
        last = await newest(client, "Job", job.metadata, lambda event: event.get("reason") in _OF_MAKING)
        if last is not None and last[0] == _REFUSED:
            found.append(f"Job {job.metadata.name} could not create pods: {last[1]}")
    return found
