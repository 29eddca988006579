"""Writes into a pod to which node it is to go when it can: what a successor of this process goes by."""

from __future__ import annotations

import logging

from kbatch.engine import Nomination
from kbatch.kube.client import Api
from kbatch.kube.errors import ApiError, KubeError
from kbatch.kube.kinds import PODS, split_key
from kbatch.kube.writes import merge_patch
from kbatch.metrics import SchedulerMetrics
from operators.scheduler import FIELD_MANAGER

_log = logging.getLogger(__name__)


async def nominate(api: Api, nomination: Nomination, metrics: SchedulerMetrics) -> KubeError | None:
    """Write a nomination, or take one back where it names no node; why that could not be, or None."""
    namespace, name = split_key(nomination.pod)
    patch = {"metadata": {"uid": nomination.uid}, "status": {"nominatedNodeName": nomination.node}}
    try:
        await merge_patch(
            api,
            PODS,
            namespace=namespace,
            name=name,
            patch=patch,
            subresource="status",
            field_manager=FIELD_MANAGER,
        )
    except KubeError as error:
        metrics.nominations.labels("failed").inc()
        if not isinstance(error, ApiError) or error.status != 404:
            _log.warning("nomination of %s to %s: %s", nomination.pod, nomination.node, error)
        return error
    metrics.nominations.labels("written" if nomination.node else "withdrawn").inc()
    return None
