"""The queue operator as a process: `kbatch-queue`.

Typed informers feed the cluster model, with the same objects that the scheduler decides on; kopf watches Queues.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Final, NoReturn

from kbatch.api.names import DEFAULT_QUEUE
from kbatch.kube.errors import KubeError
from kbatch.kube.informer import Batch, Informer
from kbatch.kube.kinds import JOBS, NAMESPACES, NODES, PODGROUPS, PODS, QUEUES, RESOURCEQUOTAS, split_key
from kbatch.metrics import QueueMetrics, ReconcileMetrics
from kbatch.model.cluster import ClusterModel
from kbatch.process.operator import Ground, Operator, serve_operator
from kbatch.process.run import Runtime
from kbatch.process.run import main as run_process
from kbatch.process.scope import Scope
from kbatch.process.settings import LeaderSettings, flag
from operators.queue.access import AccessTable
from operators.queue.controller import Controller
from operators.queue.handlers import make_registry
from operators.queue.marks import QuotaMarks

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 2.0

GATHER_SECONDS: Final = 0.05
"""Between two looks at the sockets: it sees each change of each pod, and reports at most once in a second."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueueSettings(LeaderSettings):
    """The queue operator: reports what each Queue deserves, holds and asks for."""

    default_queue: str = flag(DEFAULT_QUEUE, "the Queue of groups that name none; created at the start if absent")
    access_table: str = flag(
        "", "NAMESPACE/NAME of the ConfigMap that tells policies which namespaces may use which Queue; if empty: none"
    )
    mark_quotas: bool = flag(
        default=False, text="label namespaces that have a ResourceQuota, so that their new pods are sent to the webhook"
    )


def main() -> NoReturn:
    """Run the process."""
    run_process("queue", QueueSettings, serve, gather=GATHER_SECONDS)


async def serve(runtime: Runtime[QueueSettings]) -> None:
    """Wait for the Lease, then operate."""
    await serve_operator(runtime, assemble)


def assemble(ground: Ground[QueueSettings]) -> Operator:
    """Everything that works while this process leads."""
    runtime, settings = ground.runtime, ground.runtime.settings
    metrics = ReconcileMetrics(runtime.registry)
    model = ClusterModel(settings.scheduler_name, settings.default_queue)
    controller = Controller(ground.api, model, QueueMetrics(runtime.registry), metrics)
    access = AccessTable(ground.api, *split_key(settings.access_table), metrics) if settings.access_table else None
    scope = Scope(settings.namespaces, settings.scheduler_name)
    marks = QuotaMarks(ground.api, metrics, within=scope.holds) if settings.mark_quotas else None

    async def ensure_default() -> None:
        while True:
            try:
                await controller.ensure_queue(settings.default_queue)
            except KubeError as error:
                _log.warning("making the Queue %s: %s", settings.default_queue, error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    keepers = [keeper for keeper in (access, marks) if keeper is not None]

    def receive(batch: Batch) -> None:
        for keeper in keepers:
            keeper.receive(batch)
        controller.receive(batch)

    async def work() -> None:
        _log.info("synced: %d Queues", len(controller.model.queues))
        async with asyncio.TaskGroup() as group:
            for one in (controller, *keepers):
                group.create_task(one.run(), name=type(one).__name__)

    return Operator(
        handlers=make_registry(ground.crossing(controller.hint)),
        needed=[QUEUES, PODGROUPS],
        # Finished pods too, as the scheduler: what a group still asks for depends on what of it has succeeded. And
        # Jobs: a group asks for the pods that they will make. And namespaces: a group asks for nothing in a queue that
        # is not open to its own.
        informers=[
            *(Informer(ground.client, kind) for kind in (QUEUES, PODGROUPS, NODES, PODS, JOBS, NAMESPACES)),
            *([Informer(ground.client, RESOURCEQUOTAS)] if marks is not None else []),
        ],
        receive=scope.over(receive),
        work=work,
        first=ensure_default,
    )
