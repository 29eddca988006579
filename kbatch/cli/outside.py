"""Jobs that went past the queue that they name: no webhook saw their creation, and so no PodGroup stands for them."""

from __future__ import annotations

from kbatch.api.names import QUEUE_LABEL
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError
from kbatch.kube.kinds import JOBS, key_of
from kbatch.kube.lists import list_all
from kbatch.model.jobs_release import passed_by


async def outside_queues(client: Api, namespace: str | None) -> list[str]:
    """Their names, `namespace/name`; none where Jobs may not be listed.

    Raises:
        KubeError: the cluster does not answer.
    """
    try:
        jobs = await list_all(client, JOBS, namespace=namespace, label_selector=QUEUE_LABEL)
    except ApiError as error:
        if error.status not in {403, 404}:
            raise
        return []
    return sorted(key_of(job.metadata.namespace, job.metadata.name) for job in jobs if passed_by(job))
