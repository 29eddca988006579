"""The queue operator as a process: `kbatch-queue`.

Typed informers feed the cluster model, with the same objects that the scheduler decides on; kopf watches Queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import Final, NoReturn

from kbatch.api.names import DEFAULT_QUEUE
from kbatch.kube.client import Client
from kbatch.kube.credentials import Credentials, load_credentials
from kbatch.kube.errors import KubeError
from kbatch.kube.informer import Informer
from kbatch.kube.kinds import NODES, PODGROUPS, PODS, QUEUES
from kbatch.kube.lease import Elector
from kbatch.metrics import QueueMetrics, ReconcileMetrics, RequestMetrics, WatchMetrics
from kbatch.model.cluster import ClusterModel
from kbatch.process.feed import Feed
from kbatch.process.kopf_host import KopfHost, operator_settings
from kbatch.process.leading import elector_of, fenced, while_active
from kbatch.process.measured import Measured
from kbatch.process.preflight import Preflight
from kbatch.process.run import Runtime, before_stop, settle_memory, while_leading
from kbatch.process.run import main as run_process
from kbatch.process.settings import LeaderSettings, flag
from operators.queue.controller import Controller
from operators.queue.handlers import DOMAIN, make_registry

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class QueueSettings(LeaderSettings):
    """The queue operator: reports what each Queue deserves, holds and asks for."""

    default_queue: str = flag(DEFAULT_QUEUE, "the Queue of groups that name none; made at the start if absent")


def main() -> NoReturn:
    """Run the process."""
    run_process("queue", QueueSettings, serve)


async def serve(runtime: Runtime[QueueSettings]) -> None:
    """Wait for the Lease, then operate."""
    credentials = load_credentials(runtime.settings.kubeconfig or None)
    async with Client(credentials, user_agent=runtime.user_agent) as client:
        elector = elector_of(runtime, client)
        operator = _Operator(runtime, client, elector, credentials)
        await while_leading(runtime, elector, operator.run)


class _Operator:
    """Everything that works while this process leads."""

    def __init__(
        self, runtime: Runtime[QueueSettings], client: Client, elector: Elector | None, credentials: Credentials
    ) -> None:
        self._runtime = runtime
        settings = runtime.settings
        self._preflight = Preflight(client, needed=[QUEUES, PODGROUPS], listed=[QUEUES, PODGROUPS, NODES, PODS])
        self._controller = Controller(
            fenced(Measured(client, RequestMetrics(runtime.registry)), elector),
            ClusterModel(settings.scheduler_name, settings.default_queue),
            QueueMetrics(runtime.registry),
            ReconcileMetrics(runtime.registry),
        )
        self._feed = Feed(
            [
                Informer(client, QUEUES),
                Informer(client, PODGROUPS),
                Informer(client, NODES),
                # Finished pods too, as the scheduler: what a group still asks for depends on what of it has succeeded.
                Informer(client, PODS),
            ],
            self._controller.receive,
            WatchMetrics(runtime.registry),
        )
        self._kopf = KopfHost(
            name="queue",
            registry=make_registry(self._changed),
            settings=operator_settings(DOMAIN),
            credentials=credentials,
            user_agent=runtime.user_agent,
        )
        self._loop = asyncio.get_running_loop()
        while_active(runtime.health, elector, "crds", self._preflight.check)
        while_active(runtime.health, elector, "synced", self._feed.unsynced)
        while_active(runtime.health, elector, "kopf", self._kopf.check)
        runtime.health.live("watches", self._feed.stale)

    async def run(self) -> None:
        """Operate until a stop is asked for."""
        await before_stop(self._operate(), self._runtime.stopping)

    async def _operate(self) -> None:
        await self._preflight.wait()
        await self._ensure_default()
        async with self._kopf, asyncio.TaskGroup() as group:
            group.create_task(self._kopf.ended(), name="kopf")
            group.create_task(self._feed.run(), name="feed")
            await self._feed.synced.wait()
            settle_memory()
            _log.info("synced: %d Queues", len(self._controller.model.queues))
            group.create_task(self._controller.run(), name="reports")

    async def _ensure_default(self) -> None:
        while True:
            try:
                await self._controller.ensure_queue(self._runtime.settings.default_queue)
            except KubeError as error:
                _log.warning("making the Queue %s: %s", self._runtime.settings.default_queue, error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return

    def _changed(self) -> None:
        """From kopf's thread into ours; while the process ends there may be no loop any more."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._controller.hint)
