"""The podgroup operator as a process: `kbatch-podgroup`.

Typed informers watch PodGroups, pods and Jobs; they and kopf, which watches PodGroups too, say which group to look at
again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import NoReturn

from kbatch.kube.events import EventRecorder
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import JOBS, PODGROUPS, PODS
from kbatch.metrics import EventMetrics, JobMetrics, ReconcileMetrics
from kbatch.process.measured import counts_of
from kbatch.process.operator import Ground, Operator, serve_operator
from kbatch.process.run import ProcessError, Runtime
from kbatch.process.run import main as run_process
from kbatch.process.scope import Scope
from kbatch.process.settings import LeaderSettings, flag
from operators.podgroup.controller import GATHER_SECONDS, Controller
from operators.podgroup.handlers import make_registry
from operators.podgroup.kinds import parse_kinds
from operators.podgroup.patience import Delays, Patience

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodGroupSettings(LeaderSettings):
    """The podgroup operator: keeps the phase, the counters and the end of each PodGroup."""

    resync_period: float = flag(300.0, "time between two full comparisons of all PodGroups")
    workers: int = flag(16, "PodGroups that are reconciled at the same time")
    object_kinds: str = flag(
        "", "kinds allowed in spec.objects, such as v1/Service=services,networking.k8s.io/v1/Ingress=ingresses"
    )
    member_backoff: float = flag(10.0, "time until a failed member is made again from its template; doubles each time")
    lift_gates: bool = flag(
        default=True, text="remove the scheduling gate kbatch.dev/in-queue from pods of groups in queue"
    )
    give_up_after: float = flag(
        300.0, "time until a group is over whose pods ended and whose controller, no Job, made no more"
    )


def main() -> NoReturn:
    """Run the process."""
    run_process("podgroup", PodGroupSettings, serve)


async def serve(runtime: Runtime[PodGroupSettings]) -> None:
    """Wait for the Lease, then operate."""
    await serve_operator(runtime, assemble)


def assemble(ground: Ground[PodGroupSettings]) -> Operator:
    """Everything that works while this process leads."""
    runtime, settings = ground.runtime, ground.runtime.settings
    try:
        object_kinds = parse_kinds(settings.object_kinds)
    except ValueError as error:
        raise ProcessError(f"--object-kinds: {error}") from None
    recorder = EventRecorder(ground.api, controller="kbatch-podgroup", instance=settings.resolved_identity())
    EventMetrics(runtime.registry, lambda: counts_of(recorder))
    controller = Controller(
        ground.api,
        ReconcileMetrics(runtime.registry),
        scheduler_name=settings.scheduler_name,
        recorder=recorder,
        member_backoff=settings.member_backoff,
        lift_gates=settings.lift_gates,
        object_kinds=object_kinds,
        patience=Patience(Delays()),
        gather=GATHER_SECONDS,
        give_up_after=settings.give_up_after,
        within=Scope(settings.namespaces, settings.scheduler_name).holds,
    )
    JobMetrics(runtime.registry).outside.set_function(lambda: float(len(controller.index.missed)))

    async def resync() -> None:
        while True:
            await asyncio.sleep(settings.resync_period)
            controller.resync()

    async def work() -> None:
        _log.info("synced: %d PodGroups", len(controller.index.groups))
        await controller.run(settings.workers)

    return Operator(
        handlers=make_registry(ground.crossing(controller.hear)),
        needed=[PODGROUPS],
        informers=[
            Informer(ground.client, PODGROUPS),
            Informer(ground.client, PODS, field_selector=f"spec.schedulerName={settings.scheduler_name}"),
            Informer(ground.client, JOBS),
        ],
        receive=controller.receive,
        work=work,
        beside=[resync],
        around=[recorder],
    )
